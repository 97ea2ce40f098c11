"""Register tiles for images of many sizes: few that read the same weights, of which each image takes the fastest.

    3x3x3, 2x2x3, 1x1x3        7 x 4 outputs: 2x2x3 in 8 tiles, rather than 3x3x3 in 6;  2 x 1: 1x1x3

One tile wastes what it computes twice at an image's edges: up to half of all where images are as small as two tiles,
and images that are narrower than it would take a much smaller one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from ....targets.target import Target
from ..box_cost import Numbers
from ..register_tile import Sizes, Space, Tile

MOST = 4  # tiles of a set, which are kernels of a library
GAIN = 0.02  # of the time at many sizes that another tile must save
OBLONG = 2 / 3  # of the rows or columns of a square image


@lru_cache(maxsize=1024)
def tile_set(target: Target, space: Space, sizes: Sizes, first: Tile) -> tuple[tuple[Tile, float], ...]:
    """``first``, others, and one of a single position for what is smaller than these, each with the cycles of a tile.
    Those are added, one by one, that save most at ``sizes`` and at oblong ones, in the mean of squares of
    logarithms."""
    space = replace(space, streamed=True)
    every = [*sizes, *_oblong(sizes)]
    h, w = (np.array([size[axis] for size in every]) for axis in (0, 1))
    weights = np.array([size[2] for size in every])
    largest = replace(space, height=int(h.max()), width=int(w.max()))
    single = replace(first, rows=1, columns=1)
    able = [t for _, t in largest.tiles(target) if t.blocks == first.blocks]
    cycles = {t: space.tile_cycles(target, t) for t in (*able, first, single)}
    alone = {t: _cost(t, cycles, h, w) for t in cycles}
    over = {t: _over(t, cycles, h, w, alone[t]) for t in cycles}
    best = np.min([over[t] for t in cycles], axis=0)

    def excess(chosen: Sequence[Tile]) -> float:
        own = [(over if replace(t, rows=1) in chosen else alone)[t] for t in chosen]
        ratios = np.log(np.min(own, axis=0) / best)
        return float(np.sqrt((weights * ratios * ratios).sum() / weights.sum()))

    chosen = list(dict.fromkeys((first, single)))
    while len(chosen) < MOST:
        least, tile = min(((excess([*chosen, t]), t) for t in able), key=lambda f: (f[0], str(f[1])))
        if excess(chosen) - least < GAIN:
            break
        chosen.append(tile)
    others = sorted(chosen[2:], key=lambda t: -t.positions)
    return tuple((t, cycles[t]) for t in dict.fromkeys((first, *others, single)))


def _oblong(sizes: Sizes) -> Sizes:
    shorter = [(h, w, max(1, round(OBLONG * h)), max(1, round(OBLONG * w)), weight / 4) for h, w, weight in sizes]
    return tuple(s for h, w, less, narrower, weight in shorter for s in ((less, w, weight), (h, narrower, weight)))


def _cost(tile: Tile, cycles: dict[Tile, float], h: Numbers, w: Numbers) -> Numbers:
    """Cycles of images of ``h`` rows and ``w`` columns in tiles of which the last ones move back."""
    found = -(-h // tile.rows) * -(-w // tile.columns) * cycles[tile]
    return np.where((h >= tile.rows) & (w >= tile.columns), found, np.inf)


def _over(tile: Tile, cycles: dict[Tile, float], h: Numbers, w: Numbers, alone: Numbers) -> Numbers:
    """The same, where rows that tiles leave over may have tiles of one row."""
    lower = replace(tile, rows=1)
    if tile.rows == 1 or lower not in cycles:
        return alone
    left = h % tile.rows
    mixed = -(-w // tile.columns) * (h // tile.rows * cycles[tile] + left * cycles[lower])
    return np.where(np.isfinite(alone), np.minimum(alone, mixed), np.inf)
