"""Slices that walk backwards, padding with any value of any type, and how much is joined at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import te, tirx

from ..words.dims import to_index
from ..words.tvm_types import Attributes, Expr
from .common import shape_of
from .open_shapes import Shape
from .registry import define

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

#: Tensors that one kernel joins: it chooses among them for every element, and of a chain of choices each read stands
#: under the conditions of all before it, so that code for many grows with the square of their number.
MOST_PARTS = 64

def _sliced(shapes: list[Shape], a: Attributes) -> list[Shape]:
    return [a["shape"]]


def _padded(shapes: list[Shape], a: Attributes) -> list[Shape]:
    return [[d + b + e if b + e else d for d, b, e in zip(shapes[0], a["begin"], a["end"])]]


def _mirror(x: np.ndarray, begin: Sequence[int], end: Sequence[int], mode: Any) -> np.ndarray:
    return np.pad(x, [*zip(begin, end)], mode)


@define("halotile.slice", shapes=_sliced)
def slice_(x: te.Tensor, *, begin: Sequence[int], step: Sequence[int], shape: Sequence[int]) -> te.Tensor:
    """y[i] = x[begin + i * step] along every axis; steps may be negative."""
    return te.compute(
        list(shape), lambda *i: x(*[b + p * s for p, b, s in zip(i, begin, step)]), name="slice"
    )


@define("halotile.pad", shapes=_padded)
def pad(x: te.Tensor, fill: te.Tensor, *, begin: Sequence[int], end: Sequence[int]) -> te.Tensor:
    """x with the scalar ``fill`` before and after every axis."""
    size = shape_of(x)

    def read(*i: Expr) -> Expr:
        inside = [t for p, b, s, e in zip(i, begin, size, end) if b or e for t in (p >= b, p < b + s)]
        value = x(*[p - b for p, b in zip(i, begin)])
        return tirx.if_then_else(tirx.all(*inside), value, fill()) if inside else value

    return te.compute([s + b + e for s, b, e in zip(size, begin, end)], read, name="pad")


@define("halotile.mirror", shapes=_padded, reference=_mirror)
def mirror(x: te.Tensor, *, begin: Sequence[int], end: Sequence[int], mode: str) -> te.Tensor:
    """x with elements of its own before and after every axis: those next to the border the other way round
    (``reflect``), the outermost one (``edge``), or those at the other side (``wrap``).

    Of axes whose length is open; of fixed ones it is a table of positions. That a place lies within is a choice, which
    loops between the edges do without.
    """
    size = shape_of(x)

    def around(place: SizeLike, length: SizeLike) -> SizeLike:
        last = length - 1
        if mode == "wrap":
            return tirx.floormod(place, length)
        if mode == "reflect":  # last - |last - |place||
            place = tirx.min(tirx.max(place, -place), tirx.min(2 * last - place, 2 * last + place))
        return tirx.max(tirx.min(place, last), 0)

    def read(*i: Expr) -> Expr:
        places = [p - b for p, b in zip(i, begin)]
        lengths = [to_index(s) if b or e else None for s, b, e in zip(size, begin, end)]
        inside = [t for p, n in zip(places, lengths) if n is not None for t in (p >= 0, p < n)]
        border = [p if n is None else around(p, n) for p, n in zip(places, lengths)]
        return tirx.if_then_else(tirx.all(*inside), x(*places), x(*border))

    return te.compute([s + b + e if b + e else s for s, b, e in zip(size, begin, end)], read, name="mirror")
