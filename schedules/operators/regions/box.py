"""Boxes in whole-tensor coordinates, and what a kernel needs of a value it reads.

A box is one half-open span for each axis. A need's box is *unclipped*: it may leave the tensor, and ``fill`` says what
an operator takes for the places outside.

    conv 3x3, pads 1, of 8x8:   output rows 0..4   needs rows -1..5, zero outside; inside the tensor 0..5
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ...words.group import Value

Span = tuple[int, int]
Box = tuple[Span, ...]
Fill = Literal["none", "zero", "value", "-inf", "edge", "reflect", "wrap"]


@dataclass(frozen=True)
class BoxRefusal:
    """Why an operator can't be computed box by box: it needs everything, or what it needs depends on data."""

    reason: str


@dataclass(frozen=True)
class Need:
    """``box`` of ``value`` is read; ``fill`` is what stands outside of the tensor (``number`` for "value").

    ``fill`` is "none" exactly if the box lies in the tensor.
    """

    value: Value
    box: Box
    fill: Fill = "none"
    number: float = 0.0

    @property
    def inside(self) -> Box | None:
        """The elements that are really read; None if there are none. With "edge", "reflect" and "wrap" they are those
        that stand for the places outside, too."""
        if self.fill == "none":
            return None if is_empty(self.box) else self.box
        spans = tuple(_inside(s, n, self.fill) for s, n in zip(self.box, self.value.shape))
        return None if is_empty(spans) else spans

    @property
    def outside(self) -> tuple[tuple[int, int], ...]:
        """For each axis, how many places of the box lie before and after the tensor."""
        return tuple(
            (min(max(0 - lo, 0), hi - lo), min(max(hi - n, 0), hi - lo))
            for (lo, hi), n in zip(self.box, self.value.shape)
        )


Needs = tuple[Need, ...]


def need(value: Value, box: Sequence[Span], fill: Fill = "none", number: float = 0.0) -> Need:
    """A need whose fill is "none" if nothing is outside."""
    spans = tuple((int(lo), int(hi)) for lo, hi in box)
    if contains(whole(value), spans):
        return Need(value, spans)
    if fill == "none":
        raise ValueError(f"box {spans} leaves {value}")
    return Need(value, spans, fill, number)


def whole(value: Value) -> Box:
    """The box of all elements."""
    return tuple((0, n) for n in value.shape)


def is_empty(box: Iterable[Span]) -> bool:
    return any(lo >= hi for lo, hi in box)


def contains(outer: Box, inner: Box) -> bool:
    return all(a <= c and d <= b for (a, b), (c, d) in zip(outer, inner))


def intersect(a: Box, b: Box) -> Box:
    """The common part; a span without one is empty (its end is its start)."""
    spans = ((max(p[0], q[0]), min(p[1], q[1])) for p, q in zip(a, b))
    return tuple((lo, max(lo, hi)) for lo, hi in spans)


def hull(a: Box, b: Box) -> Box:
    """The smallest box with both."""
    return tuple((min(p[0], q[0]), max(p[1], q[1])) for p, q in zip(a, b))


def merge(needs: Iterable[Need]) -> Needs:
    """One need for each value and kind of fill, in the order in which they are first met. What lies in the tensor joins
    the first other need of its value."""
    merged: list[Need] = []
    for new in needs:
        for index, old in enumerate(merged):
            if old.value is new.value and ("none" in (old.fill, new.fill) or _same_fill(old, new)):
                filled = old if old.fill != "none" else new
                merged[index] = Need(old.value, hull(old.box, new.box), filled.fill, filled.number)
                break
        else:
            merged.append(new)
    return tuple(merged)


def _same_fill(a: Need, b: Need) -> bool:
    return a.fill == b.fill and (a.number == b.number or a.number != a.number and b.number != b.number)


def _inside(span: Span, size: int, fill: Fill) -> Span:
    lo, hi = span
    first, last = max(lo, 0), min(hi, size)
    if fill not in ("edge", "reflect", "wrap") or (first, last) == (lo, hi) or lo >= hi or not size:
        return first, max(first, last)
    beyond = [*range(lo, min(hi, 0)), *range(max(lo, size), hi)]
    read = [_stand_in(i, size, fill) for i in beyond]
    if first < last:
        read += [first, last - 1]
    return min(read), max(read) + 1


def _stand_in(index: int, size: int, fill: Fill) -> int:
    """The element that stands for position ``index`` outside of the tensor."""
    if fill == "wrap":
        return index % size
    if fill == "edge" or size == 1:
        return min(max(index, 0), size - 1)
    turn = index % (2 * (size - 1))
    return min(turn, 2 * (size - 1) - turn)
