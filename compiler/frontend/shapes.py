"""The model's run-time inputs with every dimension fixed, from the model and the shapes that the user gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from ...errors import ShapeError, UnsupportedError
from ..spec import TensorSpec
from .functions import dtype_name
from .value import PLAIN

Dimension = "int | str | None"


def run_time_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Graph inputs that are not initialisers as well."""
    constants = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    return [i for i in graph.input if i.name not in constants]


def declared_shape(info: onnx.ValueInfoProto) -> list[int | str | None] | None:
    """Fixed dimensions as integers, open ones as their name or None; None when not even the rank is known."""
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else (d.dim_param or None)
        for d in tensor.shape.dim
    ]


def fixed_inputs(
    graph: onnx.GraphProto, shapes: Mapping[str, Sequence[int]] | None
) -> tuple[TensorSpec, ...]:
    """One TensorSpec per run-time input.

    A name in ``shapes`` that the model lacks, a wrong rank, a contradicted dimension and a dimension left open are
    ShapeErrors. A symbolic dimension fixed for one input is fixed for all.
    """
    inputs = run_time_inputs(graph)
    shapes = dict(shapes or {})
    names = [i.name for i in inputs]
    unknown = [n for n in shapes if n not in names]
    if unknown:
        raise ShapeError(
            f"a shape was given for {_quoted(unknown)}, but the model's inputs are {_quoted(names) or 'none'}"
        )
    symbols: dict[str, tuple[int, str]] = {}
    resolved: list[tuple[onnx.ValueInfoProto, str, list[int | str | None] | None]] = []
    for info in inputs:
        if info.type.WhichOneof("value") != "tensor_type":
            kind = (info.type.WhichOneof("value") or "untyped").removesuffix("_type")
            raise UnsupportedError(f"input '{info.name}' is a {kind}; only tensors are supported")
        dtype = dtype_name(info.type.tensor_type.elem_type)
        if dtype not in PLAIN:
            kind = onnx.TensorProto.DataType.Name(info.type.tensor_type.elem_type)
            raise UnsupportedError(f"input '{info.name}' holds {kind} data, which is not supported")
        declared = declared_shape(info)
        if info.name in shapes:
            declared = _apply(info.name, declared, shapes[info.name], symbols)
        resolved.append((info, dtype, declared))
    specs, open_ = [], []
    for info, dtype, declared in resolved:
        dims = None if declared is None else [symbols[d][0] if d in symbols else d for d in declared]
        if dims is None or not all(isinstance(d, int) for d in dims):
            open_.append((info.name, dims))
        else:
            specs.append(TensorSpec(info.name, dtype, tuple(int(d) for d in dims if d is not None)))
    if open_:
        raise ShapeError(_open_message(open_))
    return tuple(specs)


def _apply(
    name: str,
    declared: list[int | str | None] | None,
    given: Sequence[int],
    symbols: dict[str, tuple[int, str]],
) -> list[int | str | None]:
    dims = [int(d) for d in given]
    if any(d < 0 for d in dims):
        raise ShapeError(f"the shape given for input '{name}', {_text(dims)}, has a negative dimension")
    if declared is None:
        return list(dims)
    if len(declared) != len(dims):
        raise ShapeError(
            f"the shape given for input '{name}', {_text(dims)}, has {len(dims)} dimensions; "
            f"the model has {len(declared)}: {_text(declared)}"
        )
    for axis, (old, new) in enumerate(zip(declared, dims)):
        if isinstance(old, int) and old != new:
            raise ShapeError(
                f"the shape given for input '{name}', {_text(dims)}, contradicts the model's {_text(declared)} "
                f"in dimension {axis}: {new} is not {old}"
            )
        if isinstance(old, str):
            first, where = symbols.setdefault(old, (new, name))
            if first != new:
                raise ShapeError(
                    f"dimension '{old}' is {first} in the shape given for input '{where}' "
                    f"and {new} in that for '{name}'"
                )
    return list(dims)


def _open_message(open_: Sequence[tuple[str, list[int | str | None] | None]]) -> str:
    listed = "; ".join(
        f"'{name}' has {_text(dims)}" if dims is not None else f"'{name}' has no shape at all"
        for name, dims in open_
    )
    name, dims = open_[0]
    example = ",".join(
        str(d if isinstance(d, int) else _guess(d, i)) for i, d in enumerate(dims or [1, 3, 224, 224])
    )
    return (
        f"dimensions are open: {listed}; fix them, for instance with --shape {name}={example} "
        f"(or shapes={{'{name}': ({example}{',' if ',' not in example else ''})}})"
    )


def _guess(_dim: str | None, axis: int) -> int:
    return 1 if axis == 0 else (224 if axis > 1 else 128)


def _text(dims: Sequence[int | str | None]) -> str:
    return "[" + ", ".join("?" if d is None else str(d) for d in dims) + "]"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{n}'" for n in names)
