"""Direct convolution in NCHW[v]c: register tiles, rolled loops over channels and taps.

    parallel for n, group of blocks, row of tiles
      for column of tiles                               last one moved back, never smaller
        acc[positions][blocks][lanes] = 0
        for channel block, taps, channel in block       rolled: LLVM keeps the tile in registers
          acc[p][b] += x[p, channel] (broadcast) * w[group][block][tap][channel][b]
        epilogue(acc)

One tile of 14 x 2 vectors of 16 floats holds 28 accumulators, 2 weights and 1 broadcast in 31 of 32 registers and
needs 16 loads for 28 multiply-adds. Weights lie in the order they are read. Vectors of output channels that span
several groups of a convolution choose what they multiply lane by lane (:mod:`..spanning`).

Panels of weights are passed in parts that stay in the first-level cache (:mod:`.weight_panels`).

In tiles of one vector, which would wait for loads, the taps of a row share what they load (:mod:`.shared_taps`).

Rows that tiles leave over have a tile of their own on cores so fast that they wait for weights (of several taps: where
one vector's fill the first-level cache), instead of one that is moved back: seven rows are three tiles of 2 x 7 and one
of 1 x 7, and the weights pass four times, not seven (another 2 to 4% of the peak for 1x1 layers; 3x3 of 512 channels
at 7 x 7 takes 0.94 of the time).

So have vectors of outputs that are left over: 125 of them are 62 tiles of two vectors and one of one, where 125 tiles
of one vector would wait for loads (512 to 1000 channels at 13 x 13: 0.7 of the time on Zen 3). So have columns, where
that saves more than twice the code costs: 29 of them are four tiles of 6 and one of 5.

Where many taps lie in the padding (a dilation of 24 at 40 x 40: 64 of 100), a tile passes over those that all its
positions have there.

Several cores share an image by rows. Of tiles that cost the same they take one whose rows they can share evenly (14
rows in 14 tiles, not in 7), and 1x1 layers ask for their data ahead, some of which lies in the other core's cache:
ShuffleNetV2 takes 0.955 of the time on two cores so, MobileNetV2 0.97 (Emerald Rapids).
1x1 layers that widen a small image are shared by channels instead, as is the depthwise layer behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
from tvm import tirx

from ....targets.target import Target
from ...instructions.opaque_numbers import any_number
from ...instructions.prefetch import LINE
from ...kernel.context import Context
from ...kernel.half_sums import HalfSums, blocks_in_runs, run_steps
from ...kernel.work_sharing import has_long_bands
from ...words.group import Kernel, Packed, Request, dtype_bytes
from ...words.tvm_types import Buffer, Expr
from ..byte_results import write_tile
from ..facts import OPERATORS, ConvFacts
from ..kernel import ConvKernel, finish, new_context
from ..narrower import each_width
from ..register_tile import (
    Space,
    TapWindow,
    Tile,
    choose_tile,
    left_over,
    narrow_pays,
    narrow_tile,
    rest_tile,
    spread_tile,
)
from ..result_waits import waits_for_results
from ..spanning import Owners, group_counts, one_group, several_groups, spans_groups
from ..weight_prefetch import Runs, spread_runs
from .channel_vectors import holds_channels
from .data_prefetch import below_of, data_distance, image_bytes, next_of, row_below
from .last_vector import emit_tail, joined_parts, joined_tile, pack_tail, tail_parts, tail_tile
from .reduction_steps import ChannelSegment, emit_steps
from .row_vectors import row_window
from .shared_taps import shared_window
from .weight_panels import count_parts, leaves, passes_by, rows_first, sums_place

ONCE = 1.03  # of the cycles: more is not worth a window that is written where it is read
WIDER = 2  # times the inputs: so many outputs cores rather share than the rows of a small image
AGAIN = 4  # times that a tile asks for a line of its results, which is too often
OWN_GROUPS = 8  # weights this many times the image: a core rather reads all of the image and a part of the weights


def build_direct(request: Request, facts: ConvFacts, tile: Tile | None = None) -> Kernel:
    """The kernel of a direct convolution in register tiles of ``tile``; by default the one that :func:`own_tile`
    chooses."""
    ctx = new_context(request)
    tiles = emit_direct(request, facts, ctx, tile=tile)
    lanes = request.layout(request.group.outputs[0]).block
    return finish(ctx, f"direct conv C{lanes}, tile {' and '.join(map(str, tiles))}", facts.flops, tiles)


def emit_direct(
    request: Request,
    facts: ConvFacts,
    ctx: Context,
    place: Callable[[list[Expr]], list[Expr]] = list,
    steps: tuple[int, ...] = (),
    tile: Tile | None = None,
) -> list[Tile]:
    """Adds one direct convolution to a kernel and returns its register tile, and that of the last vector of channels
    where :mod:`.last_vector` computes it. ``place`` maps its output coordinates to those of the tensor, where
    neighbours lie ``steps`` apart."""
    tile = tile or own_tile(request, facts)
    if facts.sizes is not None:
        for narrow in each_width(ctx, facts, tile):
            _emit_tile(request, facts, ctx, place, steps, narrow)
        return [tile]
    return _emit_tile(request, facts, ctx, place, steps, tile)


def _emit_tile(
    request: Request,
    facts: ConvFacts,
    ctx: Context,
    place: Callable[[list[Expr]], list[Expr]],
    steps: tuple[int, ...],
    tile: Tile,
) -> list[Tile]:
    lanes = request.layout(request.group.outputs[0]).block
    parts = tail_parts(request, facts)
    width = facts.out_spatial[-1]
    conv = ConvKernel(request, facts, tile, lanes, ctx, place, steps)
    if tile.parts > 1:
        _emit_joined(conv)
        return [tile]
    segments = _segments(request, facts, lanes)
    if parts == 1:
        return [tile, *_emit(conv, segments)]
    last = tail_tile(request.target, facts, tile.rows, tile.columns if conv.varies else width, parts)
    beside = _emit(conv, segments, ConvKernel(request, facts, last, lanes, ctx, place, steps))
    return [tile, *beside, last] if facts.outputs > lanes else [last]


def tile_space(request: Request, facts: ConvFacts) -> Space:
    """What the register tile is chosen for, whatever taps share and however tiles end."""
    lanes = request.layout(request.group.outputs[0]).block
    channel_blocks = -(-facts.outputs // lanes)
    split = tail_parts(request, facts) > 1
    if channel_blocks > 1 and split:
        channel_blocks -= 1
    height = facts.out_spatial[-2] if len(facts.out_spatial) > 1 and facts.sizes is None else 1
    limit = channel_blocks if facts.groups == 1 else _blocks_per_group(facts, lanes)
    ragged = facts.groups == 1 and not split and facts.sizes is None
    elements = holds_channels(request, facts)
    return Space(height, facts.out_spatial[-1], channel_blocks, limit, ragged=ragged, elements=elements)


def own_tile(request: Request, facts: ConvFacts) -> Tile:
    """The register tile of the fewest cycles; cores count as sharing an image where there is not one for each."""
    once = request.limits.once
    joined = joined_tile(request, facts) if not once else None
    if joined is not None:
        return joined
    workers = 1 if facts.batch % request.workers == 0 else request.workers
    space = replace(shared_space(request, facts), narrowed=has_narrow(request, facts), once=once)
    if request.box is not None and request.box.spread and not once:
        return spread_tile(request.target, space, request.box.spread_of(space.height, space.width))
    return choose_tile(request.target, space, workers, _flat(request.target, facts))


def rest_of(request: Request, facts: ConvFacts, tile: Tile) -> Tile | None:
    """The register tile of the vectors of outputs that ``tile`` leaves over; None if it leaves none."""
    space = shared_space(request, facts)
    ragged = space.ragged and tile.parts == 1 and space.blocks % tile.blocks
    return rest_tile(request.target, space, tile) if ragged else None


def once_pays(request: Request, facts: ConvFacts) -> bool:
    """True if register tiles that compute no output twice take at most ONCE of the cycles of the best ones."""
    space, target = shared_space(request, facts), request.target
    unit = request.limits.once or facts.out_spatial[-1]
    once, free = (min(c for c, _ in replace(space, once=o).tiles(target)) for o in (unit, 0))
    return once <= ONCE * free


def own_window(request: Request, facts: ConvFacts) -> TapWindow | None:
    """The taps that share their data in every register tile of the convolution."""
    space = tile_space(request, facts)
    return row_window(request, facts) or shared_window(request.target, facts, space.blocks, space.limit)


def shared_space(request: Request, facts: ConvFacts) -> Space:
    """The same, with the taps that share their data and the rows that are left over."""
    return replace(tile_space(request, facts), mixed=has_left_over(request, facts), window=own_window(request, facts))


def has_left_over(request: Request, facts: ConvFacts) -> bool:
    """True if rows that a register tile leaves over have one of their own."""
    whole = request.box is None and facts.edges is None and len(facts.out_spatial) == 2
    plain = tail_parts(request, facts) == 1 and joined_parts(request, facts) == 1
    vector = facts.channels * facts.taps * request.target.vector_bits // 8  # of weights: one tile's pass
    passes = facts.taps == 1 or vector > request.target.l1_bytes
    return whole and request.target.fma_ports > 1 and facts.groups == 1 and plain and passes


def has_narrow(request: Request, facts: ConvFacts) -> bool:
    """True if columns that a register tile leaves over have one of their own."""
    anchor = request.group.anchor
    whole = request.box is None and facts.edges is None and len(facts.out_spatial) == 2
    if not whole or anchor is None or anchor.operator not in OPERATORS or joined_parts(request, facts) > 1:
        return False
    return narrow_pays(request.target, shared_space(request, facts))


def _flat(target: Target, facts: ConvFacts) -> bool:
    """True for 1x1 layers of cores so fast that these wait for the lines of a tile: 64 to 256 channels at 56 take 0.97
    of the time in tiles of one row, 96 to 24 channels 0.95 (Granite Rapids)."""
    return facts.taps == 1 and target.fma_ports > 1


def _blocks_per_group(facts: ConvFacts, lanes: int) -> int:
    """Vectors that may share a tile: those of one group, or one where vectors span groups."""
    return facts.group_out // lanes if facts.group_out % lanes == 0 else 1


def _start(facts: ConvFacts, first_output: Expr) -> Expr:
    """First input channel that the outputs from ``first_output`` on read."""
    return first_output // facts.group_out * facts.group_in


def _segments(request: Request, facts: ConvFacts, lanes: int) -> list[ChannelSegment]:
    block, span = request.layout(facts.data).block, facts.group_in
    aligned = facts.groups == 1 or (span % lanes == 0 and not spans_groups(facts, lanes))
    if not block or not aligned:
        return [ChannelSegment(0, 1, span, aligned=False)]
    segments = [ChannelSegment(0, span // block, block)] if span >= block else []
    if span % block:
        segments.append(ChannelSegment(span - span % block, 1, span % block))
    return segments


def pack_weights(
    facts: ConvFacts, blocks: int, lanes: int, segments: list[ChannelSegment], side: int = 1, first: int = 0
) -> np.ndarray:
    """[group of blocks][segment][block][tap][channel][tap of ``side``][vector][lane], zero past the last output.
    ``side``: taps of the last axis that share their data; ``first``: the first output, of one group of channels."""
    width, span, outputs = blocks * lanes, facts.group_in, facts.outputs - first
    groups = -(-outputs // width)
    flat = np.asarray(facts.weight.constant).reshape(facts.outputs, facts.group_in, facts.taps)[first:]
    dense = np.zeros((groups * width, span, facts.taps), flat.dtype)
    dense[:outputs] = flat
    dense = dense.reshape(groups, blocks, lanes, span, facts.taps)
    parts = []
    for s in segments:
        part = dense[:, :, :, s.first : s.first + s.blocks * s.lanes]
        part = part.reshape(groups, blocks, lanes, s.blocks, s.lanes, facts.taps // side, side)
        parts.append(part.transpose(0, 3, 5, 4, 6, 1, 2).reshape(groups, -1))
    return np.ascontiguousarray(np.concatenate(parts, axis=1))


def _widens(conv: ConvKernel) -> bool:
    """True for a 1x1 layer of a small image whose outputs are more than its inputs: each core rather reads the other's
    part of the few than writes rows of the many, which a depthwise layer behind it takes by channels."""
    facts, workers = conv.facts, conv.request.workers
    small = len(facts.out_spatial) == 2 and not has_long_bands(facts.out_spatial[0], workers)
    return small and facts.taps == 1 and facts.groups == 1 and facts.outputs >= WIDER * facts.channels


def _emit(conv: ConvKernel, segments: list[ChannelSegment], tail: ConvKernel | None = None) -> list[Tile]:
    """The kernel's tasks: groups of whole vectors, and the ``tail``, or vectors that are left over, as one group more.
    Returns the tiles of rows, columns and vectors that are left over, if any."""
    k, ctx, facts, tile, lanes = conv.k, conv.ctx, conv.facts, conv.tile, conv.lanes
    groups = whole = conv.channel_blocks // tile.blocks
    side = 1 if tile.window is None else tile.window.taps
    packed = pack_weights(facts, tile.blocks, lanes, segments, side)
    last = rest_of(conv.request, facts, tile)
    if tail is not None:
        whole = (conv.channel_blocks - 1) // tile.blocks
        conv.outputs = whole * tile.blocks * lanes
        groups = whole + 1
        packed = np.concatenate([packed[:whole].reshape(-1), pack_tail(facts, lanes, tail.tile)])
    elif last is not None:
        groups = whole + 1
        others = pack_weights(facts, last.blocks, lanes, segments, side, whole * tile.blocks * lanes)
        packed = np.concatenate([packed[:whole].reshape(-1), others.reshape(-1)])
    row = facts.group_in * facts.taps * tile.blocks * lanes
    weights = ctx.packed(Packed(f"w_{facts.weight.name}", packed))
    conv.far = packed.nbytes > conv.request.target.l2_bytes // 2 or passes_by(conv)
    if rows_first(conv, packed.nbytes):
        conv.order = "rows"
    elif packed.nbytes > OWN_GROUPS * image_bytes(conv) or leaves(conv, packed.nbytes // groups) or _widens(conv):
        conv.order = "groups"
    conv.next = next_of(conv, segments[0].blocks, row)
    conv.below = below_of(conv, groups)
    conv.distance = data_distance(conv)
    if tail is None:
        conv.parts = count_parts(conv, segments, row)
        if conv.parts > 1:
            conv.next = next_of(conv, segments[0].blocks, row)
    conv.mixed = has_left_over(conv.request, facts)
    parts = [conv]
    if last is not None:
        begin, base = whole * tile.blocks, whole * row
        parts.append(replace(conv, tile=last, next=None, below=None, begin=begin, base=base))
        conv.sums_room = parts[1].sums_elements
    if has_narrow(conv.request, facts):
        for p in parts:
            p.narrow = narrow_tile(p.tile, facts.out_spatial[-1])
    with conv.tasks(groups) as (n, group, origins):
        at = (n, *_cut(conv, group, groups), origins)
        if tail is None and last is None:
            _rows(conv, segments, weights, at)
        else:
            group = at[1]
            if whole:
                with k.when(group < whole):
                    inside = conv.bind(tirx.min(group, whole - 1), whole)
                    _rows(conv, segments, weights, (n, inside, *at[2:]))
            with k.when(group >= whole) if whole else nullcontext():
                if tail is not None:
                    tail.far = conv.far
                    emit_tail(tail, weights, whole * row, n, origins)
                else:
                    parts[1].continues(conv)
                    _rows(parts[1], segments, weights, (n, tirx.IntImm("int32", 0), *at[2:]))
    tiles = [t for p in parts for t in (left_over(p.tile, facts.out_spatial[0]) if p.mixed else None, p.narrow)]
    return [t for t in (tiles[:2] + [last] + tiles[2:]) if t is not None]


def _cut(conv: ConvKernel, group: Expr, groups: int) -> tuple[Expr, Expr]:
    """The group of vectors, and which part of its weights."""
    if conv.parts == 1:
        return group, 0
    part = conv.bind(tirx.floormod(group, conv.parts), conv.parts)
    return conv.bind(tirx.floordiv(group, conv.parts), groups), part


def _rows(conv: ConvKernel, segments: list[ChannelSegment], weights: Buffer, at: Expr) -> None:
    """One row of tiles of one group of vectors, which may be that of the rows that are left over."""
    tile, height = conv.tile, conv.facts.out_spatial[0]
    left = left_over(tile, height) if conv.mixed else None
    if left is None:
        _columns(conv, segments, weights, at)
        return
    with conv.k.when(conv.row < height // tile.rows):
        _columns(conv, segments, weights, at)
    with conv.k.when(conv.row >= height // tile.rows):
        lower = None if conv.narrow is None else replace(conv.narrow, rows=left.rows)
        _columns(replace(conv, tile=left, whole=tile, narrow=lower), segments, weights, at)


def _emit_joined(conv: ConvKernel) -> None:
    """The kernel's tasks where lanes of all vectors hold several input channels."""
    packed = pack_tail(conv.facts, conv.lanes, conv.tile)
    weights = conv.ctx.packed(Packed(f"w_{conv.facts.weight.name}", packed))
    conv.far = packed.nbytes > conv.request.target.l2_bytes // 2 or passes_by(conv)
    with conv.tasks(1) as (n, _, origins):
        emit_tail(conv, weights, 0, n, origins)


def _columns(conv: ConvKernel, segments: list[ChannelSegment], weights: Buffer, at: Expr) -> None:
    """All columns of one row of tiles of one group of vectors."""
    _tiles(conv, segments, weights, at)
    if conv.narrow is not None:
        part = replace(conv, tile=conv.narrow, whole=conv.whole or conv.tile, narrow=None)
        _tiles(part, segments, weights, at)


def _tiles(conv: ConvKernel, segments: list[ChannelSegment], weights: Buffer, at: Expr) -> None:
    """The tiles of one size in one row of these, of one group of vectors."""
    k, facts, tile, lanes = conv.k, conv.facts, conv.tile, conv.lanes
    (n, group, part, origins), dtype, width = at, facts.output.dtype, tile.blocks * lanes
    block = conv.request.layout(facts.data).block
    panel = conv.base + group * (facts.group_in * facts.taps * width)
    if conv.parts > 1:
        cut = segments[0].blocks // conv.parts * segments[0].lanes * facts.taps * width
        panel = conv.bind(panel + part * cut, facts.weight.elements)
    with conv.columns() as column:
        start = conv.bind(_start(facts, group * width), facts.channels) if facts.groups > 1 else 0
        runs = _runs(conv, segments)
        acc = k.local("acc", dtype, tile.positions * width)
        place = sums_place(conv)
        with k.loop(tile.positions * tile.blocks, "unroll", "z") as z, k.loop(lanes, "vectorized", "v") as v:
            begin: Expr = tirx.const(0, dtype)
            if conv.parts > 1:
                begin = tirx.Select(part > 0, conv.sums[place + z * lanes + v], begin)
            k.store(acc, z * lanes + v, begin)
        offset = panel
        terms = facts.group_in * facts.taps
        run = run_steps(facts.taps * segments[0].lanes, terms)  # blocks of channels that are summed, then added up
        wide = None
        if sum(-(-s.blocks // run) for s in segments) > 1:
            wide = HalfSums.of(conv.ctx, acc, (tile.positions * tile.blocks, lanes), terms)
        share = offset + conv.next.share(conv.bind, conv.number) if conv.next is not None else None
        below = row_below(conv, n, group, origins) if conv.below is not None else None
        last = partial(k.when, part == conv.parts - 1) if conv.parts > 1 else nullcontext
        for segment in () if facts.empty else segments:
            own = segment is segments[0]  # which alone is cut into parts
            kept = conv.of_any_size and wide is None and segment.blocks * segment.lanes >= lanes
            count = segment.blocks // conv.parts if own else segment.blocks
            asking = min(count, -(-runs.count // conv.tap_steps)) if runs is not None else 0
            with nullcontext() if own else last():
                for begin, blocks in ((0, asking), (asking, count - asking)):
                    if not blocks and (not kept or not begin):
                        continue
                    times = any_number(conv.request.target, blocks) if begin else blocks
                    ends = segment is segments[-1] and begin + blocks == count and (own or conv.parts == 1)
                    with blocks_in_runs(k, wide, (begin, times), run, ends, kept) as cb:
                        conv.ctx.ranged(cb, max(count, 1 + kept))
                        where = (n, start, group, (cb, cb + part * count if own else cb), origins, column)
                        for owners in _forms(conv, group):
                            emit_steps(conv, segment, block, acc, weights, where, offset, share, below, runs, owners)
                    runs = None
            share = below = None
            offset = offset + count * segment.lanes * facts.taps * width
        if wide is not None:
            wide.finish()
        with last():
            write_tile(conv, acc, n, conv.block_of(group), origins, column, tile.blocks)
        if conv.parts > 1:
            with k.when(part < conv.parts - 1), k.loop(tile.positions * tile.blocks, "unroll", "z") as z:
                with k.loop(lanes, "vectorized", "v") as v:
                    k.store(conv.sums, place + z * lanes + v, acc[z * lanes + v])


def _forms(conv: ConvKernel, group: Expr) -> Iterator[Owners | None]:
    """The forms of a step, each where it applies: for vectors that lie in one group of channels, and for others."""
    if not spans_groups(conv.facts, conv.lanes):
        yield None
        return
    if 1 in group_counts(conv.facts, conv.lanes):
        with one_group(conv, group):
            yield None
    with several_groups(conv, group) as owners:
        yield owners


def _runs(conv: ConvKernel, segments: list[ChannelSegment]) -> Runs | None:
    """How a tile asks for the lines of its results beside the channels of the first segment; None where it has no need
    to, or too few steps, or where narrow tiles of open images would ask for the same lines again and again: of 3 x 2
    pixels and 3x3 taps 24 times for each, which takes 2.6 times as long (Zen 4)."""
    if not waits_for_results(conv.request.target, conv.facts, segments[0].lanes):
        return None
    steps = segments[0].blocks // conv.parts * conv.tap_steps
    element = dtype_bytes(conv.facts.output.dtype)
    runs = spread_runs(conv.tile, conv.lanes, steps, segments[0].lanes, element)
    if runs is None or not conv.of_any_size or conv.facts.taps == 1:
        return runs
    return None if runs.stride * element * AGAIN <= LINE else runs
