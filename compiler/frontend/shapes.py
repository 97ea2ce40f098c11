"""The model's run-time inputs with every dimension fixed, from the model and the shapes that the user gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from ...errors import ShapeError, UnsupportedError
from ..spec import TensorSpec
from .dims import INFINITY, Dim, Learned
from .functions import dtype_name, element_name
from .value import PLAIN

MOST = 1 << 31  # elements of a tensor: kernels count in 32 bits


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


class Symbols:
    """The open dimensions of one model by name, and what the import has learned of them so far."""

    def __init__(self) -> None:
        self.known: dict[str, Dim | int] = {}
        self.bounds: dict[str, tuple[int, float]] = {}

    def __getitem__(self, name: str) -> Dim | int:
        if name not in self.known:
            self.known[name] = Dim.symbol(name, *self.bounds.get(name, (0, INFINITY)))
        return self.known[name]

    def learn(self, fact: Learned) -> str:
        """Takes ``fact`` in, for the import to start again; what it says, for a note."""
        if fact.same_as is not None:
            for name, old in [*self.known.items()]:
                if str(old) == fact.symbol:
                    self.known[name] = fact.same_as
            return f"dimension '{fact.symbol}' is taken to be {fact.same_as}, {fact.why}"
        low, high = self.bounds.get(fact.symbol, (0, INFINITY))
        low, high = max(low, fact.low), min(high, fact.high)
        if low > high:
            raise ShapeError(f"dimension '{fact.symbol}' would have to be at least {low} and at most {high}")
        self.bounds[fact.symbol] = (low, high)
        symbol = Dim.symbol(fact.symbol, low, high)
        self.known = {n: symbol if str(d) == fact.symbol else d for n, d in self.known.items()}
        limit = f"at least {fact.low}" if fact.high == INFINITY else f"at most {fact.high}"
        return f"dimension '{fact.symbol}' is {limit}, {fact.why}"


def fixed_inputs(
    graph: onnx.GraphProto, shapes: Mapping[str, Sequence[int]] | None, open_: Symbols | None = None
) -> tuple[TensorSpec, ...]:
    """One TensorSpec per run-time input.

    A name in ``shapes`` that the model lacks, a wrong rank, a contradicted dimension and a dimension left open are
    ShapeErrors. A symbolic dimension fixed for one input is fixed for all. With ``open_`` dimensions may stay open: a
    name stands for the same symbol everywhere, a nameless one gets a name.
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
            kind = element_name(info.type.tensor_type.elem_type)
            raise UnsupportedError(f"input '{info.name}' holds {kind} data, which is not supported")
        declared = declared_shape(info)
        if info.name in shapes:
            declared = _apply(info.name, declared, shapes[info.name], symbols)
        resolved.append((info, dtype, declared))
    specs, left = [], []
    for info, dtype, declared in resolved:
        dims = None if declared is None else [symbols[d][0] if d in symbols else d for d in declared]
        if dims is not None and open_ is not None:
            named = [f"{info.name}_{a}" if d is None else d for a, d in enumerate(dims)]
            shape: tuple[Any, ...] = tuple(open_[d] if isinstance(d, str) else d for d in named)
            specs.append(TensorSpec(info.name, dtype, shape))
        elif dims is None or not all(isinstance(d, int) for d in dims):
            left.append((info.name, dims))
        else:
            specs.append(TensorSpec(info.name, dtype, tuple(int(d) for d in dims if d is not None)))
            if specs[-1].elements >= MOST:
                raise ShapeError(
                    f"input '{info.name}' has the shape {_text(dims)}, which is more than {MOST - 1} elements"
                )
    if left:
        raise ShapeError(_open_message(left))
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
