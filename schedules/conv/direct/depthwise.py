"""Depthwise convolution in NCHW[v]c: a vector of channels at a time, a row of outputs in registers.

    parallel for n, channel block, row
      for column of tiles
        acc[columns][lanes] = 0
        for tap row (unrolled if small), tap column (unrolled)
          acc[x] += x[row, x * stride + tap] * w[tap]     neighbouring outputs share their loads
        epilogue(acc)

It is bound by memory: each input row is read once per tap row, from L1. Cores share a small image by channels, as does
the 1x1 layer that widens it before (:mod:`.kernel`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from tvm import tirx

from ...kernel.work_sharing import has_long_bands
from ...words.choice import AlgorithmRefusal, Choice
from ...words.group import Kernel, Packed, Request, dtype_bytes
from ...words.sizes import usual
from ...words.tvm_types import Expr
from ..algorithm import ConvAlgorithm
from ..box_cost import Costing, MemberCost
from ..byte_results import write_tile
from ..facts import ConvFacts
from ..kernel import ConvKernel, finish, new_context
from ..narrower import each_width
from ..register_tile import Tile
from ..weight_bandwidth import far_from
from .data_prefetch import comes_from_afar, prefetch_rows_below

UNROLLED_TAPS = 12  # taps that are unrolled completely: 3 x 3, and 1-D kernels up to 12
COLUMNS = 8  # of outputs in registers: with more, the rest of a row is longer


def build_depthwise(request: Request, facts: ConvFacts, columns: int | None = None) -> Kernel:
    """The kernel of a depthwise convolution with ``columns`` of outputs in registers; by default the first of
    :func:`column_counts`."""
    lanes, ctx = request.layout(request.group.outputs[0]).block, new_context(request)
    own = Tile(1, columns or column_counts(request, facts)[0], 1)
    for tile in each_width(ctx, facts, own):
        _emit(ConvKernel(request, facts, tile, lanes, ctx))
    return finish(ctx, f"depthwise conv C{lanes}, tile {own}", facts.flops, [own])


def column_counts(request: Request, facts: ConvFacts) -> list[int]:
    """Accumulators, the loads they share and a weight fit the registers; the fewest positions wasted at the edge
    first.

    An accumulator is a chain of as many multiply-adds as there are taps. Where a core has as many under way as COLUMNS,
    fewer chains leave it waiting (seven, at a width of 14), and long ones until the next tile is in sight: those have
    up to twice as many columns.
    """
    width, target = facts.out_spatial[-1], request.target
    busy = facts.taps > UNROLLED_TAPS and target.fma_ports * target.fma_latency >= COLUMNS
    fit = (target.vector_registers - 2) // (1 + min(facts.strides[-1], 2))
    most = max(1, min(width, 2 * COLUMNS if busy else COLUMNS, fit))
    return sorted(range(1, most + 1), key=lambda c: (-(-width // c) * (c + 1), -c))


def _emit(conv: ConvKernel) -> None:
    k, ctx, facts, tile, lanes = conv.k, conv.ctx, conv.facts, conv.tile, conv.lanes
    dtype = facts.output.dtype
    blocks = conv.channel_blocks
    weight = np.asarray(facts.weight.constant).reshape(facts.outputs, facts.taps)
    padded = np.zeros((blocks * lanes, facts.taps), weight.dtype)
    padded[: facts.outputs] = weight
    packed = np.ascontiguousarray(padded.reshape(blocks, lanes, facts.taps).transpose(0, 2, 1))
    weights = ctx.packed(Packed(f"w_{facts.weight.name}", packed))
    unroll = facts.taps <= UNROLLED_TAPS
    if len(facts.out_spatial) == 2 and not has_long_bands(facts.out_spatial[0], conv.request.workers):
        conv.order = "groups"
    with conv.tasks(blocks) as (n, block, origins), conv.columns() as column:
        acc = k.local("acc", dtype, tile.positions * lanes)
        with k.loop(tile.positions, "unroll", "z") as z, k.loop(lanes, "vectorized", "v") as v:
            k.store(acc, z * lanes + v, tirx.const(0, dtype))

        def body(taps: list[Expr]) -> None:
            index: Expr = block
            for i, tap in enumerate(taps):
                index = index * facts.kernel[i] + tap
            with k.loop(tile.columns, "unroll", "dx") as dx:
                with k.loop(lanes, "vectorized", "v") as v:
                    at = conv.positions(origins, column, tirx.IntImm("int32", 0), dx)
                    value = conv.input(n, (block, v), at, taps)
                    slot = dx * lanes + v
                    k.store(acc, slot, acc[slot] + value * weights[index * lanes + v])

        def nest(i: int, taps: list[Expr]) -> None:
            if i == len(facts.kernel):
                body(taps)
                return
            last = i == len(facts.kernel) - 1
            kind = "unroll" if unroll or (last and facts.kernel[i] <= UNROLLED_TAPS) else "serial"
            with k.loop(facts.kernel[i], kind, "t") as t:
                ctx.ranged(t, facts.kernel[i])
                nest(i + 1, [*taps, t])

        if _prefetches_below(conv):
            prefetch_rows_below(conv, n, block, origins, column)
        nest(0, [])
        write_tile(conv, acc, n, block, origins, column, 1)


def _prefetches_below(conv: ConvKernel) -> bool:
    """True if tiles prefetch the rows that the next row of tiles reads first: of images that come from memory, or from
    a last level where that pays. On Zen 5 3x3 layers of 13 MB take 0.6 of the time on one thread and 0.8 on two, of 4.8
    MB 0.89 to 0.95 and 0.98 to 1.01; of 1.8 MB they would take 1.02 to 1.13."""
    layout = conv.request.layout(conv.facts.data)
    size = usual(layout.elements) * dtype_bytes(conv.facts.data.dtype)
    return comes_from_afar(conv) and size > far_from(conv.request.target, conv.request.workers)


class Depthwise(ConvAlgorithm):
    """A plan is a number of columns in registers; None leaves it to :func:`build_depthwise`."""

    name = "depthwise"
    any_size = True
    alone = True

    def offers(self, request: Request, facts: ConvFacts) -> Choice | AlgorithmRefusal:
        if not facts.is_depthwise:
            return self.refuses("channels meet")
        if not request.layout(facts.data).block:
            return self.refuses("the data lie in no channel blocks")
        return self.choice(sure=True)

    def build(self, request: Request, facts: ConvFacts, plan: int | None) -> Kernel:
        return build_depthwise(request, facts, plan)

    def label(self, plan: int | None) -> str:
        return self.name if plan is None else f"{self.name} {plan}"

    def smaller(self, plan: int | None, least: tuple[int, int], times: int) -> int:
        return max(1, least[1] // times)

    def candidates(self, request: Request, facts: ConvFacts) -> Iterable[Sequence[int]]:
        return (column_counts(request, facts),)

    def loads(self, facts: ConvFacts, plan: int | None) -> float:
        return facts.taps * usual(facts.output.elements) / usual(facts.data.elements)

    def cost(self, ask: Costing, plan: int | None) -> MemberCost:
        cycles = ask.vectors * (ask.facts.taps + 0.5) / min(2, ask.target.fma_ports)
        return MemberCost((1, 1), cycles + ask.extra, ask.facts.weight.bytes, ask.positions, moves=True)
