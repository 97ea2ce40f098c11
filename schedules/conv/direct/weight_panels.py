"""How a direct convolution passes its panels of weights: in which order with rows of tiles, and in how many parts.

A panel of weights that leaves the first-level cache between tiles, where these read it fast, is passed in parts of
whole blocks of channels that stay there (FIRST), each by all tiles, whose sums wait on the stack: two vectors by 14
positions read 9 bytes a cycle, by 7 18. 1x1 1024-256 at 14 runs at 96% of the peak instead of 92, 512-2048 at 7 at 91
instead of 86, 3x3/2 512 from 14 to 7 at 91 instead of 86 (Granite Rapids). Where that doesn't fit, panels larger than
PANEL of the second level are, if the next one is asked for ahead: lines that were asked for too long ago are gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernel.half_sums import HALF
from ...words.group import dtype_bytes
from ..kernel import ConvKernel
from ..panel_sums import STACK_SUMS
from ..register_tile import step_cycles, tiles_of
from ..weight_prefetch import reads_fast
from .data_prefetch import image_bytes
from .reduction_steps import ChannelSegment

if TYPE_CHECKING:
    from ...words.tvm_types import Expr

LEAST = 1000  # cycles of a tile in a part: its sums, which come and go, and a branch more take some 50
PANEL = 1 / 16  # of the second-level cache
FIRST = 2 / 3  # of the first-level cache, beside which data and results pass
STAYS = 0.75  # of the second-level cache, that stay there from pass to pass
FEW_TILES = 2  # so many share a panel of weights in vain: it comes as slowly as they need it


def count_parts(conv: ConvKernel, segments: list[ChannelSegment], panel: int) -> int:
    """Into how many parts of whole channel blocks the panels of ``panel`` elements are cut (a block that is not whole
    goes with the last one): as few as stay in the first level from tile to tile, where a register tile reads them fast;
    else in PANEL of the second level, where they are asked for ahead or leave it between tiles."""
    facts, tile, target = conv.facts, conv.tile, conv.request.target
    if facts.output.dtype == HALF or len(facts.out_spatial) != 2 or conv.request.box is not None or conv.varies:
        return 1
    element, blocks = dtype_bytes(facts.output.dtype), segments[0].blocks
    size, sums = panel * element, conv.sums_elements * element
    most = conv.tap_steps * segments[0].lanes * blocks * step_cycles(target, tile) / LEAST
    counts = [p for p in range(1, blocks + 1) if blocks % p == 0 and p <= max(1.0, most)]
    shared = tiles_of(tile, 1 if conv.order == "rows" else conv.spatial[0], conv.spatial[1])
    if reads_fast(target, tile) and shared > FEW_TILES and sums <= STACK_SUMS:
        parts = next((p for p in counts if size <= p * target.l1_bytes * FIRST), None)
        if parts is not None:
            return parts
    if conv.next is None and not leaves(conv, size):
        return 1
    return next((p for p in counts if size <= p * target.l2_bytes * PANEL), counts[-1])


def sums_place(conv: ConvKernel) -> Expr:
    """Where the sums of a tile wait for the next part."""
    if conv.parts == 1:
        return 0
    tile = conv.whole or conv.tile
    return conv.bind(conv.sums_base + conv.number * (tile.positions * tile.blocks * conv.lanes), 1 << 31)


def rows_first(conv: ConvKernel, weight_bytes: int) -> bool:
    """True if less comes from beyond the second-level cache when all channel groups of a row of tiles are neighbours.

    By groups, the input passes once a group unless it stays; by rows, the weights pass once a row of tiles unless they
    stay beside the rows that are being read.
    """
    facts, tile = conv.facts, conv.tile
    l2 = conv.request.target.l2_bytes
    whole = conv.outputs // (tile.blocks * conv.lanes)  # beside the last vector, if that has a part of its own
    groups = whole + 1 if whole else -(-conv.channel_blocks // tile.blocks)
    if groups == 1 or len(facts.out_spatial) != 2 or conv.varies:
        return False
    image = image_bytes(conv)
    height = -(-facts.out_spatial[0] // tile.rows)
    read = (tile.rows - 1) * facts.strides[0] + facts.dilation[0] * (facts.kernel[0] - 1) + 1
    rows = image * min(1.0, read / (facts.out_spatial[0] * facts.strides[0]))
    by_groups = weight_bytes + image * (groups if image > l2 / 2 else 1)
    passes = height if weight_bytes + rows > STAYS * l2 else 1
    if leaves(conv, weight_bytes // groups):
        passes = height * -(-facts.out_spatial[1] // tile.columns)
    by_rows = image + weight_bytes * passes
    return by_rows < by_groups


def passes_by(conv: ConvKernel) -> bool:
    """True for a box among others whose weights drive its own out of the second-level cache from stripe to stripe, if
    so few tiles share a panel that they wait for it (with five of them hints already cost more than they give)."""
    crowded = conv.request.limits.crowded and len(conv.facts.out_spatial) == 2
    return crowded and tiles_of(conv.tile, *conv.facts.out_spatial) <= FEW_TILES


def leaves(conv: ConvKernel, panel_bytes: int) -> bool:
    """True if a panel is gone from the second-level cache when the next tile begins it again."""
    return panel_bytes > STAYS * conv.request.target.l2_bytes
