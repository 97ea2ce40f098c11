"""Resizing an open axis by a given scale that is no whole number: where output o reads is a fraction of integers.

    scale 3/2, half_pixel:    ((2 o + 1) 2 - 3) / 6

Integers count exactly at every size, so that nearest neighbours are those that ONNX asks for. An axis that a whole
number divides is read in steps of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from ....schedules.words.dims import Dim, Open, floor_div
from ..node import OnnxNode
from ..value import OnnxValue

if TYPE_CHECKING:
    from ....schedules.words.size_like import SizeLike

R = relax.op

LARGEST = 64  # numerator and denominator of a scale: products with sizes are exact in float32


@dataclass(frozen=True)
class ReadPlaces:
    """Output o of an axis reads at (step o + start) / parts."""

    step: int
    start: SizeLike
    parts: int


def fraction(scale: float) -> Fraction | None:
    """The scale as a fraction of small numbers; None where it is none in float32, whose rounding then decides."""
    found = Fraction(float(np.float32(scale)))
    return found if max(found.numerator, found.denominator) <= LARGEST else None


def places(size: SizeLike, output: SizeLike, scale: float, coordinate: str) -> ReadPlaces:
    """Where an axis is read; Open for coordinates that are none of a fraction."""
    by = fraction(scale)
    if by is None:
        raise Open(f"the open dimension {size} is scaled by {scale}")
    p, q = by.numerator, by.denominator
    if coordinate == "half_pixel":
        return ReadPlaces(2 * q, q - p, 2 * p)
    if coordinate == "half_pixel_symmetric":
        return ReadPlaces(2 * q, q - p + size * p - output * q, 2 * p)
    if coordinate == "asymmetric":
        return ReadPlaces(q, 0, p)
    if coordinate == "tf_half_pixel_for_nn":
        return ReadPlaces(2 * q, q, 2 * p)
    raise Open(f"{coordinate} along the open dimension {size}, which is scaled by {scale}")


def nearest(node: OnnxNode, x: OnnxValue, axis: int, output: SizeLike, at: ReadPlaces, rounding: str) -> OnnxValue:
    """The element nearest to each place."""
    up = {"ceil": at.parts - 1, "floor": 0}.get(rounding)
    if up is None:  # the middle of two goes down or up
        at, up = ReadPlaces(2 * at.step, 2 * at.start, 2 * at.parts), at.parts - (rounding == "round_prefer_floor")
    return _read(node, x, axis, output, ReadPlaces(at.step, at.start + up, at.parts), 0)


def interpolated(
    node: OnnxNode,
    x: OnnxValue,
    axis: int,
    output: SizeLike,
    at: ReadPlaces,
    taps: Callable[[SizeLike], list[tuple[int, SizeLike]]],
) -> OnnxValue:
    """The sum of ``taps``: (offset from the element before a place, weight), given how far behind that the place is."""
    whole = not isinstance(at.start, Dim) and at.step % at.parts == 0
    weights = taps(at.start % at.parts / at.parts) if whole else taps(_Vector(node, _between(node, output, at, x)))
    total = None
    for offset, weight in weights:
        if isinstance(weight, _Vector):
            factor = node.reshape(weight.value, [output if a == axis else 1 for a in range(x.rank)])
        elif weight:
            factor = node.scalar(weight, x)
        else:
            continue
        part = node.do(R.multiply, _read(node, x, axis, output, at, offset), factor)
        total = part if total is None else node.do(R.add, total, part)
    assert total is not None
    return total


def _read(node: OnnxNode, x: OnnxValue, axis: int, output: SizeLike, at: ReadPlaces, offset: int) -> OnnxValue:
    """``x`` at floor(place) + offset, where it has elements, else at its edges."""
    size = x.shape[axis]
    step, start = at.step // at.parts, at.start // at.parts + offset
    if not isinstance(at.start, Dim) and at.step % at.parts == 0 and 0 <= start < step and output == size // step:
        shape = [output if a == axis else d for a, d in enumerate(x.shape)]
        return node.cut(x, shape, [axis], [start], [output * step], [step])
    first = node.do(R.floor_divide, _numerators(node, output, at), node.const(at.parts, "int64"))
    index = node.do(R.add, first, node.const(offset, "int64"))
    index = node.do(R.minimum, index, OnnxValue.of_contents(size - 1, "int64"))
    return node.own("halotile.gather", x, node.do(R.maximum, index, node.const(0, "int64")), axis=axis)


def _numerators(node: OnnxNode, output: SizeLike, at: ReadPlaces) -> OnnxValue:
    counted = node.do(R.multiply, node.counting(output), node.const(at.step, "int64"))
    return node.do(R.add, counted, OnnxValue.of_contents(at.start, "int64"))


def _between(node: OnnxNode, output: SizeLike, at: ReadPlaces, x: OnnxValue) -> OnnxValue:
    """How far each place lies behind the element before it, from 0 to 1."""
    above = _numerators(node, output, at)
    parts = node.const(at.parts, "int64")
    rest = node.do(R.subtract, above, node.do(R.multiply, node.do(R.floor_divide, above, parts), parts))
    return node.do(R.multiply, node.cast(rest, x.dtype), node.scalar(1 / at.parts, x))


class _Vector:
    """Numbers of run time in formulas."""

    def __init__(self, node: OnnxNode, value: OnnxValue) -> None:
        self.node, self.value = node, value

    def _with(self, function: Callable[..., SizeLike], other: SizeLike, turned: bool = False) -> _Vector:
        second = other.value if isinstance(other, _Vector) else self.node.scalar(other, self.value)
        pair = (second, self.value) if turned else (self.value, second)
        return _Vector(self.node, self.node.do(function, *pair))

    def __add__(self, other: SizeLike) -> _Vector:
        return self._with(R.add, other)

    def __radd__(self, other: SizeLike) -> _Vector:
        return self._with(R.add, other)

    def __sub__(self, other: SizeLike) -> _Vector:
        return self._with(R.subtract, other)

    def __rsub__(self, other: SizeLike) -> _Vector:
        return self._with(R.subtract, other, True)

    def __mul__(self, other: SizeLike) -> _Vector:
        return self._with(R.multiply, other)

    def __rmul__(self, other: SizeLike) -> _Vector:
        return self._with(R.multiply, other)


def linear(t: SizeLike) -> list[tuple[int, SizeLike]]:
    """The two elements about a place."""
    return [(0, 1 - t), (1, t)]


def cubic(a: float) -> Callable[[SizeLike], list[tuple[int, SizeLike]]]:
    """The four elements about a place, by the cubic kernel of coefficient ``a``."""

    def near(t: SizeLike) -> SizeLike:
        return ((a + 2) * t - (a + 3)) * t * t + 1

    def far(t: SizeLike) -> SizeLike:
        return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

    return lambda t: [(-1, far(t + 1)), (0, near(t)), (1, near(1 - t)), (2, far(2 - t))]


def scaled(length: Dim, scale: float) -> Dim:
    """floor(length * scale); Open where float32 decides what it is."""
    by = fraction(scale)
    if by is None:
        raise Open(f"the open dimension {length} is scaled by {scale}")
    return floor_div(length * by.numerator, by.denominator)
