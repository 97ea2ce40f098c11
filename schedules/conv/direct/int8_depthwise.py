"""Depthwise convolution of bytes in NCHW[v]c by dot products of four neighbouring columns.

    parallel for n, channel block, row of tiles
      for column of tiles                               last one moved back
        acc[rows][columns][lanes] = 0                   int32
        for row that the tile reads, word of four of its columns
          word[lane] = x[row, 4 columns, lane]          a load, turned in registers
          acc[y][x] += word . w[row - y * stride][columns - x * stride]       of every output that reads it

A word holds the columns of several outputs, each of which has weights of its own for it, with zeros where it reads
nothing: of three taps and stride 1 two outputs share a word and have one product each, where multiply-adds of floats
take three. Rows of a tile share the words too. A word is turned by two shuffles, for which cores have one port.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from tvm import tirx

from ....targets.target import Target
from ...instructions.byte_packs import TOGETHER, packs
from ...instructions.int8_dot import WORD, columns_together, data_dtype, dot, words
from ...kernel.work_sharing import has_long_bands
from ...words.choice import AlgorithmRefusal, Choice
from ...words.group import Kernel, Packed, Request
from ...words.sizes import usual
from ...words.tvm_types import Buffer, Expr
from ..algorithm import ConvAlgorithm
from ..box_cost import Costing, MemberCost
from ..byte_results import write_tile
from ..facts import ConvFacts
from ..kernel import ConvKernel, finish, new_context
from ..narrower import each_width
from ..register_tile import Tile
from .int8_starts import Starts, starts

MOST_ROWS = 8  # of a register tile, and columns
HELD = 10  # registers beside the sums: words under way, weights of a row of taps
LOADS = 2  # that start in a cycle
STEP = 2.0  # cycles of a tile beside its arithmetic
RESULT = 3.0  # cycles of a result that is narrowed for itself, of which a pack of four saves SAVED
SAVED = 1.0
UNROLLED = 400  # products of a tile: more would be too much code


@dataclass(frozen=True)
class Words:
    """How an output's taps of the last axis lie in words of four columns: ``count`` of them serve ``shared``
    neighbouring outputs."""

    taps: int
    stride: int

    @property
    def count(self) -> int:
        return -(-self.taps // WORD)

    @property
    def shared(self) -> int:
        return (WORD * self.count - self.taps) // self.stride + 1

    def read(self, columns: int) -> Iterator[tuple[int, int, int, int]]:
        """(first output, outputs, word, its columns) of every word that so many outputs read."""
        for first in range(0, columns, self.shared):
            outputs = min(self.shared, columns - first)
            span = (outputs - 1) * self.stride + self.taps
            for word in range(self.count):
                if span > word * WORD:
                    yield first, outputs, word, min(WORD, span - word * WORD)


def takes_words(target: Target, kernel: Sequence[int], dilation: int) -> bool:
    """True if a depthwise convolution of ``kernel`` taps, the last axis dilated so much, is one of words of columns."""
    return data_dtype(target) == "uint8" and kernel[-1] > 1 and dilation == 1


def build_byte_depthwise(request: Request, facts: ConvFacts, tile: Tile) -> Kernel:
    """The kernel of a depthwise convolution of bytes in register tiles ``tile``; data and output are in blocks of as
    many channels as a vector of sums has lanes."""
    lanes, ctx = request.layout(request.group.outputs[0]).block, new_context(request)
    packed = ctx.packed(Packed(f"w_{facts.weight.name}", _pack(facts, lanes)))
    begun = starts(ctx, facts, lanes, -(-facts.outputs // lanes))
    for one in each_width(ctx, facts, tile):
        conv = ConvKernel(request, facts, one, lanes, ctx, started=begun.summed)
        rows = -(-usual(facts.out_spatial[0]) // one.rows)
        if len(facts.out_spatial) == 2 and not has_long_bands(rows, request.workers):
            conv.order = "groups"
        with conv.tasks(conv.channel_blocks) as (n, block, origins), conv.columns() as column:
            acc = _sums(conv, packed, begun, n, block, origins, column)
            write_tile(conv, acc, n, block, origins, column, 1)
    return finish(ctx, f"depthwise dot products of bytes C{lanes}, tile {tile}", facts.flops, [tile])


def _pack(facts: ConvFacts, lanes: int) -> np.ndarray:
    """[block][taps of all axes but the last][output of a word][word][lane] of int32."""
    own = Words(facts.kernel[-1], facts.strides[-1])
    weight = np.asarray(facts.weight.constant).reshape(facts.outputs, -1, own.taps)
    blocks = -(-facts.outputs // lanes)
    dense = np.zeros((blocks * lanes, weight.shape[1], own.shared, own.count * WORD), np.int8)
    for output in range(own.shared):
        begin = output * own.stride
        dense[: facts.outputs, :, output, begin : begin + own.taps] = weight
    dense = dense.reshape(blocks, lanes, weight.shape[1], own.shared, own.count, WORD)
    return np.ascontiguousarray(words(dense, "uint8")[..., 0].transpose(0, 2, 3, 4, 1))


def _packed_bytes(facts: ConvFacts) -> int:
    """Bytes of all outputs' packed words, padding lanes aside."""
    own = Words(facts.kernel[-1], facts.strides[-1])
    return facts.outputs * math.prod(facts.kernel[:-1]) * own.shared * own.count * WORD


def _sums(
    conv: ConvKernel, weights: Buffer, begun: Starts, n: Expr, block: Expr, origins: list[Expr], column: Expr
) -> Buffer:
    """The accumulated tile, [row][column][lane] in int32."""
    k, facts, tile, lanes = conv.k, conv.facts, conv.tile, conv.lanes
    own = Words(facts.kernel[-1], facts.strides[-1])
    acc = k.local("acc", "int32", tile.positions * lanes)
    with k.loop(tile.positions, "unroll", "z") as z:
        k.store(acc, _run(z * lanes, lanes), begun.vector(block, lanes))
    *outer, height = (1, *facts.kernel[:-1]) if len(facts.kernel) > 1 else (1, 1)
    stride = facts.strides[-2] if len(facts.strides) > 1 else 1
    conv.begins(n, (block, 0), origins, column)
    with ExitStack() as loops:
        taps: list[Expr] = []
        index = block
        for size in outer[1:]:
            tap = conv.ctx.ranged(loops.enter_context(k.loop(size, name="t")), size)
            taps, index = [*taps, tap], index * size + tap
        first = index * height * own.shared * own.count * lanes
        for row in range((tile.rows - 1) * stride + height):
            near = [*taps, tirx.IntImm("int32", row)] if len(facts.kernel) > 1 else []
            readers = [(y, row - y * stride) for y in range(tile.rows) if 0 <= row - y * stride < height]
            for begin, outputs, word, columns in own.read(tile.columns) if readers else ():
                position = conv.positions(origins, column, tirx.IntImm("int32", 0), tirx.IntImm("int32", begin))
                places = [conv.place_of(n, (block, 0), position, [*near, word * WORD + i]) for i in range(columns)]
                value = k.local("word", "int32", lanes)
                together = columns_together(conv.read(facts.data), places, lanes, conv.ctx.analyzer)
                k.store(value, _run(0, lanes), together)
                for (y, tap), x in ((r, x) for r in readers for x in range(outputs)):
                    slot = _run((y * tile.columns + begin + x) * lanes, lanes)
                    at = first + ((tap * own.shared + x) * own.count + word) * lanes
                    product = dot(conv.request.target, acc[slot], value[_run(0, lanes)], weights[_run(at, lanes)])
                    k.store(acc, slot, product)
    return acc


def _run(first: Expr | int, count: int) -> Expr:
    first = tirx.IntImm("int32", first) if isinstance(first, int) else first
    return tirx.Ramp(first, tirx.IntImm(str(first.ty.dtype), 1), count)


def byte_depthwise_tile(request: Request, facts: ConvFacts) -> Tile:
    """The register tile of the fewest cycles."""
    height = facts.out_spatial[-2] if len(facts.out_spatial) > 1 else 1
    apart = facts.dilation[-2] if len(facts.dilation) > 1 and facts.kernel[-2] > 1 else 1
    return _best(request.target, _shape(facts), (height, facts.out_spatial[-1]), apart == 1, request.workers)[1]


def _shape(facts: ConvFacts) -> tuple[int, int, int, int]:
    """Taps and strides of rows and columns."""
    plane = facts.plane
    return (*plane.kernel, *plane.strides)


@lru_cache(maxsize=1024)
def _best(
    target: Target, shape: tuple[int, int, int, int], size: tuple[int, int], tall: bool, workers: int
) -> tuple[float, Tile]:
    """(cycles of a vector of outputs, tile). ``tall``: rows of a tile may share what they read."""
    found = []
    for rows in range(1, (min(size[0], MOST_ROWS) if tall else 1) + 1):
        bands = -(-size[0] // rows)
        uneven = -(-bands // workers) * workers / bands if has_long_bands(bands, workers) else 1.0
        for columns in range(1, min(size[1], MOST_ROWS) + 1):
            if rows * columns > max(1, target.vector_registers - HELD):
                continue
            cycles, products = tile_cycles(target, shape, rows, columns)
            tiles = bands * -(-size[1] // columns) * uneven
            if products <= UNROLLED or rows * columns == 1:
                found.append((cycles * tiles / math.prod(size), rows * columns, Tile(rows, columns, 1)))
    cost, _, tile = min(found, key=lambda f: f[:2])
    return cost, tile


def tile_cycles(target: Target, shape: tuple[int, int, int, int], rows: int, columns: int) -> tuple[float, int]:
    """Cycles and products of a tile of one channel block."""
    height, width, down, across = shape
    own = Words(width, across)
    read = list(own.read(columns))
    lines = (rows - 1) * down + height
    products = rows * height * sum(outputs for _, outputs, _, _ in read)
    turned = 2 * lines * len(read)
    joined = lines * sum(part % WORD for *_, part in read)
    loads = lines * sum(1 if part == WORD else part for *_, part in read) + products
    chain = height * own.count * target.fma_latency
    result = RESULT - (SAVED if packs(target, "uint8", target.lanes("int32")) and columns >= TOGETHER else 0.0)
    arithmetic = max((products + turned + joined) / target.fma_ports, turned, loads / LOADS, chain)
    return STEP + arithmetic + result * rows * columns, products


class ByteDepthwise(ConvAlgorithm):
    """Depthwise convolutions of bytes. Its plan is the register tile."""

    name = "depthwise bytes"
    any_size = True
    alone = True

    def offers(self, request: Request, facts: ConvFacts) -> Choice | AlgorithmRefusal:
        if not facts.is_depthwise:
            return self.refuses("channels meet")
        return self.choice(byte_depthwise_tile(request, facts), sure=True)

    def build(self, request: Request, facts: ConvFacts, plan: Tile) -> Kernel:
        return build_byte_depthwise(request, facts, plan)

    def label(self, plan: Tile) -> str:
        return f"{self.name} {plan}"

    def stored(self, request: Request, facts: ConvFacts, plan: Tile) -> int:
        return _packed_bytes(facts)

    def smaller(self, plan: Tile, least: tuple[int, int], times: int) -> Tile | None:
        return plan.smaller(times)

    def candidates(self, request: Request, facts: ConvFacts) -> Iterable[Sequence[Tile]]:
        return ([byte_depthwise_tile(request, facts)],)

    def cost(self, ask: Costing, plan: Tile) -> MemberCost:
        facts = ask.facts
        cycles = tile_cycles(ask.target, _shape(facts), plan.rows, plan.columns)[0] / plan.positions
        cycles *= math.prod(facts.kernel[:-2])
        return MemberCost((1, 1), ask.vectors * cycles + ask.extra, _packed_bytes(facts), ask.positions, moves=True)
