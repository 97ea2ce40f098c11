"""Expressions that models and operators write out, of which there is a shorter form.

    0.5 + erf(x * sqrt(0.5)) * 0.5     the normal distribution of x
    a * sigmoid(x)                     a gate
    int32(uint8(x)), 0 <= x <= 255     x
    float32(uint8(x))                  float32(x), where x is such an int32
    float16(gelu(float32(x)))          GELU of float16 numbers; SiLU as well
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.ir import Call
from tvm.ir.prim import expr as prim

from ..math.exponential import Bind, gelu_of_half, silu_of_half
from ..words.tvm_types import Expr

HalfForm = Callable[[Expr, Bind], Expr]
HELD = "halotile.held"  # of a stage: it narrows numbers that its type holds
_NARROW = ("int8", "uint8", "int16", "uint16")


def gate_parts(product: Expr) -> tuple[Expr, Expr] | None:
    """(a, x) of a product a * sigmoid(x)."""
    for value, factor in ((product.a, product.b), (product.b, product.a)):
        if (x := _sigmoid_argument(factor)) is not None:
            return value, x
    return None


def _sigmoid_argument(factor: Expr) -> Expr | None:
    """x of sigmoid(x) in float32."""
    if not isinstance(factor, Call) or getattr(factor.op, "name", "") != "tirx.sigmoid":
        return None
    return factor.args[0] if str(factor.ty.dtype) == "float32" else None


def normal_argument(total: Expr) -> Expr | None:
    """x of a sum 0.5 + erf(x * sqrt(0.5)) * 0.5 in float32, as Relax writes it."""
    half, term = total.a, total.b
    if not (_is(half, 0.5) and isinstance(term, prim.Mul) and _is(term.b, 0.5) and isinstance(term.a, Call)):
        return None
    if getattr(term.a.op, "name", "") != "tirx.erf" or str(total.ty.dtype) != "float32":
        return None
    inside = term.a.args[0]
    return inside.a if isinstance(inside, prim.Mul) and _is(inside.b, 0.5**0.5) else None


def narrows(cast: Expr) -> bool:
    """True if ``cast`` is one to int32 or float32 of an element of a stage whose body is a cast of a number that its
    type of at most 16 bits holds, so that it may be made of the number itself."""
    expr = cast.value
    if not isinstance(expr, Call) or getattr(expr.op, "name", "") != "te.tensor_load":
        return False
    tensor = expr.args[0]
    if not isinstance(tensor.op, te.ComputeOp) or HELD not in tensor.op.attrs or str(tensor.dtype) not in _NARROW:
        return False
    wide = str(cast.ty.dtype) in ("int32", "float32")
    return wide and isinstance(tensor.op.body[tensor.value_index], prim.Cast)


def is_rounded(expr: Expr) -> bool:
    """True if ``expr``, float32, is an element of a stage that widens float16."""
    if not isinstance(expr, Call) or getattr(expr.op, "name", "") != "te.tensor_load":
        return False
    tensor = expr.args[0]
    body = tensor.op.body[tensor.value_index] if isinstance(tensor.op, te.ComputeOp) else None
    return isinstance(body, prim.Cast) and str(body.value.ty.dtype) == "float16" and str(body.ty.dtype) == "float32"


def widened(cast: Expr) -> Expr:
    """The number that the body of a stage narrows, as an int32."""
    return tirx.Cast("int32", cast.value)


def half_form(expr: Expr) -> HalfForm | None:
    """The form that float16 has of its own of the body of a stage, x * (0.5 + erf(x * sqrt(0.5)) * 0.5) or
    x * sigmoid(x), where x is one of float16 that is widened. ``expr`` is that body, or rounds an element of the stage
    to float16."""
    if isinstance(expr, prim.Cast):
        load, rounds = expr.value, str(expr.ty.dtype) == "float16"
        if not rounds or not isinstance(load, Call) or getattr(load.op, "name", "") != "te.tensor_load":
            return None
        stage = load.args[0].op
        expr = stage.body[load.args[0].value_index] if isinstance(stage, te.ComputeOp) else None
    if not isinstance(expr, prim.Mul):
        return None
    if isinstance(expr.b, prim.Add):
        x, form = normal_argument(expr.b), gelu_of_half
    else:
        x, form = _sigmoid_argument(expr.b), silu_of_half
    return form if x is not None and is_rounded(x) and tvm_ffi.structural_equal(x, expr.a) else None


def children(expr: Expr) -> list[Expr]:
    """The sub-expressions of anything but a call."""
    if not isinstance(expr, tvm.ir.Expr) or isinstance(expr, (tirx.Var, prim.IntImm, prim.FloatImm)):
        return []
    found = []
    for field in ("a", "b", "value", "condition", "true_value", "false_value", "body"):
        part = getattr(expr, field, None)
        if isinstance(part, tvm.ir.Expr):
            found.append(part)
    return found


def _is(expr: Expr, value: float) -> bool:
    return isinstance(expr, prim.FloatImm) and abs(expr.value - value) < 1e-7
