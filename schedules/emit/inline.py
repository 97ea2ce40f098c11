"""Evaluates TE tensors at given coordinates: the heart of fusion.

A group is a DAG of TE compute stages between *sources* (tensors whose elements come from elsewhere: a buffer, an
accumulator). ``Inliner.at(tensor, indices)`` writes the expression of one element, by substitution:

    t = exp(x[i, j] + b[j])      at(t, (n, c))  ->  exp(load(x, n, c) + load(b, c))

so that an operator written once works alone, in a prologue and in an epilogue, in any layout. A stage used twice at the
same coordinates is bound to a name once, except under a guard (``if_then_else``), whose arms must not be evaluated
outside it. Where functions of many instructions stand under one, only the reads keep it, and all else has names:

    if_then_else(inside, tanh(x[i]), 0)  ->  t = if_then_else(inside, x[i], 0); select(inside, tanh(t), 0)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence

import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.ir import Call
from tvm.ir.prim import expr as prim

from ..math import exponential, powers, remainder, trigonometry, wrapping
from ..words.sizes import dim_of, narrowed, surely
from ..words.tvm_types import Expr, Operation
from .decided import Parted, end_of, is_known, on_indices
from .written_out import children, gate_parts, half_form, is_rounded, narrows, normal_argument, widened

Source = Callable[[tuple[Expr, ...]], Expr]
Part = Callable[[Expr], Expr]  # of the body of a stage
_FIRST: Part = operator.attrgetter("a")  # of two factors

_BINARY: dict[type, Callable[[Expr, Expr], Expr]] = {
    prim.Add: lambda a, b: a + b,
    prim.Sub: lambda a, b: a - b,
    prim.Mul: lambda a, b: a * b,
    prim.Div: tirx.div,
    prim.Mod: tirx.truncmod,
    prim.FloorDiv: tirx.floordiv,
    prim.FloorMod: tirx.floormod,
    prim.LShift: lambda a, b: a << b,
    prim.RShift: lambda a, b: a >> b,
    prim.BitwiseAnd: lambda a, b: a & b,
    prim.BitwiseOr: lambda a, b: a | b,
    prim.BitwiseXor: lambda a, b: a ^ b,
    prim.EQ: prim.EQ,
    prim.NE: prim.NE,
    prim.LT: prim.LT,
    prim.LE: prim.LE,
    prim.GT: prim.GT,
    prim.GE: prim.GE,
    prim.And: prim.And,
    prim.Or: prim.Or,
}


_FLOAT_TRAPS = (prim.Add, prim.Sub, prim.Mul, prim.Div, prim.EQ, prim.NE)
# plain forms of functions, by TVM's name and by that of the C library
FLOAT32: dict[str, Callable[..., Expr]] = {**exponential.FLOAT32, **trigonometry.FLOAT32}
LIBM: dict[str, Callable[..., Expr]] = {**exponential.LIBM, **trigonometry.LIBM, **powers.LIBM}
_Written = dict[tuple[int, int, bool, bool], tuple[Expr, Expr, dict[Expr, Expr]]]  # with what its numbers are of
_LONG = 200  # nodes under a condition, beyond which its values have names


def key(tensor: te.Tensor) -> tuple[Operation, int]:
    """A hashable identity of a TE tensor (its own ``==`` builds an expression)."""
    return (tensor.op, int(tensor.value_index))


class Inliner:
    """Writes expressions of TE tensors' elements. ``bind`` names a value (or returns it as it is)."""

    def __init__(
        self,
        sources: dict[tuple[Operation, int], Source],
        bind: Callable[[Expr], Expr] | None = None,
        guard: Callable[[Expr], None] | None = None,
        simplify: Callable[[Expr], Expr] | None = None,
        rounds: bool = True,
        amend: trigonometry.Amend | None = None,
        halves: frozenset[tuple[Operation, int]] | None = None,
    ) -> None:
        self.sources = sources
        self._rounds = rounds
        self._halves = halves  # computes in float16 what has a form of its own there; the stages that are stored so
        self._amend = amend
        self._bind = bind
        self._guard = guard
        self._simplify = simplify
        self._extents: dict[Expr, Expr] = {}
        self._guards = 0  # guards around the present place under which nothing has a name
        self._lengths: dict[Expr, int] = {}  # of stages, in nodes without names
        self._escapes: dict[int, tuple[Expr, bool]] = {}  # by node, which stays alive: what reads, perhaps outside
        self._reads: list[Expr] = []  # guards around the present place that reads alone keep
        self._indexing = 0
        self._written: _Written | None = None  # in the outermost call of ``expression``, under the same guards
        self.values: list[Expr] | None = None  # axis values used other than as an index, if somebody asks
        self.choices: list[Expr] = []  # conditions that are open when the kernel is written
        self.divided: list[tuple[Expr, Expr]] = []  # axes that are divided, and by what
        self.parted: Parted | None = None  # an axis whose quotient and remainder are known
        self._cache: dict[
            tuple[tuple[Operation, int], Part | None, tuple[int, ...]], list[tuple[tuple[Expr, ...], Expr]]
        ] = {}

    def bind(self, value: Expr) -> Expr:
        if self._bind is None or self._guards or isinstance(value, (tirx.Var, prim.IntImm, prim.FloatImm)):
            return value
        return self._bind(value)

    def at(self, tensor: te.Tensor, indices: Sequence[Expr], part: Part | None = None) -> Expr:
        """The element of ``tensor`` at ``indices``, as an expression, or the ``part`` of its stage's body."""
        source = self.sources.get(key(tensor))
        indices = tuple(indices)
        if source is None and not isinstance(tensor.op, te.ComputeOp):
            raise ValueError(f"stage {tensor.op.name} can't be inlined")
        entries = self._cache.setdefault((key(tensor), part, _hash(indices)), [])
        for known, value in entries:
            if all(tvm_ffi.structural_equal(a, b) for a, b in zip(known, indices)):
                return value
        if source is not None:
            value = source(indices)
            if self._reads and not isinstance(value, (prim.IntImm, prim.FloatImm)):
                zero = tirx.Cast(value.ty, tirx.IntImm("int32", 0))
                value = tirx.if_then_else(tirx.all(*self._reads), value, zero)
        else:
            axes = {axis.var: index for axis, index in zip(tensor.op.axis, indices)}
            self.declare(tensor.op)
            body = tensor.op.body[tensor.value_index]
            body = part(body) if part else body
            if exponential.BELOW_ZERO in tensor.op.attrs:
                value = exponential.exp_of_negative(self.bind(self.expression(body.args[0], axes)), self.bind)
            else:
                indexing, self._indexing = self._indexing, 0  # what of a stage is an index is one within it alone
                form = half_form(body) if not part and key(tensor) in (self._halves or ()) else None
                value = self.expression(body.a if form else body, axes)
                if form:
                    value = tirx.Cast("float32", form(self.bind(tirx.Cast("float16", value)), self.bind))
                self._indexing = indexing
        if not self._guards or self._bind is None:  # nothing has a name in an expression that is only looked at
            value = self.bind(value)
            entries.append((indices, value))
        return value

    def declare(self, op: Operation) -> None:
        """Notes the extents of a stage's axes, by which reads at bare axes are known to be inside."""
        for axis in (*op.axis, *op.reduce_axis):
            if axis.var not in self._extents:
                self._extents[axis.var] = dim_of(axis.dom.extent)
                self._escapes.clear()  # of which reads at this axis were some

    def expression(self, expr: Expr, axes: dict[Expr, Expr]) -> Expr:
        """``expr`` with axes substituted and tensor reads inlined."""
        kind = type(expr)
        if kind is tirx.Var:
            found = axes.get(expr)
            if found is None:
                twin = narrowed(expr)
                return expr if twin is None else tirx.Cast(expr.ty, twin)
            if self.values is not None and not self._indexing and not isinstance(found, int):
                self.values.append(found)
            return match_type(found, expr)
        if kind in (prim.IntImm, prim.FloatImm) or not isinstance(expr, tvm.ir.Expr):
            return expr
        outer = self._written
        known = self._written = {} if outer is None else outer
        place = (expr.__chandle__(), id(axes), self._indexing > 0, self._guards > 0)
        try:
            if place not in known:
                known[place] = self._compound(kind, expr, axes), expr, axes
            return known[place][0]
        finally:
            self._written = outer

    def _compound(self, kind: type, expr: Expr, axes: dict[Expr, Expr]) -> Expr:
        """What is no leaf, written once however many nodes share it: operators that read at computed places share so
        much that they would be written a hundred times."""
        if kind in _BINARY:
            return self._operation(kind, expr, axes)
        if kind is prim.Max or kind is prim.Min:
            return self._extremum(kind, self.expression(expr.a, axes), self.expression(expr.b, axes))
        if kind is prim.Cast:
            return self._cast(expr, axes)
        if kind is prim.Not:
            return negation(self.expression(expr.a, axes))
        if kind is prim.BitwiseNot:
            return ~self.expression(expr.a, axes)
        if kind is prim.Select:
            return self._selected(expr, axes)
        if kind is prim.Let:
            return self.expression(expr.body, {**axes, expr.var: self.expression(expr.value, axes)})
        if isinstance(expr, Call):
            return self._call(expr, axes)
        if kind is tirx.Reduce:
            raise ValueError("a reduction can't be inlined")
        return expr

    def _cast(self, expr: Expr, axes: dict[Expr, Expr]) -> Expr:
        """A cast; of what a stage here has narrowed, that of the number itself."""
        form = None if self._halves is None else half_form(expr)
        if form is not None and key(expr.value.args[0]) not in self.sources:
            return form(self.bind(tirx.Cast(expr.ty, self._read(expr.value, axes, _FIRST))), self.bind)
        held = narrows(expr) and key(expr.value.args[0]) not in self.sources
        value = self._read(expr.value, axes, widened) if held else self.expression(expr.value, axes)
        return value.astype(str(expr.ty.dtype)) if held else tirx.Cast(expr.ty, value)

    def _operation(self, kind: type, expr: Expr, axes: dict[Expr, Expr]) -> Expr:
        """An operation of two operands; those that have a form of their own as a whole take it."""
        if kind is prim.Add and (x := normal_argument(expr)) is not None:
            return exponential.normal_cdf(self.bind(self.expression(x, axes)), self.bind, is_rounded(x))
        gate = gate_parts(expr) if kind is prim.Mul else None
        a, b = (self.expression(e, axes) for e in gate or (expr.a, expr.b))
        return exponential.gated(self.bind(a), self.bind(b), self.bind) if gate else self._binary(kind, a, b)

    def _extremum(self, kind: type, a: Expr, b: Expr) -> Expr:
        """max/min that keep NaN whichever side it is on. TVM's own lowering drops it on one, and its simplifier
        turns ``not (a < b)`` and ``x != x`` into forms that are wrong for NaN, so neither may be written."""
        if not str(a.ty.dtype).startswith(("float", "bfloat")):
            return end_of(kind, a, b, self._simplify, self.choices)
        a, b = (b, a) if isinstance(a, prim.FloatImm) else (a, b)
        if isinstance(b, prim.FloatImm) and math.isnan(b.value):
            return b
        a, b = self.bind(a), self.bind(b)
        keep_a = tirx.Select((prim.GT if kind is prim.Max else prim.LT)(b, a), b, a)  # a where either is NaN
        if isinstance(b, prim.FloatImm):
            return keep_a
        return tirx.Select(exponential.ordered(b), keep_a, b)

    def _binary(self, kind: type, a: Expr, b: Expr) -> Expr:
        if kind in (prim.FloorDiv, prim.FloorMod):
            self.divided.append((a, b))
            if self.parted is not None and (part := self.parted.of(kind, a, b)) is not None:
                return match_type(part, a)
        if _is_float(a) and kind in _FLOAT_TRAPS:
            return self._float(kind, a, b)
        if kind in wrapping.DIVISIONS and not (_is_float(a) or _is_divisor(b) or wrapping.is_hidden(b)):
            return wrapping.combined(kind, self.bind(a), self.bind(b))
        return _BINARY[kind](a, b)

    def _float(self, kind: type, a: Expr, b: Expr) -> Expr:
        """Float arithmetic kept from TVM's simplifier, which takes ``x - x`` and ``0 * x`` for 0, ``x == x`` for true
        and ``x + 0`` for x, wrong for NaN, infinity and -0, refuses ``x / 0``, and compiles ``!=`` to false for NaN."""
        same = kind in (prim.Sub, prim.EQ, prim.NE) and tvm_ffi.structural_equal(a, b)
        if kind is prim.Sub and same:
            zero = self._hidden(tirx.FloatImm(a.ty, 0.0))
            return prim.Add(prim.Mul(a, zero), zero)
        if kind in (prim.EQ, prim.NE):
            equal = exponential.ordered(a) if same else prim.EQ(a, b)
            return equal if kind is prim.EQ else negation(equal)
        return kind(self._hidden(a), self._hidden(b))

    def _hidden(self, expr: Expr) -> Expr:
        """A literal zero that no simplifier knows to be one: read from a local, which LLVM, who is right about
        floats, sees through. Anything else as it is."""
        if self._bind is None or not isinstance(expr, prim.FloatImm) or expr.value != 0:
            return expr
        return self._bind(expr)

    def _selected(self, expr: Expr, axes: dict[Expr, Expr]) -> Expr:
        """A choice, or a division whose guards depend on what its operands are here."""
        if (found := wrapping.division(expr)) is not None:
            return self._binary(found[0], *(self.expression(e, axes) for e in found[1:]))
        return self._choice(expr.condition, expr.true_value, expr.false_value, axes)

    def _choice(self, condition: Expr, yes: Expr, no: Expr, axes: dict[Expr, Expr]) -> Expr:
        condition = self.expression(condition, axes)
        if self._simplify is not None and on_indices(condition):
            condition = self._simplify(condition)  # block * 16 + lane < 64 becomes block < 4: the same for all lanes
        known = is_known(condition)
        if known is not None:
            return self.expression(yes if known else no, axes)
        self.choices.append(condition)
        if not self._may_escape(yes) and not self._may_escape(no):
            return tirx.Select(condition, self.expression(yes, axes), self.expression(no, axes))
        if self._bind is not None and (self._reads or self._is_long(yes, no)):
            return self._named_choice(condition, yes, no, axes)
        self._guards += 1
        try:
            a, b = self.expression(yes, axes), self.expression(no, axes)
        finally:
            self._guards -= 1
        if self._guard is not None:
            self._guard(condition)
        return tirx.if_then_else(condition, a, b)

    def _named_choice(self, condition: Expr, yes: Expr, no: Expr, axes: dict[Expr, Expr]) -> Expr:
        """A choice of which only the reads are guarded: both arms are computed, and their values have names."""
        if not on_indices(condition):
            condition = self.bind(condition)
        outside, written, values = self._cache, self._written, []
        for guard, arm in ((condition, yes), (negation(condition), no)):
            self._cache = {place: list(known) for place, known in outside.items()}
            self._reads.append(guard)
            self._written = None
            if self._guard is not None:
                self._guard(guard)
            try:
                values.append(self.expression(arm, axes))
            finally:
                self._reads.pop()
                self._cache, self._written = outside, written
        return tirx.Select(condition, *values)

    def _is_long(self, *arms: Expr) -> bool:
        """True if ``arms``, written out without names, call functions whose plain form has many instructions, or repeat
        what they read until they are as long."""
        return sum(map(self._length, arms)) >= _LONG

    def _length(self, expr: Expr) -> int:
        """About how many nodes ``expr`` has without names: an extremum reads its operands three times, a division
        tests its divisor."""
        if not isinstance(expr, Call):
            kind, own = type(expr), sum(map(self._length, children(expr)))
            if kind in wrapping.DIVISIONS and not _is_float(expr) and not isinstance(expr.b, prim.IntImm):
                return _LONG
            return 1 + (3 * own if kind in (prim.Max, prim.Min) and _is_float(expr) else own)
        name = expr.op.name if isinstance(expr.op, tvm.ir.Op) else ""
        if name in FLOAT32 or name == "tirx.pow" or name.endswith("call_pure_extern"):
            return _LONG
        if name != "te.tensor_load":
            return 1 + sum(map(self._length, expr.args))
        tensor = expr.args[0]
        if key(tensor) in self.sources or not isinstance(tensor.op, te.ComputeOp):
            return 1
        if key(tensor) not in self._lengths:
            self._lengths[key(tensor)] = self._length(tensor.op.body[tensor.value_index])
        return self._lengths[key(tensor)]

    def _may_escape(self, expr: Expr) -> bool:
        """True if ``expr`` reads a tensor elsewhere than at bare axes that fit, and so perhaps outside it. Kept for
        each node: choices within choices ask for the same ones again."""
        if not isinstance(expr, tvm.ir.Expr):
            return False
        node = expr.__chandle__()
        if node not in self._escapes:
            self._escapes[node] = expr, self._found_escape(expr)
        return self._escapes[node][1]

    def _found_escape(self, expr: Expr) -> bool:
        if isinstance(expr, Call):
            if isinstance(expr.op, tvm.ir.Op) and expr.op.name == "te.tensor_load":
                return not all(self._fits(i, d) for i, d in zip(expr.args[1:], expr.args[0].shape))
            return any(self._may_escape(a) for a in expr.args)
        return any(self._may_escape(part) for part in children(expr))

    def _fits(self, index: Expr, extent: Expr) -> bool:
        while isinstance(index, prim.Cast):
            index = index.value
        if isinstance(index, prim.IntImm):
            return surely(lambda: 0 <= index.value < dim_of(extent))
        known = self._extents.get(index) if isinstance(index, tirx.Var) else None
        return known is not None and surely(lambda: known <= dim_of(extent))

    def _read(self, load: Expr, axes: dict[Expr, Expr], part: Part | None = None) -> Expr:
        self._indexing += 1
        indices = [_thin(self.expression(i, axes)) for i in load.args[1:]]
        self._indexing -= 1
        return self.at(load.args[0], indices, part)

    def _call(self, expr: Expr, axes: dict[Expr, Expr]) -> Expr:
        name = expr.op.name if isinstance(expr.op, tvm.ir.Op) else ""
        if name == "te.tensor_load":
            return self._read(expr, axes)
        if name.endswith("if_then_else"):
            return self._choice(expr.args[0], expr.args[1], expr.args[2], axes)
        args = [self.expression(a, axes) for a in expr.args]
        if name.endswith(".isnan"):
            return exponential.is_nan(self.bind(args[0]))
        if name.endswith("call_pure_extern") and (plain := LIBM.get(str(args[0].value))) is not None:
            return self._function(plain, self.bind(args[1]))
        if str(expr.ty.dtype) == "float32" and (fast := FLOAT32.get(name)) is not None:
            return self._function(fast, self.bind(args[0]))
        if name == "tirx.nearbyint" and str(expr.ty.dtype) == "float32" and not self._rounds:
            return exponential.nearest(self.bind(args[0]), self.bind)
        named = self._bind is not None and not self._guards  # without names these would be too long
        if named and str(expr.ty.dtype) == "float32" and name == "tirx.pow":
            return powers.power(self.bind(args[0]), self.bind(args[1]), self.bind)
        if named and name.endswith("call_pure_extern") and str(args[0].value) == "fmodf":
            return remainder.remainder(self.bind(args[1]), self.bind(args[2]), self.bind)
        return Call(expr.op, args, expr.attrs, ret_ty=expr.ty)

    def _function(self, function: Callable[..., Expr], x: Expr) -> Expr:
        """``function`` of ``x``, with what is seldom needed apart where values have names."""
        if function in trigonometry.REDUCED and self._bind is not None and not self._guards:
            return function(x, self.bind, self._amend)
        return function(x, self.bind)


def _is_divisor(expr: Expr) -> bool:
    """True for literals that divide any number without a guard."""
    return isinstance(expr, prim.IntImm) and expr.value not in (0, -1)


def _is_float(expr: Expr) -> bool:
    return str(expr.ty.dtype).startswith(("float", "bfloat"))


def negation(condition: Expr) -> Expr:
    """``not condition``. TVM's simplifier would turn ``not (a < b)`` into ``b <= a``, which is wrong for NaN; it does
    not look through the cast."""
    compares_floats = isinstance(condition, prim.CmpExpr) and _is_float(condition.a)
    if compares_floats or isinstance(condition, (prim.And, prim.Or)):
        return prim.EQ(tirx.Cast("int32", condition), tirx.IntImm("int32", 0))
    return tirx.Not(condition)


def match_type(value: Expr, like: Expr) -> Expr:
    """``value`` in the integer type of ``like``."""
    if isinstance(value, int):
        return tirx.IntImm(like.ty, value)
    if str(value.ty.dtype) == str(like.ty.dtype):
        return value
    if isinstance(value, prim.IntImm):
        return tirx.IntImm(like.ty, value.value)
    return tirx.Cast(like.ty, value)


def narrow(expr: Expr) -> Expr:
    """An index expression in int32: casts to int64 of int32 parts vanish, other 64-bit leaves are cast down."""
    if isinstance(expr, int):
        return tirx.IntImm("int32", expr)
    kind = type(expr)
    if str(expr.ty.dtype) == "int32":
        there_and_back = kind is prim.Cast and isinstance(expr.value, prim.Cast) and str(expr.value.ty.dtype) == "int64"
        return narrow(expr.value) if there_and_back else expr  # TVM's simplifier looks at what a cast holds twice
    if kind is prim.IntImm:
        return tirx.IntImm("int32", expr.value) if -(2**31) <= expr.value < 2**31 else expr
    if kind is prim.Cast and str(expr.value.ty.dtype) == "int32":
        return expr.value
    if kind in _BINARY and kind not in (prim.EQ, prim.NE, prim.LT, prim.LE, prim.GT, prim.GE, prim.And, prim.Or):
        return _BINARY[kind](narrow(expr.a), narrow(expr.b))
    if kind in (prim.Max, prim.Min):
        return kind(narrow(expr.a), narrow(expr.b))
    if kind is prim.Select:
        return tirx.Select(expr.condition, narrow(expr.true_value), narrow(expr.false_value))
    return tirx.Cast("int32", expr)


def _thin(index: Expr) -> Expr:
    """``index`` in int32 if it is arithmetic on axes: operators have axes of either width, and in a chain of them every
    change is two casts, through which TVM's simplifier looks twice."""
    return narrow(index) if not isinstance(index, int) and on_indices(index) else index


def _hash(indices: tuple[Expr, ...]) -> tuple[int, ...]:
    return tuple(i if isinstance(i, int) else tvm_ffi.structural_hash(i) for i in indices)
