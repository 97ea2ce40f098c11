"""The steps of seven products of halves, and in float16 their sums in runs (see :mod:`..kernel.half_sums`).

    for run of a product's channels
      acc[z] = 0
      for block of channels of the run:  acc[z] += left * right
      U[z] += acc[z]                                       or W, or sums of an output's own, which begin as U

What seven products add and subtract again is up to nine times as large as what eight add up, and so are its roundings:
of 256 to 4,608 channels, random weights and inputs, results are off by 0.0031 to 0.0042 of their size (root of the mean
square), where eight products make 0.0017 at most and Winograd's F(4x4, 3x3) 0.005. So they are for models whose outputs
stay within an error all the same (passes/halves/spread.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tvm import tirx

from ...targets.target import Target
from ..instructions.by_element import at_new_lines, each_line, multiply_elements, takes_elements
from ..instructions.load_order import keep_loads
from ..kernel.half_sums import HALF, SHORT
from ..words.group import dtype_bytes
from ..words.tvm_types import Buffer, Expr
from .kernel import ConvKernel
from .weight_prefetch import NextPanel, prefetch
from .winograd.transform import HALF4, HALF_S4

if TYPE_CHECKING:
    from ..emit.builder import KernelBuilder

GROWTH = 2.0 * max(HALF4.growth, HALF_S4.growth)  # of errors, as that of a transform: more than any of these
RUN = 2.0  # cycles to add a vector of a run to the sums

Vectors = tuple[int, int]  # how many, and lanes of one
Sums = tuple[Buffer, Expr]  # a buffer, and where they lie in it


def allowed(target: Target, dtype: str) -> bool:
    """True if the errors of seven products may be made."""
    return dtype != HALF or target.half_growth >= GROWTH


def error_bound(channels: int) -> float:
    """How far a result in float16 may be off, in units of max|x| max|w| channels: an output is a sum of products of
    half of the channels of at most 1, 9, 4 and 4 times these, whose operands, terms and sums are rounded."""
    roundings = SHORT + _runs(channels, 1) + 10
    return 2.0**-11 * (1 + 9 + 4 + 4) / 2 * roundings


def run_cycles(dtype: str, channels: int, lanes: int) -> float:
    """Cycles that the runs of seven products take more than those of eight, for a vector of a quarter of the
    outputs."""
    if dtype != HALF:
        return 0.0
    return RUN * (7 * _runs(channels // 2 // lanes, lanes) - 4 * _runs(channels // lanes, lanes))


def _runs(blocks: int, lanes: int) -> int:
    return -(-blocks // max(1, SHORT // lanes))


def add_runs(
    k: KernelBuilder, vectors: Vectors, blocks: int, begin: Sequence[Sums], keep: Sums | None,
    body: Callable[[Buffer, Expr], None],
) -> Buffer:  # fmt: skip
    """Adds a product to the sums ``begin``, into ``keep``; else returns them in accumulators. ``body(acc, block)`` adds
    the products of a block of channels, of so many. All runs are about as long."""
    count, lanes = vectors
    acc = k.local("acc", HALF, count * lanes)
    runs = _runs(blocks, lanes)
    length = -(-blocks // runs)
    runs = -(-blocks // length)
    own = keep or (k.local("sums", HALF, count * lanes, "global"), tirx.IntImm("int32", 0))

    def add(sources: Sequence[Sums], where: Sums | None) -> None:
        """The sums of ``sources`` and the run, in ``where`` or the accumulators."""
        with k.loop(count, "unroll", "z") as z, k.loop(lanes, "vectorized", "v") as v:
            at, value = z * lanes + v, acc[z * lanes + v]
            for source, place in sources:
                value = source[place + at] + value
            buffer, place = where or (acc, tirx.IntImm("int32", 0))
            k.store(buffer, place + at, value)

    with k.loop(runs, name="run") as run:
        with k.loop(count, "unroll", "z") as z, k.loop(lanes, "vectorized", "v") as v:
            k.store(acc, z * lanes + v, tirx.const(0, HALF))
        inside = length if blocks % length == 0 else tirx.min(blocks - run * length, length)
        with k.loop(inside, name="cb") as cb:
            body(acc, run * length + cb)
        ends = runs - 1 if keep is None else runs  # the last run is added where it lies
        if keep is not None and len(begin) == 1 and begin[0][0] is keep[0]:
            add([own], own)
        elif ends > 0:
            with k.when(tirx.EQ(run, 0)):
                add(begin, own)
            with k.when(tirx.And(run > 0, run < ends)):
                add([own], own)
    if keep is None:
        add([own] if runs > 1 else begin, None)
    return acc


def holds_channels(target: Target, dtype: str) -> bool:
    """True where register tiles hold the channels of their left operand, of which multiply-adds take elements."""
    return takes_elements(target, dtype)


def loaded(buffer: Buffer, place: Expr) -> Expr:
    """The element at ``place``."""
    return buffer[place]


def multiply_block(
    conv: ConvKernel, acc: Buffer, block: Expr, left: Callable[[Expr], Callable[[Expr], tuple[Buffer, Expr]]],
    right: tuple[Buffer, Expr], hints: tuple[NextPanel | None, Expr | None],
) -> None:  # fmt: skip
    """Adds the products of a block of channels of the tile. ``left``: by channel, where the elements of each pair lie;
    ``right``: the weights, and where those of the product begin; ``hints``: how the next panel is asked for, and from
    where on."""
    k, lanes, tile, target = conv.k, conv.lanes, conv.tile, conv.request.target
    (weights, offset), (following, share), size = right, hints, dtype_bytes(conv.facts.output.dtype)
    width = tile.blocks * lanes
    if following is not None and not following.spreads(lanes):
        following.ask(k, weights, share, block)
    spread = following is not None and following.spreads(lanes)
    if holds_channels(target, conv.facts.output.dtype):
        held, first = k.local("x", HALF, tile.columns * lanes), left(tirx.IntImm("int32", 0))
        for x in range(tile.columns):
            buffer, place = first(x)
            k.store(held, tirx.Ramp(x * lanes, 1, lanes), buffer[tirx.Ramp(place, 1, lanes)])
        with k.loop(lanes, "unroll", "c") as c:
            step = offset + (block * lanes + c) * width
            if following is not None and spread:
                with each_line(k, c, following.lines * following.line // lanes * size):
                    following.ask_beside(k, weights, share, block, c, lanes)
            if conv.far and following is None:
                ask = lambda at: prefetch(k, weights, step + at // size, 1, lanes, size)  # noqa: E731
                at_new_lines(k, c, width * size, ask)
            element, shape = lambda x: held[x * lanes + c], (tile.columns, tile.blocks, lanes)  # noqa: E731
            multiply_elements(k, target, acc, element, lambda i: weights[step + i], shape)
        return
    with k.loop(lanes, name="c") as c:
        conv.ctx.ranged(c, lanes)
        if following is not None and spread:
            following.ask_beside(k, weights, share, block, c, lanes)
        step = offset + (block * lanes + c) * width
        if conv.far and following is None:
            prefetch(k, weights, step, tile.blocks, lanes, size)
        keep_loads(k, target)
        at = left(c)
        with k.loop(tile.columns, "unroll", "x") as x:
            factor = loaded(*at(x))
            with k.loop(tile.blocks, "unroll", "b") as b, k.loop(lanes, "vectorized", "v") as v:
                slot = (x * tile.blocks + b) * lanes + v
                k.store(acc, slot, acc[slot] + factor * weights[step + b * lanes + v])
