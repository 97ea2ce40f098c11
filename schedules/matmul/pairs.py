"""Products of float32 by constants as sums of pairs of bfloat16 (:mod:`..instructions.bf16_pairs`), with precision
``bfloat16`` on a target that has no matrix unit: :mod:`.packed` over words.

    parallel for batch, block of rows, group of panels
      rows of the block -> scratch[row][K / 2 words]               rounded once for all panels
      for panel of B, tile of rows
        for word of K
          acc[r][v] = dot(acc[r][v], broadcast(word of row r), words[panel][word][v])

Panels of B hold pairs of rows, rounded at compile time: [panel][K / 2][vectors][lanes], two bytes an element. Tiles,
blocks, streams and hints are those of float32, of half as many steps. Where K is odd, zeros in both fill the last word.
Rows in scratch lie an odd number of lines apart, so that those of a tile share no set of the first-level cache. Of an
open number of rows, blocks are as large as is best for the usual number; fewer than a tile has are in lower ones.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import tirx

from ...targets.target import Target
from ..emit.builder import STACK_BYTES
from ..instructions.bf16_pairs import ATTRIBUTE, PAIR, dot, may_pair, pair_target, words
from ..instructions.prefetch import LINE
from ..math.bfloat16 import BITS, Narrow
from ..words.dims import minimum
from ..words.group import Kernel, Request
from ..words.tvm_types import Buffer, Expr
from .blocking import MatmulBlocks
from .facts import MatmulFacts
from .folded_moves import producers, read_steps
from .packed import Right, _Matmul
from .regions import Region
from .register_tile import least_cost
from .shared_weights import shared_tile

GAIN = 0.9  # of the estimate in float32: nearer than that, it stays so
ROUND_CYCLES = 2.0  # of a vector of 32 numbers: two loads, one instruction, a store
BYTES = 2  # of a number
RUNS = (32, 16, 8)  # numbers that are rounded at once


class PairFacts(MatmulFacts):
    """A product whose steps are pairs of terms; its rows lie in scratch."""

    @property
    def steps(self) -> int:
        return -(-self.k // PAIR)

    @property
    def row_bytes(self) -> int:
        return 0


def fits_pairs(request: Request, facts: MatmulFacts) -> bool:
    """True if the product may be computed so: float32 by a constant, but not by whole numbers, whose sums are exact; of
    rows that are read along memory. Where memory goes before time, those of a tile fit the stack."""
    if not may_pair(request.target, request.policy) or facts.output.dtype != "float32":
        return False
    if not facts.packs or facts.b.is_whole:
        return False
    assert request.group.anchor is not None
    height, _ = shared_tile(request, PairFacts(facts.a, facts.b, facts.output))
    if not request.policy.speed and height * _stride(facts.k) * BYTES > STACK_BYTES:
        return False
    moved = producers(request.group, facts.a)
    return not moved or read_steps(request.group, request.group.anchor, facts.a)[0] == 1


def _stride(depth: int) -> int:
    """Numbers from row to row in scratch."""
    lines = -(-depth * BYTES // LINE)
    return (lines + (lines + 1) % 2) * LINE // BYTES


def pair_cycles(target: Target, rows: int, depth: int, columns: int) -> float:
    """On one core, the rounding of the rows included."""
    vectors = -(-columns // target.lanes("float32"))
    sums = -(-depth // PAIR) * least_cost(pair_target(target), rows, vectors)
    return sums + rows * -(-depth // RUNS[0]) * ROUND_CYCLES * target.fitted.registers.product


def pairs_pay(target: Target, shape: tuple[int, int, int], plain: float) -> bool:
    """True if ``shape`` (rows, depth, columns) takes less than in float32, ``plain`` cycles. Both wait for weights that
    come from beyond the second level."""
    rows, depth, columns = shape
    own = pair_cycles(target, rows, depth, columns)
    numbers = depth * columns
    if numbers * 4 > target.l2_bytes:
        plain = max(plain, numbers * 4 / target.far_bytes)
    if numbers * BYTES > target.l2_bytes:
        own = max(own, numbers * BYTES / target.far_bytes)
    return own < GAIN * plain


def build_pairs(request: Request, facts: MatmulFacts) -> Kernel:
    """The kernel of a product of float32 in pairs of bfloat16."""
    pairs = PairFacts(facts.a, facts.b, facts.output)
    return _PairMatmul(request, pairs, shared_tile(request, pairs)).build()


class _PairMatmul(_Matmul):
    def __init__(self, request: Request, facts: PairFacts, tile: tuple[int, int]) -> None:
        super().__init__(request, facts, tile)
        self.stored, self.passes = "int32", False
        self.stride = _stride(facts.k)
        self.start: Expr = 0  # the first row in scratch
        self.k.attributes[ATTRIBUTE] = 1

    def build(self) -> Kernel:
        kernel = super().build()
        return replace(kernel, schedule=f"{kernel.schedule}, bfloat16")

    def _blocks_of(self, region: Region, batches: int) -> MatmulBlocks:
        blocks = super()._blocks_of(region, batches)
        most = STACK_BYTES // (self.stride * BYTES) // self.height * self.height
        if self.request.policy.speed or blocks.rows <= most:
            return blocks
        return replace(blocks, rows=most, row_blocks=-(-self.facts.rows // most))

    def _room(self, blocks: MatmulBlocks) -> int:
        """Rows that a task has at most."""
        most = min(max(blocks.rows, self.height), self.most)
        return most if self.open else min(self.facts.rows, most)

    def _steps_of_b(self) -> np.ndarray:
        return words(super()._steps_of_b())

    def _left_of_task(self, a: Buffer | None, batch: Expr, first: Expr, blocks: MatmulBlocks) -> Buffer:
        """The rows of a task in scratch, from the first one on that a tile may be moved back to."""
        k, facts, total = self.k, self.facts, self.facts.rows
        size = self._room(blocks)
        cut = self.open or (total % blocks.rows and total > blocks.rows)
        self.start = self.bind(tirx.min(first, total - self.height), total) if cut else first
        count: Expr = tirx.min(total - self.start, size) if cut else size
        scratch = self._scratch(size)
        base = 0 if facts.flat or self.moved else self._base(facts.a, self._batch_indices(batch))
        with k.loop(count, name="r") as r:
            self.ctx.ranged(r, size)
            row, at = self.bind(self.start + r, total), r * self.stride
            self._round(a, (base, batch, row), Narrow(scratch), at)
        return scratch

    def _scratch(self, rows: int) -> Buffer:
        """Memory for so many rows, of which large ones count as what they take, not for more."""
        k, size, known = self.k, rows * self.stride * BYTES, self.k.workspace
        if self.open and size > STACK_BYTES:
            return k.local("rows", BITS, minimum(self.facts.rows, rows) * self.stride, "global")
        scratch = k.local("rows", BITS, rows * self.stride, "global")
        k.workspace = known + (size + LINE if size > STACK_BYTES else 0)
        return scratch

    def _round(self, a: Buffer | None, place: tuple[Expr, Expr, Expr], data: Narrow, at: Expr) -> None:
        """A row of A (``place``: where its matrix begins, batch, row) to ``at`` on; behind an odd one, a zero."""
        k, depth, done = self.k, self.facts.k, 0

        def run(begin: Expr, lanes: int) -> None:
            with k.loop(lanes, "vectorized" if lanes > 1 else "serial", "v") as v:
                self.ctx.ranged(v, lanes)
                k.store(data, at + begin + v, super(_PairMatmul, self)._left(a, *place, begin + v))

        for lanes in RUNS:
            times = (depth - done) // lanes
            if times:
                with k.loop(times, name="s") as s:
                    self.ctx.ranged(s, times)
                    run(done + s * lanes, lanes)
                done += times * lanes
        if done < depth:
            run(done, depth - done)
        if depth % PAIR:
            k.store(data, at + depth, tirx.FloatImm("float32", 0.0))

    def _left(self, a: Buffer, base: Expr, batch: Expr, row: Expr, step: Expr) -> Expr:
        """A word of A in every lane."""
        at = (row - self.start) * self.stride + step * PAIR
        return tirx.Broadcast(tirx.reinterpret("int32", a[tirx.Ramp(at, 1, PAIR)]), self.lanes)

    def _multiply(self, region: Region, acc: Buffer, r: Expr, left: Expr, right: Right) -> None:
        b, at = right
        for j in range(region.vectors):
            sums = tirx.Ramp((r * region.vectors + j) * self.lanes, 1, self.lanes)
            self.k.store(acc, sums, dot(acc[sums], left, b[tirx.Ramp(at + j * self.apart, 1, self.lanes)]))
