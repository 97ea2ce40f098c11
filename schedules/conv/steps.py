"""The steps of a direct convolution's reduction: loops over taps and channels, and what they ask for ahead.

Channels are written out (:mod:`..steps`), so that the weights of later ones are asked for sooner where they come from
the second level.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from ..group import dtype_bytes
from ..steps import unrolled
from .facts import ConvFacts
from .following import ask_beside, ask_for_data, next_data
from .prefetch import Next, Runs, ask, prefetch
from .shared import columns_read, multiply
from .tile import ConvKernel


@dataclass(frozen=True)
class Segment:
    """Input channels ``first + [0, blocks * lanes)`` of a channel group, read block by block. ``aligned`` if the
    first channel of every group of the kind begins a block of the input."""

    first: int
    blocks: int
    lanes: int
    aligned: bool = True


def _meets_image(conv: ConvKernel, origins: list[Any], column: Any, taps: list[Any]) -> Any:
    """True if a position of the tile reads the image at these taps."""
    facts, tile = conv.facts, conv.tile
    parts = []
    for i, (origin, count) in list(enumerate(((origins[-1], tile.rows), (column, tile.columns))))[: len(taps)]:
        first = origin * facts.strides[i] + taps[i] * facts.dilation[i] - facts.before[i]
        parts += [first + (count - 1) * facts.strides[i] >= 0, first < facts.data.shape[2 + i]]
    return tirx.all(*parts)


def emit_steps(
    conv: ConvKernel,
    segment: Segment,
    block: int,
    acc: Any,
    weights: Any,
    where: Any,
    base: Any,
    share: Any,
    below: Any,
    runs: Runs | None,
) -> None:
    """Loops over the taps and the channels of one block of one segment. ``share``: where the part of the next panel
    begins that this tile asks for; ``below``: the same of the next row's input, by block of channels; ``runs``: how it
    asks for the lines of its results."""
    k, facts, tile, lanes = conv.k, conv.facts, conv.tile, conv.lanes
    n, start, group, (cb, own), origins, column = where
    width = tile.blocks * lanes
    first, count = own_channels(conv, group, start, segment)
    zero = tirx.IntImm("int32", 0)
    conv.begins(n, _channel(segment, block, start, zero, zero), origins, column)

    with ExitStack() as loops:
        index, taps = loops.enter_context(conv.taps(cb))
        asked: list[tuple[Next, Any, Any, Any]] = []
        if share is not None and conv.next is not None:
            asked.append((conv.next, weights, share, index))
        if below is not None and conv.below is not None:
            asked.append((conv.below, conv.read(facts.data), below(own), index - cb * conv.tap_steps))
        for following, buffer, begin, number in asked:
            if not following.spreads(count):
                following.ask(k, buffer, begin, number)
        data = _ask_for_data(conv, segment, count, (n, own, origins, column))
        results = conv.result_runs(n, conv.block_of(group), origins, column, runs, index) if runs is not None else []
        if facts.skips:
            loops.enter_context(k.when(_meets_image(conv, origins, column, taps)))
        c = loops.enter_context(unrolled(conv.ctx, conv.request.target, count, "c", first, segment.lanes))
        if data is not None:
            ask_beside(conv, data, c)
        for buffer, begin, written in results:
            assert runs is not None
            ask(k, buffer, begin + c * runs.stride, written)
        for following, buffer, begin, number in asked:
            if following.spreads(count):
                following.ask_beside(k, buffer, begin, number, c, count)
        channel = _channel(segment, block, start, own, c)
        side = 1 if tile.window is None else tile.window.taps
        step = base + (index * segment.lanes + c) * (width * side)
        if conv.far and conv.next is None:
            prefetch(k, weights, step, tile.blocks * side, lanes, dtype_bytes(facts.output.dtype))
        if tile.window is not None:
            for at, pairs in columns_read(conv, origins, column, taps):
                value = k.bind(conv.element_at(n, channel, at), "x")
                multiply(conv, acc, lambda _: value, weights, step, pairs)  # noqa: B023
            return
        with k.loop(tile.rows, "unroll", "dy") as dy, k.loop(tile.columns, "unroll", "dx") as dx:
            value = conv.input(n, channel, conv.positions(origins, column, dy, dx), taps)
            if conv.has_prologue:
                value = k.bind(value, "x")
            with k.loop(tile.blocks, "unroll", "b") as b, k.loop(lanes, "vectorized", "v") as v:
                slot = ((dy * tile.columns + dx) * tile.blocks + b) * lanes + v
                k.store(acc, slot, acc[slot] + value * weights[step + b * lanes + v])


def _ask_for_data(conv: ConvKernel, segment: Segment, count: Any, where: Any) -> Any | None:
    """Where the data begins that the channels of this block ask for; None where they don't, but for all at once."""
    n, own, origins, column = where
    if isinstance(count, int) and count == conv.lanes:
        data = next_data(conv, n, own, segment.blocks, origins, column)
        if data is not None:
            return data
    if conv.distance and segment.blocks > 1:
        ask_for_data(conv, n, own + conv.distance, origins, column)
    return None


def own_channels(conv: ConvKernel, group: Any, start: Any, segment: Segment) -> tuple[Any, Any]:
    """The first channel of a segment that a vector of outputs reads, and how many: where most vectors lie in one group
    of channels and some in two, the segment is as long as two."""
    facts, width = conv.facts, conv.tile.blocks * conv.lanes
    spans = {groups_of(facts, first, width) for first in range(0, facts.outputs, width)}
    if facts.groups == 1 or segment.aligned or len(spans) == 1:
        return 0, segment.lanes
    first = group * width
    last = tirx.min(first + width, facts.outputs) - 1
    begin = tirx.floordiv(first, facts.group_out)
    count = (tirx.floordiv(last, facts.group_out) - begin + 1) * facts.group_in
    return conv.ctx.analyzer.simplify(begin * facts.group_in - start), conv.ctx.analyzer.simplify(count)


def groups_of(facts: ConvFacts, first: int, width: int) -> int:
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
