"""An epilogue whose constants are read when its sums are there, so that no register holds them through a reduction.

    for column of tiles                                  x, y, z = constants            what LLVM makes of it
      sums = reduction                                   for column of tiles
      result = f(sums, constants)                          sums = reduction             sums on the stack
                                                           result = f(sums, x, y, z)

    zero = whole(float(sums[0])) - sums[0]               of which LLVM knows nothing
    x, y, z = table[zero ...]

LLVM moves constants out of every loop around them, whatever registers they take, and takes the loops of an epilogue for
deeper than its reduction: of ResNet-50's layers in bytes on a Raspberry Pi 5, 30 of 72 instructions of an inner loop
were moves to and from the stack, and 10 between registers, for 24 multiply-adds. Here literals of a vector come from a
table of the kernel, and these and constants of channels are read at places that the sums have a part in. Vectors are
rounded by the instruction that makes whole numbers of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import tvm
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.ir.prim import expr as prim
from tvm.tirx.stmt import ForKind

from ..emit.builder import sequence
from ..instructions.load_order import keeps_loads
from ..instructions.nearest import nearest_of_vector
from ..instructions.opaque_numbers import fence
from ..words.group import Packed

if TYPE_CHECKING:
    from ..words.tvm_types import Buffer, Expr, Stmt
    from .context import Context

MOST = 64  # literals of a kernel that are read from its table; further ones stay
_SUMS = (prim.Add, prim.Sub, prim.Mul, prim.Div)
_ENDS = (prim.Min, prim.Max)
_COMPARED = (prim.EQ, prim.NE, prim.LT, prim.LE, prim.GT, prim.GE)


class LateConstants:
    """The table of literals of a kernel's epilogues."""

    def __init__(self, ctx: Context, lanes: int) -> None:
        self._ctx = ctx
        self.lanes = lanes
        self._bits: list[int] = []
        self._numbers = Packed("literals", self._laid_out, MOST * lanes, "int32")
        self._table: Buffer | None = None

    @contextmanager
    def behind(self, sums: Buffer) -> Iterator[None]:
        """What is written in it reads constants when ``sums``, vectors of int32, are there, on 64-bit ARM that executes
        out of order: other cores would wait for where they lie."""
        k = self._ctx.k
        if not keeps_loads(self._ctx.request.target):
            yield
            return
        with k.capture() as statements:
            yield
        zero = k.local("zero", "int64", 1)
        first = tirx.Shuffle([sums[_run(tirx.IntImm("int32", 0), self.lanes)]], [tirx.IntImm("int32", 0)])
        whole = tirx.Cast("int64", fence(tirx.Cast("float64", first)))
        k.store(zero, 0, whole - tirx.Cast("int64", first))
        rewriting = _Rewriting(self, zero[0])
        made = [rewriting.statement(s) for s in statements]
        for statement in (*rewriting.loads, *made):
            k.add(statement)
        if self._table is not None:
            self._numbers.elements = len(self._bits) * self.lanes

    def place(self, bits: int) -> int | None:
        """Where the table has vectors of these 32 bits."""
        if bits not in self._bits:
            if len(self._bits) == MOST:
                return None
            self._bits.append(bits)
        return self._bits.index(bits)

    @property
    def table(self) -> Buffer:
        """Vectors of int32, known when the kernel is finished."""
        if self._table is None:
            self._table = self._ctx.packed(self._numbers, narrow=False)
        return self._table

    def _laid_out(self) -> np.ndarray:
        return np.repeat(np.array(self._bits, np.uint32).view(np.int32), self.lanes)

    def local(self, dtype: str) -> Buffer:
        """A vector in registers."""
        name = self._ctx.k.fresh("c")
        return tirx.decl_buffer((self.lanes,), dtype, name=name, scope="local", layout=None)

    def constants(self) -> list[Buffer]:
        """Memory of constants that the kernel reads as they are."""
        return [getattr(held, "stored", held) for held in self._ctx.k.tables]


class _Rewriting:
    """Statements of one epilogue with its constants read late."""

    def __init__(self, late: LateConstants, zero: Expr) -> None:
        self.loads: list[Stmt] = []
        self._late = late
        self._zero = zero
        self._constants = late.constants()
        self._held: dict[tuple[int, str], Buffer] = {}
        self._lane: Expr | None = None  # of the vectorised loop around

    def statement(self, s: Stmt) -> Stmt:
        if isinstance(s, tirx.SeqStmt):
            return sequence([self.statement(part) for part in s.seq])
        if isinstance(s, tirx.For):
            outer = self._lane
            if s.kind == ForKind.VECTORIZED:
                self._lane = s.loop_var if int(s.extent) == self._late.lanes else None
            body = self.statement(s.body)
            self._lane = outer
            return tirx.For(s.loop_var, s.min, s.extent, s.kind, body)
        if isinstance(s, tirx.IfThenElse):
            other = None if s.else_case is None else self.statement(s.else_case)
            return tirx.IfThenElse(s.condition, self.statement(s.then_case), other)
        if isinstance(s, tirx.BufferStore):
            return tirx.BufferStore(s.buffer, self.number(s.value), s.indices)
        return s

    def number(self, e: Expr) -> Expr:
        """``e``, which is no index."""
        kind = type(e)
        if kind is prim.FloatImm:
            return self._literal(e)
        if kind in _SUMS or kind in _ENDS or kind in _COMPARED:
            return self._operation(kind, e)
        if kind is prim.Cast:
            return tirx.Cast(e.ty, self.number(e.value))
        if kind is prim.Select:
            return tirx.Select(self.number(e.condition), self.number(e.true_value), self.number(e.false_value))
        if isinstance(e, TensorLoad):
            return self._read(e)
        if isinstance(e, tvm.ir.Call):
            made = tvm.ir.Call(e.op, [self.number(a) for a in e.args], e.attrs, ret_ty=e.ty)
            return made if self._lane is None else nearest_of_vector(made, self._late.lanes)
        return e

    def _operation(self, kind: type, e: Expr) -> Expr:
        a, b = e.a, e.b
        if isinstance(a, prim.IntImm) or isinstance(b, prim.IntImm):
            if not (_reads(a) or _reads(b)):
                return e  # of indices
            held = self._literal if kind in (prim.Add, prim.Sub, *_ENDS) else lambda x: x
            return kind(*(held(x) if isinstance(x, prim.IntImm) else self.number(x) for x in (a, b)))
        if kind is prim.Div and isinstance(b, prim.FloatImm):  # a power of two multiplies instead
            return kind(self.number(a), b)
        return kind(self.number(a), self.number(b))

    def _literal(self, e: Expr) -> Expr:
        dtype = str(e.ty.dtype)
        if self._lane is None or dtype not in ("float32", "int32"):
            return e
        bits = int(np.array(e.value, np.float32).view(np.uint32)) if dtype == "float32" else int(e.value) & 0xFFFFFFFF
        if (bits, dtype) not in self._held:
            place = self._late.place(bits)
            if place is None:
                return e
            vector, lanes = self._late.local(dtype), self._late.lanes
            read = self._late.table[_run(self._zero + place * lanes, lanes)]
            made = read if dtype == "int32" else tirx.reinterpret(f"{dtype}x{lanes}", read)
            self.loads += [tirx.AllocBuffer(vector), tirx.BufferStore(vector, made, [_run(0, lanes)])]
            self._held[bits, dtype] = vector
        return self._held[bits, dtype][self._lane]

    def _read(self, e: Expr) -> Expr:
        if not any(e.source.same_as(c) for c in self._constants) or len(e.indices) != 1:
            return e
        index = e.indices[0]
        if isinstance(index, prim.Ramp):
            return e
        return e.source[tirx.Cast("int64", index) + self._zero]


def _reads(e: Expr) -> bool:
    """True if ``e`` is made of what is read from memory, and so no index."""
    if isinstance(e, TensorLoad):
        return True
    if isinstance(e, tvm.ir.Call):
        return any(_reads(a) for a in e.args)
    parts = (getattr(e, name, None) for name in ("a", "b", "value", "condition", "true_value", "false_value"))
    return any(_reads(p) for p in parts if isinstance(p, tvm.ir.Expr))


def _run(first: Expr | int, count: int) -> Expr:
    first = tirx.IntImm("int32", first) if isinstance(first, int) else first
    return tirx.Ramp(first, tirx.IntImm(str(first.ty.dtype), 1), count)
