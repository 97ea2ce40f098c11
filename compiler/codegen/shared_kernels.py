"""Kernels of open dimensions that are the same but for whole numbers are one function, which is told these.

    k1: for g in 6:  y[g * ((h + 7) // 8) * 16 ...]            f: for g in a:  y[g * b * 16 ...]
    k2: for g in 18: y[g * ((h + 15) // 16) * 16 ...]          k1: f(..., 6, (h + 7) // 8)    k2: f(..., 18, ...)

Layers of one kind differ in how many channels they have and in how large their images are: numbers, and expressions of
sizes alone, in loops and positions. LLVM takes a tenth of a second for such a kernel, and none for a call that passes
numbers on. What code is made of stays as it is, and must be equal: lengths of vectors and of loops that are written
out, divisors, arguments of instructions, memory on the stack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.prim import expr as prim

from ...schedules.emit.open_sizes import SIZES
from ...schedules.words.tvm_types import Buffer, Expr, Mutator, PrimFunc, Stmt

STEPS = (prim.Add, prim.Sub, prim.Mul, prim.FloorDiv, prim.FloorMod, prim.Min, prim.Max)
DIVISIONS = (prim.FloorDiv, prim.FloorMod)
WHOLE = ("int32", "int64")
MOST = 24  # numbers that a function is told
UNKNOWN = 1 << 30  # elements that a pointer has, as far as the function knows


@dataclass(frozen=True)
class SharedKernel:
    """A function that stands for several, and what one of these passes to it behind its own pointers and scalars."""

    function: PrimFunc
    numbers: tuple[Expr, ...]


def shared_kernels(functions: Sequence[tuple[str, str, PrimFunc]]) -> dict[str, SharedKernel]:
    """The function that stands for several of ``functions`` (name, what the kernel says of itself, function), which
    differ from each other, by the names of those. Only functions of kernels that say the same are compared."""
    alike: dict[str, list[tuple[str, PrimFunc]]] = {}
    for name, label, function in functions:
        alike.setdefault(label, []).append((name, function))
    found: dict[str, SharedKernel] = {}
    for own in alike.values():
        same: dict[int, list[list[tuple[str, _Form]]]] = {}
        for name, function in own if len(own) > 1 else ():
            form = _Form.of(function)
            clusters = same.setdefault(form.key, [])
            cluster = next((c for c in clusters if c[0][1].equals(form)), None)
            if cluster is None:
                clusters.append(cluster := [])
            cluster.append((name, form))
        for cluster in (c for clusters in same.values() for c in clusters if len(c) > 1):
            if (general := _general([form for _, form in cluster])) is not None:
                found.update((name, kernel) for (name, _), kernel in zip(cluster, general))
    return found


def caller_of(function: PrimFunc, shared: SharedKernel, name: str) -> PrimFunc:
    """``function`` as a call of the one that it shares, which has this ``name``."""
    own = function.params[: len(function.params) - len(_sizes(function))]
    call = tirx.call_extern("int32", name, *own, *shared.numbers)
    body = tirx.SeqStmt([tirx.Evaluate(call), tirx.Return(tirx.IntImm("int32", 0))])
    return tirx.PrimFunc(function.params, body, function.ret_type).with_attrs({"s_tir": True})


def _sizes(function: PrimFunc) -> list[Expr]:
    names = list((function.attrs or {}).get(SIZES, ()))
    return list(function.params[len(function.params) - len(names) :])


def _general(forms: Sequence[_Form]) -> list[SharedKernel] | None:
    """The function that stands for all of the ``forms``, and the numbers of each; None if these are too many."""
    first, params, numbers = forms[0], [], [[] for _ in forms]  # type: tuple[_Form, list[Expr], list[list[Expr]]]
    known: dict[tuple[str, ...], Expr] = {}
    instead: dict[int, Expr] = {}
    for at, column in enumerate(zip(*(form.sites for form in forms))):
        texts = tuple(f"{site.ty.dtype} {site}" for site in column)
        if len(set(texts)) == 1:
            continue
        if texts not in known:
            known[texts] = tirx.Var(f"number{len(known)}", str(column[0].ty.dtype))
            params.append(known[texts])
            for own, site in zip(numbers, column):
                own.append(site)
        instead[at] = known[texts]
    if len(params) > MOST:
        return None
    function = first.with_numbers(params, instead)
    sizes = _sizes(function)[len(params) :]
    return [SharedKernel(function, (*own, *sizes)) for own in numbers]


@dataclass
class _Form:
    """A function with its ``sites``: numbers and expressions of sizes, in the order in which they are met, which
    ``skeleton`` has not. ``memory``: what it takes of the stack."""

    function: PrimFunc
    sizes: list[Expr]
    instead: Mapping[int, Expr] | None = None
    sites: list[Expr] = field(default_factory=list)
    memory: list[str] = field(default_factory=list)
    buffers: dict[Buffer, Buffer] = field(default_factory=dict)
    skeleton: PrimFunc = None
    key: int = 0

    @staticmethod
    def of(function: PrimFunc) -> _Form:
        form = _Form(function, _sizes(function))
        body = form.rewritten()
        own = len(function.params) - len(form.sizes)
        form.skeleton = tirx.PrimFunc(function.params[:own], body, function.ret_type)
        form.key = tvm_ffi.structural_hash(form.skeleton, map_free_vars=True)
        return form

    def equals(self, other: _Form) -> bool:
        if self.memory != other.memory or self._attributes() != other._attributes():
            return False
        kinds = [[str(site.ty.dtype) for site in form.sites] for form in (self, other)]
        return kinds[0] == kinds[1] and tvm_ffi.structural_equal(self.skeleton, other.skeleton, map_free_vars=True)

    def _attributes(self) -> dict[str, str]:
        return {str(k): str(v) for k, v in (self.function.attrs or {}).items() if k not in (SIZES, "global_symbol")}

    def with_numbers(self, params: Sequence[Expr], instead: Mapping[int, Expr]) -> PrimFunc:
        """The function with parameters in place of some sites, and the sizes that the others still have."""
        body = _Form(self.function, self.sizes, instead).rewritten()
        own = list(self.function.params[: len(self.function.params) - len(self.sizes)])
        used = tirx.analysis.undefined_vars(body, own)
        sizes = [s for s in self.sizes if any(u.same_as(s) for u in used)]
        function = tirx.PrimFunc([*own, *params, *sizes], body, self.function.ret_type, self.function.attrs)
        return function.with_attr(SIZES, [v.name for v in (*params, *sizes)])

    def rewritten(self) -> Stmt:
        """The body with every site replaced: by 1 in a skeleton, which has no ``instead``."""
        body = self.function.body
        for part in body.seq if isinstance(body, tirx.SeqStmt) else [body]:
            if isinstance(part, tirx.DeclBuffer) and any(part.data.same_as(p) for p in self.function.params):
                old = part.buffer
                self.buffers[old] = tirx.decl_buffer(
                    (UNKNOWN,), str(old.dtype), name=old.name, data=part.data, data_alignment=1, layout=None
                )
        return tvm_ffi.structural_mutate(
            body,
            (
                (prim.IntImm, self._number),
                (STEPS, self._step),
                (tvm.ir.Call, self._call),
                (prim.Ramp, lambda ramp, mutator: tirx.Ramp(mutator.mutate(ramp.base), ramp.stride, ramp.lanes)),
                (prim.Broadcast, lambda wide, mutator: tirx.Broadcast(mutator.mutate(wide.value), wide.lanes)),
                (prim.Shuffle, self._shuffle),
                (tirx.For, self._loop),
                (tirx.AttrStmt, self._attribute),
                (tirx.AllocBuffer, self._memory),
                (tirx.DeclBuffer, self._pointer),
                (tirx.Var, self._variable),
            ),
        )

    # -- parts of a body ---------------------------------------------------------------------------

    def _site(self, value: Expr) -> Expr:
        self.sites.append(value)
        if self.instead is None:
            return tirx.IntImm(str(value.ty.dtype), 1)
        return self.instead.get(len(self.sites) - 1, value)

    def _number(self, value: Expr, _: Mutator) -> Expr:
        return self._site(value) if str(value.ty.dtype) in WHOLE else value

    def _step(self, value: Expr, mutator: Mutator) -> Expr:
        if str(value.ty.dtype) not in WHOLE:
            return mutator.default_mutate(value)
        if self._of_sizes(value):
            return self._site(value)
        if isinstance(value, DIVISIONS) and isinstance(value.b, tirx.IntImm):
            return type(value)(mutator.mutate(value.a), value.b)
        return mutator.default_mutate(value)

    def _of_sizes(self, value: Expr) -> bool:
        """True for an expression of sizes and numbers alone, which reads no memory."""
        kind = type(value)
        if kind in STEPS:
            return self._of_sizes(value.b) and self._of_sizes(value.a)
        return kind is tirx.IntImm or (kind is tirx.Var and any(value.same_as(s) for s in self.sizes))

    def _call(self, call: Expr, mutator: Mutator) -> Expr:
        """An instruction's own numbers say which one it is."""
        arguments = [a if isinstance(a, tirx.IntImm) else mutator.mutate(a) for a in call.args]
        return tvm.ir.Call(call.op, arguments, call.attrs, ret_ty=call.ty)

    def _shuffle(self, shuffle: Expr, mutator: Mutator) -> Expr:
        return tirx.Shuffle([mutator.mutate(v) for v in shuffle.vectors], shuffle.indices)

    def _loop(self, loop: Stmt, mutator: Mutator) -> Stmt:
        span = loop.min, loop.extent
        if loop.kind == tirx.ForKind.SERIAL:
            span = tuple(mutator.mutate(end) for end in span)
        return tirx.For(loop.loop_var, *span, loop.kind, mutator.mutate(loop.body), loop.thread_binding,
                        loop.annotations, loop.step)  # fmt: skip

    def _attribute(self, statement: Stmt, mutator: Mutator) -> Stmt:
        return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, mutator.mutate(statement.body))

    def _memory(self, statement: Stmt, _: Mutator) -> Stmt:
        buffer = statement.buffer
        self.memory.append(f"{buffer.dtype} {buffer.shape}")
        return statement

    def _pointer(self, statement: Stmt, _: Mutator) -> Stmt:
        own = self.buffers.get(statement.buffer)
        return statement if own is None else tirx.DeclBuffer(own, data=statement.data)

    def _variable(self, variable: Expr, _: Mutator) -> Expr:
        if any(variable.same_as(s) for s in self.sizes):
            return self._site(variable)
        return self.buffers.get(variable, variable)
