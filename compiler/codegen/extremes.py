"""The larger or smaller of two floats as one instruction of 64-bit ARM, in lowered code.

    select(x < 0, 0, x)                                ->    fmax x, 0          a comparison and a choice before
    select(b <= inf, select(a < b, b, a), b)           ->    fmax a, b          two of each before

Kernels say a maximum as choices that keep a NaN on either side (schedules/emit/inline.py), which the instructions of
x86 do where one side is a number that is known. Those of ARM, which keep every NaN, are to LLVM another function:
choices take +0 and -0 for equal and keep the one that stands there, ``llvm.maximum`` takes +0 for the larger. So this
is written here, and the sign of a zero is what changes: ReLU of -0 is +0, as elsewhere on ARM.
"""

from __future__ import annotations

import math

import tvm_ffi
from tvm import tirx
from tvm.ir.prim import expr as prim

from ...schedules.words.tvm_types import Expr, Mutator, PrimFunc
from ...targets.target import Target

LARGER, SMALLER = "llvm.maximum", "llvm.minimum"
ORDERS = (prim.LT, prim.LE, prim.GT, prim.GE)


def has_extremes(target: Target) -> bool:
    """True if ``target`` has the instructions."""
    return target.is_aarch64


def extremes(function: PrimFunc, target: Target) -> PrimFunc:
    """The lowered ``function``, whose choices of the larger or smaller of two floats are the instruction."""
    kinds = ("float32", "float64", *(("float16",) if target.has_halves else ()))

    def visit(choice: Expr, mutator: Mutator) -> Expr:
        if str(choice.ty.dtype).partition("x")[0] in kinds:
            found = _of_number(choice) or _of_any(choice)
            if found is not None:
                name, *operands = found
                return tirx.call_llvm_pure_intrin(str(choice.ty.dtype), name, *map(mutator.mutate, operands))
        return mutator.default_mutate(choice)

    body = tvm_ffi.structural_mutate(
        function.body, ((prim.Select, visit), (tirx.Buffer, lambda buffer, _: buffer), (tirx.Var, lambda var, _: var))
    )
    return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)


def _of_number(choice: Expr) -> tuple[str, Expr, Expr] | None:
    """(instruction, its operands) of a choice that takes what is no number where it can't compare, and else a number
    that is known; None for all others."""
    found = _ordered(choice)
    return found if found is not None and _is_number(choice.true_value) else None


def _of_any(choice: Expr) -> tuple[str, Expr, Expr] | None:
    """The same of any two, the second of which is taken where it is NaN before they are compared."""
    guard, kept, inner = choice.condition, choice.false_value, choice.true_value
    if not isinstance(guard, prim.LE) or not isinstance(inner, prim.Select) or not _is_infinite(guard.b):
        return None
    if not _same(guard.a, kept) or not _same(inner.true_value, kept):
        return None
    return _ordered(inner)


def _ordered(choice: Expr) -> tuple[str, Expr, Expr] | None:
    """(instruction, operands) of a choice between the two that its condition compares; which is taken where they can't
    be compared is not looked at."""
    test, yes, no = choice.condition, choice.true_value, choice.false_value
    if not isinstance(test, ORDERS):
        return None
    less, more = (test.a, test.b) if isinstance(test, (prim.LT, prim.LE)) else (test.b, test.a)
    if _same(yes, more) and _same(no, less):
        return LARGER, yes, no
    if _same(yes, less) and _same(no, more):
        return SMALLER, yes, no
    return None


def _number(value: Expr) -> float | None:
    while isinstance(value, prim.Broadcast):
        value = value.value
    return float(value.value) if isinstance(value, prim.FloatImm) else None


def _is_number(value: Expr) -> bool:
    number = _number(value)
    return number is not None and not math.isnan(number)


def _is_infinite(value: Expr) -> bool:
    return _number(value) == math.inf


def _same(a: Expr, b: Expr) -> bool:
    return bool(a.same_as(b)) or bool(tvm_ffi.structural_equal(a, b))
