"""Axes of a loop nest: merged ones, whether an index is one, and how a position depends on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Call
from tvm.ir.expr import TensorLoad
from tvm.ir.prim import expr as prim

from ..emit.written_out import children
from ..words.dims import Open
from ..words.sizes import dim_of
from ..words.tvm_types import Expr, Stmt


@dataclass
class Merged:
    """Loop axes of which the last ``count`` are one axis of ``inner`` elements."""

    outer: list[int]
    inner: int
    count: int
    contiguous: bool

    def expand(self, loops: Sequence[Expr], position: Expr) -> list[Expr]:
        """All axes' indices: merged axes are zero but the last, whose stride makes up for them."""
        zero = tirx.IntImm("int32", 0)
        return [*loops, *([zero] * (self.count - 1)), *([position] if self.count else [])]


def linear_coefficients(log: Sequence[Expr], marks: list[Expr]) -> list[list[Expr]] | None:
    """For each flat position in ``log`` its coefficient of each variable in ``marks``, a number or a dim; None if one
    of them is not linear with such coefficients."""
    result = []
    for position in log:
        if isinstance(position, int):
            position = tirx.IntImm("int32", position)
        linear = sym.detect_linear_equation(position, marks)
        if not len(linear):
            return None
        try:
            result.append([dim_of(c) for c in linear[:-1]])
        except Open:
            return None
    return result


def occurs(values: Sequence[Expr], mark: Expr) -> bool:
    """True if the variable ``mark`` occurs in one of ``values``."""
    return any(v.same_as(mark) for value in values for v in tirx.analysis.undefined_vars(value))


def is_axis(index: Expr, axis: Expr) -> bool:
    """True if ``index`` is the variable ``axis``, casts aside."""
    while isinstance(index, prim.Cast):
        index = index.value
    return hasattr(index, "same_as") and index.same_as(axis)


def depends(statement: Stmt, mark: Expr) -> bool:
    """True if what ``statement`` stores or names is arithmetic of the variable ``mark``; elements that are read there
    are none."""
    found: list[bool] = []

    def look(node: Stmt, *_: Expr) -> None:
        found.append(_computes_with(node.value, mark))

    tvm_ffi.structural_walk(statement, (tirx.BufferStore, look), (tirx.Bind, look))
    return any(found)


def _computes_with(value: Expr, mark: Expr) -> bool:
    if isinstance(value, TensorLoad):
        return False
    if isinstance(value, tirx.Var):
        return bool(value.same_as(mark))
    return any(_computes_with(p, mark) for p in (value.args if isinstance(value, Call) else children(value)))
