"""The operators of a Relax module as plain data: name, shapes of what goes in and comes out, attributes."""

from __future__ import annotations

from typing import Any

from tvm import IRModule, relax


def operators(module: IRModule) -> list[dict[str, Any]]:
    """One entry for each operator call of ``main``, in order; tuples and their fields are no operators."""
    listed = []
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            call = binding.value
            if isinstance(call, relax.Call):
                listed.append(
                    {
                        "name": str(binding.var.name),
                        "operator": operator_name(call),
                        "inputs": [_type(a) for a in call.args],
                        "outputs": _type(binding.var),
                        "attributes": _attributes(call),
                    }
                )
    return listed


def operator_name(call: relax.Call) -> str:
    """``relax.nn.conv2d`` for an operator, the function's name for a call of one."""
    return str(getattr(call.op, "name", None) or getattr(call.op, "name_hint", call.op))


def _type(expr: Any) -> Any:
    type_ = expr.ty
    if isinstance(type_, relax.TupleType):
        return [_render(field) for field in type_.fields]
    return _render(type_)


def _render(type_: Any) -> str:
    if isinstance(type_, relax.TensorType):
        shape = ", ".join(str(_plain(d)) for d in type_.shape) if type_.shape is not None else "?"
        return f"{getattr(type_.dtype, 'dtype', type_.dtype)}[{shape}]"
    return str(type_)


def _attributes(call: relax.Call) -> dict[str, Any]:
    """Attributes by name: of a dictionary as it is, of an operator's own attribute type through its field list."""
    attrs = call.attrs
    if attrs is None:
        return {}
    if hasattr(attrs, "items"):
        return {str(k): _plain(v) for k, v in attrs.items()}
    info = getattr(type(attrs), "__tvm_ffi_type_info__", None)
    return {f.name: _plain(getattr(attrs, f.name)) for f in (info.fields if info else ())}


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if hasattr(value, "value") and not isinstance(value, (list, tuple)):
        return _plain(value.value)
    if hasattr(value, "__len__") and hasattr(value, "__getitem__"):
        return [_plain(v) for v in value]
    return str(value)
