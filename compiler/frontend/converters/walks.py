"""Positions in steps of any sign along open lengths or in all of a tensor; slices that walk backwards along them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import relax

from ....schedules.words.dims import Dim, Open, bounds, maximum, minimum
from ....schedules.words.sizes import product
from ..node import OnnxNode
from ..value import OnnxValue

if TYPE_CHECKING:
    from ....schedules.words.size_like import SizeLike

R = relax.op


def walk(node: OnnxNode, start: SizeLike, step: int, count: SizeLike, dtype: str = "int64") -> OnnxValue:
    """start, start + step, ... : ``count`` of them."""
    if step > 0:
        return node.do(R.arange, start, start + count * step, step, dtype=dtype)
    steps = node.do(R.arange, 0, count, 1, dtype=dtype)
    if step < -1:
        steps = node.do(R.multiply, steps, node.scalar(-step, steps))
    return node.do(R.subtract, node.do(R.arange, start, start + 1, 1, dtype=dtype), steps)


def places(node: OnnxNode, x: OnnxValue) -> OnnxValue:
    """[rank, size]: the indices of all elements of ``x``, in its order."""
    rows = []
    for axis, length in enumerate(x.shape):
        along = node.reshape(walk(node, 0, 1, length), [length if a == axis else 1 for a in range(x.rank)])
        rows.append(node.reshape(node.broadcast(along, x.shape), (1, product(x.shape))))
    if x.rank == 1:
        rows[0].between = (0, x.shape[0] - 1)
        return rows[0]
    return node.do(R.concat, rows, axis=0)


def walked_back(node: OnnxNode, x: OnnxValue, axis: int, start: SizeLike, end: SizeLike, step: int) -> OnnxValue:
    """x[start:end:step] along one axis for a negative step: the first position lies within the axis, the end before the
    last one or in front of all."""
    length = x.shape[axis]
    first = minimum(maximum(_counted(start, length), 0), length - 1)
    behind = minimum(maximum(_counted(end, length), -1), length - 1)
    count = maximum(first - behind - step - 1, 0) // -step
    return node.do(R.take, x, walk(node, first, step, count), axis=axis)


def _counted(bound: SizeLike, length: SizeLike) -> SizeLike:
    """A bound as a position: from the end when negative."""
    low, high = bounds(bound)
    if low < 0 <= high:
        raise Open(f"a bound is {bound}, which may or may not be negative")
    if not isinstance(bound, Dim) and abs(bound) >= 2**31 - 1:
        return length if bound > 0 else -1
    return bound if low >= 0 else length + bound
