"""Convolution of bytes in NCHW[v]c by dot products of four channels, or two (:mod:`...instructions.int8_dot`).

    parallel for n, group of blocks, row of tiles
      for column of tiles                               last one moved back
        acc[positions][blocks][lanes] = 0               int32
        for channel block, taps, word of channels
          acc[p][b] += x[p, word] (broadcast) . w[group][block][tap][word][b]
        epilogue(acc)

It is the direct convolution of float32 (:mod:`.kernel`) with words for channels: a quarter of its steps, or half of
them where a word is a pair of int16, and as many loads and multiply-adds in each. A block of channels of the data has
as many as a vector has lanes, or four, where there are no more (the first layer of a network); what lies behind the
last channel meets zero weights, and words of that alone are left out. Rows that register tiles leave over have a tile
of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from tvm import tirx

from ....targets.target import Target
from ...instructions.amx import has_matrix_unit
from ...instructions.int8_dot import PAIRS, SUMMED, data_dtype, dot, multiplier, per_word, words
from ...instructions.load_order import keep_loads
from ...instructions.word_rows import row_words
from ...kernel.late_constants import LateConstants
from ...kernel.unrolled_steps import unrolled
from ...words.choice import AlgorithmRefusal, Choice
from ...words.group import Kernel, Packed, Request, Value
from ...words.sizes import usual
from ...words.tvm_types import Buffer, Expr
from ..algorithm import ConvAlgorithm
from ..byte_results import write_tile
from ..facts import ConvFacts
from ..kernel import ConvKernel, finish, new_context
from ..narrower import each_width
from ..register_tile import Space, Tile, choose_tile, left_over
from ..weight_prefetch import prefetch
from ..winograd.choose import choose_plan
from .int8_starts import Starts, starts

if TYPE_CHECKING:
    from ...words.size_like import SizeLike

ROUNDED = 0.85  # that float32 has to win by, since its sums are rounded


def build_bytes(request: Request, facts: ConvFacts, tile: Tile) -> Kernel:
    """The kernel of a convolution of bytes by dot products, in register tiles ``tile``. Data and output are in channel
    blocks; groups are whole blocks of both."""
    lanes = request.layout(request.group.outputs[0]).block
    ctx, block = new_context(request), request.layout(facts.data).block
    packed = pack_bytes(facts, tile.blocks, lanes, block)
    weights = ctx.packed(Packed(f"w_{facts.weight.name}", packed))
    begun = starts(ctx, facts, lanes, -(-facts.outputs // (tile.blocks * lanes)) * tile.blocks)
    late = LateConstants(ctx, lanes)
    left = left_over(tile, facts.out_spatial[-2]) if _is_mixed(request, facts) else None
    for one in each_width(ctx, facts, tile):
        conv = ConvKernel(request, facts, one, lanes, ctx, started=begun.summed)
        conv.far = packed.nbytes > request.target.l2_bytes // 2
        if packed.nbytes > usual(facts.data.elements):
            conv.order = "groups"
        groups = conv.channel_blocks // tile.blocks
        conv.mixed = left is not None
        with conv.tasks(groups) as (n, group, origins):
            where = (packed.size // groups, begun, late, n, group, origins)
            if left is None:
                _columns(conv, weights, *where)
            else:
                rows = facts.out_spatial[-2] // tile.rows
                with conv.k.when(conv.row < rows):
                    _columns(conv, weights, *where)
                with conv.k.when(conv.row >= rows):
                    _columns(replace(conv, tile=left, whole=tile), weights, *where)
    tiles = [tile] if left is None else [tile, left]
    form = f"dot products of bytes C{lanes}, tile {' and '.join(map(str, tiles))}"
    return finish(ctx, form + ", in pairs" * (facts.data.dtype == PAIRS), facts.flops, tiles)


def _columns(
    conv: ConvKernel, weights: Buffer, panel: int, begun: Starts, late: LateConstants, n: Expr, group: Expr,
    origins: list[Expr],
) -> None:  # fmt: skip
    """All tiles of a row of them, of one group of vectors, whose weights are ``panel`` words."""
    blocks = conv.tile.blocks
    with conv.columns() as column:
        acc = _sums(conv, weights, panel, begun, n, group, origins, column)
        with late.behind(acc):
            write_tile(conv, acc, n, group * blocks, origins, column, blocks)


def _is_mixed(request: Request, facts: ConvFacts) -> bool:
    """True if rows that a register tile leaves over have one of their own."""
    return request.box is None and len(facts.out_spatial) == 2 and request.target.fma_ports > 1


def byte_tile(request: Request, facts: ConvFacts) -> Tile:
    """The register tile for bytes: that of float32, where a word of weights is as wide as a float."""
    lanes = request.layout(request.group.outputs[0]).block
    blocks = -(-facts.outputs // lanes)
    height = facts.out_spatial[-2] if len(facts.out_spatial) > 1 else 1
    limit = blocks if facts.groups == 1 else facts.group_out // lanes
    workers = 1 if facts.batch % request.workers == 0 else request.workers
    space = Space(height, facts.out_spatial[-1], blocks, limit, mixed=_is_mixed(request, facts))
    target = multiplier(request.target, facts.data.dtype)
    return choose_tile(target, space, workers, facts.taps == 1 and request.target.fma_ports > 1)


def floats_are_faster(target: Target, facts: ConvFacts, numbers: np.ndarray) -> bool:
    """True if Winograd's algorithm in float32 is expected to beat products of pairs, transformed or not: ``facts`` are
    of the convolution in float32, whose weights are ``numbers`` times their steps. It is never compared with the other
    instructions, which take half as long."""
    plan = choose_plan(target, facts, split=has_matrix_unit(target)) if data_dtype(target) == PAIRS else None
    if plan is None:
        return False
    pairs = choose_plan(target, _in_pairs(facts, numbers))
    if pairs is not None:
        return plan.cycles < ROUNDED * pairs.cycles
    *deep, height, width = (1, *facts.out_spatial)
    blocks = -(-facts.outputs // target.lanes())
    space = Space(height, width, blocks, blocks)
    steps = facts.batch * facts.taps * -(-facts.channels // per_word(PAIRS)) * math.prod(deep)
    cycles = min(cost for cost, _ in space.tiles(multiplier(target, PAIRS))) * steps * SUMMED / target.cores
    return plan.cycles < ROUNDED * cycles


def _in_pairs(facts: ConvFacts, numbers: np.ndarray) -> ConvFacts:
    """A convolution of float32 as that of pairs of int16, whose weights are ``numbers``."""
    data, weight = replace(facts.data, dtype=PAIRS), Value("weight", numbers.shape, "int8", numbers)
    return replace(facts, data=data, weight=weight, output=replace(facts.output, dtype="int32"))


def pack_bytes(facts: ConvFacts, blocks: int, lanes: int, block: int) -> np.ndarray:
    """[group of blocks][whole block of channels, then what is left][tap][word][vector][lane] of int32. A block of the
    data has ``block`` channels."""
    weight = np.asarray(facts.weight.constant).reshape(facts.outputs, facts.group_in, facts.taps)
    count = -(-facts.outputs // (blocks * lanes))
    dense = np.zeros((count * blocks * lanes, facts.group_in, facts.taps), np.int8)
    dense[: facts.outputs] = weight
    dense = dense.reshape(count, blocks, lanes, facts.group_in, facts.taps).transpose(0, 4, 1, 2, 3)
    parts = []
    for first, number, size in _runs(facts.group_in, block):
        for i in range(number):
            begin = first + i * block
            part = words(dense[..., begin : begin + size], facts.data.dtype)
            parts.append(part.transpose(0, 1, 4, 2, 3).reshape(count, -1))
    return np.ascontiguousarray(np.concatenate(parts, axis=1))


def _runs(channels: int, block: int) -> list[tuple[int, int, int]]:
    """(first channel, blocks, channels of each): whole blocks, and what is left."""
    whole, rest = divmod(channels, block)
    runs = [(0, whole, block)] if whole else []
    return [*runs, (whole * block, 1, rest)] if rest else runs


def _sums(
    conv: ConvKernel,
    weights: Buffer,
    panel: int,
    begun: Starts,
    n: Expr,
    group: Expr,
    origins: list[Expr],
    column: Expr,
) -> Buffer:
    """The accumulated tile, [row][column][vector][lane] in int32."""
    k, facts, tile, lanes = conv.k, conv.facts, conv.tile, conv.lanes
    width, block = tile.blocks * lanes, conv.request.layout(facts.data).block
    acc = k.local("acc", "int32", tile.positions * width)
    with k.loop(tile.positions, "unroll", "z") as z, k.loop(tile.blocks, "unroll", "b") as b:
        first = begun.vector(group * tile.blocks + b, lanes)
        k.store(acc, _run((z * tile.blocks + b) * lanes, lanes), first)
    own: SizeLike = 0  # the first block of channels of the group of the convolution
    if facts.groups > 1:
        own = tirx.floordiv(group * width, facts.group_out) * (facts.group_in // block)
        own = conv.bind(own, facts.channels // block)
    base = group * panel
    for first, number, size in _runs(facts.group_in, block):
        steps = -(-size // per_word(facts.data.dtype))
        with k.loop(number, name="cb") as cb:
            conv.ctx.ranged(cb, number)
            at = own + first // block + cb
            conv.begins(n, (at, 0), origins, column)
            with conv.taps(cb) as (index, taps), unrolled(conv.ctx, conv.request.target, steps, "c") as word:
                step = base + (index * steps + word) * width
                if conv.far:
                    prefetch(k, weights, step, tile.blocks, lanes)
                _multiply(conv, acc, weights, step, (n, at, word), origins, column, taps)
        base = base + number * facts.taps * steps * width
    return acc


def _multiply(
    conv: ConvKernel,
    acc: Buffer,
    weights: Buffer,
    at: Expr,
    where: tuple[Expr, Expr, Expr],
    origins: list[Expr],
    column: Expr,
    taps: list[Expr],
) -> None:
    """One word of every position by the vectors of weights from ``at`` on."""
    k, tile, lanes, target = conv.k, conv.tile, conv.lanes, conv.request.target
    n, block, word = where
    count = per_word(conv.facts.data.dtype)

    def products(position: Expr, value: Expr) -> None:
        data = tirx.Broadcast(value, lanes)
        with k.loop(tile.blocks, "unroll", "b") as b:
            slot = _run((position * tile.blocks + b) * lanes, lanes)
            product = dot(target, acc[slot], data, weights[_run(at + b * lanes, lanes)])
            k.store(acc, slot, product)

    if not target.is_aarch64:
        with k.loop(tile.rows, "unroll", "dy") as dy, k.loop(tile.columns, "unroll", "dx") as dx:
            place = conv.place_of(n, (block, word * count), conv.positions(origins, column, dy, dx), taps)
            one = tirx.reinterpret("int32", conv.read(conv.facts.data)[_run(place, count)])
            products(dy * tile.columns + dx, one)
        return
    keep_loads(k, target)
    for row in range(tile.rows):
        spots = [conv.positions(origins, column, row, i) for i in range(tile.columns)]
        places = [conv.place_of(n, (block, word * count), spot, taps) for spot in spots]
        for i, value in enumerate(row_words(k, conv.ctx.analyzer, conv.read(conv.facts.data), places)):
            products(row * tile.columns + i, value)


def _run(first: Expr, count: int) -> Expr:
    first = tirx.IntImm("int32", first) if isinstance(first, int) else first
    return tirx.Ramp(first, tirx.IntImm(str(first.ty.dtype), 1), count)


class Int8DotConv(ConvAlgorithm):
    """Whatever no other algorithm computes of bytes. Its plan is the register tile."""

    name = "bytes"
    any_size = True

    def offers(self, request: Request, facts: ConvFacts) -> Choice | AlgorithmRefusal:
        return self.choice(byte_tile(request, facts))

    def build(self, request: Request, facts: ConvFacts, plan: Tile) -> Kernel:
        return build_bytes(request, facts, plan)

    def smaller(self, plan: Tile, least: tuple[int, int], times: int) -> Tile | None:
        return plan.smaller(times)

    def candidates(self, request: Request, facts: ConvFacts) -> Iterable[Sequence[Tile]]:
        return ([byte_tile(request, facts)],)
