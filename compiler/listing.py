"""The operators of a Relax module as plain data: name, shapes of what goes in and comes out, attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import IRModule, relax

from ..schedules.words.tvm_types import Expr, Type

if TYPE_CHECKING:
    from ..targets.plain import Json


def operators(module: IRModule, composites: bool = False) -> list[Json]:
    """One entry for each operator call of ``main``, in order; tuples and their fields are no operators.

    With ``composites``, what Relax has no single operator for (a convolution with its bias, an attention) is one entry
    all the same, whose ``members`` are the names of the operators that make it up.
    """
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
    return _joined(module, listed) if composites else listed


def _joined(module: IRModule, listed: list[Json]) -> list[Json]:
    """The list with one entry, in the place of the last member, for each composite."""
    from ..passes.simplify.composites import composites
    from ..passes.simplify.convert import Unreadable, read

    try:
        found = composites(read(module["main"]))
    except Unreadable:
        return listed
    by_name = {entry["name"]: entry for entry in listed}
    ends: Json = {}
    inner: set[str] = set()
    for each in found:
        members = [m.name for m in each.members]
        if not by_name.keys() >= set(members):
            continue
        ends[members[-1]] = each
        inner.update(members[:-1])
    result = []
    for entry in listed:
        composite = ends.get(entry["name"])
        if composite is not None:
            anchor = next((m for m in composite.members if m.op == composite.operator), None)
            own = by_name[anchor.name]["attributes"] if anchor is not None else {}
            entry = {
                "name": entry["name"],
                "operator": composite.operator,
                "inputs": [_render(i.ty) for i in composite.inputs],
                "outputs": entry["outputs"],
                "attributes": {**own, **composite.attributes},
                "members": [by_name[m.name]["operator"] for m in composite.members],
            }
        if entry["name"] not in inner:
            result.append(entry)
    return result


def operator_name(call: relax.Call) -> str:
    """``relax.nn.conv2d`` for an operator, the function's name for a call of one."""
    return str(getattr(call.op, "name", None) or getattr(call.op, "name_hint", call.op))


def _type(expr: Expr) -> Type:
    type_ = expr.ty
    if isinstance(type_, relax.TupleType):
        return [_render(field) for field in type_.fields]
    return _render(type_)


def _render(type_: Type) -> str:
    if isinstance(type_, relax.TensorType):
        shape = ", ".join(str(_plain(d)) for d in type_.shape) if type_.shape is not None else "?"
        return f"{getattr(type_.dtype, 'dtype', type_.dtype)}[{shape}]"
    return str(type_)


def _attributes(call: relax.Call) -> Json:
    """Attributes by name: of a dictionary as it is, of an operator's own attribute type through its field list."""
    attrs = call.attrs
    if attrs is None:
        return {}
    if hasattr(attrs, "items"):
        return {str(k): _plain(v) for k, v in attrs.items()}
    info = getattr(type(attrs), "__tvm_ffi_type_info__", None)
    return {f.name: _plain(getattr(attrs, f.name)) for f in (info.fields if info else ())}


def _plain(value: Any) -> object:
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if hasattr(value, "value") and not isinstance(value, (list, tuple)):
        return _plain(value.value)
    if hasattr(value, "__len__") and hasattr(value, "__getitem__"):
        return [_plain(v) for v in value]
    return str(value)
