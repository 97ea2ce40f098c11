"""Vectorisable forms of functions of exponentials: hyperbolic sine and cosine, and the power of two numbers.

    x**y = 2**(y log2|x|), with the sign and the exceptions of C's pow

The power is computed in float64 and rounded once, so that what a float32 can hold exactly comes out exactly.
"""

from __future__ import annotations

import math

from tvm import tirx

from ..words.tvm_types import Expr
from .exponential import Bind, bits_of, f32, float_of, fraction

_WIDE = "float64"
_ROUND = 1.5 * 2.0**52  # adding it rounds to an integer, which is then in the low bits


def sinh(x: Expr, bind: Bind) -> Expr:
    """sinh(x) = 2 (w + w / (1 + 4 w)) with 4 w = exp(|x|) - 1; relative error below 3e-7; odd to the bit."""
    half, q = _quarters(x, bind)
    w = bind(q * half + (half - f32(0.25)))
    total = bind(w + w / (f32(1.0) + f32(4.0) * w))
    return float_of(bits_of(bind(total + total)) | _sign(x))


def cosh(x: Expr, bind: Bind) -> Expr:
    """cosh(x) = 2 (p + 1 / (16 p)) with 4 p = exp(|x|); relative error below 3e-7."""
    quarter, q = _quarters(x, bind)
    p = bind(q * quarter + quarter)
    total = bind(p + f32(1.0) / (f32(16.0) * p))
    return total + total


def _sign(x: Expr) -> Expr:
    return bits_of(x) & tirx.IntImm("int32", -(1 << 31))


def _quarters(x: Expr, bind: Bind) -> tuple[Expr, Expr]:
    """``(h, q)`` with exp(|x|) = 4 h (1 + q) and h a power of two, which is finite wherever sinh(x) is."""
    a = bind(float_of(bits_of(x) & tirx.IntImm("int32", 0x7FFFFFFF)))
    return fraction(bind(tirx.Select(a > f32(89.6), f32(89.6), a)), 2, bind)


def power(x: Expr, y: Expr, bind: Bind) -> Expr:
    """x**y as C has it: half a unit in the last place and a thousandth more at most; a root or a quotient where ``y``
    is known to be one half or -1."""
    known = float(y.value) if isinstance(y, tirx.FloatImm) else math.nan
    if known == 0.5:
        root = tirx.Select(tirx.EQ(x, f32(0.0)), f32(0.0), tirx.sqrt(x))  # the root of -0 is -0, its power 0
        return tirx.Select(tirx.EQ(x, f32(-math.inf)), f32(math.inf), root)
    if known == -1.0:
        return f32(1.0) / x
    a = bind(float_of(bits_of(x) & tirx.IntImm("int32", 0x7FFFFFFF)))
    size = bind(_exp2(bind(tirx.Cast(_WIDE, y) * _log2(a, bind)), bind))
    whole, half = bind(tirx.nearbyint(y)), bind(y * f32(0.5))
    is_whole = tirx.EQ(whole, y)
    odd = tirx.all(is_whole, tirx.NE(bind(tirx.nearbyint(half)), half))
    signed = bind(tirx.Select(odd, float_of(bits_of(size) | _sign(x)), size))
    undefined = tirx.all(x < f32(0.0), x > f32(-math.inf), tirx.any(y < whole, y > whole))
    result = bind(tirx.Select(undefined, f32(math.nan), signed))
    endless = tirx.EQ(bind(float_of(bits_of(y) & tirx.IntImm("int32", 0x7FFFFFFF))), f32(math.inf))
    one = tirx.any(tirx.EQ(y, f32(0.0)), tirx.EQ(x, f32(1.0)), tirx.all(tirx.EQ(a, f32(1.0)), endless))
    return tirx.Select(one, f32(1.0), result)


def _wide(value: float) -> Expr:
    return tirx.FloatImm(_WIDE, value)


def _long(value: int) -> Expr:
    return tirx.IntImm("int64", value)


def _log2(a: Expr, bind: Bind) -> Expr:
    """log2(a) of a >= 0 or NaN, in float64: the exponent, and 2 atanh(f) / ln 2 with f = (m - 1) / (m + 1) for a
    mantissa m within sqrt(1/2) and sqrt(2); relative error below 1e-12."""
    bits = bind(tirx.reinterpret("int64", bind(tirx.Cast(_WIDE, a))))
    # the exponent such that the mantissa lies around one: what is above sqrt(2) counts as half as much
    shifted = bind(bits - _long(0x3FE6A09E667F3BCD))
    exponent = bind(tirx.Cast(_WIDE, tirx.Cast("int32", shifted >> _long(52))))
    m = bind(tirx.reinterpret(_WIDE, bits - ((shifted >> _long(52)) << _long(52))))
    f = bind((m - _wide(1.0)) / (m + _wide(1.0)))
    s = bind(f * f)
    series: Expr = _wide(2 / math.log(2) / 13)
    for n in (11, 9, 7, 5, 3, 1):
        series = series * s + _wide(2 / math.log(2) / n)
    total = bind(f * series + exponent)
    beyond = tirx.Select(tirx.EQ(a, f32(0.0)), _wide(-math.inf), tirx.Cast(_WIDE, a))  # infinity and NaN stay
    return bind(tirx.Select(tirx.all(a > f32(0.0), a < f32(math.inf)), total, beyond))


def _exp2(t: Expr, bind: Bind) -> Expr:
    """2**t rounded to float32; NaN stays."""
    c = bind(tirx.Select(t < _wide(-200.0), _wide(-200.0), t))
    c = bind(tirx.Select(c > _wide(200.0), _wide(200.0), c))
    m = bind(tirx.reinterpret("int64", c + _wide(_ROUND)))
    r = bind((c - (tirx.reinterpret(_WIDE, m) - _wide(_ROUND))) * _wide(math.log(2)))
    series: Expr = _wide(1 / math.factorial(9))
    for n in range(8, -1, -1):
        series = series * r + _wide(1 / math.factorial(n))
    scale = tirx.reinterpret(_WIDE, (m << _long(52)) + _long(1023 << 52))
    return tirx.Cast("float32", bind(series) * scale)


LIBM = {"sinhf": sinh, "coshf": cosh}
