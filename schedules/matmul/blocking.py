"""Blocks of a matrix multiplication from the sizes of the caches.

    task: a block of rows of A by a run of panels of B
      panel of B            K * vectors * lanes: in parts of ``depth`` steps, each a quarter of the second level
        part, tile of rows  the block of A stays in the second level while the panels pass by

A block of rows is as large as three quarters of the second level hold, so that B, which streams by once for each block,
comes from memory as seldom as can be; unless there would be too few tasks for the cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...targets.target import Target
from ..words.dims import is_open
from ..words.sizes import usual

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

FEWEST_ROWS, MOST_ROWS = 48, 256
GROUPS = 4  # tasks that each core should find
PARALLEL_FLOPS = 400_000  # from so many on cores share a product
SUMS_BYTES = 64 * 1024  # what a block leaves in scratch from part to part: on the stack


@dataclass(frozen=True)
class MatmulBlocks:
    """``rows`` of a block and how many ``row_blocks``; ``depth`` of a part of K and how many ``parts``; how many
    ``groups`` the panels fall into. Blocks are whole tiles, but for the last one, which is cut short, as parts are."""

    rows: int
    row_blocks: SizeLike
    depth: int
    parts: int
    groups: int


def choose_blocks(
    target: Target,
    rows: SizeLike,
    depth: int,
    panels: int,
    tile: tuple[int, int],
    batches: SizeLike,
    element: int,
    workers: int | None = None,
) -> MatmulBlocks:
    """Blocks for ``batches`` products of ``rows x depth`` by ``panels`` panels of ``tile[1]`` vectors, on ``workers``
    cores (all of the target's). Of open ``rows``, blocks have the size that is best for as many as are usual."""
    if is_open((rows, batches)):
        own = choose_blocks(target, usual(rows), depth, panels, tile, usual(batches), element, workers)
        size = -(-own.rows // tile[0]) * tile[0]
        return MatmulBlocks(size, -(-rows // size), own.depth, own.parts, own.groups)
    workers = workers or target.cores
    height, width = tile
    l2 = target.l2_bytes or 256 * 1024
    vector = max(element, target.vector_bits // 8)
    parts = -(-depth * width * vector // max(1, l2 // 4))
    parts = next((p for p in range(parts, 2 * parts) if depth % p == 0), parts)
    most = min(MOST_ROWS, max(FEWEST_ROWS, l2 * 3 // 4 // (depth * element)))
    if parts > 1:
        most = min(most, max(1, SUMS_BYTES // (height * width * vector)) * height)
    blocks = -(-rows // most)
    wanted = GROUPS * workers if workers > 1 else 1
    while batches * blocks * panels < wanted and rows // (blocks + 1) >= 2 * height:
        blocks += 1
    size = -(-rows // blocks)
    size = min(rows, -(-size // height) * height)
    blocks = -(-rows // size)
    groups = min(panels, -(-wanted // (batches * blocks)))
    return MatmulBlocks(size, blocks, -(-depth // parts), parts, groups)
