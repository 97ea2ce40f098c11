"""What the tiles of a direct convolution ask for ahead: the next panel of weights, the next row's input where the image
doesn't stay in the second-level cache, and data of the next channels, which lie a plane away.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import tirx

from ...instructions.prefetch import FIRST_LEVEL, hint
from ...words.group import dtype_bytes
from ...words.sizes import usual
from ...words.tvm_types import Expr
from ..kernel import ConvKernel
from ..register_tile import step_cycles
from ..weight_prefetch import NextPanel, next_panel

REMOTE = 600  # cycles until the lines of a tile come that another core has written: 14 of them, 40 cycles each


def next_of(conv: ConvKernel, blocks: int, panel: int) -> NextPanel | None:
    """How the tiles that multiply by one panel of weights, of ``blocks`` channel blocks and ``panel`` elements,
    prefetch the next panel, or the next part of one; None where no prefetch is needed."""
    facts, tile, request = conv.facts, conv.tile, conv.request
    if conv.varies or conv.order == "rows":
        return None
    rows = math.prod((*conv.spatial[:-2], *(-(-s // tile.rows) for s in conv.spatial[-2:-1])))
    if conv.order == "bands" and facts.data.shape[0] % request.workers:
        rows = max(1, rows // request.workers)
    steps, panel = blocks // conv.parts * conv.tap_steps, panel // conv.parts
    tiles = rows * -(-conv.spatial[-1] // tile.columns)
    return next_panel(request.target, tile, panel, tiles, steps, dtype_bytes(facts.output.dtype))


def below_of(conv: ConvKernel, groups: int) -> NextPanel | None:
    """How the tiles of a row of a 1x1 layer, of all ``groups`` of output channels, prefetch the input of the next row,
    block by block of channels; None where the image stays in the second-level cache."""
    facts, tile, request = conv.facts, conv.tile, conv.request
    layout = request.layout(facts.data)
    if conv.varies or (conv.order != "rows" and groups > 1) or layout.block != conv.lanes or len(facts.kernel) != 2:
        return None
    if conv.has_prologue or facts.groups > 1 or image_bytes(conv) <= request.target.l2_bytes // 2:
        return None
    if facts.taps > 1:
        return None  # few lines come in a step, and in runs that the hardware follows
    pitch = facts.data.shape[3] + sum(facts.margins()[3])
    size = tile.rows * facts.strides[0] * pitch * layout.block
    tiles = groups * -(-conv.spatial[-1] // tile.columns)
    return next_panel(request.target, tile, size, tiles, 1, dtype_bytes(facts.output.dtype))


def row_below(conv: ConvKernel, n: Expr, group: Expr, origins: list[Expr]) -> Callable[[Expr], Expr]:
    """A function that gives, for a block of channels, the position where this tile's share of the next row's input
    begins: rows that this row of tiles doesn't read. Those of the image's last row lie behind it, which is harmless."""
    facts, tile, below = conv.facts, conv.tile, conv.below
    assert below is not None
    layout = conv.request.layout(facts.data)
    first = (origins[-1] + tile.rows - 1) * facts.strides[0] + 1 - facts.before[0]
    tiles = -(-conv.spatial[-1] // (conv.whole or tile).columns)
    own = below.share(conv.bind, group * tiles + conv.across) - below.size

    def begin(block: Expr) -> Expr:
        return layout.offset([n, 0, first, -facts.before[1]], block, 0) + own

    return begin


def comes_from_afar(conv: ConvKernel) -> bool:
    """True if an image is read as it lies in memory, whole, in vectors that are lines, and leaves the second-level
    cache."""
    facts, request = conv.facts, conv.request
    line = conv.lanes * dtype_bytes(facts.data.dtype) == request.target.line_bytes
    whole = (request.box is None or request.box.open) and not conv.has_prologue and not conv.is_windowed(facts.data)
    return line and whole and len(facts.kernel) == 2 and image_bytes(conv) > request.target.l2_bytes


def prefetch_rows_below(conv: ConvKernel, n: Expr, block: Expr, origins: list[Expr], column: Expr) -> None:
    """Emits prefetches, for a block of channels at the columns of a tile of one row, of the rows that the next row of
    tiles is the first to read. Those of an image's last row lie behind it, which is harmless."""
    facts, tile, layout = conv.facts, conv.tile, conv.request.layout(conv.facts.data)
    (down, across), first = facts.strides, facts.before[0]
    for step, dx, beside in np.ndindex(min(down, facts.kernel[0]), tile.columns, min(across, facts.kernel[1])):
        row, at = conv.positions(origins, column, tile.rows, dx)
        own = row * down - first + (facts.kernel[0] - 1) * facts.dilation[0] - step
        place = layout.offset([n, 0, own, at * across + beside], block, 0)
        hint(conv.k, conv.read(facts.data), conv.ctx.analyzer.simplify(place))


def image_bytes(conv: ConvKernel) -> int:
    """Bytes that one image takes in a cache. Rows that no tap reads are left out, but not columns, since neighbouring
    lines come in pairs, and lines two apart lie in half of the cache's sets."""
    facts = conv.facts
    size = usual(conv.request.layout(facts.data).elements) * dtype_bytes(facts.data.dtype) // max(1, facts.batch)
    for taps, stride in zip(facts.kernel[:-1], facts.strides):
        size = size * min(taps, stride) // stride
    return size


def data_distance(conv: ConvKernel) -> int:
    """Blocks of channels by which the data of a 1x1 convolution is asked for before it is multiplied, where some of it
    lies in another core's cache and a vector of channels is a line: one hint a position for all of its products. The
    next block is a plane away, where no hardware looks for it."""
    facts, request = conv.facts, conv.request
    layout, target = request.layout(facts.data), request.target
    if facts.batch % request.workers == 0 or conv.varies or conv.has_prologue or conv.below is not None:
        return 0  # one core, or images enough that each has its own
    if facts.groups > 1 or facts.taps > 1 or len(facts.kernel) != 2 or layout.block != conv.lanes:
        return 0
    if conv.lanes * dtype_bytes(facts.data.dtype) != target.line_bytes:
        return 0
    return max(1, round(REMOTE / (conv.lanes * step_cycles(target, conv.tile))))


def ask_for_data(conv: ConvKernel, n: Expr, block: Expr, origins: list[Expr], column: Expr) -> None:
    """Emits prefetches of one block of channels at all positions of a tile. Past the last block they are without
    effect."""
    k, tile, facts = conv.k, conv.tile, conv.facts
    layout = conv.request.layout(facts.data)
    with k.loop(tile.rows, "unroll", "dy") as dy, k.loop(tile.columns, "unroll", "dx") as dx:
        at = zip(conv.positions(origins, column, dy, dx), facts.strides, facts.before)
        place = layout.offset([n, 0, *(p * s - b for p, s, b in at)], block, 0)
        hint(k, conv.read(facts.data), conv.ctx.analyzer.simplify(place), FIRST_LEVEL)


def next_data(conv: ConvKernel, n: Expr, block: Expr, blocks: int, origins: list[Expr], column: Expr) -> Expr | None:
    """The position where the data of the next of ``blocks`` channel blocks begins, or behind the last one that of the
    next tile, for a tile of a 1x1 convolution to prefetch beside the channels of this block (:func:`ask_beside`). None
    where its lines don't lie in one run, or a vector of channels is no line.

    No hardware looks for them a plane away. In a burst they would hold up the loads; one by one, 1x1 layers of 256 to
    1024 channels at 14 take 0.97 of the time, also where another core has written them (Granite Rapids).
    """
    facts, tile, request = conv.facts, conv.tile, conv.request
    layout, target = request.layout(facts.data), request.target
    plain = request.box is None and not conv.varies and facts.groups == 1 and facts.taps == 1 and len(facts.kernel) == 2
    if not plain or conv.has_prologue or target.fma_ports == 1 or layout.block != conv.lanes:
        return None
    pitch = facts.data.shape[3] + sum(facts.margins()[3])
    run = tile.rows == 1 or (pitch == tile.columns and facts.strides[0] == 1)
    if blocks == 1 or not run or conv.lanes * dtype_bytes(facts.data.dtype) != target.line_bytes:
        return None
    row, across = (p * s - b for p, s, b in zip((origins[-1], column), facts.strides, facts.before))
    here = layout.offset([n, 0, row, across], block + 1, 0)
    beyond = layout.offset([n, 0, row, across + tile.columns * facts.strides[1]], 0, 0)
    return conv.bind(tirx.Select(block + 1 < blocks, here, beyond), 2 * layout.elements)


def ask_beside(conv: ConvKernel, begin: Expr, channel: Expr) -> None:
    """Emits the prefetches that fall to one channel of a block, of lines from ``begin`` on, one for each position of
    the tile."""
    facts, lanes = conv.facts, conv.lanes
    each = -(-conv.tile.positions // lanes)
    for position in range(each):
        place = begin + (channel * each + position) * (lanes * facts.strides[1])
        hint(conv.k, conv.read(facts.data), place, FIRST_LEVEL)
