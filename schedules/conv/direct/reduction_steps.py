"""The steps of a direct convolution's reduction: loops over taps and channels, and what they ask for ahead.

Channels are written out (:mod:`...kernel.unrolled_steps`), so that the weights of later ones are asked for sooner where
they come from the second level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial

from tvm import tirx

from ...instructions.by_element import at_new_lines, each_line
from ...instructions.load_order import keep_loads
from ...kernel.unrolled_steps import unrolled
from ...words.dims import is_dim, to_index
from ...words.group import dtype_bytes
from ...words.tvm_types import Buffer, Expr
from ..kernel import ConvKernel
from ..spanning import Owners, chosen
from ..weight_prefetch import NextPanel, Runs, ask, prefetch
from .channel_vectors import has_room, held_channels, holds_channels, multiply_channel
from .data_prefetch import ask_beside, ask_for_data, next_data
from .row_vectors import multiply_rows
from .shared_taps import columns_read, multiply


@dataclass(frozen=True)
class ChannelSegment:
    """Input channels ``first + [0, blocks * lanes)`` of a channel group, read block by block. ``aligned`` if the
    first channel of every group of the kind begins a block of the input."""

    first: int
    blocks: int
    lanes: int
    aligned: bool = True


def _passed_over(conv: ConvKernel) -> tuple[int, ...]:
    """The axes along which a tile asks whether a tap of it lies in the image. In images of open size those along which
    the first tap of a whole tile may lie in the padding: of images of one row, 3x3 taps are three that count."""
    facts, tile = conv.facts, conv.tile
    if facts.skips:
        return 0, 1
    if not conv.is_open or len(facts.out_spatial) != 2:
        return ()
    spans = zip((tile.rows, tile.columns), facts.strides, facts.before, facts.data.shape[2:])
    return tuple(i for i, (count, s, before, size) in enumerate(spans) if is_dim(size) and (count - 1) * s < before)


def _meets_image(conv: ConvKernel, axes: Sequence[int], origins: list[Expr], column: Expr, taps: list[Expr]) -> Expr:
    """True if a position of the tile reads the image at these taps, along ``axes``."""
    facts, tile = conv.facts, conv.tile
    parts, begins = [], conv.positions(origins, column, 0, 0)
    for i, count in list(enumerate((tile.rows, tile.columns)))[: len(taps)]:
        if i in axes:
            first = begins[i] * facts.strides[i] + taps[i] * facts.dilation[i] - facts.before[i]
            parts += [first + (count - 1) * facts.strides[i] >= 0, first < to_index(facts.data.shape[2 + i])]
    return tirx.all(*parts)


def emit_steps(
    conv: ConvKernel,
    segment: ChannelSegment,
    block: int,
    acc: Buffer,
    weights: Buffer,
    where: tuple[Expr, Expr, Expr, tuple[Expr, Expr], list[Expr], Expr],
    base: Expr,
    share: Expr | None,
    below: Expr,
    runs: Runs | None,
    owners: Owners | None = None,
) -> None:
    """Loops over the taps and the channels of one block of one segment. ``share``: where the part of the next panel
    begins that this tile asks for; ``below``: the same of the next row's input, by block of channels; ``runs``: how it
    asks for the lines of its results; ``owners``: the groups of channels, where the lanes lie in several."""
    k, facts, tile, lanes = conv.k, conv.facts, conv.tile, conv.lanes
    n, start, group, (cb, own), origins, column = where
    width, size = tile.blocks * lanes, dtype_bytes(facts.output.dtype)
    zero, axes = tirx.IntImm("int32", 0), _passed_over(conv)
    conv.begins(n, _channel(segment, block, start, zero, zero), origins, column)

    with ExitStack() as loops:
        index, taps = loops.enter_context(conv.taps(cb))
        asked: list[tuple[NextPanel, Buffer, Expr, Expr]] = []
        if share is not None and conv.next is not None:
            asked.append((conv.next, weights, share, index))
        if below is not None and conv.below is not None:
            asked.append((conv.below, conv.read(facts.data), below(own), index - cb * conv.tap_steps))
        for following, buffer, begin, number in asked:
            if not following.spreads(segment.lanes):
                following.ask(k, buffer, begin, number)
        data = _ask_for_data(conv, segment, (n, own, origins, column))
        results = conv.result_runs(n, conv.block_of(group), origins, column, runs, index) if runs is not None else []
        if any(axis < len(taps) for axis in axes):
            loops.enter_context(k.when(_meets_image(conv, axes, origins, column, taps)))
        held = None
        if segment.aligned and owners is None and holds_channels(conv.request, facts) and has_room(conv):
            held = held_channels(conv, n, _channel(segment, block, start, own, zero)[0], origins, column, taps)
            c = loops.enter_context(k.loop(segment.lanes, "unroll", "c"))
        else:
            c = loops.enter_context(unrolled(conv.ctx, conv.request.target, segment.lanes, "c"))
        lines = nullcontext if held is None else partial(each_line, k, c)
        if data is not None:
            ask_beside(conv, data, c)
        for buffer, begin, written in results:
            assert runs is not None
            with lines(runs.stride * size):
                ask(k, buffer, begin + c * runs.stride, written)
        for following, buffer, begin, number in asked:
            if following.spreads(segment.lanes):
                with lines(following.lines * following.line // segment.lanes * size):
                    following.ask_beside(k, buffer, begin, number, c, segment.lanes)
        channel = _channel(segment, block, start, own, c)
        side = 1 if tile.window is None else tile.window.taps
        step = base + (index * segment.lanes + c) * (width * side)
        if conv.far and conv.next is None and held is None:
            prefetch(k, weights, step, tile.blocks * side, lanes, size)
        elif conv.far and conv.next is None:
            at_new_lines(
                k, c, width * side * size, lambda at: prefetch(k, weights, step + at // size, 1, lanes, size)
            )
        _multiply(conv, acc, weights, step, (n, channel, segment.first + c, origins, column, taps), block, owners, held)


def _multiply(
    conv: ConvKernel, acc: Buffer, weights: Buffer, step: Expr, at: Expr, block: int, owners: Owners | None,
    held: Buffer | None,
) -> None:  # fmt: skip
    """The products of one channel and tap, or of one channel and the taps that share their data. ``held``: the channels
    of all positions, where these lie in registers."""
    k, tile, lanes, (n, channel, number, origins, column, taps) = conv.k, conv.tile, conv.lanes, at
    if held is not None:
        multiply_channel(conv, acc, held, weights, step, channel[1])
        return
    if tile.window is not None and tile.window.lanes:
        multiply_rows(conv, acc, weights, step, (n, channel, origins, column, taps))
        return
    keep_loads(k, conv.request.target)

    def by_lanes(read: Callable[[Expr | tuple[Expr, Expr]], Expr], held: bool) -> Callable[[Expr], Expr]:
        if owners is not None:
            return chosen(conv, owners, number, lambda i: read(_place(block, i)))
        value = k.bind(read(channel), "x") if held else read(channel)
        return lambda _: value

    if tile.window is not None:
        for place, pairs in columns_read(conv, origins, column, taps):
            value = by_lanes(lambda i: conv.element_at(n, i, place), True)  # noqa: B023
            multiply(conv, acc, value, weights, step, pairs)
        return
    with k.loop(tile.rows, "unroll", "dy") as dy, k.loop(tile.columns, "unroll", "dx") as dx:
        position = conv.positions(origins, column, dy, dx)
        value = by_lanes(lambda i: conv.input(n, i, position, taps), conv.has_prologue)
        with k.loop(tile.blocks, "unroll", "b") as b, k.loop(lanes, "vectorized", "v") as v:
            slot = ((dy * tile.columns + dx) * tile.blocks + b) * lanes + v
            k.store(acc, slot, acc[slot] + value(v) * weights[step + b * lanes + v])


def _ask_for_data(conv: ConvKernel, segment: ChannelSegment, where: tuple[Expr, Expr, list[Expr], Expr]) -> Expr | None:
    """Where the data begins that the channels of this block ask for; None where they don't, but for all at once."""
    n, own, origins, column = where
    if segment.lanes == conv.lanes:
        data = next_data(conv, n, own, segment.blocks, origins, column)
        if data is not None:
            return data
    if conv.distance and segment.blocks > 1:
        ask_for_data(conv, n, own + conv.distance, origins, column)
    return None


def _channel(segment: ChannelSegment, block: int, start: Expr, cb: Expr, c: Expr) -> Expr | tuple[Expr, Expr]:
    """The channel as the input's layout wants it: (block, lane), or an index."""
    if not block:
        return start + segment.first + c
    if segment.aligned:
        return tirx.floordiv(start + segment.first, block) + cb, c
    return _place(block, start + segment.first + cb * segment.lanes + c)


def _place(block: int, channel: Expr) -> Expr | tuple[Expr, Expr]:
    """A channel as the input's layout wants it."""
    return (tirx.floordiv(channel, block), tirx.floormod(channel, block)) if block else channel
