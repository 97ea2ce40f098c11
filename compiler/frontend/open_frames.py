"""Frames of any size: the taps of resizing.py computed at run time, from the shape that a frame has.

    h, w = shape(frame) -> inner sizes -> of each pixel of the network indices, weights, and whether the frame covers it

All sizes, places and fractions are whole numbers until the last division, so that no size is off by one, and that each
weight is the nearest float. They are lines of the network's height and width, a few hundred numbers a frame.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto

from ..extents import Extent
from ..images import Image
from .emitter import FLOAT, Emitter
from .resizing import CUBIC, Dim, filter_of

OLDEST = 12  # opset: extrema and comparisons of whole numbers


@dataclass(frozen=True)
class OpenSide:
    """Names of tensors: ``index`` of each tap (along the side), ``weight`` of each, shaped to stand beside an image,
    and ``inside``, 1 where the frame covers the network's input, else 0; None where it covers all of it."""

    index: list[str]
    weight: list[str]
    inside: str | None


def even(length: Dim) -> Dim:
    """What is said of a side, which must be even as well."""
    return length if isinstance(length, int) else _said(length, 2, 1, 1)


def half(length: Dim) -> Dim:
    """Half of an even side."""
    known = isinstance(length, int) or length is None
    return length // 2 if isinstance(length, int) else length if known else f"{Extent.parse(length).name}//2"


def with_colour(height: str) -> str:
    """What is to be said of the rows of a plane that has half as many rows of colour below those of brightness."""
    return _said(height, 2, 3, 2, "_rows")


def _said(length: str, multiple: int, by: int, over: int, ending: str = "") -> str:
    """The text of ``by / over`` times an extent of multiples of ``multiple``."""
    told = Extent.parse(length)
    step = math.lcm(told.multiple, multiple)
    low = -(-told.low // step) * step * by // over
    high = "" if told.high is None else told.high // step * step * by // over
    typical = "" if told.typical is None else f"@{told.typical // step * step * by // over}"
    text = f"{told.name}{ending}:{low}..{high}:{step * by // over}{typical}"
    Extent.parse(text)
    return text


class RunTimeLengths:
    """Arithmetic on whole numbers of run time."""

    def __init__(self, emit: Emitter) -> None:
        self.emit = emit

    def number(self, value: int) -> str:
        """A constant."""
        return self.emit.const([value], np.int64)

    def of(self, x: str, axis: int) -> str:
        """How long an axis is, as a number of run time: the import would follow lengths through all that comes of them,
        and write out hundreds of expressions. It does not see that both sides of a choice by data are the same."""
        length = self.emit.do("Gather", self.emit.do("Shape", x), self.number(axis), axis=0)
        first = self.emit.do("Gather", self.emit.reshape(x, [-1]), self.number(0), axis=0)
        return self.emit.do("Where", self.emit.cast(first, TensorProto.BOOL), length, length)

    def do(self, op: str, a: str, b: str | int) -> str:
        """One operation of two."""
        return self.emit.do(op, a, self.number(b) if isinstance(b, int) else b)

    def rounded(self, number: str, divisor: str) -> str:
        """number / divisor, halves to even; both from 1."""
        twice = self.do("Mul", divisor, 2)
        above = self.do("Add", self.do("Mul", number, 2), divisor)
        quotient = self.do("Div", above, twice)
        rest = self.do("Sub", above, self.do("Mul", quotient, twice))
        odd = self.do("Sub", quotient, self.do("Mul", self.do("Div", quotient, 2), 2))
        half = self.do("Equal", rest, 0)
        return self.do("Sub", quotient, self.emit.do("Where", half, odd, self.number(0)))


def open_sides(
    emit: Emitter, image: Image, size: Sequence[str], wanted: Sequence[int], axes: Sequence[int]
) -> list[OpenSide]:
    """Rows and columns of a frame whose height and width are the tensors ``size``, resized to ``wanted``; weights lie
    along ``axes`` of four."""
    lengths = RunTimeLengths(emit)
    inner = _inner(lengths, image, size, wanted)
    return [_side(lengths, image, *given) for given in zip(size, inner, wanted, axes)]


def _inner(lengths: RunTimeLengths, image: Image, size: Sequence[str], wanted: Sequence[int]) -> list[str]:
    """What resizing.py's ``inner_sizes`` gives."""
    if image.resize not in ("letterbox", "crop"):
        return [lengths.number(n) for n in wanted]
    (h, w), (height, width) = size, wanted
    tall, wide = lengths.do("Mul", h, width), lengths.do("Mul", w, height)
    fits = image.resize == "letterbox"  # the width is what limits then: width / w <= height / h
    by_width = lengths.do("LessOrEqual", tall, wide) if fits else lengths.do("GreaterOrEqual", tall, wide)
    found = []
    for number, divisor, most, own in ((tall, w, height, False), (wide, h, width, True)):
        other = lengths.rounded(number, divisor)
        if fits:
            other = lengths.do("Min", lengths.do("Max", other, 1), most)
        else:
            other = lengths.do("Max", other, most)
        whole = lengths.number(most)
        found.append(lengths.emit.do("Where", by_width, *((whole, other) if own else (other, whole))))
    return found


def _side(lengths: RunTimeLengths, image: Image, size: str, inner: str, wanted: int, axis: int) -> OpenSide:
    emit, do = lengths.emit, lengths.do
    shape = [wanted if i == axis else 1 for i in range(4)]
    place, inside = emit.const(np.arange(wanted), np.int64), None
    if image.resize == "letterbox":
        place = do("Sub", place, do("Div", do("Sub", lengths.number(wanted), inner), 2))
        within = emit.do("And", do("GreaterOrEqual", place, 0), do("Less", place, inner))
        inside = emit.reshape(emit.cast(within, FLOAT), shape)
        place = do("Min", do("Max", place, 0), do("Sub", inner, 1))
    elif image.resize == "crop":
        place = do("Add", place, do("Div", do("Sub", inner, wanted), 2))
    how, last, twice = filter_of(image), do("Sub", size, 1), do("Mul", inner, 2)
    weights: list[str | None] = [None]
    centre = do("Mul", do("Add", do("Mul", place, 2), 1), size)  # times twice the inner size
    if how == "nearest":
        index = [do("Min", do("Div", centre, twice), last)]
    else:
        above = do("Add", centre, inner)  # half a pixel further, and one, so that it is not negative
        next_one = do("Div", above, twice)
        rest = do("Sub", above, do("Mul", next_one, twice))
        part = emit.do("Div", emit.cast(rest, FLOAT), emit.cast(twice, FLOAT))
        steps = (-1, 0) if how == "linear" else (-2, -1, 0, 1)
        index = [do("Min", do("Max", do("Add", next_one, s), 0), last) for s in steps]
        weights = _weights(emit, part, how)
    shaped = [None if w is None else emit.reshape(w, shape) for w in weights]
    if inside is not None:
        shaped = [inside if w is None else emit.do("Mul", w, inside) for w in shaped]
    return OpenSide(index, ["" if w is None else w for w in shaped], inside)


def _weights(emit: Emitter, part: str, how: str) -> list[str | None]:
    """Of the taps around a place between 0 and 1."""
    one = emit.const(1.0)
    if how == "linear":
        return [emit.do("Sub", one, part), part]
    found, rest = [], one
    for factors in CUBIC:
        value = emit.const(factors[0])
        for factor in factors[1:]:
            value = emit.do("Add", emit.do("Mul", value, part), emit.const(factor))
        found.append(value)
        rest = emit.do("Sub", rest, value)
    return [*found, rest]


def pad_around(emit: Emitter, x: str, sides: Sequence[OpenSide], pad: float) -> str:
    """``x``, which is 0 where the frame is not, with ``pad`` there."""
    covered = [s.inside for s in sides if s.inside is not None]
    if not covered or not pad:
        return x
    both = emit.do("Mul", *covered) if len(covered) == 2 else covered[0]
    outside = emit.do("Sub", emit.const(1.0), both)
    return emit.do("Add", x, emit.do("Mul", outside, emit.const(pad)))


def open_resized(emit: Emitter, x: str, sides: Sequence[OpenSide], axes: Sequence[int]) -> str:
    """``x``, whose height and width lie at ``axes``, as floats of the network's size: each tap read where it lies."""
    lines = []
    for row, down in zip(sides[0].index, sides[0].weight):
        line = emit.do("Gather", x, row, axis=axes[0])
        terms = []
        for column, across in zip(sides[1].index, sides[1].weight):
            term = emit.cast(emit.do("Gather", line, column, axis=axes[1]), TensorProto.FLOAT)
            terms.append(emit.do("Mul", term, across) if across else term)
        lines.append(weighted(emit, terms, down))
    return weighted(emit, lines, "")


def weighted(emit: Emitter, terms: Sequence[str], weight: str) -> str:
    """The sum of ``terms``, times ``weight`` if there is one."""
    total = terms[0]
    for term in terms[1:]:
        total = emit.do("Add", total, term)
    return emit.do("Mul", total, weight) if weight else total
