"""What one TE stage is: a reduction, costly to compute twice, or stored because its expression says so."""

from __future__ import annotations

from tvm import te, tirx
from tvm.ir import Call

from ..words.tvm_types import Expr

COSTLY = {"exp", "log", "sqrt", "rsqrt", "pow", "tanh", "erf", "sigmoid", "sin", "cos", "if_then_else"}
COSTLY |= {"call_pure_extern"}  # of the C library's, or their plain forms
STORED = "halotile.stored"  # attribute of a TE stage that is a phase of its own, as its few elements are read often
TABLE = "halotile.table"  # attribute of a TE stage of few elements that does not depend on data: stored ahead of all
EXTREME = "halotile.extreme"  # attribute of a TE stage that finds positions of extremes: which of equals, which extreme
FIRST, LAST, LARGEST, SMALLEST = "first", "last", "largest", "smallest"


def is_reduce(tensor: te.Tensor) -> bool:
    """True if ``tensor`` reduces over axes of what it reads."""
    return isinstance(tensor.op, te.ComputeOp) and isinstance(tensor.op.body[0], tirx.Reduce)


def is_costly(tensor: te.Tensor, functions: set[str] = COSTLY) -> bool:
    """True if an element of ``tensor`` calls one of ``functions``."""
    if not isinstance(tensor.op, te.ComputeOp):
        return False
    return any(_has_costly(b, functions) for b in tensor.op.body)


def _has_costly(expr: Expr, functions: set[str]) -> bool:
    if isinstance(expr, Call):
        name = getattr(expr.op, "name", "").rsplit(".", 1)[-1]
        return name in functions or any(_has_costly(a, functions) for a in expr.args)
    for field in ("a", "b", "value", "condition", "true_value", "false_value"):
        part = getattr(expr, field, None)
        if part is not None and hasattr(part, "ty") and _has_costly(part, functions):
            return True
    return False
