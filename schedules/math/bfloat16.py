"""float32 numbers that lie in memory as bfloat16: the upper sixteen bits of the nearest such number.

    x = b[i]        float32(b[i] << 16)                   two instructions a vector
    b[i] = x        the nearest one, ties to even         ``vcvtneps2bf16``, where the target has it

Everything is computed in float32: what lies between two kernels takes half of the bytes, and is off by up to 2**-9 of
itself. Infinite numbers and NaN stay such; what rounds beyond 3.39e38 becomes infinite.

Buffers are of uint16, since TVM knows no instruction for its own bfloat16. Kernels write :func:`rounded`, which says in
integers what is stored; a function that does so has :data:`ATTRIBUTE`, and once it is lowered, whole vectors of it
become the instruction (compiler/codegen/narrowing.py).
"""

from __future__ import annotations

import numpy as np
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.ir.prim import expr as prim

from ..words.tvm_types import Buffer, Expr
from .float16 import Halved, Widened, half_load

NAME = "bfloat16"
BITS = "uint16"  # that a number takes in memory
ATTRIBUTE = "halotile.bfloat16"  # of a function that stores such numbers


class Narrow(Widened):
    """A buffer of bfloat16 that reads as float32."""

    def __getitem__(self, index: Expr) -> Expr:
        return widened(self.stored[index])


def widened(bits: Expr) -> Expr:
    """The float32 numbers of uint16 ``bits``, one or a vector."""
    lanes = bits.ty.dtype.lanes
    shape = f"x{lanes}" if lanes > 1 else ""
    sixteen = tirx.const(16, "uint32")
    wide = tirx.Cast(f"uint32{shape}", bits)
    return tirx.reinterpret(f"float32{shape}", tirx.shift_left(wide, _all(sixteen, lanes)))


def bits_of(value: Expr) -> Expr | None:
    """The load of a buffer of bfloat16 that ``value`` widens; None for any other value."""
    if getattr(getattr(value, "op", None), "name", "") != "tirx.reinterpret":
        return None
    cast = value.args[0].a if isinstance(value.args[0], prim.LShift) else None
    load = cast.value if isinstance(cast, prim.Cast) else None
    return load if isinstance(load, TensorLoad) and str(load.ty.dtype).startswith(BITS) else None


def load_of(value: Expr) -> Expr:
    """``value``, or the load that it widens, of bfloat16 or float16."""
    bits = bits_of(value)
    bits = half_load(value) if bits is None else bits
    return value if bits is None else bits


def memory_type(stored: str) -> str:
    """That of a buffer whose values are ``stored`` in fewer bits, as Layout has it."""
    return BITS if stored == NAME else stored


def reading(buffer: Buffer, stored: str) -> Widened:
    """``buffer``, whose values are ``stored`` in fewer bits, as one of float32."""
    return (Narrow if stored == NAME else Halved)(buffer)


def rounded(x: Expr) -> Expr:
    """The uint16 bits of the bfloat16 that is nearest to ``x``, one float32 or a vector, which should be cheap to write
    down three times. NaN stays NaN: rounding could carry over into its sign."""
    if isinstance(x, prim.FloatImm):
        return tirx.IntImm(BITS, int(rounded_array(np.array([x.value], np.float32))[0]))
    lanes = x.ty.dtype.lanes
    shape = f"x{lanes}" if lanes > 1 else ""

    def number(n: int) -> Expr:
        return _all(tirx.const(n, "uint32"), lanes)

    bits = tirx.reinterpret(f"uint32{shape}", x)
    odd = tirx.shift_right(bits, number(16)) & number(1)
    is_number = (bits & number(0x7FFFFFFF)) <= number(0x7F800000)  # TVM takes x == x for true
    nearest = tirx.Select(is_number, bits + (number(0x7FFF) + odd), bits | number(0x400000))
    return tirx.Cast(f"{BITS}{shape}", tirx.shift_right(nearest, number(16)))


def rounded_array(numbers: np.ndarray) -> np.ndarray:
    """Known numbers rounded to bfloat16, as the bits that they have (uint16)."""
    bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
    nearest = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    return (np.where(np.isnan(numbers), bits | np.uint32(0x400000), nearest) >> np.uint32(16)).astype(np.uint16)


def _all(scalar: Expr, lanes: int) -> Expr:
    return scalar if lanes == 1 else tirx.Broadcast(scalar, lanes)
