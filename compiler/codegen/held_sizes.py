"""Numbers of a kernel of open dimensions, each computed once: TVM puts the expression of a name back at its uses.

    for p: o = p % (((h + 1) // 2 + 5) // 6); for r, unrolled: y[(o + r) // ((w + 1) // 2) * 8] = ...

    s0 = ((h + 1) // 2 + 5) // 6; s1 = (w + 1) // 2                         what sizes alone decide, before all loops
    for p: o = p % s0; for r, unrolled: y[(o + r) // s1 * 8] = ...          in memory, which TVM does not see through

Without, each copy of an unrolled line divides by sizes that are sums of quotients themselves: a product's kernel took
11 seconds to compile, and takes a fifth of one so. LLVM brings the memory into registers. Kernels without sizes stay
as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.prim import expr as prim

from ...schedules.emit.builder import sequence
from ...schedules.emit.open_sizes import SIZES
from ...schedules.words.tvm_types import Expr, Mutator, PrimFunc, Stmt

STEPS = (prim.Add, prim.Sub, prim.Mul, prim.FloorDiv, prim.FloorMod, prim.Min, prim.Max)
LONG = (prim.FloorDiv, prim.FloorMod, prim.Min, prim.Max)  # what is worth its place in memory


def held(function: PrimFunc) -> PrimFunc:
    """The function with its sizes and the names that are quotients or extremes in memory."""
    names = list((function.attrs or {}).get(SIZES, ()))
    if not names:
        return function
    holder = _Holder(function.params[-len(names) :])
    body = tvm_ffi.structural_mutate(
        function.body,
        (
            (tirx.SeqStmt, holder.statements),
            (STEPS, holder.step),
            (tirx.Var, holder.variable),
            (tirx.Buffer, lambda buffer, _: buffer),  # its shape is not computed
        ),
    )
    parts = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    return tirx.PrimFunc(function.params, sequence([*holder.first, *parts]), function.ret_type, function.attrs)


class _Holder:
    """``first``: the statements that hold what sizes alone decide."""

    def __init__(self, sizes: Sequence[Expr]) -> None:
        self.sizes = sizes
        self.first: list[Stmt] = []
        self.known: dict[Expr, Expr] = {}  # expressions of sizes -> where they are held
        self.names: dict[Expr, Expr] = {}  # names -> the same
        self.own: list[Expr] = []  # this memory

    def statements(self, whole: Stmt, mutator: Mutator) -> Stmt:
        made: list[Stmt] = []
        for part in whole.seq:
            value = mutator.mutate(part.value) if isinstance(part, tirx.Bind) else None
            if value is None:
                made.append(mutator.mutate(part))
            elif str(value.ty.dtype) == "int32" and has(value, LONG) and self._depends(value):
                allocation, store, self.names[part.var] = _kept(part.var.name, value)
                self.own.append(store.buffer)
                made += [allocation, store]
            else:
                made.append(tirx.Bind(part.var, value))
        return sequence(made)

    def _depends(self, value: Expr) -> bool:
        """True for what sizes enter."""
        known = [*self.sizes, *self.own]
        return any(u.same_as(k) for u in tirx.analysis.undefined_vars(value) for k in known)

    def step(self, value: Expr, mutator: Mutator) -> Expr:
        if str(value.ty.dtype) != "int32" or not self._of_sizes(value):
            return mutator.default_mutate(value)
        if not has(value, LONG):
            return value
        key: Any = tvm_ffi.StructuralKey(value)  # type: ignore[call-arg]
        if key not in self.known:
            allocation, store, self.known[key] = _kept(f"s{len(self.known)}", value)
            self.own.append(store.buffer)
            self.first += [allocation, store]
        return self.known[key]

    def variable(self, var: Expr, _: Mutator) -> Expr:
        return self.names.get(var, var)

    def _of_sizes(self, value: Expr) -> bool:
        used = tirx.analysis.undefined_vars(value)
        return bool(used) and all(any(u.same_as(s) for s in self.sizes) for u in used)


def has(value: Expr, kinds: tuple[type, ...]) -> bool:
    """True if an expression has a part of one of ``kinds``, the shapes of what it reads aside."""
    stop = tvm_ffi.structural_walk(
        value, ((tirx.Buffer, lambda _: tvm_ffi.WalkResult.SKIP), (kinds, tvm_ffi.VisitInterrupt)), order="pre"
    )
    return stop is not None


def _kept(name: str, value: Expr) -> tuple[Stmt, Stmt, Expr]:
    """The statements that put a value into memory, and what reads it."""
    buffer = tirx.decl_buffer((1,), "int32", name=name, scope="local", layout=None)
    zero = tirx.IntImm("int32", 0)
    return tirx.AllocBuffer(buffer), tirx.BufferStore(buffer, value, [zero]), buffer[zero]
