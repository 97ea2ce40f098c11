"""Products of bytes: :mod:`.packed` over words, with the target's instruction that sums four products, or two
(:mod:`..instructions.int8_dot`).

    for word of K
      acc[r][v] = dot(acc[r][v], broadcast(four bytes of row r), words[panel][word][v])

Four neighbouring bytes of a row of A are one word, so a row is a quarter as many steps, and panels of B hold the words
of four rows: [panel][K / 4][vectors][lanes]. Tiles, blocks, streams and hints are those of float32, of K / 4 steps.
Where K is no multiple of four, the last word is put together byte by byte: what lies behind is another row's, or
nobody's. Where words are pairs of int16, two takes the place of four.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import tirx

from ..instructions.int8_dot import PAIRS, data_dtype, dot, per_word, words
from ..words.group import Kernel, Request
from ..words.tvm_types import Buffer, Expr
from .facts import MatmulFacts
from .packed import _Matmul
from .regions import Region
from .shared_weights import shared_tile


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

    def build(self) -> Kernel:
        kernel = super().build()
        return replace(kernel, schedule=kernel.schedule + ", in pairs" * (self.facts.a.dtype == PAIRS))

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

    def _multiply(self, region: Region, acc: Buffer, r: Expr, left: Expr, right: tuple[Buffer, Expr]) -> None:
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
