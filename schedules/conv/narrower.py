"""Register tiles for rows of open width: the best one, and narrower ones for rows that it does not fit.

    if width >= 6: tiles of 6 columns, the last one moved back
    else if width >= 2: of 2
    else: of 1
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace

from tvm import tirx

from ..kernel.context import Context
from ..words.dims import to_index
from ..words.sizes import surely
from .facts import ConvFacts
from .register_tile import SMALLER, Tile


def each_width(ctx: Context, facts: ConvFacts, tile: Tile) -> Iterator[Tile]:
    """The tiles to emit, each inside the condition of its width; ``tile`` alone where the width is known."""
    if facts.sizes is None:
        yield tile
        return
    ctx.fill_pending()
    width, wider = facts.sizes[-1], None
    while True:
        columns = tile.columns
        fits = columns == 1 or surely(lambda: width >= columns)  # noqa: B023
        conditions = [] if fits else [to_index(width) >= columns]
        conditions += [] if wider is None else [to_index(width) < wider]
        with ctx.k.when(tirx.all(*conditions)) if conditions else nullcontext():
            yield tile
        if fits:
            return
        wider, tile = columns, replace(tile, columns=max(1, columns // SMALLER))
