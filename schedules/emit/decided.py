"""Choices among positions: comparisons of index expressions that are known, or that somebody asks about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tvm_ffi
from tvm import tirx
from tvm.ir.prim import expr as prim

from ..words.dims import Open
from ..words.sizes import SYMBOLS, dim_of
from ..words.tvm_types import Expr

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

_OF_TWO = frozenset(
    (prim.And, prim.Or, prim.EQ, prim.NE, prim.LT, prim.LE, prim.GT, prim.GE, prim.Add, prim.Sub, prim.Mul,
     prim.FloorDiv, prim.FloorMod)
)  # fmt: skip
FAR = 1 << 30  # beyond it, a sum of two numbers may leave int32


@dataclass(frozen=True)
class Parted:
    """An index that is ``times * length + rest``, of which no division is left: ``length`` is a number or a dim."""

    index: Expr
    length: SizeLike
    times: Expr
    rest: Expr

    def of(self, kind: type, a: Expr, b: Expr) -> Expr | None:
        """The quotient or the remainder of ``a`` by ``b``; None for anything but the index and its length."""
        a = without_casts(a)
        if not tvm_ffi.structural_equal(a, self.index) or divisor_of(b) != self.length:
            return None
        return self.times if kind is prim.FloorDiv else self.rest


def without_casts(index: Expr) -> Expr:
    """An index as it is in the type of loops."""
    while isinstance(index, prim.Cast):
        index = index.value
    return index


def divisor_of(expr: Expr) -> Expr:
    """The number or dim that an index is divided by; None for anything else."""
    try:
        return dim_of(expr)
    except Open:
        return None


def end_of(
    kind: type, a: Expr, b: Expr, simplify: Callable[[Expr], Expr] | None, choices: list[Expr]
) -> Expr:
    """The smaller or larger of two whole numbers. Of positions of open sizes (a clamp, a mirror) it is a choice, which
    may be known; else it is added to ``choices``."""
    if simplify is None or not SYMBOLS.get() or not (on_indices(a) and on_indices(b)):
        return kind(a, b)
    for end, other in ((a, b), (b, a)):  # a slice's end that is no end
        if isinstance(end, prim.IntImm) and end.value == int(tirx.max_value(end.ty.dtype).value):
            return end if kind is prim.Max else other
    for larger, smaller in ((a, b), (b, a)):
        condition = simplify(larger >= smaller)
        if is_known(condition):
            return larger if kind is prim.Max else smaller
        choices.append(condition)
    return kind(a, b)


def on_indices(expr: Expr) -> bool:
    """True for a comparison of index expressions, or several: integers without reads, on which TVM's simplifier is
    right."""
    kind = type(expr)
    if kind in _OF_TWO:
        return on_indices(expr.a) and on_indices(expr.b)
    if kind is prim.IntImm or kind is prim.Cast or issubclass(kind, tirx.Var):
        return str(expr.ty.dtype) in ("int32", "int64") and (kind is not prim.Cast or on_indices(expr.value))
    return False


def is_far(expr: Expr) -> bool:
    """True for a comparison of index expressions with a number so large that TVM's simplifier, which moves numbers
    across a comparison in the axes' own type, may leave its range: ``2 * h - 1 >= 2**31 - 1`` became true."""
    if isinstance(expr, prim.IntImm):
        return str(expr.ty.dtype) == "int32" and abs(int(expr.value)) >= FAR
    if isinstance(expr, prim.Cast):
        return is_far(expr.value)
    return hasattr(expr, "a") and (is_far(expr.a) or is_far(expr.b))


def is_known(condition: Expr) -> bool | None:
    if isinstance(condition, prim.IntImm):
        return bool(condition.value)
    return None
