"""Group convolutions of a few channels a group, as many out as in: a vector holds several groups, whole.

    parallel for n, channel block, row of tiles
      for column of tiles
        acc[positions][lanes] = 0
        for taps but for those of the last axis         rolled
          for channel j of a group, column of the input
            v[lane] = x[column, lane // size * size + j]               one shuffle of a vector, read by all its taps
            acc[p] += v * w[tap][j]                                    for each p and tap of the last axis that reads it

The direct kernel reads every channel of the vector's groups for every lane, zero weights where it has no part: 16
multiply-adds a tap, this one ``size`` of them and a share of as many shuffles. Three taps of 14 neighbours read 16
columns: 42 multiply-adds beside 16 shuffles.
"""

from __future__ import annotations

import numpy as np
from tvm import tirx

from ....targets.target import Target
from ...matmul.folded_moves import producers
from ...words.choice import AlgorithmRefusal, Choice
from ...words.group import Kernel, Packed, Request
from ...words.tvm_types import Expr
from ..algorithm import ConvAlgorithm
from ..box_cost import Costing, MemberCost
from ..facts import ConvFacts
from ..kernel import ConvKernel, finish, new_context
from ..register_tile import Tile
from .shared_taps import window_of

GAIN = 0.9  # of the direct kernel's cycles that this one may take
MOST_TAPS = 7  # of the last axis, which are unrolled
MOST_UNROLLED = 800  # multiply-adds written out: LLVM takes 1.5 s for 624 of them, 7 s for 1456


def has_small_groups(target: Target, facts: ConvFacts) -> bool:
    """True where vectors hold whole groups of several channels, and sharing them costs less than zero weights do in
    rows of any length: boxes of an image add in the order of the whole."""
    lanes, size = target.lanes(facts.output.dtype), facts.group_in
    if size != facts.group_out or not 1 < size < lanes or lanes % size or facts.kernel[-1] > MOST_TAPS:
        return False
    tile = Tile(1, _most_positions(target, facts), 1)
    direct = tile.positions * facts.kernel[-1] * lanes / target.fma_ports
    return grouped_step(target, facts, tile) * size < GAIN * direct


def grouped_applies(request: Request, facts: ConvFacts) -> bool:
    """True for convolutions of small groups that read channel blocks from memory."""
    lanes = request.target.lanes(facts.output.dtype)
    blocked = request.layout(request.group.outputs[0]).block == request.layout(facts.data).block == lanes
    return blocked and has_small_groups(request.target, facts) and not producers(request.group, facts.data)


def choose_grouped_tile(target: Target, facts: ConvFacts) -> Tile:
    """Positions for the fewest cycles over the whole output: accumulators beside a row of weights and the two vectors
    that are shuffled next."""
    height = facts.out_spatial[-2] if len(facts.out_spatial) > 1 else 1
    width = facts.out_spatial[-1]
    most = _most_positions(target, facts)
    best, best_cost = Tile(1, 1, 1), float("inf")
    for columns in range(1, min(width, most) + 1):
        for rows in range(1, min(height, most // columns, 4) + 1):
            tile = Tile(rows, columns, 1)
            cost = -(-height // rows) * -(-width // columns) * (grouped_step(target, facts, tile) + 0.5)
            if cost < best_cost - 1e-9:
                best, best_cost = tile, cost
    return best


def _most_positions(target: Target, facts: ConvFacts) -> int:
    registers = target.vector_registers - min(facts.kernel[-1], 3) - 3
    return max(1, min(registers, MOST_UNROLLED // (facts.group_in * facts.kernel[-1])))


def grouped_step(target: Target, facts: ConvFacts, tile: Tile) -> float:
    """Cycles of one channel of a group and all taps of the last axis. Shuffles start beside multiply-adds where those
    have one port, else in the place of one."""
    fmas = tile.positions * facts.kernel[-1]
    shuffles = tile.rows * len(window_of(facts).reads(tile.columns))
    loads = target.fitted.registers.load * (shuffles + facts.kernel[-1])
    return max(fmas / target.fma_ports, (fmas + shuffles) / 2, loads, float(target.fma_latency))


def build_grouped(request: Request, facts: ConvFacts) -> Kernel:
    """The kernel of a convolution of small groups, whose vectors hold whole groups."""
    ctx = new_context(request)
    lanes = request.layout(request.group.outputs[0]).block
    tile = choose_grouped_tile(request.target, facts)
    _emit(ConvKernel(request, facts, tile, lanes, ctx))
    schedule = f"grouped conv C{lanes}, tile {tile}, {facts.group_in} channels a group"
    return finish(ctx, schedule, facts.flops, [tile])


def pack_grouped_weights(facts: ConvFacts, lanes: int) -> np.ndarray:
    """[block][taps but the last axis'][channel of a group][tap of the last axis][lane], zero for outputs past the
    last."""
    size, last = facts.group_in, facts.kernel[-1]
    weight = np.asarray(facts.weight.constant).reshape(facts.outputs, size, -1, last)
    blocks = -(-facts.outputs // lanes)
    padded = np.zeros((blocks * lanes, *weight.shape[1:]), weight.dtype)
    padded[: facts.outputs] = weight
    return np.ascontiguousarray(padded.reshape(blocks, lanes, size, -1, last).transpose(0, 3, 2, 4, 1))


def _emit(conv: ConvKernel) -> None:
    k, ctx, facts, tile, lanes = conv.k, conv.ctx, conv.facts, conv.tile, conv.lanes
    dtype, size, last = facts.output.dtype, facts.group_in, facts.kernel[-1]
    weights = ctx.packed(Packed(f"w_{facts.weight.name}", pack_grouped_weights(facts, lanes)))
    reads = window_of(facts).reads(tile.columns)
    data, layout = facts.data, conv.request.layout(facts.data)

    with conv.tasks(conv.channel_blocks) as (n, block, origins), conv.columns() as column:
        acc = k.local("acc", dtype, tile.positions * lanes)
        with k.loop(tile.positions, "unroll", "z") as z, k.loop(lanes, "vectorized", "v") as v:
            k.store(acc, z * lanes + v, tirx.const(0, dtype))

        def step(index: Expr, taps: list[Expr]) -> None:
            """All channels and taps of the last axis, for one tap of each axis before it."""
            for channel in range(size):
                picked = [i // size * size + channel for i in range(lanes)]
                first = (index * size + channel) * last * lanes
                for row in range(tile.rows):
                    corner = conv.positions(origins, column, row, 0)
                    for offset, pairs in reads.items():
                        at = [
                            p * s + t * d - b
                            for p, t, s, d, b in zip(corner, [*taps, 0], facts.strides, facts.dilation, facts.before)
                        ]
                        at[-1] = at[-1] + offset
                        place = layout.offset(ctx.place(data, [n, 0, *at]), block, 0)
                        read = conv.read(data)[tirx.Ramp(ctx.analyzer.simplify(place), 1, lanes)]
                        shared = k.local("x", dtype, lanes)
                        k.store(shared, tirx.Ramp(0, 1, lanes), tirx.Shuffle([read], picked))
                        for position, tap in pairs:
                            slot = (row * tile.columns + position) * lanes
                            with k.loop(lanes, "vectorized", "v") as v:
                                weight = weights[first + tap * lanes + v]
                                k.store(acc, slot + v, acc[slot + v] + shared[v] * weight)

        def nest(i: int, index: Expr, taps: list[Expr]) -> None:
            if i == len(facts.kernel) - 1:
                step(index, taps)
                return
            with k.loop(facts.kernel[i], name="t") as t:
                ctx.ranged(t, facts.kernel[i])
                nest(i + 1, index * facts.kernel[i] + t, [*taps, t])

        nest(0, block, [])
        conv.epilogue(acc, n, block, origins, column, 1)


class SmallGroups(ConvAlgorithm):
    name = "small groups"

    def offers(self, request: Request, facts: ConvFacts) -> Choice | AlgorithmRefusal:
        if not has_small_groups(request.target, facts):
            return self.refuses("a vector holds no group of as many inputs as outputs, or sharing it is no faster")
        if not grouped_applies(request, facts):
            return self.refuses("the data are computed in the kernel, or lie in no channel blocks")
        return self.choice(sure=True)

    def build(self, request: Request, facts: ConvFacts, plan: None) -> Kernel:
        return build_grouped(request, facts)

    def cost(self, ask: Costing, plan: None) -> MemberCost:
        facts, target = ask.facts, ask.target
        tile = choose_grouped_tile(target, facts)
        steps = ask.vectors * facts.group_in * facts.taps / facts.kernel[-1]
        cycles = steps * grouped_step(target, facts, tile) + ask.extra * tile.positions
        return MemberCost((tile.rows, tile.columns), cycles, facts.weight.bytes, ask.positions)
