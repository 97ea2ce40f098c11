"""Sizes of open dimensions, read off the shapes of inputs.

    inputs x[batch, 2*n + 1], mask[n];  x is (3, 9)  ->  {"batch": 3, "n": 4}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...errors import RunError
from ..spec import Symbol, TensorSpec

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Reading:
    """Where the size of a symbol is found: a dimension of an input that is factor * size + offset."""

    tensor: int
    axis: int
    factor: int = 1
    offset: int = 0

    def size(self, shape: Shape, spec: TensorSpec) -> int:
        """The size, by the shape of that input; RunError for a shape that no size gives."""
        if len(shape) != len(spec.shape):
            raise RunError(f"{given_text(spec, shape)}, expected {shape_text(spec.shape)}")
        size, rest = divmod(shape[self.axis] - self.offset, self.factor)
        if rest:
            raise RunError(f"{given_text(spec, shape)}, expected {shape_text(spec.shape)}")
        return size


def readings(symbol: Symbol, inputs: Sequence[TensorSpec]) -> Iterator[Reading]:
    """Where a symbol's size is found, the best place first: dimensions that are the symbol, then those that are linear
    in it alone."""
    places = [(i, axis, dim) for i, spec in enumerate(inputs) for axis, dim in enumerate(spec.shape)]
    yield from (Reading(i, axis) for i, axis, dim in places if dim == symbol.name)
    linear = re.compile(rf"(?:(\d+)\*)?{re.escape(symbol.name)}(?: ([+-]) (\d+))?")
    for i, axis, dim in places:
        if isinstance(dim, str) and dim != symbol.name and (found := linear.fullmatch(dim)):
            factor, sign, offset = found.groups()
            yield Reading(i, axis, int(factor or 1), int(f"{sign or '+'}{offset or 0}"))


def sizes_of(symbols: Sequence[Symbol], inputs: Sequence[TensorSpec], shapes: Mapping[str, Shape]) -> dict[str, int]:
    """The sizes that the shapes of some inputs, by name, say; RunError where one says what no size gives or what is not
    allowed, or two of them disagree."""
    sizes: dict[str, int] = {}
    for symbol in symbols:
        where = ""
        for place in readings(symbol, inputs):
            spec = inputs[place.tensor]
            if spec.name not in shapes:
                continue
            size = place.size(shapes[spec.name], spec)
            if sizes.setdefault(symbol.name, size) != size:
                told = f"{symbol.name} is {sizes[symbol.name]} in input {where!r}"
                raise RunError(f"{given_text(spec, shapes[spec.name])}, expected {shape_text(spec.shape)}: {told}")
            where = where or spec.name
            if refusal := symbol.refusal(size):
                raise RunError(f"{given_text(spec, shapes[spec.name])}: {refusal}")
    return sizes


def given_text(spec: TensorSpec, shape: Sequence[int]) -> str:
    return f"input {spec.name!r} has shape {shape_text(shape)}"


def shape_text(shape: Sequence[object]) -> str:
    return f"({', '.join(map(str, shape))})" if shape else "() (a scalar)"
