"""C's fmod of float32 as plain arithmetic, exact for every pair of numbers.

    r = |a|;  for k = 9 .. 0:  r -= round(r / (2**28k |b|)) * 2**28k |b|        |r| <= 2**(28k - 1) |b| and a little

In float64 every step is exact: a quotient below 2**29 times 24 bits. Quotients of float32 are below 2**278.
"""

from __future__ import annotations

import math

from tvm import tirx

from ..words.tvm_types import Expr
from .exponential import Bind, bits_of, f32, float_of

_WIDE = "float64"
_STEP, _STEPS = 28, 10


def remainder(a: Expr, b: Expr, bind: Bind) -> Expr:
    """fmod(a, b), with the sign of ``a``; NaN for an infinite ``a`` or a zero ``b``."""
    size, whole = (bind(float_of(bits_of(v) & tirx.IntImm("int32", 0x7FFFFFFF))) for v in (a, b))
    r, divisor = (bind(tirx.Cast(_WIDE, v)) for v in (size, whole))
    inverse = bind(tirx.FloatImm(_WIDE, 1.0) / divisor)
    for k in range(_STEPS - 1, -1, -1):
        down, up = (tirx.FloatImm(_WIDE, 2.0 ** (sign * _STEP * k)) for sign in (-1, 1))
        quotient = bind(tirx.nearbyint(r * (inverse * down)))
        r = bind(r - quotient * (divisor * up))
    r = bind(tirx.Cast("float32", tirx.Select(r < tirx.FloatImm(_WIDE, 0.0), r + divisor, r)))
    inside = tirx.all(tirx.EQ(whole, f32(math.inf)), size < f32(math.inf))  # nothing is taken away
    return float_of(bits_of(bind(tirx.Select(inside, size, r))) | (bits_of(a) & tirx.IntImm("int32", -(1 << 31))))
