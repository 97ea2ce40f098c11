"""Which places of its memory a kernel reads and writes, found by walking its function with samples of its loops.

An oracle for accesses past a tensor's end that knows nothing of how kernels are made: it evaluates index arithmetic and
conditions on arrays, one sample of all loop variables for each element, among them the first and last iterations. A
place that depends on data is left out; a condition that depends on data counts as true. Integers that a kernel keeps
in memory of one element (where its last block began and ends) are no data: they are followed from store to load.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from halotile.schedules.kernel.context import SLACK
from halotile.schedules.tiled import TiledKernel
from halotile.schedules.words.group import Kernel, Packed, Scratch, Value, dtype_bytes
from tvm import tirx
from tvm.ir import Call
from tvm.ir.expr import TensorLoad
from tvm.ir.prim import expr as prim

SAMPLES = 400

_NUMBERS: dict[type, Callable[[Any, Any], Any]] = {
    prim.Add: np.add,
    prim.Sub: np.subtract,
    prim.Mul: np.multiply,
    prim.Div: lambda a, b: np.trunc(a / np.where(b == 0, 1, b)).astype(np.int64),
    prim.Mod: lambda a, b: np.fmod(a, np.where(b == 0, 1, b)),
    prim.FloorDiv: lambda a, b: np.floor_divide(a, np.where(b == 0, 1, b)),
    prim.FloorMod: lambda a, b: np.mod(a, np.where(b == 0, 1, b)),
    prim.EQ: np.equal,
    prim.NE: np.not_equal,
    prim.LT: np.less,
    prim.LE: np.less_equal,
    prim.GT: np.greater,
    prim.GE: np.greater_equal,
    prim.And: np.logical_and,
    prim.Or: np.logical_or,
    prim.Max: np.maximum,
    prim.Min: np.minimum,
    prim.LShift: np.left_shift,
    prim.RShift: np.right_shift,
    prim.BitwiseAnd: np.bitwise_and,
    prim.BitwiseOr: np.bitwise_or,
    prim.BitwiseXor: np.bitwise_xor,
}


@dataclass
class Span:
    """The first and last place that was accessed, in elements."""

    first: int
    last: int


class Accesses:
    """``read[buffer]`` and ``written[buffer]`` span the places that samples of ``function`` access."""

    def __init__(self, function: Any, seed: int = 0) -> None:
        self.read: dict[Any, Span] = {}
        self.written: dict[Any, Span] = {}
        self._random = np.random.default_rng(seed)
        self._env: dict[Any, Any] = {}
        self._kept: dict[Any, Any] = {}  # buffer of one integer -> what was stored there last; None where it is data
        self._statement(function.body, np.ones((SAMPLES, 1), bool))

    def _statement(self, s: Any, live: Any) -> None:
        if isinstance(s, tirx.SeqStmt):
            for part in s.seq:
                self._statement(part, live)
        elif isinstance(s, tirx.For):
            self._loop(s, live)
        elif isinstance(s, tirx.IfThenElse):
            condition = self._number(s.condition, live)
            self._statement(s.then_case, live if condition is None else live & condition)
            if s.else_case is not None:
                self._statement(s.else_case, live if condition is None else live & ~condition)
        elif isinstance(s, tirx.BufferStore):
            self._store(s, live)
        elif isinstance(s, tirx.Bind):
            self._env[s.var] = self._number(s.value, live)
        elif isinstance(s, tirx.While):
            self._number(s.condition, live)
            self._statement(s.body, live)
        elif isinstance(s, tirx.AttrStmt):
            self._statement(s.body, live)
        elif isinstance(s, (tirx.Evaluate, tirx.Return)):
            self._number(s.value, live)
        else:
            assert isinstance(s, (tirx.AllocBuffer, tirx.DeclBuffer)), type(s)

    def _store(self, s: Any, live: Any) -> None:
        value = self._number(s.value, live)
        self._access(self.written, s.buffer, s.indices, live)
        if _keeps_one(s.buffer):
            if value is None and isinstance(s.value, prim.Min):  # of an end, as where the other is no less
                each = [self._number(e, live) for e in (s.value.a, s.value.b)]
                value = next((e for e in each if e is not None), None)
            before = self._kept.get(s.buffer)
            known = value if value is None or before is None else np.where(live, value, before)
            self._kept[s.buffer] = known

    def _loop(self, s: Any, live: Any) -> None:
        first, extent = self._number(s.min, live), self._number(s.extent, live)
        if first is None or extent is None:
            self._env[s.loop_var] = None
            self._statement(s.body, live)
            return
        before = dict(self._kept)
        self._iteration(s, first, extent, live)
        if any(self._kept[b] is not before.get(b) for b in self._kept):  # a later iteration reads what this one kept
            self._iteration(s, first, extent, live)

    def _iteration(self, s: Any, first: Any, extent: Any, live: Any) -> None:
        share = self._random.random((SAMPLES, 1))
        kind = self._random.integers(0, 3, (SAMPLES, 1))
        kind[:2, 0] = 0, 1  # one sample has the first iterations of all loops, one the last
        step = np.where(kind == 0, 0, np.where(kind == 1, extent - 1, np.floor(share * extent))).astype(np.int64)
        self._env[s.loop_var] = first + step
        self._statement(s.body, live & (extent > 0))

    def _access(self, table: dict[Any, Span], buffer: Any, indices: Any, live: Any) -> None:
        if len(indices) != 1:
            return
        at = self._number(indices[0], live)
        if at is None:
            return
        at, live = np.broadcast_arrays(at, live)
        if live.any():
            low, high = int(at[live].min()), int(at[live].max())
            span = table.setdefault(buffer, Span(low, high))
            span.first, span.last = min(span.first, low), max(span.last, high)

    def _number(self, e: Any, live: Any) -> Any:
        """Samples x lanes (or 1), or None where it depends on data. ``live``: the samples in which it is evaluated."""
        kind = type(e)
        if kind is prim.IntImm:
            return np.full((1, 1), int(e.value), bool if str(e.ty.dtype) == "bool" else np.int64)
        if kind is tirx.Var:
            return self._env.get(e)
        if kind in _NUMBERS:
            a, b = self._number(e.a, live), self._number(e.b, live)
            return None if a is None or b is None else _NUMBERS[kind](a, b)
        if kind is prim.Cast:
            number = self._number(e.value, live)
            return number.astype(np.int64) if number is not None and "int" in str(e.ty.dtype) else None
        if kind is prim.Not:
            number = self._number(e.a, live)
            return None if number is None else ~number
        if kind is prim.Select:
            condition = self._number(e.condition, live)  # both are evaluated, whatever it is
            yes, no = self._number(e.true_value, live), self._number(e.false_value, live)
            return None if condition is None or yes is None or no is None else np.where(condition, yes, no)
        if kind is prim.Ramp:
            base, stride = self._number(e.base, live), self._number(e.stride, live)
            return None if base is None or stride is None else base + stride * np.arange(int(e.lanes))
        if kind is prim.Broadcast:
            return self._number(e.value, live)
        if kind is prim.Let:
            self._env[e.var] = self._number(e.value, live)
            return self._number(e.body, live)
        if isinstance(e, TensorLoad):
            for index in e.indices:
                self._number(index, live)
            self._access(self.read, e.source, e.indices, live)
            return self._kept.get(e.source)
        if kind is prim.Shuffle:
            for part in e.vectors:
                self._number(part, live)
            return None
        return self._call(e, live) if isinstance(e, Call) else None

    def _call(self, e: Any, live: Any) -> Any:
        name = e.op.name.split(".")[-1] if isinstance(e.op, tvm.ir.Op) else ""
        if name == "if_then_else":
            condition = self._number(e.args[0], live)
            there, not_there = (live, live) if condition is None else (live & condition, live & ~condition)
            yes, no = self._number(e.args[1], there), self._number(e.args[2], not_there)
            return None if condition is None or yes is None or no is None else np.where(condition, yes, no)
        if name not in ("address_of", "prefetch"):
            for a in e.args:
                self._number(a, live)
        return None


def _keeps_one(buffer: Any) -> bool:
    return len(buffer.shape) == 1 and int(buffer.shape[0]) == 1 and "int" in str(buffer.dtype)


def outside(kernel: Kernel) -> list[str]:
    """Accesses of ``kernel`` outside of its operands, in words; constants have bytes behind them that may be read."""
    if isinstance(kernel, TiledKernel):
        return [f"{part.schedule} {words}" for part in kernel.parts for words in outside(part)]
    found = Accesses(kernel.function)
    wrong = []
    operands = {p.name: o for p, o in zip(kernel.function.params, kernel.operands)}
    for what, table in (("reads", found.read), ("writes", found.written)):
        for buffer, span in table.items():
            extent = int(buffer.shape[0])
            operand = operands.get(f"p_{buffer.name}")
            constant = isinstance(operand, Packed) or (isinstance(operand, Value) and operand.constant is not None)
            slack = SLACK // dtype_bytes(str(buffer.dtype)) if constant and what == "reads" else 0
            if span.first < 0 or span.last >= extent + slack:
                of = "scratch" if isinstance(operand, Scratch) else "own memory" if operand is None else str(operand)
                wrong.append(f"{what} {span.first} to {span.last} of {of} ({buffer.name}, {extent} elements)")
    return wrong
