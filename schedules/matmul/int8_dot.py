"""Products of bytes: :mod:`.packed` over words, with the target's instruction that sums four products, or two
(:mod:`..instructions.int8_dot`).

    for word of K
      acc[r][v] = dot(acc[r][v], broadcast(four bytes of row r), words[panel][word][v])

Four neighbouring bytes of a row of A are one word, so a row is a quarter as many steps, and panels of B hold the words
of four rows: [panel][K / 4][vectors][lanes]. Tiles, blocks, streams and hints are those of float32, of K / 4 steps.
Where K is no multiple of four, the last word is put together byte by byte: what lies behind is another row's, or
nobody's. Where words are pairs of int16, two takes the place of four.

Where an instruction takes a word from a lane (64-bit ARM), one load has the words of a row for four steps, written out:
8 x 3 tiles take 123 instructions for 96 multiply-adds, with a load and an address for each word 184.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import tirx

from ..instructions.int8_dot import PAIRS, data_dtype, dot, per_word, words
from ..instructions.load_order import keep_loads
from ..instructions.opaque_numbers import any_number
from ..instructions.word_rows import LANES, row_words
from ..kernel.late_constants import LateConstants
from ..words.group import Kernel, Request
from ..words.tvm_types import Buffer, Expr
from .facts import MatmulFacts
from .packed import Right, Rows, _Matmul
from .regions import Region
from .shared_weights import shared_tile

ON_THEIR_WAY = 2  # registers that weights are loaded to


def build_bytes(request: Request, facts: MatmulFacts, tile: tuple[int, int] | None = None) -> Kernel:
    """The kernel of a product of bytes by dot products. ``tile``: rows by vectors in registers, by default those of
    :func:`shared_tile`."""
    assert data_dtype(request.target) == facts.a.dtype, "the target has no instruction for these bytes"
    return _ByteMatmul(request, facts, tile or shared_tile(request, facts)).build()


class _ByteMatmul(_Matmul):
    family = "matmul of bytes"

    def __init__(self, request: Request, facts: MatmulFacts, tile: tuple[int, int]) -> None:
        super().__init__(request, facts, tile)
        self.per = per_word(facts.a.dtype)
        self.cut = int(facts.k % self.per > 0)
        self.late = LateConstants(self.ctx, self.lanes)
        by_lanes = request.target.is_aarch64 and not (self.moved or self.streams)
        self.together = LANES if by_lanes else 1  # lanes of vectors have the words of a row

    def build(self) -> Kernel:
        kernel = super().build()
        return replace(kernel, schedule=kernel.schedule + ", in pairs" * (self.facts.a.dtype == PAIRS))

    def _steps(self, region: Region, acc: Buffer, rows: Rows, right: Right, steps: tuple[Expr, int]) -> None:
        """A step, or four of as many rows at a time as registers hold the words of."""
        first, count = steps
        if count == 1:
            super()._steps(region, acc, rows, right, steps)
            return
        k, target, (a, base, _, row), (b, at) = self.k, self.request.target, rows, right
        left = target.vector_registers - self.height * region.vectors - ON_THEIR_WAY
        parts = -(-self.height // max(1, left))
        together = -(-self.height // parts)
        for begin in range(0, self.height, together):
            keep_loads(k, target)
            again = any_number(target, begin) - begin if begin else 0  # LLVM would keep what the first rows read
            words_of = []
            for r in range(begin, min(begin + together, self.height)):
                place = base + (row + r) * self.facts.k + first * self.per
                places = [place + i * self.per for i in range(count)]
                words_of.append((r, row_words(k, self.ctx.analyzer, a, places)))
            for i in range(count):
                for j in range(region.vectors):
                    weights = b[_run(at + again + (i * region.vectors + j) * self.lanes, self.lanes)]
                    for r, found in words_of:
                        sums = _run((r * region.vectors + j) * self.lanes, self.lanes)
                        k.store(acc, sums, dot(target, acc[sums], tirx.Broadcast(found[i], self.lanes), weights))

    def _epilogue(self, region: Region, acc: Buffer, batch: Expr, panel: Expr, row: Expr) -> None:
        with self.late.behind(acc):
            super()._epilogue(region, acc, batch, panel, row)

    def _steps_of_b(self) -> np.ndarray:
        return words(super()._steps_of_b().T, self.facts.a.dtype).T

    def _left(self, a: Buffer, base: Expr, batch: Expr, row: Expr, step: Expr) -> Expr:
        """A word of A in every lane."""
        at, left = base + row * self.facts.k + step * self.per, self.facts.k % self.per
        if left and isinstance(step, int) and step == self.facts.k // self.per:
            word: Expr = _int(0)
            for i in range(left):
                bits = 32 // self.per
                element = tirx.Cast("int32", a[at + i]) & _int((1 << bits) - 1)
                word = word | (element << _int(bits * i))
        else:
            word = tirx.reinterpret("int32", a[_run(at, self.per)])
        return tirx.Broadcast(word, self.lanes)

    def _multiply(self, region: Region, acc: Buffer, r: Expr, left: Expr, right: Right) -> None:
        b, at = right
        for j in range(region.vectors):
            sums = _run((r * region.vectors + j) * self.lanes, self.lanes)
            weights = b[_run(at + j * self.apart, self.lanes)]
            self.k.store(acc, sums, dot(self.request.target, acc[sums], left, weights))


def _int(value: int) -> Expr:
    return tirx.IntImm("int32", value)


def _run(begin: Expr, count: int) -> Expr:
    """Indices of ``count`` neighbours."""
    return tirx.Ramp(_int(begin) if isinstance(begin, int) else begin, _int(1), count)
