"""Whole numbers that wrap: arithmetic on the elements of integer tensors, as numpy and C's unsigned types have it.

TVM takes integers for unbounded. Its simplifier finds ``x + 1 > x`` true and ``x * 8 / 8`` to be ``x``, and its code
generator tells LLVM that sums and products of 32 and 64 bits never leave their type. That is right for indices, which
don't, and wrong for elements. So sums of elements are made in twice the bits, where nothing is lost, and cut:

    x + y        ->        hidden(int32(int64(x) + int64(y)))

LLVM makes one addition of 32 bits of that, without a promise. ``hidden`` is a shift by nothing that TVM knows nothing
of, and LLVM removes. Comparisons of unsigned numbers are made in twice the bits too, for
their differences have no sign in their own; divisions have a quotient for every divisor, which is 0 for 0.
"""

from __future__ import annotations

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Op
from tvm.ir.prim import expr as prim

from ..words.tvm_types import Expr

_PURE = Op.get("tirx.call_llvm_pure_intrin")
_SHIFT = tirx.call_llvm_pure_intrin("int32", "llvm.fshl", *[tirx.IntImm("int32", 0)] * 3).args[0]
_RING = (prim.Add, prim.Sub, prim.Mul)
DIVISIONS = (prim.Div, prim.Mod, prim.FloorDiv, prim.FloorMod)


def is_whole(dtype: str) -> bool:
    """True for integers; flags are none."""
    return dtype.startswith(("int", "uint"))


def width(dtype: str) -> int:
    return int(dtype.lstrip("uint"))


def number(value: int, dtype: str) -> Expr:
    """An immediate of an integer type, whose low bits are those of ``value``: also one of uint64 from 2**63 on, which
    TVM has no immediate for."""
    bits = width(dtype)
    low = int(value) & ((1 << bits) - 1)
    signed = low - (1 << bits) if low >> (bits - 1) else low
    if dtype == "uint64" and signed < 0:
        return tirx.reinterpret(dtype, tirx.IntImm("int64", signed))
    return tirx.IntImm(dtype, low if dtype.startswith("uint") else signed)


def hidden(value: Expr) -> Expr:
    """``value``, an integer, of which no simplifier knows where it comes from."""
    nothing = tirx.IntImm(value.ty, 0)
    return Call(_PURE, [_SHIFT, value, nothing, nothing], None, ret_ty=value.ty)


def is_hidden(value: Expr) -> bool:
    """True for what :func:`hidden` gives."""
    pure = isinstance(value, Call) and isinstance(value.op, Op) and value.op.name == _PURE.name
    return pure and int(value.args[0]) == int(_SHIFT)


def wraps(value: Expr | None) -> bool:
    """True if something in ``value`` is hidden."""
    if not isinstance(value, tvm.ir.Expr) or is_hidden(value):
        return isinstance(value, tvm.ir.Expr)
    if isinstance(value, Call):
        return any(map(wraps, value.args))
    parts = (getattr(value, p, None) for p in ("a", "b", "value", "condition", "true_value", "false_value"))
    return not isinstance(value, prim.IntImm) and any(map(wraps, parts))


def plus(a: Expr, b: Expr) -> Expr:
    """The sum of two elements of any type."""
    return combined(prim.Add, a, b)


def times(a: Expr, b: Expr) -> Expr:
    """The product of two elements of any type."""
    return combined(prim.Mul, a, b)


def combined(kind: type, a: Expr, b: Expr) -> Expr:
    """An operation of two elements of one type: any that TVM has a node for."""
    dtype = str(a.ty.dtype)
    if not is_whole(dtype):
        return kind(a, b)
    if kind in _RING:
        bits = width(dtype)
        exact = kind(*(_extended(e, 2 * bits) for e in (a, b)))
        return _as(dtype, hidden(tirx.Cast(f"int{bits}", exact)))
    if issubclass(kind, prim.CmpExpr) and dtype.startswith("uint"):
        return kind(*(_exact(e, 2 * width(dtype)) for e in (a, b)))
    if kind in (prim.LShift, prim.RShift):  # bits are lost, of which bounds know nothing
        return hidden(kind(a, b))
    return _divided(kind, a, b) if kind in DIVISIONS else kind(a, b)


def _as(dtype: str, value: Expr) -> Expr:
    """The same bits as a type of the same width. TVM would cast immediates itself, if they fit, and knows bounds of
    casts that are wrong: neither may be seen."""
    if str(value.ty.dtype) == dtype:
        return value
    return hidden(tirx.Cast(dtype, value if is_hidden(value) else hidden(value)))


def _extended(value: Expr, bits: int) -> Expr:
    """``value`` with its sign repeated, also an unsigned one: as good for the low bits of sums and products."""
    own = width(str(value.ty.dtype))
    if isinstance(value, prim.IntImm):
        return number(number(value.value, f"int{own}").value, f"int{bits}")
    return tirx.Cast(f"int{bits}", _as(f"int{own}", value))


def _exact(value: Expr, bits: int) -> Expr:
    """An unsigned number as a signed one."""
    small = isinstance(value, prim.IntImm) and value.value < 1 << 63  # the most that TVM has immediates of
    return tirx.IntImm(f"int{bits}", value.value) if small else tirx.Cast(f"int{bits}", value)


def _divided(kind: type, a: Expr, b: Expr) -> Expr:
    """A division that never traps: ``a / 0`` and its remainder are 0, and the least number over -1 wraps.

    So it may stand in an arm of a choice that is not taken (``where(b == 0, a, a / b)``), and stays a vector there. The
    divisor is hidden: in an arm where TVM's simplifier knows that ``b != 0``, as in the one here, it would remove the
    test of ``b``, although both arms are computed, and LLVM deletes all code around a division by zero. Literals need
    no test.
    """
    dtype, signed = str(b.ty.dtype), f"int{width(str(b.ty.dtype))}"
    zero, one, minus = (number(c, dtype) for c in (0, 1, -1))
    remainder = kind in (prim.Mod, prim.FloorMod)
    if isinstance(b, prim.IntImm) and b.value not in (0, -1):
        return kind(a, b)
    if isinstance(b, prim.IntImm):
        return zero if remainder or b.value == 0 else combined(prim.Sub, zero, a)
    divisor = hidden(b)
    bad: Expr = prim.EQ(_as(signed, divisor), number(0, signed))
    wraps = dtype == signed and not (isinstance(a, prim.IntImm) and a.value > -1 << (width(dtype) - 1))
    if wraps:
        bad = prim.Or(bad, prim.EQ(divisor, minus))
    result = kind(a, hidden(tirx.Select(bad, one, b)))
    if wraps and not remainder:
        result = tirx.Select(prim.EQ(divisor, minus), combined(prim.Sub, zero, a), result)
    return tirx.Select(combined(prim.EQ, b, zero), zero, result)


def division(value: Expr) -> tuple[type, Expr, Expr] | None:
    """The operation and the operands of what :func:`combined` wrote for a division by no literal, guards left out."""
    inner = value
    while isinstance(inner, prim.Select):
        inner = inner.false_value
    if inner is value or not isinstance(inner, DIVISIONS) or not is_hidden(inner.b):
        return None
    kind, a, guarded = type(inner), inner.a, inner.b.args[1]
    if not isinstance(guarded, prim.Select):
        return None
    b = guarded.false_value
    return (kind, a, b) if tvm_ffi.structural_equal(combined(kind, a, b), value) else None


def converted(dtype: str, value: Expr) -> Expr:
    """A whole number as one of another type: its low bits, or as many more as that has."""
    own, bits = str(value.ty.dtype), width(dtype)
    if bits <= width(own):
        low = hidden(_as(f"int{width(own)}", value))
        return value if own == dtype else _as(dtype, low if bits == width(own) else tirx.Cast(f"int{bits}", low))
    if own.startswith("uint"):
        return tirx.Cast(dtype, value)
    return _as(dtype, tirx.Cast(f"int{bits}", value))


def truncated(dtype: str, value: Expr) -> Expr:
    """A float as a whole number, rounded towards zero: an int32, or int64 for types of more bits and uint32, of which
    narrower and unsigned types take the low bits; the least number for NaN and whatever that does not hold.

    x86-64's conversions give that, ARM's hold at the ends and make 0 of NaN, and LLVM takes what they make for
    anything: so what does not fit is told apart first.
    """
    if str(value.ty.dtype) in ("float16", "bfloat16"):
        value = tirx.Cast("float32", value)
    wide = "int32" if width(dtype) < 32 or dtype == "int32" else "int64"
    bits = width(wide)

    def below(power: int) -> Expr:
        return tirx.abs(value) < tirx.FloatImm(value.ty, 2.0**power)

    held = converted(dtype, tirx.Select(below(bits - 1), tirx.Cast(wide, value), number(-1 << (bits - 1), wide)))
    if dtype != "uint64":
        return held
    large = tirx.all(value >= tirx.FloatImm(value.ty, 2.0**63), below(64))
    return tirx.Select(large, tirx.Cast(dtype, value), held)


def truncated_array(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Known floats as integers of ``dtype``, truncated as :func:`truncated` does."""
    bits = dtype.itemsize * 8
    wide = np.iinfo(np.int32 if bits < 32 or dtype == np.int32 else np.int64)
    whole = np.trunc(values.astype(np.float64))
    inside = (whole >= float(wide.min)) & (whole < -float(wide.min))
    result = np.where(inside, np.where(inside, whole, 0).astype(wide.dtype), wide.dtype.type(wide.min)).astype(dtype)
    if dtype == np.uint64:
        large = (whole >= 2.0**63) & (whole < 2.0**64)
        result = np.where(large, np.where(large, whole, 0).astype(np.uint64), result)
    return result
