"""Slices that walk backwards, padding with any value of any type, and how much is joined at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from ..words.tvm_types import Expr
from .common import shape_of
from .open_shapes import Shape
from .registry import define

#: Tensors that one kernel joins: it chooses among them for every element, and of a chain of choices each read stands
#: under the conditions of all before it, so that code for many grows with the square of their number.
MOST_PARTS = 64

def _sliced(shapes: list[Shape], a: dict[str, Any]) -> list[Shape]:
    return [a["shape"]]


def _padded(shapes: list[Shape], a: dict[str, Any]) -> list[Shape]:
    return [[d + b + e if b + e else d for d, b, e in zip(shapes[0], a["begin"], a["end"])]]


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

    def read(*i: Any) -> Expr:
        inside = [t for p, b, s, e in zip(i, begin, size, end) if b or e for t in (p >= b, p < b + s)]
        value = x(*[p - b for p, b in zip(i, begin)])
        return tirx.if_then_else(tirx.all(*inside), value, fill()) if inside else value

    return te.compute([s + b + e for s, b, e in zip(size, begin, end)], read, name="pad")
