"""Products whose B passes by once and faster than it comes: its vectors are read side by side.

    [panel][K][vectors][lanes]      one run of memory, of which a core has few lines under way at a time
    [panel][vectors][K][lanes]      as many streams as the panel has vectors, each with lines of its own under way

A fully connected layer at batch 1 is as fast as memory gives its weights: a plain loop reads 25088 x 4096 at 13.1 GB/s
in one run, 14.4 in two, 15.2 in four, 15.6 in eight, and no faster in sixteen; hints gain little in one run, and cost
more than they give where weights come from the second level. 1 x 4096 x 4096 takes 0.88 of the time, 1 x 512 x 1000
0.73, 4 x 4096 x 4096 0.87, 8 x 384 x 1536 0.92 (one core of Granite Rapids). 8 x 384 x 768, whose weights stay in the
second level and keep up with the multiply-adds, would take 1.07.
"""

from __future__ import annotations

from ...targets.target import Target
from ..words.dims import is_open
from .blocking import GROUPS
from .facts import MatmulFacts

NARROW = 4  # streams of a panel, at least
FEW_ROWS = 4  # so few multiply-adds to a vector wait for it even where it comes from the second level


def reads_streams(target: Target, facts: MatmulFacts, tile: tuple[int, int], element: int) -> bool:
    """True if one tile of rows meets all of a constant B and waits for it, on a core that looks for lines of several
    streams by itself (of x86; how many others do was not measured)."""
    if is_open([facts.rows]) or not (facts.packs and facts.flat and facts.rows <= tile[0]) or target.in_order:
        return False
    far = facts.steps * facts.n * element > target.l2_bytes
    return target.triple.startswith("x86_64") and (facts.rows <= FEW_ROWS or far)


def even_width(vectors: int, widest: int, workers: int) -> int:
    """How many of ``vectors`` lie in a panel, so that the longest share of ``workers`` cores is short: whole panels are
    shared in runs (:mod:`.blocking`), those that are left over a core reads alone. 1 x 2048 x 1000 on two cores takes
    0.85 of the time in panels of five instead of eight."""

    def longest(width: int) -> int:
        panels, left = divmod(vectors, width)
        run = -(-panels // min(max(panels, 1), GROUPS * workers))
        return -(-(-(-panels // run) if run else 0) // workers) * run * width + left

    fitting = range(widest, min(widest, NARROW) - 1, -1)
    return min(fitting, key=longest) if workers > 1 else widest
