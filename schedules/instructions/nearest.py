"""Whole numbers next to floats, of two the even one, by one instruction on 64-bit ARM.

    frintx v0.4s, v0.4s; fcvtzs v0.4s, v0.4s        what LLVM makes of lrint, in vectors of any length
    fcvtns v0.4s, v0.4s                             its name is of vectors that a register holds alone
"""

from __future__ import annotations

from functools import cache

from tvm import tirx
from tvm.ir import Call

from ..words.tvm_types import Expr

NEAREST = "llvm.lrint"
LANES = 4


def nearest_of_vector(call: Expr, lanes: int) -> Expr:
    """``call``, of an element of a vector of ``lanes`` on 64-bit ARM, by the one instruction if it is NEAREST of a
    float32."""
    plain = _nearest()
    same = lanes == LANES and isinstance(call, Call) and call.op.same_as(plain.op) and str(call.ty.dtype) == "int32"
    if not same or int(call.args[0].value) != int(plain.args[0].value) or str(call.args[1].ty.dtype) != "float32":
        return call
    return tirx.call_llvm_pure_intrin("int32", "llvm.aarch64.neon.fcvtns", call.args[1])


@cache
def _nearest() -> Expr:
    return tirx.call_llvm_pure_intrin("int32", NEAREST, tirx.FloatImm("float32", 0.0))
