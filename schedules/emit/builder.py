"""Writes kernels: a small builder of S-TIR loop nests on flat buffers behind raw pointers.

A kernel is a plain C function ``int32_t name(T *p0, T *p1, ...)``. Buffers are one-dimensional; positions come from
:class:`Layout`, so that margins, blocks and tiles need no special buffer types.

    k = KernelBuilder("copy")
    x, y = k.pointer("x", "float32", n), k.pointer("y", "float32", n)
    with k.loop(n // 16, "parallel") as i, k.loop(16, "vectorized") as v:
        k.store(y, i * 16 + v, k.load(x, i * 16 + v))
    function = k.finish()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
import tvm
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.ir.prim import expr as prim
from tvm.tirx.stmt import ForKind

from ..math.bfloat16 import ATTRIBUTE as NARROWS
from ..math.bfloat16 import Narrow, bits_of, rounded, widened
from ..math.float16 import Halved, half_load, halved
from ..math.wrapping import wraps
from ..words.atoms import variable
from ..words.dims import Dim
from ..words.tvm_types import Attribute, Buffer, Expr, PrimFunc, Stmt
from .known_gathers import WrittenLine
from .open_sizes import SIZES, symbols_in
from .register_transpose import Square
from .vector_reads import gathered, index, repeated, run, strided, undefined

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

STACK_BYTES = 64 * 1024  # memory of a scope that lies on the stack; larger one is taken from the worker's workspace

_KINDS = {
    "serial": ForKind.SERIAL,
    "parallel": ForKind.PARALLEL,
    "vectorized": ForKind.VECTORIZED,
    "unroll": ForKind.UNROLLED,
}


@dataclass(frozen=True)
class _Vectors:
    """An open vectorised loop: what comes before it and what is in it so far, and how many guards and names there were
    when it began."""

    lane: Expr
    width: int
    before: list[Stmt]
    scope: list[Stmt]
    guards: int
    bound: int


class KernelBuilder:
    """Collects the statements of one kernel; each ``with loop`` or ``with when`` opens a scope."""

    def __init__(self, name: str, serial: bool = False) -> None:
        self.name = name
        self.serial = serial  # parallel loops become plain ones
        self.register_values = 0  # of float32 that the vector registers hold, where a kernel asks
        self.factor_values = 0  # of these that a factor takes which all lanes share
        self.workspace = 0  # bytes of memory of scopes that is too large for the stack
        self._params: list[Expr] = []
        self._scalars: list[Expr] = []
        self._prologue: list[Stmt] = []
        self._scopes: list[list[Stmt]] = [[]]
        self._fresh = 0
        self._shifted = 0  # loops around the present place that don't begin at zero
        self.guards: list[Expr] = []  # conditions of if_then_else written so far
        self._bound: list[Expr] = []
        self._vectors: list[_Vectors] = []  # open vectorised loops
        self._inside: list[Expr] = []  # variables of the loops within the outermost of these, itself included
        self._conditions = 0  # open conditions within it
        self.conditions = 0  # open ``when``, wherever
        self.tables: dict[Buffer, np.ndarray] = {}  # constants, by their buffers
        self.written: WrittenLine | None = None  # while the vectors of a line are written out
        self.square: Square | None = None  # while the columns of a square are
        self.attributes: dict[str, Attribute] = {}  # of the function, beside those that it is finished with

    # -- buffers ---------------------------------------------------------------------------------

    def pointer(self, name: str, dtype: str, elements: SizeLike) -> Buffer:
        """A parameter: a pointer to ``elements`` values, aligned to one element only."""
        var = tirx.Var(f"p_{name}", tvm.ir.PointerType(tvm.ir.PrimType(storage_dtype(dtype))))
        size = dtype_size(dtype)
        extent = elements if isinstance(elements, Dim) else max(1, elements)
        buffer = tirx.decl_buffer(
            (extent,), storage_dtype(dtype), name=name, data=var, data_alignment=size, layout=None
        )
        self._params.append(var)
        self._prologue.append(tirx.DeclBuffer(buffer, data=var))
        return buffer

    def scalar(self, name: str) -> Expr:
        """An int32 parameter; all come after the pointers."""
        var = tirx.Var(name, "int32")
        self._scalars.append(var)
        return var

    def local(self, name: str, dtype: str, elements: Expr, scope: str = "local") -> Buffer:
        """Memory on the stack (registers, after unrolling), uninitialised, for the enclosing scope. Keep it small; an
        open number of elements lies in the worker's workspace."""
        if isinstance(elements, Dim):
            return self._open_local(name, dtype, elements)
        buffer = tirx.decl_buffer((elements,), dtype, name=self.fresh(name), scope=scope, layout=None)
        size = elements * (tvm.DataType(dtype).bits + 7) // 8
        if size > STACK_BYTES:
            self.workspace += -(-size // 64) * 64 + 64
        self.add(tirx.AllocBuffer(buffer))
        return buffer

    def _open_local(self, name: str, dtype: str, elements: Dim) -> Buffer:
        buffer = tirx.decl_buffer((elements,), dtype, name=self.fresh(name), scope="global", layout=None)
        self.workspace = self.workspace + (elements * dtype_size(dtype) // 64 + 2) * 64
        self.add(tirx.AllocBuffer(buffer))
        return buffer

    def fresh(self, name: str) -> str:
        """A name that begins with ``name`` and is not taken."""
        self._fresh += 1
        return f"{name}{self._fresh}"

    # -- statements ------------------------------------------------------------------------------

    def add(self, statement: Stmt) -> None:
        self._scopes[-1].append(statement)

    def load(self, buffer: Buffer, offset: Expr) -> Expr:
        return buffer[offset]

    def store(self, buffer: Buffer, offset: Expr, value: Expr) -> None:
        if isinstance(buffer, Narrow):
            self.attributes[NARROWS] = 1
            bits = bits_of(value)
            made = not isinstance(value, prim.FloatImm) and value.ty.dtype.lanes == 1
            value = rounded(self.bind(value) if made else value) if bits is None else bits
            buffer = buffer.stored
        elif isinstance(buffer, Halved):
            buffer, value = buffer.stored, halved(value)
        self.add(tirx.BufferStore(buffer, value, [index(offset)]))

    def bind(self, value: Expr, name: str = "t") -> Expr:
        """Names a value so that it is computed once.

        The value goes through a local buffer of one element or vector, which LLVM keeps in a register: TVM's simplifier
        would put the value of a named variable back wherever it is used, and the code of a chain of activations would
        double with every link. Indices outside of vector loops stay variables, for the simplifier to see.
        """
        dtype = str(value.ty.dtype)
        if dtype == "bool":
            # TVM has no memory form of a vector of bool, and its bfloat16 pass does not look into named conditions
            return prim.NE(self.bind(tirx.Cast("int8", value), name), tirx.IntImm("int8", 0))
        if self._vectors:
            lane, width, before = self._vectors[-1].lane, self._vectors[-1].width, self._vectors[-1].before
            if self.written is not None and self.written.known(value, lane, width):
                return value
            if dtype in ("int32", "int64") and len(self._vectors) == 1 and not self._varies(value):
                buffer = tirx.decl_buffer((1,), dtype, name=self.fresh(name), scope="local", layout=None)
                before += [tirx.AllocBuffer(buffer), tirx.BufferStore(buffer, value, [index(0)])]
                return buffer[0]
            buffer = tirx.decl_buffer((width,), dtype, name=self.fresh(name), scope="local", layout=None)
            before.append(tirx.AllocBuffer(buffer))
            made = None if self._conditions else self._in_whole_vectors(value, lane, width)
            if made is not None:
                before.append(tirx.BufferStore(buffer, made, [run(0, width)]))
            else:
                self.store(buffer, lane, value)
            return buffer[lane]
        if dtype not in ("int32", "int64") or wraps(value):
            buffer = self.local(name, dtype, 1)
            self.store(buffer, 0, value)
            return buffer[0]
        var = tirx.Var(self.fresh(name), value.ty)
        self.add(tirx.Bind(var, value))
        self._bound.append(var)
        return var

    def _in_whole_vectors(self, value: Expr, lane: Expr, width: int) -> Expr | None:
        """A read of every n-th element, or of every element n times, or in a line that is written out, as a shuffle of
        whole vectors; None for anything else."""
        bits = bits_of(value)
        if bits is not None:
            made = self._in_whole_vectors(bits, lane, width)
            return None if made is None else widened(made)
        if (load := half_load(value)) is not None and str(value.ty.dtype).startswith("float32"):
            made = self._in_whole_vectors(load, lane, width)
            return None if made is None else tirx.Cast(f"float32x{width}", made)
        if self.square is not None:
            column = self.square.vector(value, lane, width, self._vectors[-1].before, self.fresh)
            if column is not None:
                return column
        known = self.written is not None and isinstance(value, TensorLoad) and value.source in self.tables
        base, stride = (None, 1) if known else strided(value, lane, width)
        times = 1
        if base is None and not known:
            base, times = repeated(value, lane, width)
        if base is None and self.written is not None:
            made = self.written.vector(value, lane, width)
            return None if any(v.same_as(u) for u in undefined(made) for v in self._inside) else made
        if base is None or any(v.same_as(u) for u in undefined(base) for v in self._inside):
            return None
        if times > 1:
            short = value.source[run(base, width // times)]
            order = [index(i // times) for i in range(width)]
            return tirx.Shuffle([short] * times, order)  # TVM wants as many lanes as come out
        return gathered(value.source, base, stride, width)

    def _varies(self, value: Expr) -> bool:
        """True if ``value`` depends on the lane, or on loops or conditions inside the vectorised loop."""
        used = tirx.analysis.undefined_vars(value)
        return self._conditions > 0 or any(v.same_as(u) for u in used for v in self._inside)

    def hold(self, index: Expr, name: str = "t") -> Expr:
        """Names an index in a way that the simplifier doesn't see through."""
        buffer = self.local(name, "int32", 1)
        self.store(buffer, 0, index)
        return buffer[0]

    @contextmanager
    def loop(
        self, extent: SizeLike | Expr, kind: str = "serial", name: str = "i", begin: Expr = 0, kept: bool = False
    ) -> Iterator[Expr]:
        """``for var in range(begin, begin + extent)``. A loop of one iteration is no loop, unless it is ``kept``.

        A vectorised loop whose body has a guard that depends on the lane becomes a plain one: TVM would scalarise it
        and lose the names bound inside. LLVM may still vectorise it.
        """
        if isinstance(extent, (int, prim.IntImm)) and int(extent) == 1 and not kept:
            yield index(begin)
            return
        begin = index(begin)
        if self._shifted and not isinstance(begin, prim.IntImm):
            # TVM's CanonicalizeLoop would not replace the variables of these loops where this one begins
            begin = self.bind(begin)
        shifted = not (isinstance(begin, prim.IntImm) and int(begin) == 0)
        kind = "serial" if self.serial and kind == "parallel" else kind
        guards, bound = len(self.guards), len(self._bound)
        var = tirx.Var(self.fresh(name), "int32")
        self._scopes.append([])
        if kind == "vectorized":
            self._vectors.append(_Vectors(var, int(extent), [], self._scopes[-1], guards, bound))
        if self._vectors:
            self._inside.append(var)
        self._shifted += shifted
        yield var
        self._shifted -= shifted
        if self._vectors:
            self._inside.pop()
        body = sequence(self._scopes.pop())
        if kind == "vectorized":
            for statement in self._vectors.pop().before:
                self.add(statement)
            kind = self._kind(var, guards, bound)
        self.add(tirx.For(var, begin, index(extent), _KINDS[kind], body))

    def _kind(self, lane: Expr, guards: int, bound: int) -> str:
        """Of a loop over lanes: plain if a guard since those depends on one."""
        inner = [lane, *self._bound[bound:]]
        found = (u for c in self.guards[guards:] for u in tirx.analysis.undefined_vars(c))
        return "serial" if any(v.same_as(u) for u in found for v in inner) else "vectorized"

    def amend(self, values: Sequence[Expr], size: Expr, limit: int, exact: Callable[[], Sequence[Expr]]) -> list[Expr]:
        """``values``, or those of ``exact`` in lanes where ``size`` (int32) is at least ``limit``; they are computed
        for a vector if one of its lanes is so large:

            for v: names, values                                             vectorised
            top = the largest of size[v]
            for v: if top >= limit: values[v] = select(size[v] < limit, values[v], exact[v])
                   what follows
        """
        size = self.placed(size)
        kept = [self.placed(value) for value in values]
        top = self._top(size) if self._vectors else size
        scope: list[Stmt] = []
        self._scopes.append(scope)
        self._conditions += bool(self._vectors)
        for place, value in zip(kept, exact()):
            self.store(place.source, place.indices[0], tirx.Select(size < tirx.IntImm("int32", limit), place, value))
        self._conditions -= bool(self._vectors)
        self._scopes.pop()
        body = sequence(scope)
        self.add(body if top is None else tirx.IfThenElse(top >= tirx.IntImm("int32", limit), body, None))
        return kept

    def placed(self, value: Expr) -> Expr:
        """A read of memory of its own that holds ``value``, one element or one for each lane."""
        vectors = self._vectors[-1] if self._vectors else None
        width, at = (vectors.width, vectors.lane) if vectors else (1, index(0))
        buffer = tirx.decl_buffer((width,), str(value.ty.dtype), name=self.fresh("t"), scope="local", layout=None)
        (vectors.before if vectors else self._scopes[-1]).append(tirx.AllocBuffer(buffer))
        self.store(buffer, at, value)
        return buffer[at]

    def whole(self, vector: Expr, dtype: str, width: int) -> Expr:
        """``vector`` of ``width`` elements in memory of its own, so that it is computed once."""
        buffer = self.local("t", dtype, width)
        self.add(tirx.BufferStore(buffer, vector, [run(0, width)]))
        return buffer[run(0, width)]

    def _top(self, size: Expr) -> Expr | None:
        """The largest ``size`` of all lanes, found between two halves of the open vectorised loop; None where the
        loop is not the innermost thing that is open, or has memory that its second half would not see."""
        vectors = self._vectors[-1]
        apart = len(self._vectors) == 1 and not self._conditions and self.written is None
        if not apart or self._scopes[-1] is not vectors.scope or any(_allocates(s) for s in vectors.scope):
            return None
        outer, width = self._scopes[-2], vectors.width
        folded = tirx.decl_buffer((width,), "int32", name=self.fresh("top"), scope="local", layout=None)
        self.store(folded, vectors.lane, size)
        kind = _KINDS[self._kind(vectors.lane, vectors.guards, vectors.bound)]
        first = tirx.For(vectors.lane, index(0), index(width), kind, sequence(vectors.scope))
        outer += [tirx.AllocBuffer(folded), *vectors.before, first]
        vectors.before.clear()
        vectors.scope.clear()
        while width > 1:
            half, lane = (width + 1) // 2, tirx.Var(self.fresh("v"), "int32")
            larger = tirx.BufferStore(folded, tirx.max(folded[lane], folded[lane + half]), [lane])
            kind = _KINDS["vectorized" if width - half > 1 else "serial"]
            outer.append(tirx.For(lane, index(0), index(width - half), kind, larger))
            width = half
        return folded[0]

    def guard(self, condition: Expr) -> None:
        """Notes a condition under which something is read (see :meth:`loop`)."""
        self.guards.append(condition)

    @contextmanager
    def when(self, condition: Expr) -> Iterator[None]:
        """A scope whose statements run if ``condition`` holds."""
        self._scopes.append([])
        inside = int(bool(self._vectors))
        self._conditions += inside
        self.conditions += 1
        yield
        self.conditions -= 1
        self._conditions -= inside
        self.guard(condition)
        body = sequence(self._scopes.pop())
        self.add(tirx.IfThenElse(condition, body, None))

    @contextmanager
    def capture(self) -> Iterator[list[Stmt]]:
        """A scope whose statements are given and not added."""
        self._scopes.append([])
        statements = self._scopes[-1]
        yield statements
        self._scopes.pop()

    def interleave(self, bodies: Sequence[Callable[[], None]]) -> None:
        """Emits the statements of ``bodies``, which don't depend on each other, in turns: a core holds about a hundred
        waiting instructions, so that of long chains one after the other only few would be under way."""
        found = []
        for body in bodies:
            with self.capture() as statements:
                body()
            found.append(statements)
        for turn in zip_longest(*found):
            for statement in turn:
                if statement is not None:
                    self.add(statement)

    def finish(self, attributes: dict[str, bool] | None = None) -> PrimFunc:
        """The PrimFunc of all statements: a C function on raw pointers that returns 0."""
        body = sequence([*self._prologue, *self._scopes[0], tirx.Return(tirx.IntImm("int32", 0))])
        sizes = symbols_in(body)
        variables = [variable(name, "int32") for name in sizes]
        function = tirx.PrimFunc([*self._params, *self._scalars, *variables], body, ret_type=tvm.ir.PrimType("int32"))
        attrs = {"tirx.noalias": True, "s_tir": True, **self.attributes, **(attributes or {})}
        return function.with_attrs({**attrs, **({SIZES: sizes} if sizes else {})})


def _allocates(statement: Stmt) -> bool:
    parts = statement.seq if isinstance(statement, tirx.SeqStmt) else [statement]
    return any(isinstance(part, tirx.AllocBuffer) for part in parts)


def made_by(statements: Sequence[Stmt]) -> Iterator[Buffer]:
    """Names and memory that ``statements`` make for themselves, the loops in them included."""
    for s in statements:
        if isinstance(s, tirx.SeqStmt):
            yield from made_by(s.seq)
        elif isinstance(s, tirx.For):
            yield s.loop_var
            yield from made_by([s.body])
        elif isinstance(s, tirx.IfThenElse):
            yield from made_by([s.then_case, *([] if s.else_case is None else [s.else_case])])
        elif isinstance(s, tirx.Bind):
            yield s.var
        elif isinstance(s, tirx.AllocBuffer):
            yield s.buffer


def sequence(statements: Sequence[Stmt]) -> Stmt:
    """One statement for all ``statements``, which may be none."""
    if len(statements) == 1:
        return statements[0]
    if not statements:
        return tirx.Evaluate(tirx.IntImm("int32", 0))
    return tirx.SeqStmt(list(statements))


def storage_dtype(dtype: str) -> str:
    return dtype


def dtype_size(dtype: str) -> int:
    """Bytes of an element."""
    return max(1, tvm.DataType(dtype).bits // 8)
