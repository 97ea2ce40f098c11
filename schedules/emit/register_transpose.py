"""Squares of elements transposed in registers: n vectors are read along memory, and n are stored, across it.

    read      x[j + r, i : i + n]        r < n; where vectors have several parts of 128 bits, part t of a register
                                         is from row r + t q, so that parts meet while they are read
    interleave pairs                     log2(q) times, q elements in 128 bits: each part is transposed
    row c     x[j : j + n, i + c]        what a vector across the rows would have gathered

For n = 8 floats of 256 bits: 16 reads of half a register, and 16 instructions that interleave, where one element a lane
takes 64 reads. Method: J. O. Eklundh, A fast computer method for matrix transposing, 1972.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm_ffi
from tvm import sym, tirx
from tvm.ir.expr import TensorLoad
from tvm.ir.prim import expr as prim

from ..words.tvm_types import Buffer, Expr, Stmt

PART = 16  # bytes of a register within which elements are interleaved


def side_of(vector_bits: int, size: int) -> int:
    """Rows and columns of a square of elements of ``size`` bytes: a vector of the wider types, 128 bits of others."""
    return max(vector_bits // 8 // max(size, 4), PART // size)


class Square:
    """A square that is being written: reads at base + i + stride * lane, where ``column`` is i."""

    def __init__(self, side: int, simplify: Callable[[Expr], Expr]) -> None:
        self.side, self.simplify = side, simplify
        self.column = 0
        self.found: list[tuple[Expr, Expr, Expr, list[Expr]]] = []  # buffer, base of column 0, stride, columns

    def vector(
        self, value: Expr, lane: Expr, width: int, before: list[Stmt], fresh: Callable[[str], str]
    ) -> Expr | None:
        """The vector of a read across rows; the whole square is read ``before`` where this is the first column of it
        that is wanted."""
        if width != self.side or not isinstance(value, TensorLoad) or len(value.indices) != 1:
            return None
        linear = sym.detect_linear_equation(value.indices[0], [lane])
        if not len(linear):
            return None
        stride = int(linear[0].value) if isinstance(linear[0], prim.IntImm) else self.simplify(linear[0])
        if isinstance(stride, int) and abs(stride) < 2:
            return None
        column = self._column(linear[1], stride)
        if column is None:
            return None
        base = self.simplify(linear[1] - column)
        for buffer, first, step, columns in self.found:
            if not buffer.same_as(value.source) or not _alike(step, stride):
                continue
            if tvm_ffi.structural_equal(self.simplify(base - first), tirx.IntImm("int32", 0)):
                return columns[column][tirx.Ramp(0, 1, width)]
        if not self._begins(column):
            return None
        columns = self._read(value.source, base, stride, before, fresh)
        self.found.append((value.source, base, stride, columns))
        return columns[column][tirx.Ramp(0, 1, width)]

    def _column(self, base: Expr, stride: Expr) -> int | None:
        """The column of its square that begins at ``base``; rows are ``stride`` apart, a number, or an expression where
        sizes are open."""
        return self.column

    def _begins(self, column: int) -> bool:
        """True if a square may be read whose first wanted column is ``column``."""
        return column == 0

    def _read(
        self, source: Buffer, base: Expr, stride: Expr, before: list[Stmt], fresh: Callable[[str], str]
    ) -> list[Buffer]:
        n, dtype = self.side, str(source.dtype)
        bits = int("".join(c for c in dtype if c.isdigit()))
        q = min(n, PART * 8 // bits)
        columns: list[Buffer] = []

        def kept(value: Expr) -> Buffer:
            buffer = tirx.decl_buffer((n,), dtype, name=fresh("q"), scope="local", layout=None)
            before.extend([tirx.AllocBuffer(buffer), tirx.BufferStore(buffer, value, [tirx.Ramp(0, 1, n)])])
            return buffer

        order = [tirx.IntImm("int32", i) for i in range(n)]
        low, high = (_interleaved(n, q, half) for half in (0, 1))
        for part in range(n // q):
            rows = []
            for r in range(q):
                parts = [source[tirx.Ramp(base + (r + t * q) * stride + part * q, 1, q)] for t in range(n // q)]
                rows.append(kept(tirx.Shuffle(parts, order) if len(parts) > 1 else parts[0]))
            for _ in range(q.bit_length() - 1):
                pairs = [(rows[i], rows[i + q // 2]) for i in range(q // 2)]
                rows = [kept(_shuffled(pair, half)) for pair in pairs for half in (low, high)]
            columns += rows
        return columns


class Aligned(Square):
    """Squares whose columns are the channels of a block: the first one lies at a multiple of ``side``. All of them are
    read within one scope, in which their columns may be wanted in any order."""

    def _column(self, base: Expr, stride: Expr) -> int | None:
        column = self.simplify(tirx.floormod(base, self.side))
        whole = isinstance(stride, int) and stride % self.side == 0
        return int(column.value) if isinstance(column, prim.IntImm) and whole else None

    def _begins(self, column: int) -> bool:
        return True


def _alike(a: Expr, b: Expr) -> bool:
    """True for equal strides."""
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    return bool(tvm_ffi.structural_equal(a, b))


def _shuffled(pair: tuple[Buffer, Buffer], order: list[Expr]) -> Expr:
    return tirx.Shuffle([v[tirx.Ramp(0, 1, len(order))] for v in pair], order)


def _interleaved(n: int, q: int, half: int) -> list[Expr]:
    """Elements of two vectors in turns, the lower or upper half of each part of ``q``."""
    picks = []
    for start in range(0, n, q):
        for i in range(q // 2):
            at = start + half * (q // 2) + i
            picks += [at, n + at]
    return [tirx.IntImm("int32", p) for p in picks]
