"""Convolution in NCHW[v]c by pairs of channels in bfloat16 (:mod:`...instructions.bf16_pairs`).

    parallel for n, group of blocks, row of tiles
      for column of tiles                               last one moved back
        acc[positions][blocks][lanes] = 0               float32
        for channel block, taps, pair of channels
          acc[p][b] += x[p, pair] (broadcast) . w[group][block][tap][pair][b]
        epilogue(acc)

The direct convolution of float32 (:mod:`.kernel`) with half of its steps, for data that lie as bfloat16 in blocks of
channels: a pair is a word of memory. The last of an odd number of channels meets a zero. Of groups of channels each has
whole blocks. Rows that register tiles leave over have a tile of their own. Images of open size take boxes,
of several tiles the one that fits them best (:mod:`.tile_set`); lines of open length lower ones (:mod:`..narrower`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from tvm import tirx

from ...instructions.bf16_pairs import ATTRIBUTE, PAIR, dot, may_pair, pair_target, words
from ...kernel.unrolled_steps import unrolled
from ...math.bfloat16 import NAME
from ...words.choice import AlgorithmRefusal, Choice
from ...words.group import Kernel, Packed, Request, Value
from ...words.sizes import usual
from ...words.tvm_types import Buffer, Expr
from ..algorithm import ConvAlgorithm
from ..amx.choose import float_cycles
from ..facts import ConvFacts
from ..kernel import ConvKernel, finish, new_context
from ..narrower import each_width
from ..register_tile import Space, Tile, choose_tile, left_over, spread_tile
from ..residual_in_place import taken_over
from ..weight_prefetch import prefetch
from .tile_set import tile_set

SHARE = 0.6  # of the time of the direct form in float32


def fits_pairs(request: Request, facts: ConvFacts) -> bool:
    """True if a convolution may be computed so."""
    group, layout = request.group, request.layout(facts.data)
    if not may_pair(request.target, request.policy) or facts.output.dtype != "float32":
        return False
    if layout.stored != NAME or facts.empty or facts.fill or facts.weight.is_whole or facts.data not in group.inputs:
        return False
    lanes = request.target.lanes()
    whole = facts.groups == 1 or facts.group_in % lanes == facts.group_out % lanes == 0
    return whole and layout.block == lanes == request.layout(group.outputs[0]).block


def pair_share(request: Request, facts: ConvFacts) -> float:
    """What a convolution takes so of the time of the direct form in float32; 1 where it may not be computed so."""
    steps = -(-facts.group_in // PAIR)
    return min(1.0, SHARE * PAIR * steps / facts.group_in) if fits_pairs(request, facts) else 1.0


def pair_space(request: Request, facts: ConvFacts) -> Space:
    """What the register tile is chosen for."""
    blocks, own = (-(-n // request.target.lanes()) for n in (facts.outputs, facts.group_out))
    height = facts.out_spatial[-2] if len(facts.out_spatial) > 1 and facts.sizes is None else 1
    return Space(height, facts.out_spatial[-1], blocks, own, mixed=_is_mixed(request, facts))


def pair_tile(request: Request, facts: ConvFacts) -> Tile:
    """The register tile: that of float32."""
    space, target, box = pair_space(request, facts), pair_target(request.target), request.box
    if box is not None and box.spread:
        return spread_tile(target, space, box.spread_of(space.height, space.width))
    workers = 1 if facts.batch % request.workers == 0 else request.workers
    return choose_tile(target, space, workers, facts.taps == 1)


def build_pairs(request: Request, facts: ConvFacts, tile: Tile) -> Kernel:
    """The kernel of a convolution in pairs of bfloat16, in register tiles ``tile``."""
    lanes, ctx = request.target.lanes(), new_context(request)
    packed = pack_pairs(facts, tile.blocks, lanes)
    weights = ctx.packed(Packed(f"w_{facts.weight.name}", packed), narrow=False)
    ctx.k.attributes[ATTRIBUTE] = 1
    left = left_over(tile, facts.out_spatial[-2]) if _is_mixed(request, facts) else None
    for narrow in each_width(ctx, facts, tile):
        _emit(ConvKernel(request, facts, narrow, lanes, ctx), weights, packed, left)
    tiles = [tile] if left is None else [tile, left]
    form = f"direct conv C{lanes}, tile {' and '.join(map(str, tiles))}, bfloat16"
    return finish(ctx, form, facts.flops, tiles)


def _emit(conv: ConvKernel, weights: Buffer, packed: np.ndarray, left: Tile | None) -> None:
    """The tasks of the kernel. ``left``: the tile of the rows that are left over, if any."""
    request, facts, tile = conv.request, conv.facts, conv.tile
    conv.far = packed.nbytes > request.target.l2_bytes // 2
    if packed.nbytes > usual(facts.data.elements) * 2:
        conv.order = "groups"
    groups, conv.mixed = conv.channel_blocks // tile.blocks, left is not None
    with conv.tasks(groups) as (n, group, origins):
        at = (packed.size // groups, n, group, origins)
        if left is None:
            _columns(conv, weights, *at)
        else:
            rows = facts.out_spatial[-2] // tile.rows
            with conv.k.when(conv.row < rows):
                _columns(conv, weights, *at)
            with conv.k.when(conv.row >= rows):
                _columns(replace(conv, tile=left, whole=tile), weights, *at)


def pack_pairs(facts: ConvFacts, blocks: int, lanes: int) -> np.ndarray:
    """[group of blocks][whole block of channels, then what is left][tap][pair][vector][lane] of int32."""
    flat = np.asarray(facts.weight.constant).reshape(facts.outputs, facts.group_in, facts.taps)
    count = -(-facts.outputs // (blocks * lanes))
    dense = np.zeros((count * blocks * lanes, facts.group_in, facts.taps), np.float32)
    dense[: facts.outputs] = flat
    pairs = words(dense.transpose(1, 0, 2).reshape(facts.group_in, -1))
    pairs = pairs.reshape(-1, count, blocks, lanes, facts.taps).transpose(1, 4, 0, 2, 3)  # [group][tap][pair]...
    each = lanes // PAIR
    parts = [pairs[:, :, at : at + each].reshape(count, -1) for at in range(0, pairs.shape[2], each)]
    return np.ascontiguousarray(np.concatenate(parts, axis=1))


def _is_mixed(request: Request, facts: ConvFacts) -> bool:
    """True if rows that a register tile leaves over have one of their own."""
    whole = request.box is None and facts.edges is None and len(facts.out_spatial) == 2
    return whole and request.target.fma_ports > 1


def _columns(conv: ConvKernel, weights: Buffer, panel: int, n: Expr, group: Expr, origins: list[Expr]) -> None:
    """All tiles of a row of them, of one group of vectors, whose weights are ``panel`` words."""
    facts, blocks = conv.facts, conv.tile.blocks
    with conv.columns() as column:
        start: Expr = 0  # the first block of channels that these read
        if facts.groups > 1:
            own, size = facts.group_out // conv.lanes, facts.group_in // conv.lanes
            start = conv.bind(tirx.floordiv(group * blocks, own) * size, facts.channels // conv.lanes)
        acc = _sums(conv, weights, group * panel, (n, start), origins, column)
        conv.epilogue(acc, n, group * blocks, origins, column, blocks)


def _sums(
    conv: ConvKernel, weights: Buffer, base: Expr, begin: tuple[Expr, Expr], origins: list[Expr], column: Expr
) -> Buffer:
    """The accumulated tile, [row][column][vector][lane]. ``begin``: image, first block of channels."""
    k, facts, tile, lanes, (n, start) = conv.k, conv.facts, conv.tile, conv.lanes, begin
    width = tile.blocks * lanes
    acc = k.local("acc", "float32", tile.positions * width)
    with k.loop(tile.positions * tile.blocks, "unroll", "z") as z, k.loop(lanes, "vectorized", "v") as v:
        k.store(acc, z * lanes + v, tirx.const(0, "float32"))
    whole, rest = divmod(facts.group_in, lanes)
    for first, number, size in ((0, whole, lanes), (whole, 1, rest)):
        if not number or not size:
            continue
        steps, kept = -(-size // PAIR), conv.of_any_size and size == lanes
        with k.loop(number, name="cb", kept=kept) as cb:
            conv.ctx.ranged(cb, max(number, 1 + kept))
            block = start + first + cb
            conv.begins(n, (block, 0), origins, column)
            with conv.taps(cb) as (index, taps):
                for pair, count in _pairs(conv, size):
                    at = base + (index * steps + pair) * width
                    if conv.far:
                        prefetch(k, weights, at, tile.blocks, lanes)
                    _multiply(conv, acc, weights, at, (n, block, pair), origins, column, taps, count)
        base = base + number * facts.taps * steps * width
    return acc


def _pairs(conv: ConvKernel, size: int) -> Iterator[tuple[Expr, int]]:
    """The pairs of so many channels, in their loop, and how many channels they have."""
    if size >= PAIR:
        with unrolled(conv.ctx, conv.request.target, size // PAIR, "c") as pair:
            yield pair, PAIR
    if size % PAIR:
        yield size // PAIR, 1


def _multiply(
    conv: ConvKernel, acc: Buffer, weights: Buffer, at: Expr, where: tuple[Expr, Expr, Expr], origins: list[Expr],
    column: Expr, taps: list[Expr], count: int,
) -> None:  # fmt: skip
    """One pair of every position, of which ``count`` channels are there, by the vectors of weights from ``at`` on."""
    k, tile, lanes, (n, block, pair) = conv.k, conv.tile, conv.lanes, where
    data = conv.read(conv.facts.data).stored
    with k.loop(tile.rows, "unroll", "dy") as dy, k.loop(tile.columns, "unroll", "dx") as dx:
        place = conv.place_of(n, (block, pair * PAIR), conv.positions(origins, column, dy, dx), taps)
        held = data[_run(place, PAIR)] if count == PAIR else data[place]
        word = tirx.reinterpret("int32", held) if count == PAIR else tirx.Cast("int32", held)
        word = tirx.Broadcast(word, lanes)
        with k.loop(tile.blocks, "unroll", "b") as b:
            slot = _run(((dy * tile.columns + dx) * tile.blocks + b) * lanes, lanes)
            k.store(acc, slot, dot(acc[slot], word, weights[_run(at + b * lanes, lanes)]))


def _run(first: Expr, count: int) -> Expr:
    first = tirx.IntImm("int32", first) if isinstance(first, int) else first
    return tirx.Ramp(first, tirx.IntImm(str(first.ty.dtype), 1), count)


class PairConv(ConvAlgorithm):
    """Direct convolutions of data that lie as bfloat16. The plan is the register tile."""

    name = "pairs of bfloat16"
    any_size = True
    boxes_in_place = True

    def offers(self, request: Request, facts: ConvFacts) -> Choice | AlgorithmRefusal:
        if not fits_pairs(request, facts):
            return self.refuses("it takes blocks of channels in bfloat16, and a target that multiplies these")
        share = pair_share(request, facts)
        if share == 1:
            return self.refuses("expected to be no faster than float32: most of a pair would be zero")
        return self.choice(pair_tile(request, facts), share * float_cycles(request.target, facts) / facts.groups)

    def build(self, request: Request, facts: ConvFacts, plan: Tile) -> Kernel:
        return replace(build_pairs(request, facts, plan), inplace=self.overwrites(request, facts, plan))

    def label(self, plan: Tile) -> str:
        return f"pairs {plan}"

    def smaller(self, plan: Tile, least: tuple[int, int], times: int) -> Tile | None:
        return plan.smaller(times)

    def peers(self, request: Request, facts: ConvFacts, plan: Tile) -> Sequence[tuple[Tile, float]]:
        box = request.box
        if box is None or not box.spread or request.limits.once:
            return ()
        space = pair_space(request, facts)
        return tile_set(pair_target(request.target), space, box.spread_of(space.height, space.width), plan)

    def candidates(self, request: Request, facts: ConvFacts) -> Iterable[Sequence[Tile]]:
        return ([pair_tile(request, facts)],) if fits_pairs(request, facts) else ()

    def overwrites(self, request: Request, facts: ConvFacts, plan: Tile) -> tuple[Value, ...]:
        if facts.sizes is not None:
            return ()  # the last tile of a row computes some outputs again
        return taken_over(request, facts, (1 if _is_mixed(request, facts) else plan.rows, plan.columns))
