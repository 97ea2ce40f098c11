"""Direct convolution in NCHW[v]c: register tiles, rolled loops over channels and taps.

    parallel for n, group of blocks, row of tiles
      for column of tiles                               last one moved back, never smaller
        acc[positions][blocks][lanes] = 0
        for channel block, taps, channel in block       rolled: LLVM keeps the tile in registers
          acc[p][b] += x[p, channel] (broadcast) * w[group][block][tap][channel][b]
        epilogue(acc)

One tile of 14 x 2 vectors of 16 floats holds 28 accumulators, 2 weights and 1 broadcast in 31 of 32 registers and
needs 16 loads for 28 multiply-adds. Weights lie in the order they are read. A group convolution whose vectors of output
channels span several groups reads the channels of all of these, with zero weights where a lane has no part.

A panel of weights that leaves the first-level cache between tiles, where these read it fast, is passed in parts of
whole blocks of channels that stay there (FIRST), each by all tiles, whose sums wait on the stack: two vectors by 14
positions read 9 bytes a cycle, by 7 18. 1x1 1024-256 at 14 runs at 96% of the peak instead of 92, 512-2048 at 7 at 91
instead of 86, 3x3/2 512 from 14 to 7 at 91 instead of 86 (Granite Rapids). Where that doesn't fit, panels larger than
PANEL of the second level are, if the next one is asked for ahead: lines that were asked for too long ago are gone.

Rows that tiles of a 1x1 layer leave over have a tile of their own, instead of one that is moved back: seven rows are
three tiles of 2 x 7 and one of 1 x 7, and the weights pass four times, not seven (another 2 to 4% of the peak).

Where many taps lie in the padding (a dilation of 24 at 40 x 40: 64 of 100), a tile passes over those that all its
positions have there.

Several cores share an image by rows. Of tiles that cost the same they take one whose rows they can share evenly (14
rows in 14 tiles, not in 7), and 1x1 layers ask for their data a few blocks of channels ahead, since some of it lies in
the other core's cache: ShuffleNetV2 takes 0.955 of the time on two cores so, MobileNetV2 0.97 (Emerald Rapids).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import tirx

from ...targets.target import Target
from ..context import Context
from ..group import Kernel, Packed, Request, dtype_bytes
from .choose import Tile, choose_tile, left_over, tiles_of
from .facts import ConvFacts
from .following import ask_for_data, below_of, data_distance, image_bytes, next_of, row_below
from .prefetch import Next, Runs, ask, prefetch, reads_fast, spread_runs
from .tails import emit_tail, pack_tail, tail_parts, tail_tile
from .tile import SHORT, STACK_SUMS, ConvKernel, finish, new_context

PANEL = 1 / 16  # of the second-level cache
FIRST = 2 / 3  # of the first-level cache, beside which data and results pass
STAYS = 0.75  # of the second-level cache, that stay there from pass to pass
FEW_TILES = 2  # so many share a panel of weights in vain: it comes as slowly as they need it
OWN_GROUPS = 8  # weights this many times the image: a core rather reads all of the image and a part of the weights


@dataclass(frozen=True)
class Segment:
    """Input channels ``first + [0, blocks * lanes)`` of a channel group, read block by block. ``aligned`` if the
    first channel of every group of the kind begins a block of the input."""

    first: int
    blocks: int
    lanes: int
    aligned: bool = True


def build_direct(request: Request, facts: ConvFacts, tile: Tile | None = None) -> Kernel:
    """``tile``: the register tile, where it is not the one that :func:`choose_tile` says."""
    ctx = new_context(request)
    tiles = emit_direct(request, facts, ctx, tile=tile)
    lanes = request.layout(request.group.outputs[0]).block
    return finish(ctx, f"direct conv C{lanes}, tile {' and '.join(map(str, tiles))}", facts.flops, tiles)


def emit_direct(
    request: Request,
    facts: ConvFacts,
    ctx: Context,
    place: Callable[[list[Any]], list[Any]] = list,
    steps: tuple[int, ...] = (),
    tile: Tile | None = None,
) -> list[Tile]:
    """Adds one direct convolution to a kernel and returns its register tile, and that of the last vector of channels
    where :mod:`.tails` computes it. ``place`` maps its output coordinates to those of the tensor, where neighbours lie
    ``steps`` apart."""
    lanes = request.layout(request.group.outputs[0]).block
    parts = tail_parts(request, facts)
    width = facts.out_spatial[-1]
    tile = tile or own_tile(request, facts)
    conv = ConvKernel(request, facts, tile, lanes, ctx, place, steps)
    span = _span(facts, tile.blocks * lanes)
    segments = _segments(request, facts, span, lanes)
    if parts == 1:
        left = _emit(conv, span, segments)
        return [tile] if left is None else [tile, left]
    last = tail_tile(request.target, tile.rows, tile.columns if conv.is_open else width, parts)
    _emit(conv, span, segments, ConvKernel(request, facts, last, lanes, ctx, place, steps))
    return [tile, last] if facts.outputs > lanes else [last]


def tile_space(request: Request, facts: ConvFacts) -> tuple[int, int, int, int]:
    """What the register tile is chosen for: rows and columns of outputs, vectors of channels, and how many may share
    a tile."""
    lanes = request.layout(request.group.outputs[0]).block
    channel_blocks = -(-facts.outputs // lanes)
    if channel_blocks > 1 and tail_parts(request, facts) > 1:
        channel_blocks -= 1
    height = facts.out_spatial[-2] if len(facts.out_spatial) > 1 else 1
    limit = channel_blocks if facts.groups == 1 else _blocks_per_group(facts, lanes)
    return height, facts.out_spatial[-1], channel_blocks, limit


def own_tile(request: Request, facts: ConvFacts) -> Tile:
    """The register tile that :func:`choose_tile` says; cores share an image where there is not one for each."""
    workers = 1 if facts.batch % request.workers == 0 else request.workers
    flat, mixed = _flat(request.target, facts), has_left_over(request, facts)
    return choose_tile(request.target, *tile_space(request, facts), workers, flat, mixed)


def has_left_over(request: Request, facts: ConvFacts) -> bool:
    """True if rows that a register tile leaves over have one of their own."""
    whole = request.box is None and facts.edges is None and len(facts.out_spatial) == 2
    return whole and _flat(request.target, facts) and facts.groups == 1 and tail_parts(request, facts) == 1


def _flat(target: Target, facts: ConvFacts) -> bool:
    """True for 1x1 layers of cores so fast that these wait for the lines of a tile: 64 to 256 channels at 56 take 0.97
    of the time in tiles of one row, 96 to 24 channels 0.95 (Granite Rapids)."""
    return facts.taps == 1 and target.fma_ports > 1


def _blocks_per_group(facts: ConvFacts, lanes: int) -> int:
    """Vectors that may share a tile: those of one group, or one where vectors span groups."""
    return facts.group_out // lanes if facts.group_out % lanes == 0 else 1


def _span(facts: ConvFacts, width: int) -> int:
    """The most input channels that ``width`` neighbouring output channels read."""
    if facts.groups == 1:
        return facts.channels
    return max(_groups_of(facts, first, width) for first in range(0, facts.outputs, width)) * facts.group_in


def _start(facts: ConvFacts, first_output: Any, span: int) -> Any:
    """First input channel that the outputs from ``first_output`` on read, moved back where the span would overrun."""
    start = first_output // facts.group_out * facts.group_in
    most = facts.channels - span
    return min(start, most) if isinstance(start, int) else tirx.min(start, most)


def _segments(request: Request, facts: ConvFacts, span: int, lanes: int) -> list[Segment]:
    block = request.layout(facts.data).block
    aligned = facts.groups == 1 or (facts.group_in % lanes == 0 and facts.channels % lanes == 0)
    if not block or not aligned:
        return [Segment(0, 1, span, aligned=False)]
    segments = [Segment(0, span // block, block)] if span >= block else []
    if span % block:
        segments.append(Segment(span - span % block, 1, span % block))
    return segments


def pack_weights(facts: ConvFacts, blocks: int, lanes: int, span: int, segments: list[Segment]) -> np.ndarray:
    """[group of blocks][segment][block][tap][channel][vector][lane], zero where a lane has no part."""
    weight = np.asarray(facts.weight.constant)
    width = blocks * lanes
    groups = -(-facts.outputs // width)
    flat = weight.reshape(facts.outputs, facts.group_in, facts.taps)
    dense = np.zeros((groups * width, span, facts.taps), weight.dtype)
    output = np.arange(facts.outputs)
    own = np.zeros_like(output)  # where in the span an output's own channels begin
    if facts.groups > 1:
        starts = np.array([_start(facts, g * width, span) for g in range(groups)])
        own = output // facts.group_out * facts.group_in - starts[output // width]
    dense[output[:, None], own[:, None] + np.arange(facts.group_in)] = flat
    dense = dense.reshape(groups, blocks, lanes, span, facts.taps)
    parts = []
    for s in segments:
        part = dense[:, :, :, s.first : s.first + s.blocks * s.lanes]
        part = part.reshape(groups, blocks, lanes, s.blocks, s.lanes, facts.taps)
        parts.append(part.transpose(0, 3, 5, 4, 1, 2).reshape(groups, -1))
    return np.ascontiguousarray(np.concatenate(parts, axis=1))


def _emit(conv: ConvKernel, span: int, segments: list[Segment], tail: ConvKernel | None = None) -> Tile | None:
    """The kernel's tasks: groups of whole vectors, and the ``tail`` as one group more. Returns the tile of rows that
    are left over, if any."""
    k, ctx, facts, tile, lanes = conv.k, conv.ctx, conv.facts, conv.tile, conv.lanes
    groups = conv.channel_blocks // tile.blocks
    packed = pack_weights(facts, tile.blocks, lanes, span, segments)
    whole = groups
    if tail is not None:
        whole = (conv.channel_blocks - 1) // tile.blocks
        conv.outputs = whole * tile.blocks * lanes
        groups = whole + 1
        packed = np.concatenate([packed[:whole].reshape(-1), pack_tail(facts, lanes, tail.tile.parts)])
    row = span * facts.taps * tile.blocks * lanes
    weights = ctx.packed(Packed(f"w_{facts.weight.name}", packed))
    conv.far = packed.nbytes > conv.request.target.l2_bytes // 2 or _passes_by(conv)
    if _rows_first(conv, packed.nbytes):
        conv.order = "rows"
    elif packed.nbytes > OWN_GROUPS * image_bytes(conv) or _leaves(conv, packed.nbytes // groups):
        conv.order = "groups"
    conv.next = next_of(conv, segments[0].blocks, row)
    conv.below = below_of(conv, groups)
    conv.distance = data_distance(conv)
    if tail is None:
        conv.parts = _part(conv, segments, row)
        if conv.parts > 1:
            conv.next = next_of(conv, segments[0].blocks, row)
    conv.mixed = has_left_over(conv.request, facts)
    left = left_over(tile, facts.out_spatial[0]) if conv.mixed else None
    with conv.tasks(groups) as (n, group, origins):
        if left is not None:
            rows = facts.out_spatial[0] // tile.rows
            with k.when(conv.row < rows):
                _columns(conv, span, segments, weights, (n, group, origins))
            with k.when(conv.row >= rows):
                _columns(replace(conv, tile=left, whole=tile), span, segments, weights, (n, group, origins))
            return left
        if tail is None:
            _columns(conv, span, segments, weights, (n, group, origins))
            return None
        tail.far = conv.far
        if whole:
            with k.when(group < whole):
                inside = conv.bind(tirx.min(group, whole - 1), whole)
                _columns(conv, span, segments, weights, (n, inside, origins))
        with k.when(group >= whole) if whole else nullcontext():
            emit_tail(tail, weights, whole * row, n, origins)
    return None


def _columns(conv: ConvKernel, span: int, segments: list[Segment], weights: Any, at: Any) -> None:
    """All columns of one row of tiles of one group of vectors."""
    k, facts, tile, lanes = conv.k, conv.facts, conv.tile, conv.lanes
    (n, group, origins), dtype, width = at, facts.output.dtype, tile.blocks * lanes
    block = conv.request.layout(facts.data).block
    panel, part = group * (span * facts.taps * width // conv.parts), 0
    if conv.parts > 1:
        panel = conv.bind(panel, facts.weight.elements)
        part = conv.bind(tirx.floormod(group, conv.parts), conv.parts)
        group = conv.bind(tirx.floordiv(group, conv.parts), conv.channel_blocks // tile.blocks)
    with conv.columns() as column:
        start = conv.bind(_start(facts, group * width, span), facts.channels) if facts.groups > 1 else 0
        runs = _runs(conv, span, segments, group, start)
        acc = k.local("acc", dtype, tile.positions * width)
        place = _sums_place(conv)
        with k.loop(tile.positions * tile.blocks, "unroll", "z") as z, k.loop(lanes, "vectorized", "v") as v:
            begin: Any = tirx.const(0, dtype)
            if conv.parts > 1:
                begin = tirx.Select(part > 0, conv.sums[place + z * lanes + v], begin)
            k.store(acc, z * lanes + v, begin)
        offset = panel
        share = offset + conv.next.share(conv.bind, conv.number) if conv.next is not None else None
        below = row_below(conv, n, group, origins) if conv.below is not None else None
        for segment in segments:
            count = segment.blocks // conv.parts
            asking = min(count, -(-runs.count // facts.taps)) if runs is not None else 0
            for begin, blocks in ((0, asking), (asking, count - asking)):
                if not blocks:
                    continue
                with k.loop(blocks, name="cb", begin=begin) as cb:
                    conv.ctx.ranged(cb, count)
                    where = (n, start, group, (cb, cb + part * count), origins, column)
                    _taps(conv, segment, block, acc, weights, where, offset, share, below, runs)
                runs = None
            share = below = None
            offset = offset + segment.blocks * segment.lanes * facts.taps * width
        with k.when(part == conv.parts - 1) if conv.parts > 1 else nullcontext():
            conv.epilogue(acc, n, group * tile.blocks, origins, column, tile.blocks)
        if conv.parts > 1:
            with k.when(part < conv.parts - 1), k.loop(tile.positions * tile.blocks, "unroll", "z") as z:
                with k.loop(lanes, "vectorized", "v") as v:
                    k.store(conv.sums, place + z * lanes + v, acc[z * lanes + v])


def _runs(conv: ConvKernel, span: int, segments: list[Segment], group: Any, start: Any) -> Runs | None:
    """How a tile asks for the lines of its results beside the channels of the first segment; None where it has no need
    to, or too few steps."""
    if span * conv.facts.taps > SHORT:
        return None
    first, count = _own_channels(conv, group, start, segments[0])
    steps = segments[0].blocks // conv.parts * conv.facts.taps
    element = dtype_bytes(conv.facts.output.dtype)
    return spread_runs(conv.tile, conv.lanes, steps, count, element) if isinstance(first, int) else None


def _part(conv: ConvKernel, segments: list[Segment], panel: int) -> int:
    """Into how many parts of whole channel blocks the panels of ``panel`` elements are cut: as few as stay in the first
    level from tile to tile, where a register tile reads them fast; else in PANEL of the second level, where they are
    asked for ahead or leave it between tiles."""
    facts, tile, target = conv.facts, conv.tile, conv.request.target
    if len(segments) > 1 or len(facts.out_spatial) != 2 or conv.request.box is not None:
        return 1
    element, blocks = dtype_bytes(facts.output.dtype), segments[0].blocks
    size, sums = panel * element, conv.sums_elements * element
    counts = [p for p in range(1, blocks + 1) if blocks % p == 0]
    shared = tiles_of(tile, 1 if conv.order == "rows" else conv.spatial[0], conv.spatial[1])
    if reads_fast(target, tile) and shared > FEW_TILES and sums <= STACK_SUMS:
        parts = next((p for p in counts if size <= p * target.l1_bytes * FIRST), None)
        if parts is not None:
            return parts
    if conv.next is None and not _leaves(conv, size):
        return 1
    return next((p for p in counts if size <= p * target.l2_bytes * PANEL), blocks)


def _sums_place(conv: ConvKernel) -> Any:
    """Where the sums of a tile wait for the next part."""
    if conv.parts == 1:
        return 0
    tile = conv.whole or conv.tile
    return conv.bind(conv.sums_base + conv.number * (tile.positions * tile.blocks * conv.lanes), 1 << 31)


def _rows_first(conv: ConvKernel, weight_bytes: int) -> bool:
    """True if less comes from beyond the second-level cache when all channel groups of a row of tiles are neighbours.

    By groups, the input passes once a group unless it stays; by rows, the weights pass once a row of tiles unless they
    stay beside the rows that are being read.
    """
    facts, tile = conv.facts, conv.tile
    l2 = conv.request.target.l2_bytes
    whole = conv.outputs // (tile.blocks * conv.lanes)  # beside the last vector, if that has a part of its own
    groups = whole + 1 if whole else conv.channel_blocks // tile.blocks
    if groups == 1 or len(facts.out_spatial) != 2 or conv.is_open:
        return False
    image = image_bytes(conv)
    height = -(-facts.out_spatial[0] // tile.rows)
    read = (tile.rows - 1) * facts.strides[0] + facts.dilation[0] * (facts.kernel[0] - 1) + 1
    rows = image * min(1.0, read / (facts.out_spatial[0] * facts.strides[0]))
    by_groups = weight_bytes + image * (groups if image > l2 / 2 else 1)
    passes = height if weight_bytes + rows > STAYS * l2 else 1
    if _leaves(conv, weight_bytes // groups):
        passes = height * -(-facts.out_spatial[1] // tile.columns)
    by_rows = image + weight_bytes * passes
    return by_rows < by_groups


def _passes_by(conv: ConvKernel) -> bool:
    """True for a box among others whose weights drive its own out of the second-level cache from stripe to stripe, if
    so few tiles share a panel that they wait for it (with five of them hints already cost more than they give)."""
    crowded = bool(conv.request.options.get("crowded")) and len(conv.facts.out_spatial) == 2
    return crowded and tiles_of(conv.tile, *conv.facts.out_spatial) <= FEW_TILES


def _leaves(conv: ConvKernel, panel_bytes: int) -> bool:
    """True if a panel is gone from the second-level cache when the next tile begins it again."""
    return panel_bytes > STAYS * conv.request.target.l2_bytes


def _meets_image(conv: ConvKernel, origins: list[Any], column: Any, taps: list[Any]) -> Any:
    """True if a position of the tile reads the image at these taps."""
    facts, tile = conv.facts, conv.tile
    parts = []
    for i, (origin, count) in enumerate(((origins[-1], tile.rows), (column, tile.columns))):
        first = origin * facts.strides[i] + taps[i] * facts.dilation[i] - facts.before[i]
        parts += [first + (count - 1) * facts.strides[i] >= 0, first < facts.data.shape[2 + i]]
    return tirx.all(*parts)


def _taps(
    conv: ConvKernel,
    segment: Segment,
    block: int,
    acc: Any,
    weights: Any,
    at: Any,
    base: Any,
    share: Any,
    below: Any,
    runs: Runs | None,
) -> None:
    """Loops over the taps and the channels of one block of one segment. ``share``: where the part of the next panel
    begins that this tile asks for; ``below``: the same of the next row's input, by block of channels; ``runs``: how it
    asks for the lines of its results."""
    k, ctx, facts, tile, lanes = conv.k, conv.ctx, conv.facts, conv.tile, conv.lanes
    n, start, group, (cb, own), origins, column = at
    width = tile.blocks * lanes
    first, count = _own_channels(conv, group, start, segment)

    with ExitStack() as loops:
        index, taps = loops.enter_context(conv.taps(cb))
        asked: list[tuple[Next, Any, Any, Any]] = []
        if share is not None and conv.next is not None:
            asked.append((conv.next, weights, share, index))
        if below is not None and conv.below is not None:
            asked.append((conv.below, conv.read(facts.data), below(own), index - cb * facts.taps))
        for following, buffer, begin, number in asked:
            if not following.spreads(count):
                following.ask(k, buffer, begin, number)
        if conv.distance and segment.blocks > 1:
            ask_for_data(conv, n, own + conv.distance, origins, column)
        results = conv.result_runs(n, group * tile.blocks, origins, column, runs, index) if runs is not None else []
        if facts.skips:
            loops.enter_context(k.when(_meets_image(conv, origins, column, taps)))
        c = loops.enter_context(k.loop(count, name="c", begin=first))
        ctx.ranged(c, segment.lanes)
        for buffer, begin, written in results:
            assert runs is not None
            ask(k, buffer, begin + c * runs.stride, written)
        for following, buffer, begin, number in asked:
            if following.spreads(count):
                following.ask_beside(k, buffer, begin, number, c, count)
        channel = _channel(segment, block, start, own, c)
        step = base + (index * segment.lanes + c) * width
        if conv.far and conv.next is None:
            prefetch(k, weights, step, tile.blocks, lanes, dtype_bytes(facts.output.dtype))
        with k.loop(tile.rows, "unroll", "dy") as dy, k.loop(tile.columns, "unroll", "dx") as dx:
            value = conv.input(n, channel, conv.positions(origins, column, dy, dx), taps)
            if conv.has_prologue:
                value = k.bind(value, "x")
            with k.loop(tile.blocks, "unroll", "b") as b, k.loop(lanes, "vectorized", "v") as v:
                slot = ((dy * tile.columns + dx) * tile.blocks + b) * lanes + v
                k.store(acc, slot, acc[slot] + value * weights[step + b * lanes + v])


def _own_channels(conv: ConvKernel, group: Any, start: Any, segment: Segment) -> tuple[Any, Any]:
    """The first channel of a segment that a vector of outputs reads, and how many: where most vectors lie in one group
    of channels and some in two, the segment is as long as two."""
    facts, width = conv.facts, conv.tile.blocks * conv.lanes
    spans = {_groups_of(facts, first, width) for first in range(0, facts.outputs, width)}
    if facts.groups == 1 or segment.aligned or len(spans) == 1:
        return 0, segment.lanes
    first = group * width
    last = tirx.min(first + width, facts.outputs) - 1
    begin = tirx.floordiv(first, facts.group_out)
    count = (tirx.floordiv(last, facts.group_out) - begin + 1) * facts.group_in
    return conv.ctx.analyzer.simplify(begin * facts.group_in - start), conv.ctx.analyzer.simplify(count)


def _groups_of(facts: ConvFacts, first: int, width: int) -> int:
    """Groups of channels that ``width`` outputs from ``first`` on lie in."""
    last = min(first + width, facts.outputs) - 1
    return last // facts.group_out - first // facts.group_out + 1


def _channel(segment: Segment, block: int, start: Any, cb: Any, c: Any) -> Any:
    """The channel as the input's layout wants it: (block, lane), or an index."""
    if not block:
        return start + segment.first + c
    if segment.aligned:
        return tirx.floordiv(start + segment.first, block) + cb, c
    channel = start + segment.first + cb * segment.lanes + c
    return tirx.floordiv(channel, block), tirx.floormod(channel, block)
