"""Loop order of maps that read across memory: transposes, and conversions between layouts.

    for c: for w, 16 at a time: y[c, w] = x[w, c]        16 cache lines a vector, gone when the next c comes
    for w, 16 at a time: for c: y[c, w] = x[w, c]        the same 16 lines for as many c as lie in them

Vectors still run over the last axis, since stores must be contiguous; the axis along which reads are contiguous becomes
the innermost loop. At most BLOCK of it at a time, so that the lines of one vector stay in L1 (16 x 64 x 4 = 4 KiB).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

BLOCK = 64

Positions = Callable[[Sequence[Any]], "list[Any]"]


def innermost_axis(extents: Sequence[int], vector_axis: int, positions: Positions, simplify: Any) -> int | None:
    """The axis before ``vector_axis`` along which an access that strides over ``vector_axis`` is contiguous.

    ``positions`` gives the flat positions of all accesses of the element at some coordinates; strides are their
    differences at the origin. None where no axis fits, or where the accesses differ from element to element.
    """
    start = positions([tirx.IntImm("int32", 0)] * len(extents))
    across = _strides(start, extents, vector_axis, positions, simplify)
    if across is None or all(s in (0, 1) for s in across):
        return None
    for axis in reversed(range(vector_axis)):
        if extents[axis] == 1:
            continue
        along = _strides(start, extents, axis, positions, simplify)
        if along is not None and any(a == 1 and s not in (0, 1) for a, s in zip(along, across)):
            return axis
    return None


def _strides(
    start: list[Any], extents: Sequence[int], axis: int, positions: Positions, simplify: Any
) -> list[int] | None:
    unit = [tirx.IntImm("int32", 1 if i == axis else 0) for i in range(len(extents))]
    end = positions(unit)
    if len(end) != len(start) or extents[axis] < 2:
        return None
    steps = [simplify(b - a) for a, b in zip(start, end)]
    return [int(s.value) for s in steps] if all(isinstance(s, prim.IntImm) for s in steps) else None


def block_of(extent: int) -> int:
    """The largest divisor of ``extent`` up to BLOCK; all of it where that would be a small one."""
    best = max(d for d in range(1, min(extent, BLOCK) + 1) if extent % d == 0)
    return best if best * 4 >= min(extent, BLOCK) else extent
