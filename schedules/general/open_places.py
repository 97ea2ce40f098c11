"""Rows and columns of boxes whose size is known where they run, named as places in the tensor.

    for i < rows, j < columns:  x[((row + i) // 96 + v) // 16 ..., (row + i) % 96 // 2, (column + j) // 2]
                          ->    y = row + i, x = column + j, which are below 96 and the tensor's columns

Of a loop as long as a variable says nothing is known but that it begins at zero, so that a place might lie in the next
channel, and a pixel shuffle that moves whole vectors of channels would gather each element by itself: of the residual
network's 32 channels of 96 x 6048 pixels, in boxes of 12 rows and 348 or 380 columns, 287 ns a pixel with the
convolution before, and 191 where all boxes are alike (Zen 4). Boxes end within the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm.ir.prim import expr as prim

from ..emit.written_out import children
from ..kernel.context import Context
from ..words.size_like import SizeLike
from ..words.tvm_types import Expr

NOTE = "places within the tensor are named"


def named(ctx: Context, shape: Sequence[SizeLike], loops: Sequence[Expr], element: Callable[[], None]) -> list[Expr]:
    """Row and column in a tensor of ``shape`` of the element at ``loops`` of an open box, where the accesses that
    ``element`` emits divide such; else nothing."""
    box, origin = ctx.request.box, ctx.origin
    if box is None or not box.open or origin is None or not _divides(ctx, element):
        return []
    places = [ctx.k.bind(at + first, name) for at, first, name in zip(loops[2:], origin, "yx")]
    return [ctx.ranged(place, extent) for place, extent in zip(places, shape[2:])]


def _divides(ctx: Context, element: Callable[[], None]) -> bool:
    ctx.log = []
    with ctx.k.capture():
        element()
    positions, ctx.log = ctx.log, None
    return any(_has_division(p) for p in positions)


def _has_division(expression: Expr) -> bool:
    if isinstance(expression, (prim.FloorDiv, prim.FloorMod)):
        return True
    return any(_has_division(part) for part in children(expression))
