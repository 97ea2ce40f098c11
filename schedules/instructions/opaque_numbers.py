"""Numbers of which LLVM knows nothing."""

from __future__ import annotations

from tvm import tirx

from ...targets.target import Target
from ..words.tvm_types import Expr


def fence(value: Expr) -> Expr:
    """``value``, a float or a vector, as LLVM may neither make it anew nor change the order of sums around it."""
    return tirx.call_llvm_pure_intrin(str(value.ty.dtype), "llvm.arithmetic.fence", value)


def any_number(target: Target, number: int) -> Expr:
    """``number``, an int32, which on 64-bit ARM no compiler knows.

    For loops that begin far from where an address is taken, as those that go on where another one ended do. LLVM
    counts the distance from that address in every load, where it is more than a load can hold; each distance gets a
    register, and their number leads the scheduler to hoist loads that vector registers have no room for. It takes
    three instructions, outside of the loop."""
    if not target.is_aarch64:
        return number
    return tirx.Cast("int32", fence(tirx.FloatImm("float64", float(number))))
