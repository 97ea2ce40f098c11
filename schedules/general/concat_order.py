"""Concatenations in boxes: loop order of the copies of parts, some of which lie in windows and some in memory.

    for block: for row: for column: y[block] = a or b[block]     a core waits for memory, then for its caches
    for row: for column: for block: y[block] = a or b[block]     copies from windows while lines from memory come

One stream of lines a block, as many as prefetchers follow. Measured on Granite Rapids with a part of 2 blocks in memory
and one of 2 in a window: the copies take 0.9 of the time, U-Net at half of its arena 0.985. Hints for the next columns
or the next row gave nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tvm import tirx

from ..words.group import Request
from ..words.tvm_types import Expr

if TYPE_CHECKING:
    pass

MOST = 8  # blocks of channels, each a stream read and one written
NOTE = "blocks of channels side by side"


def joins(request: Request, extents: Sequence[Expr]) -> bool:
    """True for a box of a concatenation of few blocks of channels; ``extents`` are those of all axes of the output,
    of channels counted in blocks."""
    concatenates = any(n.operator == "relax.concat" for n in request.group.nodes)
    return concatenates and request.box is not None and len(extents) == 4 and 1 < extents[1] <= MOST


def side_by_side(
    extents: Sequence[Expr], lanes: Callable[[list[Expr]], None]
) -> tuple[list[Expr], list[Expr], Callable[[list[Expr]], None]]:
    """The loops that are left, the indices before them, and their body: ``lanes`` at all blocks of a place."""

    def place(loops: list[Expr]) -> None:
        for block in range(extents[1]):
            lanes([loops[0], tirx.IntImm("int32", block), *loops[1:]])

    return [extents[0], *extents[2:]], [], place
