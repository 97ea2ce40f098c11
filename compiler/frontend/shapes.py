"""The model's run-time inputs with every dimension fixed, from the model and the shapes that the user gave."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx

from ...errors import ShapeError, UnsupportedError
from ...schedules.words.dims import INFINITY, Dim, Learned
from ..spec import TensorSpec
from .functions import dtype_name, element_name
from .value import PLAIN

MOST = 1 << 31  # elements of a tensor: kernels count in 32 bits
# exporters' words for a length that they don't know
_NO_NAME = re.compile(r"[\W_]*|[+-]?\d+|none|null|nan|unk|unknown", re.I)


def run_time_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Graph inputs that are not initialisers as well."""
    constants = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    return [i for i in graph.input if i.name not in constants]


def declared_shape(info: onnx.ValueInfoProto) -> list[int | str | None] | None:
    """Fixed dimensions as integers, open ones as their name or None; None when not even the rank is known.

    ``?``, ``-1`` and the like are no names: two of them are two lengths."""
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else _name(d.dim_param)
        for d in tensor.shape.dim
    ]


def _name(text: str) -> str | None:
    return None if _NO_NAME.fullmatch(text) else text


class Symbols:
    """The open dimensions of one model by name, and what the import has learned of them so far."""

    def __init__(self) -> None:
        self.known: dict[str, Dim | int] = {}
        self.given: dict[tuple[str, int], str] = {}  # names of those that have none, by input and axis
        self.bounds: dict[str, tuple[int, float]] = {}

    def __getitem__(self, name: str) -> Dim | int:
        if name not in self.known:
            self.known[name] = Dim.symbol(name, *self.bounds.get(name, (0, INFINITY)))
        return self.known[name]

    def name_of(self, graph: onnx.GraphProto, tensor: str, axis: int) -> str:
        """A name for a dimension without one, which no other has."""
        if (tensor, axis) not in self.given:
            taken = {d for i in run_time_inputs(graph) for d in declared_shape(i) or ()} | set(self.given.values())
            name = f"{tensor}_{axis}"
            while name in taken:
                name += "_"
            self.given[tensor, axis] = name
        return self.given[tensor, axis]

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


def plain_dtype(info: onnx.ValueInfoProto) -> str:
    """The type of an input's elements; UnsupportedError for an input that libraries can't have."""
    if info.type.WhichOneof("value") != "tensor_type":
        kind = (info.type.WhichOneof("value") or "untyped").removesuffix("_type")
        raise UnsupportedError(f"input '{info.name}' is a {kind}; only tensors are supported")
    dtype = dtype_name(info.type.tensor_type.elem_type)
    if dtype not in PLAIN:
        kind = element_name(info.type.tensor_type.elem_type)
        raise UnsupportedError(f"input '{info.name}' holds {kind} data, which is not supported")
    return dtype


def fixed_inputs(
    graph: onnx.GraphProto, shapes: Mapping[str, Sequence[int]] | None, open_: Symbols | None = None
) -> tuple[TensorSpec, ...]:
    """One TensorSpec per run-time input.

    A name in ``shapes`` that the model lacks, a wrong rank, a contradicted dimension and a dimension left open are
    ShapeErrors. A symbolic dimension fixed for one input is fixed for all whose shapes are not given; exporters use one
    name for unrelated dimensions, so that shapes may contradict it (:func:`contradictions`). With ``open_`` dimensions
    may stay open: a name stands for the same symbol everywhere, a nameless one gets a name.
    """
    inputs = run_time_inputs(graph)
    shapes = dict(shapes or {})
    names = [i.name for i in inputs]
    unknown = [n for n in shapes if n not in names]
    if unknown:
        raise ShapeError(
            f"a shape was given for {_quoted(unknown)}, but the model's inputs are {_quoted(names) or 'none'}"
        )
    lengths = _lengths(inputs, shapes)
    symbols = {symbol: found[0][0] for symbol, found in lengths.items() if len({n for n, _ in found}) == 1}
    resolved: list[tuple[onnx.ValueInfoProto, str, list[int | str | None] | None]] = []
    for info in inputs:
        dtype = plain_dtype(info)
        declared = declared_shape(info)
        if info.name in shapes:
            declared = _apply(info.name, declared, shapes[info.name])
        resolved.append((info, dtype, declared))
    specs, left = [], []
    for info, dtype, declared in resolved:
        dims = None if declared is None else [symbols.get(d, d) if isinstance(d, str) else d for d in declared]
        if dims is not None and open_ is not None:
            named = [open_.name_of(graph, info.name, a) if d is None else d for a, d in enumerate(dims)]
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
    return list(dims)


def contradictions(graph: onnx.GraphProto, shapes: Mapping[str, Sequence[int]] | None) -> list[str]:
    """One line for every name that stands for several lengths in the shapes that were given."""
    told = []
    for symbol, found in _lengths(run_time_inputs(graph), shapes or {}).items():
        first, where = found[0]
        other = next(((n, name) for n, name in found if n != first), None)
        if other is not None:
            told.append(
                f"dimension '{symbol}' is {first} in the shape given for input '{where}' and {other[0]} in that for "
                f"'{other[1]}', though the model has one name for them"
            )
    return told


def _lengths(
    inputs: Iterable[onnx.ValueInfoProto], shapes: Mapping[str, Sequence[int]]
) -> dict[str, list[tuple[int, str]]]:
    """For every name of an open dimension its lengths in the shapes that are given, and for which inputs."""
    found: dict[str, list[tuple[int, str]]] = {}
    for info in inputs:
        for old, new in zip(declared_shape(info) or (), shapes.get(info.name, ())):
            if isinstance(old, str):
                found.setdefault(old, []).append((int(new), info.name))
    return found


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
