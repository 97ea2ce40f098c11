"""Large results past the caches: non-temporal stores.

A store to a line that no cache holds reads it first, and writes it back later: two lines pass for one. What a kernel
writes to more memory than the caches keep until the next kernel reads it may go straight there instead, a whole line
at a time. Measured on x86-64 (Granite Rapids, convolutions of 64 channels, one and two threads): results of 236 and 59
MB take 0.94 to 0.96 of the time, 34 MB 0.98 and 1.00; 15 MB 0.96 and 1.05, 4 MB 1.11 and 1.15. Only where a vector is
a line, which nothing else fills in time for certain.

    streamed(kernels ...)   the same kernels, and of their functions those parameters that may be written so
    stream(function)        lowered code with such stores, where it never reads what it writes and all vectors of it lie
                            on lines for certain; each task ends with a fence, after which others may read
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import tvm
from tvm import sym, tirx
from tvm.ir.expr import TensorLoad
from tvm.tirx.stmt import ForKind

from ...passes.memory.places import Places
from ...passes.memory.plan import MemoryPlan
from ...schedules.emit.open_sizes import SIZES
from ...schedules.instructions.prefetch import LINE, can_stream
from ...schedules.tiled import TiledKernel
from ...schedules.words.dims import bounds
from ...schedules.words.group import Kernel, Value
from ...schedules.words.sizes import multiple_of
from ...schedules.words.tvm_types import Analyzer, Buffer, Expr, PrimFunc, Stmt
from ...targets.target import Target
from .imported_ir import importing

ATTRIBUTE, STEPS = "streamed", "streamed.steps"  # parameters that may be written so; what sizes are multiples of
LANES = LINE // 4  # of float32, the only type of results so large that kernels write in vectors of a line
STORE, FENCE = f"halotile_stream_{LANES}", "halotile_stream_end"
HINTS = "tirx.prefetch"

# TVM has no such store. These are inlined.
IR = f"""
define i32 @{STORE}(ptr %place, <{LANES} x float> %value) alwaysinline {{
  store <{LANES} x float> %value, ptr %place, align {LINE}, !nontemporal !0
  ret i32 0
}}
define i32 @{FENCE}() alwaysinline {{
  call void @llvm.x86.sse.sfence()
  ret i32 0
}}
declare void @llvm.x86.sse.sfence()
!0 = !{{i32 1}}
"""


def streamed(kernels: Sequence[Kernel], places: Places, memory: MemoryPlan, target: Target) -> tuple[Kernel, ...]:
    """Marks what lies in the arena, on lines, is large, and takes over the memory of no input. Of an open size that is
    what is large at any; parts that are called where it is large are marked for it."""
    if not can_stream(target):
        return tuple(kernels)
    over, least = {value for value, _ in memory.inplace}, target.fitted.memory.past

    def fits(operand: Value) -> bool:
        if not isinstance(operand, Value) or operand.dtype != "float32":
            return False
        base, offset = places.resolve(operand)
        return base in memory.offsets and base not in over and offset % LINE == 0

    marked: list[Kernel] = []
    for kernel in kernels:
        able = {o: bounds(o.bytes) for o in kernel.outputs if fits(o)}
        always = {o for o, (low, _) in able.items() if low > least}
        some = {o for o, (_, high) in able.items() if high > least}
        if isinstance(kernel, TiledKernel) and some:
            read = {o for p in kernel.parts for o in p.operands if o not in p.outputs}
            parts = (_marked(p, (some if p.large else always) - read) for p in kernel.parts)
            kernel = replace(kernel, parts=tuple(parts))
        marked.append(kernel if isinstance(kernel, TiledKernel) else _marked(kernel, always))
    return tuple(marked)


def _marked(kernel: Kernel, results: set[Value]) -> Kernel:
    """The kernel, with the mark of what may be written so, and of what its sizes are multiples of."""
    found = [tirx.IntImm("int32", i) for i, o in enumerate(kernel.operands) if o in results]
    if not found:
        return kernel
    function = kernel.function.with_attr(ATTRIBUTE, found)
    if steps := [tirx.IntImm("int32", multiple_of(str(name))) for name in (function.attrs or {}).get(SIZES, ())]:
        function = function.with_attr(STEPS, steps)
    return replace(kernel, function=function)


def stream(function: PrimFunc) -> tuple[PrimFunc, int]:
    """The function with its marked results written past the caches, and how many stores these are."""
    wanted = [function.params[int(i)] for i in (function.attrs or {}).get(ATTRIBUTE, ())]
    declared = [s for s in _statements(function.body) if isinstance(s, tirx.DeclBuffer)]
    buffers = [s.buffer for s in declared if any(s.data.same_as(v) for v in wanted)]
    whole = [b for b in buffers if str(b.dtype) == "float32"]  # a vector of what is stored in fewer bits is no line
    steps = [int(step) for step in (function.attrs or {}).get(STEPS, ())]
    sizes = list(zip(function.params[len(function.params) - len(steps) :], steps))
    rewriter = _Rewriter([b for b in whole if _may(function.body, b, sizes)])
    body = rewriter.visit(function.body)
    if not rewriter.stores:
        return function, 0
    if rewriter.open:
        body = _with_fence(body)
    return tirx.PrimFunc(function.params, importing(body, IR), function.ret_type, function.attrs), rewriter.stores


def _may(body: Stmt, buffer: Buffer, sizes: Sequence[tuple[Expr, int]] = ()) -> bool:
    """True if nothing reads ``buffer``, hints aside, and each of its vectors lies on a line, whatever loops count.
    ``sizes``: parameters, each with what it is a multiple of."""
    analyzer = sym.Analyzer()
    for size, step in sizes:
        analyzer.bind(size, tirx.Var(f"{size.name}_steps", "int32") * step)
    stores = 0
    for s in _statements(body):
        if isinstance(s, tirx.Bind):
            analyzer.bind(s.var, s.value)
        if isinstance(s, tirx.BufferStore) and s.buffer.same_as(buffer):
            stores += 1
            if not _on_line(analyzer, s):
                return False
        if not _is_hint(s, [buffer]) and any(_uses(e, buffer) for e in _expressions(s)):
            return False
    return stores > 0


def _statements(body: Stmt) -> Iterator[Stmt]:
    """All statements of lowered code, in order; of those that hold others, themselves first."""
    yield body
    if isinstance(body, tirx.SeqStmt):
        for each in body.seq:
            yield from _statements(each)
    elif isinstance(body, (tirx.For, tirx.While, tirx.AttrStmt)):
        yield from _statements(body.body)
    elif isinstance(body, tirx.IfThenElse):
        yield from _statements(body.then_case)
        if body.else_case is not None:
            yield from _statements(body.else_case)


def _expressions(s: Stmt) -> list[Expr]:
    """What a statement computes itself."""
    if isinstance(s, tirx.BufferStore):
        return [s.value, *s.indices]
    if isinstance(s, tirx.For):
        return [s.min, s.extent]
    if isinstance(s, (tirx.IfThenElse, tirx.While)):
        return [s.condition]
    return [s.value] if isinstance(s, (tirx.Bind, tirx.Evaluate, tirx.AttrStmt, tirx.Return)) else []


def _uses(expression: Expr, buffer: Buffer) -> bool:
    used = tirx.analysis.undefined_vars(expression) if isinstance(expression, tvm.ir.Expr) else []
    return any(v.same_as(buffer) for v in used)


def _on_line(analyzer: Analyzer, store: Stmt) -> bool:
    index = store.indices[0]
    if not isinstance(index, tirx.Ramp) or int(index.lanes) != LANES or int(index.stride) != 1:
        return False
    found = analyzer.modular_set(index.base)
    return int(found.coeff) % LANES == 0 and int(found.base) % LANES == 0


def _is_hint(statement: Stmt, buffers: Sequence[Buffer]) -> bool:
    call = statement.value if isinstance(statement, tirx.Evaluate) else None
    if not isinstance(call, tvm.ir.Call) or getattr(call.op, "name", "") != HINTS:
        return False
    place = call.args[0].args[0]  # of tirx.address_of
    return isinstance(place, TensorLoad) and any(place.source.same_as(b) for b in buffers)


def _with_fence(body: Stmt) -> Stmt:
    """``body`` and a fence, before what it returns."""
    fence = tirx.Evaluate(tirx.call_extern("int32", FENCE))
    statements = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    behind = [statements.pop()] if isinstance(statements[-1], tirx.Return) else []
    return tirx.SeqStmt([*statements, fence, *behind])


class _Rewriter:
    """``stores`` counts those that are written anew, ``open`` is set by those that no fence has followed yet."""

    def __init__(self, buffers: list[Buffer]) -> None:
        self.buffers, self.stores, self.open = buffers, 0, False

    def visit(self, s: Stmt) -> Stmt:
        if isinstance(s, tirx.SeqStmt):
            return tirx.SeqStmt([self.visit(each) for each in s.seq])
        if isinstance(s, tirx.For):
            before, self.open = self.open, False
            body = self.visit(s.body)
            if self.open and s.kind == ForKind.PARALLEL:
                body, self.open = _with_fence(body), False
            self.open |= before
            return tirx.For(s.loop_var, s.min, s.extent, s.kind, body, s.thread_binding, s.annotations, s.step)
        if isinstance(s, tirx.AttrStmt):
            return tirx.AttrStmt(s.node, s.attr_key, s.value, self.visit(s.body))
        if isinstance(s, tirx.IfThenElse):
            otherwise = None if s.else_case is None else self.visit(s.else_case)
            return tirx.IfThenElse(s.condition, self.visit(s.then_case), otherwise)
        if isinstance(s, tirx.BufferStore) and any(s.buffer.same_as(b) for b in self.buffers):
            self.stores, self.open = self.stores + 1, True
            return tirx.Evaluate(
                tirx.call_extern("int32", STORE, tirx.address_of(s.buffer[s.indices[0].base]), s.value)
            )
        if isinstance(s, tirx.Evaluate) and _is_hint(s, self.buffers):
            return tirx.Evaluate(tirx.IntImm("int32", 0))  # it would bring the line that the store then drives out
        return s
