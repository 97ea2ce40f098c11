"""Operators' expressions with the arithmetic of elements made to wrap (:mod:`..math.wrapping`).

    y[i] = x[i] + 1              ->        y[i] = hidden(int32(int64(x[i]) + 1))
    y[i] = x[clip(p[i] + 1)]     stays: an index is no element

An element is what is read from a tensor, and whatever is computed from that, but for what a tensor is read at. Axes and
constants alone make indices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import tvm
from tvm import te, tirx
from tvm.ir import Call, Op
from tvm.ir.prim import expr as prim
from tvm.te import _ffi_api

from ..math.wrapping import combined, converted, is_hidden, is_whole, number, truncated
from ..words.tvm_types import Expr, Operation, Tensor

_BINARY = (
    prim.Add, prim.Sub, prim.Mul, prim.Div, prim.Mod, prim.FloorDiv, prim.FloorMod, prim.LShift, prim.RShift,
    prim.BitwiseAnd, prim.BitwiseOr, prim.BitwiseXor, prim.Min, prim.Max,
    prim.EQ, prim.NE, prim.LT, prim.LE, prim.GT, prim.GE, prim.And, prim.Or,
)  # fmt: skip
WITHIN = "halotile.within"  # of a stage: its integers never leave their type
_ROUNDINGS = ("nearbyint", "round", "floor", "ceil", "trunc")


def with_wrapping(
    outputs: Sequence[te.Tensor], inputs: Iterable[Expr | Tensor | list[Expr | Tensor]]
) -> list[te.Tensor]:
    """``outputs``, which stages compute from ``inputs`` (tensors, and lists of them), with integers that wrap."""
    tensors = [t for i in inputs for t in (i if isinstance(i, (list, tuple)) else [i]) if isinstance(t, te.Tensor)]
    if not any(is_whole(str(t.dtype)) for t in (*outputs, *tensors)):
        return list(outputs)
    made = _Elements(tensors)
    return [made.tensor(t) for t in outputs]


class _Elements:
    """Writes stages again, each once; those in which nothing changes stay themselves."""

    def __init__(self, inputs: Iterable[te.Tensor]) -> None:
        self._made: dict[Operation, Operation] = {t.op: t.op for t in inputs}
        self._given = frozenset(self._made)
        self._named: set[Expr] = set()  # variables that stand for elements

    def tensor(self, tensor: te.Tensor) -> te.Tensor:
        stack = [tensor.op]
        while stack:  # what a stage reads comes before it
            missing = [t.op for t in stack[-1].input_tensors if t.op not in self._made]
            if missing and stack[-1] not in self._made and isinstance(stack[-1], te.ComputeOp):
                stack += missing
                continue
            op = stack.pop()
            if op not in self._made:
                self._made[op] = self._written(op) if isinstance(op, te.ComputeOp) else op
        made = self._made[tensor.op]
        return tensor if made.same_as(tensor.op) else made.output(int(tensor.value_index))

    def _written(self, op: Operation) -> Operation:
        first = op.body[0]
        if not isinstance(first, tirx.Reduce):
            body = [self._element(b, WITHIN in op.attrs)[0] for b in op.body]
        else:
            combiner, condition = self._combiner(first.combiner), self._element(first.condition)[0]
            source: Sequence[Expr] | list[Expr] = [self._element(s)[0] for s in first.source]
            if combiner.same_as(first.combiner) and _same([condition, *source], [first.condition, *first.source]):
                return op
            source = tvm.runtime.convert(source)  # one list, by which TVM knows the results of one reduction
            body = [tirx.Reduce(combiner, source, first.axis, condition, b.value_index, first.init) for b in op.body]
        return op if _same(body, op.body) else _ffi_api.ComputeOp(op.name, op.tag, op.attrs, op.axis, body)

    def _combiner(self, combiner: Expr) -> Expr:
        own = {*combiner.lhs, *combiner.rhs}
        self._named |= own
        result = [self._element(r)[0] for r in combiner.result]
        self._named -= own
        if _same(result, combiner.result):
            return combiner
        return tirx.CommReducer(combiner.lhs, combiner.rhs, result, combiner.identity_element)

    def _element(self, expr: Expr, index: bool = False) -> tuple[Expr, bool]:
        """``expr`` as it is to be, and whether it is an element; in an ``index`` only the tensors change."""
        kind, index = type(expr), index or is_hidden(expr)  # what is hidden wraps already
        if kind is tirx.Var:
            return expr, expr in self._named
        if kind is prim.IntImm and expr.value >= 1 << 63:
            return number(expr.value, str(expr.ty.dtype)), False
        if kind is Call:
            return self._call(expr, index)
        if kind is prim.Let:
            value, element = self._element(expr.value, index)
            own = {expr.var} if element else set()
            self._named |= own
            body, inside = self._element(expr.body, index)
            self._named -= own
            return _again(expr, (expr.value, expr.body), (value, body), lambda v, b: prim.Let(expr.var, v, b)), inside
        if kind in _BINARY:
            return self._made_of(expr, (expr.a, expr.b), index, kind, lambda a, b: combined(kind, a, b))
        if kind in (prim.Not, prim.BitwiseNot):
            return self._made_of(expr, (expr.a,), index, kind)
        if kind is prim.Select:
            return self._made_of(expr, (expr.condition, expr.true_value, expr.false_value), index, kind)
        if kind is prim.Cast:
            return self._made_of(expr, (expr.value,), index, lambda v: tirx.Cast(expr.ty, v), self._cast(expr))
        return expr, False

    def _made_of(
        self,
        expr: Expr,
        parts: Sequence[Expr],
        index: bool,
        make: Callable[..., Expr],
        wrapped: Callable[..., Expr] | None = None,
    ) -> tuple[Expr, bool]:
        """``expr`` made of new parts, as it was, or ``wrapped`` where it is arithmetic of elements."""
        found = [self._element(p, index) for p in parts]
        new, element = [e for e, _ in found], any(is_element for _, is_element in found)
        if element and not index and wrapped is not None and _is_arithmetic(expr, parts[0]):
            return wrapped(*new), True
        return _again(expr, parts, new, make), element

    def _call(self, expr: Expr, index: bool) -> tuple[Expr, bool]:
        if not (isinstance(expr.op, Op) and expr.op.name == "te.tensor_load"):
            return self._made_of(expr, expr.args, index, lambda *a: Call(expr.op, list(a), expr.attrs, ret_ty=expr.ty))
        tensor, *places = expr.args
        new = [self.tensor(tensor), *(self._element(p, True)[0] for p in places)]
        return _again(expr, expr.args, new, lambda *a: Call(expr.op, list(a), expr.attrs, ret_ty=expr.ty)), True

    def _cast(self, expr: Expr) -> Callable[[Expr], Expr]:
        """How an element becomes another type, an integer above all."""
        dtype, source = str(expr.ty.dtype), str(expr.value.ty.dtype)
        if not is_whole(dtype):
            return lambda value: tirx.Cast(expr.ty, value)
        if is_whole(source):
            return lambda value: converted(dtype, value)
        if self._limited(expr.value, dtype):
            return lambda value: tirx.Cast(expr.ty, value)
        return lambda value: truncated(dtype, value)

    def _limited(self, value: Expr, dtype: str) -> bool:
        """True for a float that the operator itself holds within what ``dtype`` holds: min and max with such constants,
        then rounded. It sees to NaN; what came before it does not."""
        low, high = self._range(value)
        bits = int(dtype.lstrip("uint"))
        least, most = (0, 2**bits) if dtype.startswith("uint") else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        return low >= least and high < most

    def _range(self, value: Expr) -> tuple[float, float]:
        whatever = -float("inf"), float("inf")
        if isinstance(value, prim.FloatImm):
            return value.value, value.value
        if isinstance(value, (prim.Min, prim.Max)):
            choose = min if isinstance(value, prim.Min) else max
            (a, b), (c, d) = self._range(value.a), self._range(value.b)
            return choose(a, c), choose(b, d)
        if isinstance(value, Call) and isinstance(value.op, Op):
            name = value.op.name
            if name == "te.tensor_load":
                op = value.args[0].op
                own = op not in self._given and isinstance(op, te.ComputeOp)
                return self._range(op.body[int(value.args[0].value_index)]) if own else whatever
            if name.removeprefix("tirx.") in _ROUNDINGS:
                low, high = self._range(value.args[0])
                return (low, high) if all(math.isinf(v) or v == math.floor(v) for v in (low, high)) else whatever
        return whatever


def _is_arithmetic(expr: Expr, first: Expr) -> bool:
    """True for what integers do otherwise than TVM thinks: operations on them, and casts from and to them."""
    if isinstance(expr, prim.Cast):
        return is_whole(str(expr.ty.dtype)) and str(first.ty.dtype) != "bool"
    return is_whole(str(first.ty.dtype))


def _again(expr: Expr, old: Sequence[Expr | Tensor], new: Sequence[Expr], make: Callable[..., Expr]) -> Expr:
    return expr if _same(new, old) else make(*new)


def _same(new: Sequence[Expr], old: Sequence[Expr | Tensor]) -> bool:
    return all(a.same_as(b) for a, b in zip(new, old))
