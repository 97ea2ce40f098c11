"""The model's run-time inputs, their dimensions fixed or open, from the model and the shapes that the user gave."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx

from ...errors import ShapeError, UnsupportedError, did_you_mean, several
from ...schedules.words.dims import is_open
from ..extents import Extent
from ..options import Shapes
from ..spec import TensorSpec
from .expressions import names_in, renamed, value_of
from .functions import dtype_name, element_name
from .symbols import Known, Symbols, known_typical
from .value import PLAIN

Dims = list[int | str | None]  # numbers, names of what is open, None for what has no name
MOST = 1 << 31  # elements of a tensor: kernels count in 32 bits
# exporters' words for a length that they don't know
_NO_NAME = re.compile(r"[\W_]*|[+-]?\d+|none|null|nan|unk|unknown", re.I)


def run_time_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Graph inputs that are not initialisers as well."""
    constants = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    return [i for i in graph.input if i.name not in constants]


def declared_shape(info: onnx.ValueInfoProto) -> Dims | None:
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


def plain_dtype(info: onnx.ValueInfoProto) -> str:
    """The type of an input's elements; UnsupportedError for an input that libraries can't have."""
    if info.type.WhichOneof("value") != "tensor_type":
        kind = (info.type.WhichOneof("value") or "untyped").removesuffix("_type")
        article = "an" if kind[0] in "aeiou" else "a"
        raise UnsupportedError(f"input '{info.name}' is {article} {kind}; only tensors are supported")
    dtype = dtype_name(info.type.tensor_type.elem_type)
    if dtype not in PLAIN:
        kind = element_name(info.type.tensor_type.elem_type)
        raise UnsupportedError(f"input '{info.name}' holds {kind} data, which is not supported")
    return dtype


@dataclass(frozen=True)
class Wanted:
    """The run-time inputs as the model and the user have them: information, type, and dims (None where not even the
    rank is known), each a number, a name, or None. ``extents`` are what is asked of names, and of dims without one by
    input and axis."""

    inputs: list[tuple[onnx.ValueInfoProto, str, Dims | None]]
    extents: list[tuple[str | tuple[str, int], Extent]]


def wanted(graph: onnx.GraphProto, shapes: Shapes | None) -> Wanted:
    """The model's inputs with ``shapes``, which say something of inputs, or of open dimensions by name.

    A name that the model lacks, a wrong rank and a contradicted dimension are ShapeErrors. What is said of a named
    dimension for one input holds for all whose shapes are not given; exporters use one name for unrelated dimensions,
    so that shapes may contradict it (:func:`contradictions`).
    """
    inputs = run_time_inputs(graph)
    by_input, by_name = _split(inputs, shapes or {})
    agreed = {name: found[0][0] for name, found in _given(inputs, by_input).items() if len({n for n, _ in found}) == 1}
    result: list[tuple[onnx.ValueInfoProto, str, Dims | None]] = []
    extents: list[tuple[str | tuple[str, int], Extent]] = []
    for info in inputs:
        dtype, declared = plain_dtype(info), declared_shape(info)
        dims = None if declared is None else [agreed.get(d, d) if isinstance(d, str) else d for d in declared]
        if info.name in by_input:
            given = by_input[info.name]
            dims = _apply(info.name, declared, dims, given)
            places = [(d if isinstance(d, str) else (info.name, a), e) for a, (d, e) in enumerate(zip(dims, given))]
            extents += [(place, e) for place, e in places if isinstance(e, Extent)]
        result.append((info, dtype, dims))
    present = {d for _, _, dims in result for d in dims or () if isinstance(d, str)}
    for name in by_name:
        if name not in present:
            raise ShapeError(_unknown(name, [i.name for i in inputs], sorted(present)))
    called = {n: d if isinstance(d, int) else d.name or n for n, d in by_name.items()}
    extents = [(called.get(p, p) if isinstance(p, str) else p, e) for p, e in extents]  # type: ignore[misc]
    extents += [(called[n], e) for n, e in by_name.items() if isinstance(e, Extent)]  # type: ignore[misc]
    for place, extent in extents:
        if isinstance(place, int) and not extent.allows(place):
            raise ShapeError(f"a dimension is fixed to {place}, but is to be {extent.sizes} in another shape given")
    words = {**{n: n for n in present}, **agreed, **called}

    def final(dim: int | str | None) -> int | str | None:
        if not isinstance(dim, str) or dim in called:
            return called[dim] if isinstance(dim, str) else dim
        names = names_in(dim)
        return renamed(dim, words) if names and names <= words.keys() else dim

    named = [(i, t, None if dims is None else [*map(final, dims)]) for i, t, dims in result]
    return Wanted(named, [(p, e) for p, e in extents if not isinstance(p, int)])


def fixed_inputs(graph: onnx.GraphProto, shapes: Shapes | None) -> tuple[TensorSpec, ...]:
    """One TensorSpec per run-time input, of fixed shape; ShapeError for what is wrong, and a dimension left open."""
    specs, left = [], []
    for info, dtype, dims in wanted(graph, shapes).inputs:
        if dims is None or not all(isinstance(d, int) for d in dims):
            left.append((info.name, dims))
            continue
        specs.append(TensorSpec(info.name, dtype, tuple(dims)))
        _require_addressable(specs[-1])
    if left:
        raise ShapeError(_open_message(left))
    return tuple(specs)


def open_inputs(
    graph: onnx.GraphProto, shapes: Shapes | None, typical: Mapping[str, int] | None, symbols: Symbols
) -> list[tuple[str, str, list[int | str]]]:
    """(name, type, dims) per run-time input, every open dimension with the name of a symbol, of which ``symbols`` then
    holds what is asked for. A nameless dimension gets a name."""
    found = wanted(graph, shapes)
    taken = {d for _, _, dims in found.inputs for d in dims or ()}
    result, unknown = [], []
    for info, dtype, dims in found.inputs:
        if dims is None:
            unknown.append((info.name, None))
            continue
        named = [symbols.name_of(taken, info.name, a) if d is None else d for a, d in enumerate(dims)]
        result.append((info.name, dtype, named))
    names = dict.fromkeys(d for _, _, dims in result for d in dims if isinstance(d, str))
    follows = {n for n in names if 0 < len(names_in(n)) and names_in(n) <= names.keys()}
    symbols.facts.update({n: Known() for n in names if n not in follows})
    symbols.same.update({n: value_of(n, symbols.dims) for n in follows})
    if unknown:
        raise ShapeError(_open_message(unknown))
    for place, extent in found.extents:
        symbols.ask(place if isinstance(place, str) else symbols.given[place], extent)
    known_typical(symbols, typical)
    return result


def specs_of(inputs: Iterable[tuple[str, str, list[int | str]]], symbols: Symbols) -> tuple[TensorSpec, ...]:
    """The inputs with what is known of the symbols now."""
    specs = []
    for name, dtype, dims in inputs:
        specs.append(TensorSpec(name, dtype, tuple(symbols[d] if isinstance(d, str) else d for d in dims)))
        _require_addressable(specs[-1])
    return tuple(specs)


def _require_addressable(spec: TensorSpec) -> None:
    if not is_open(spec.shape) and spec.elements >= MOST:
        shown = _text(spec.shape)
        raise ShapeError(f"input '{spec.name}' has the shape {shown}, which is more than {MOST - 1} elements")


def _split(
    inputs: Sequence[onnx.ValueInfoProto], shapes: Shapes
) -> tuple[dict[str, list[int | Extent]], dict[str, int | Extent]]:
    """What is said of inputs, and of open dimensions by name; of one that both are called, a single dimension is meant
    where the input has several."""
    declared = {i.name: declared_shape(i) for i in inputs}
    names = {d for dims in declared.values() for d in dims or ()}
    by_input: dict[str, list[int | Extent]] = {}
    by_name: dict[str, int | Extent] = {}
    for name, given in shapes.items():
        dims = [_dimension(name, d) for d in given]
        shape = declared.get(name)
        several = len(dims) == 1 and name in names and shape is not None and len(shape) != 1
        if name in declared and not several:
            by_input[name] = dims
        elif len(dims) == 1:
            by_name[name] = dims[0]
        else:
            raise ShapeError(_unknown(name, [*declared], []))
    return by_input, by_name


def _unknown(name: str, inputs: Sequence[str], dimensions: Sequence[str]) -> str:
    more = f" and its open dimensions {_quoted(dimensions)}" if dimensions else ""
    near = did_you_mean(name, [*inputs, *dimensions])
    return f"a shape was given for '{name}', but the model's inputs are {_quoted(inputs) or 'none'}{more}{near}"


def _dimension(name: str, dim: int | str) -> int | Extent:
    if isinstance(dim, str):
        return Extent.parse(dim)
    if int(dim) < 0:
        raise ShapeError(f"the shape given for '{name}' has a negative dimension, {dim}")
    return int(dim)


def _apply(name: str, declared: Dims | None, kept: Dims | None, given: Sequence[int | Extent]) -> Dims:
    """The dims of an input: as given, where that says something, else as ``kept``."""
    if declared is None or kept is None:
        return [d if isinstance(d, int) else d.name for d in given]
    shown = _text([d if isinstance(d, int) else str(d) for d in given])
    if len(declared) != len(given):
        raise ShapeError(
            f"the shape given for input '{name}', {shown}, has {several(len(given), 'dimension')}; "
            f"the model has {len(declared)}: {_text(declared)}"
        )
    dims: Dims = []
    for axis, (old, new, wide) in enumerate(zip(declared, given, kept)):
        if isinstance(old, int) and new not in (old, Extent()):
            what = f"{new} is not {old}" if isinstance(new, int) else f"{old} can't be open"
            raise ShapeError(
                f"the shape given for input '{name}', {shown}, contradicts the model's {_text(declared)} "
                f"in dimension {axis}: {what}"
            )
        if new == Extent() or isinstance(old, int):
            dims.append(wide)
        else:
            dims.append(new if isinstance(new, int) else new.name or old)
    return dims


def contradictions(graph: onnx.GraphProto, shapes: Shapes | None) -> list[str]:
    """One line for every name that stands for several lengths in the shapes that were given."""
    told = []
    inputs = run_time_inputs(graph)
    for symbol, found in _given(inputs, _split(inputs, shapes or {})[0]).items():
        first, where = found[0]
        other = next(((n, name) for n, name in found if n != first), None)
        if other is not None:
            told.append(
                f"dimension '{symbol}' is {first} in the shape given for input '{where}' and {other[0]} in that for "
                f"'{other[1]}', though the model has one name for them"
            )
    return told


def _given(
    inputs: Iterable[onnx.ValueInfoProto], shapes: Mapping[str, Sequence[int | Extent]]
) -> dict[str, list[tuple[int | str, str]]]:
    """For every name of an open dimension its lengths or names in the shapes that are given, and for which inputs."""
    found: dict[str, list[tuple[int | str, str]]] = {}
    for info in inputs:
        for old, new in zip(declared_shape(info) or (), shapes.get(info.name, ())):
            if isinstance(old, str) and new != Extent():
                found.setdefault(old, []).append((new if isinstance(new, int) else new.name or old, info.name))
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
