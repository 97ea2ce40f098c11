"""Choices among positions: comparisons of index expressions that are known, or that somebody asks about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from ..words.sizes import SYMBOLS
from ..words.tvm_types import Expr


def end_of(
    kind: type, a: Expr, b: Expr, simplify: Callable[[Any], Any] | None, choices: list[Expr]
) -> Expr:
    """The smaller or larger of two whole numbers. Of positions of open sizes (a clamp, a mirror) it is a choice, which
    may be known; else it is added to ``choices``."""
    if simplify is None or not SYMBOLS.get() or not (on_indices(a) and on_indices(b)):
        return kind(a, b)
    for larger, smaller in ((a, b), (b, a)):
        condition = simplify(larger >= smaller)
        if is_known(condition):
            return larger if kind is prim.Max else smaller
        choices.append(condition)
    return kind(a, b)


def on_indices(expr: Expr) -> bool:
    """True for a comparison of index expressions, or several: integers without reads, on which TVM's simplifier is
    right."""
    if isinstance(expr, (prim.And, prim.Or, prim.CmpExpr)):
        return on_indices(expr.a) and on_indices(expr.b)
    if isinstance(expr, (tirx.Var, prim.IntImm)):
        return str(expr.ty.dtype) in ("int32", "int64")
    if isinstance(expr, prim.Cast):
        return str(expr.ty.dtype) in ("int32", "int64") and on_indices(expr.value)
    if isinstance(expr, (prim.Add, prim.Sub, prim.Mul, prim.FloorDiv, prim.FloorMod)):
        return on_indices(expr.a) and on_indices(expr.b)
    return False


def is_known(condition: Expr) -> bool | None:
    if isinstance(condition, prim.IntImm):
        return bool(condition.value)
    return None
