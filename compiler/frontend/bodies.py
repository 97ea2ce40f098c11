"""Bodies of control flow as functions: cut out of what was written for them.

    h = tanh(x W + s)      written in the graph around, where s stands for a carried value
                           ->   body(s, xw) { h = tanh(xw + s) }, and xw = x W stays outside: it is the same every round

What a body is computed from is written into the graph under way like everything else. From its results back to its
parameters it is then copied into a function; what it reads beside becomes parameters as well, in order. What was
written for it and is needed nowhere else, nothing reads any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.ir import Call

from ...schedules.words.provenance import span_of
from ...schedules.words.tvm_types import Expr
from .node import OnnxNode
from .origins import Writer
from .value import OnnxValue


@dataclass(frozen=True)
class Body:
    """A function, and what its parameters behind those that were asked for stand for."""

    function: relax.Function
    seen: tuple[Expr, ...]


def bound(node: OnnxNode, value: OnnxValue) -> Expr:
    """The variable or constant that a result of a body is."""
    expr = value.expr
    return node.emit(expr).expr if isinstance(expr, Call) else expr


def results_of(node: OnnxNode, call: Expr) -> list[OnnxValue]:
    """The results of a call of control flow."""
    whole = node._emitted(call)
    if not isinstance(whole.ty, relax.TupleType):
        return [node.emit(whole)]
    return [node.emit(relax.TupleGetItem(whole, i)) for i in range(len(whole.ty.fields))]


class Cutter:
    """Cuts bodies out of what ``builder`` writes from now on."""

    def __init__(self, builder: Writer) -> None:
        self.builder = builder
        self.before = len(builder.origins)

    def rounds(self, params: Sequence[Expr], results: Sequence[Expr]) -> Body:
        """The body of ``results`` over ``params``. What depends on none of these stays outside."""
        inside: dict[Callable[[Expr], bool], bool] = {p: True for p in params}

        def depends(variable: Expr) -> bool:
            pending = [variable]
            while pending:
                last = pending[-1]
                bound = None if last in inside else self._bound(last)
                below = [] if bound is None else _variables(bound)
                missing = [v for v in below if v not in inside]
                if missing:
                    pending.extend(missing)
                    continue
                pending.pop()
                if last not in inside:
                    inside[last] = any(inside[v] for v in below)
            return inside[variable]

        return self._cut([params], [results], depends)[0]

    def branches(self, results: Sequence[Sequence[Expr]]) -> list[Body]:
        """The bodies of several branches, which see the same: what was there before the cutter was made."""
        known = {v: i for i, v in enumerate(self.builder.origins)}

        def inside(variable: Expr) -> bool:
            bound = self._bound(variable) is not None
            return bound and known.get(variable, self.before) >= self.before

        return self._cut([()] * len(results), results, inside)

    # ------------------------------------------------------------------ cutting

    def _bound(self, variable: Expr) -> Expr:
        return self.builder.lookup_binding(variable)

    def _cut(
        self,
        params: Sequence[Sequence[Expr]],
        results: Sequence[Sequence[Expr]],
        inside: Callable[[Expr], bool],
    ) -> list[Body]:
        orders = []
        seen: dict[Expr, None] = {}
        for own, exprs in zip(params, results):
            order, outer = self._needed(own, exprs, inside)
            orders.append(order)
            seen.update(dict.fromkeys(outer))
        sizes = _sizes(seen, [self._bound(v) for order in orders for v in order], params, results)
        operands = [*seen, *([] if sizes is None else [sizes])]
        return [
            Body(self._function(own, list(seen), sizes, order, exprs), tuple(operands))
            for own, order, exprs in zip(params, orders, results)
        ]

    def _needed(
        self, params: Sequence[Expr], results: Sequence[Expr], inside: Callable[[Expr], bool]
    ) -> tuple[list[Expr], list[Expr]]:
        """The variables inside that ``results`` need, each after those it needs, and those outside that they read."""
        order: dict[Expr, None] = {}
        outer: dict[Expr, None] = {}
        own = set(params)
        pending = [v for r in reversed(results) for v in _variables(r)]
        while pending:
            last = pending[-1]
            if last in own or last in order or last in outer:
                pending.pop()
            elif not inside(last):
                outer[last] = None
                pending.pop()
            else:
                missing = [v for v in _variables(self._bound(last)) if v not in own | order.keys() | outer.keys()]
                if missing:
                    pending.extend(missing)
                else:
                    order[last] = None
                    pending.pop()
        return list(order), list(outer)

    def _function(
        self, params: Sequence[Expr], seen: Sequence[Expr], sizes: Expr, order: Sequence[Expr], results: Sequence[Expr]
    ) -> relax.Function:
        fresh = {v: relax.Var(f"seen{i}", v.ty) for i, v in enumerate(seen)}
        of: dict[Expr, Expr] = {p: p for p in params} | fresh
        bindings = []
        origin = self.builder.origin
        for variable in order:
            own = relax.DataflowVar(variable.name, variable.ty)
            bindings.append(
                relax.VarBinding(own, _replaced(self._bound(variable), of), span_of([origin] if origin else []))
            )
            of[variable] = own
        result = relax.Tuple([_replaced(r, of) for r in results])
        output = relax.Var("outputs", result.ty)
        bindings.append(relax.VarBinding(output, result))
        body = relax.SeqExpr([relax.DataflowBlock(bindings)], output)
        relax.expr._update_type(body, result.ty)
        extra = [] if sizes is None else [relax.Var("sizes", relax.TensorType([len(sizes.args[0].values)], "int64"))]
        return relax.Function([*params, *fresh.values(), *extra], body, result.ty, True)


def _sizes(
    seen: Iterable[Expr],
    bound: Sequence[Expr],
    params: Sequence[Sequence[Expr]],
    results: Sequence[Sequence[Expr]],
) -> Expr:
    """A tensor of the open dimensions that bodies use and that no tensor which they read has: none may be lost."""
    told = {s for v in (*seen, *(p for own in params for p in own)) for s in relax.analysis.tir_vars_in_type(v.ty)}
    used: dict[Expr, None] = {}
    for expr in (*bound, *(r for own in results for r in own)):
        used.update(dict.fromkeys(relax.analysis.tir_vars_in_type(expr.ty)))
        for part in getattr(expr, "args", ()):
            used.update(dict.fromkeys(relax.analysis.free_symbolic_vars(part)))
    missing = [s for s in used if s not in told]
    return relax.op.shape_to_tensor(relax.ShapeExpr(missing)) if missing else None


def _variables(expr: Expr) -> list[Expr]:
    """The tensors by name that an expression reads."""
    return [v for v in _walk(expr) if isinstance(v, relax.Var)]


def _walk(expr: Expr) -> Iterator[Expr]:
    if isinstance(expr, relax.Var) and not isinstance(expr.ty, tvm.ir.PrimType):
        yield expr
    elif isinstance(expr, relax.Tuple):
        for field in expr.fields:
            yield from _walk(field)
    elif isinstance(expr, relax.TupleGetItem):
        yield from _walk(expr.tuple_value)
    elif isinstance(expr, Call):
        for argument in expr.args:
            yield from _walk(argument)


def _replaced(expr: Expr, of: dict[Expr, Expr]) -> Expr:
    """The expression with other variables, of the same type."""
    if isinstance(expr, relax.Var):
        return of.get(expr, expr)
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([_replaced(f, of) for f in expr.fields])
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(_replaced(expr.tuple_value, of), expr.index)
    if isinstance(expr, Call):
        return Call(expr.op, [_replaced(a, of) for a in expr.args], expr.attrs, ret_ty=expr.ty)
    return expr
