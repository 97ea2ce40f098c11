"""Tables that depend on open sizes alone: positions, grids, masks, tables of sines, and numbers made of lengths.

    cos(range(n) * frequencies)    ->    of_sizes([n], [n, 32], frequencies, body=...)

Simplification makes them (passes/simplify/size_tables.py): maps of positions, constants and sizes as the body of one
operator, which takes the place that a constant has where the sizes are known. Kernels are made of its pieces again.
"""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relax, te
from tvm.ir import Call, Tuple, Var

from ..words.tvm_types import Expr, Tensor, Type
from .registry import attributes, define, expression

TABLE = "halotile.of_sizes"


def _typed(call_: Call) -> Type:
    return relax.TensorType(list(call_.args[1].values), attributes(call_)["dtype"])


@define(TABLE, typed=_typed)
def of_sizes(sizes: Expr, _shape: Expr, *tables: te.Tensor, body: relax.Function, dtype: str) -> te.Tensor:
    """What ``body`` computes of the sizes, which are its first parameter, and of the tables, which are the others."""
    function = at_sizes(body, sizes)
    known: dict[Expr, Tensor] = dict(zip(function.params[1:], tables))
    for block in function.body.blocks:
        for binding in block.bindings:
            value = binding.value
            known[binding.var] = known[value] if isinstance(value, Var) else _computed(value, known)
    return known[function.body.body]


def at_sizes(body: relax.Function, sizes: Expr) -> relax.Function:
    """The body with the sizes that the call gives for its own."""
    given = {v: s for v, s in zip(body.params[0].ty.values, sizes.values) if not v.same_as(s)}
    return body.bind_symbolic_vars(given) if given else body


def _computed(call_: Call, known: Mapping[Expr, Tensor]) -> Tensor:
    return expression(call_, [_operand(a, known) for a in call_.args])[0]


def _operand(operand: Expr, known: Mapping[Expr, Tensor]) -> Expr | Tensor | list[Expr | Tensor]:
    if isinstance(operand, Tuple) and operand.fields and all(f in known for f in operand.fields):
        return [known[f] for f in operand.fields]
    return known[operand] if isinstance(operand, Var) and operand in known else operand
