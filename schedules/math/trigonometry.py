"""Vectorisable float32 forms of sine, cosine, tangent and their inverses, as plain arithmetic (see exponential.py).

    sin(x) = +-sin(r) or +-cos(r)      x = (q + f) pi / 2 with q an integer and r = f pi / 2, |r| <= pi / 4

An argument below 2**16 is reduced in float64 by pi / 2 in two pieces (Cody and Waite). One of any size by a 2 / pi of
seven pieces of 29 bits: a float32 of 24 bits times a piece is exact, so are its whole turns and what is left of them
(Payne and Hanek, "Radian Reduction for Trigonometric Functions", 1983); vectors without such a lane pass over that. The
polynomials are those of the Cephes library (Moshier, 1989).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import tirx

from ..words.tvm_types import Expr
from .exponential import ROUND, Bind, bits_of, f32, float_of, poly

_WIDE = "float64"
_BITS = 29
# 2 / pi as integers: piece i counts in units of 2**(-29 (i + 1))
_PIECES = (0x145F306D, 0x19391054, 0x14FE13AB, 0x1D1F534D, 0x1B81B6C5, 0x05664F10, 0x1C820FF2)
_HALF_PI = (0x1921FB544 * 2.0**-32, float.fromhex("0x1.0b4611a626331p-34"))
_NEAR = 0x47800000  # the bits of 2**16
# amend(values, size, limit, exact): those of ``exact`` where an integer is large, seldom (see KernelBuilder)
Amend = Callable[[Sequence[Expr], Expr, int, Callable[[], Sequence[Expr]]], list[Expr]]


def _wide(value: float) -> Expr:
    return tirx.FloatImm(_WIDE, value)


def _reduced(x: Expr, bind: Bind, amend: Amend | None) -> tuple[Expr, Expr]:
    """``(r, q)``: q in the low two bits of an integer; NaN for infinities. Without names, from all pieces or none."""
    size = bind(bits_of(x) & tirx.IntImm("int32", 0x7FFFFFFF))
    usual = _near(x, bind)
    if amend is not None:
        r, q = amend(usual, size, _NEAR, lambda: _far(x, bind))
        return r, q
    near = size < tirx.IntImm("int32", _NEAR)
    r, q = (bind(tirx.Select(near, a, b)) for a, b in zip(usual, _far(x, bind)))
    return r, q


def _near(x: Expr, bind: Bind) -> tuple[Expr, Expr]:
    """For |x| below 2**16: pi / 2 of 33 bits and of 53 more, so that the first product and the first difference are
    exact. The quarters are counted in float32, where |r| may reach 0.792."""
    q = bind(bits_of(x * f32(0.6366197723675814) + f32(ROUND)))
    n = bind(tirx.Cast(_WIDE, float_of(q) - f32(ROUND)))
    r = (tirx.Cast(_WIDE, x) - n * _wide(_HALF_PI[0])) - n * _wide(_HALF_PI[1])
    return bind(tirx.Cast("float32", r)), q


def _far(x: Expr, bind: Bind) -> tuple[Expr, Expr]:
    d = bind(tirx.Cast(_WIDE, x))
    turns: Expr | None = None
    for i, piece in enumerate(_PIECES):
        part = bind(d * _wide(piece * 2.0 ** (-_BITS * (i + 1) - 2)))  # a quarter of 2 / pi: whole turns
        left = part - tirx.nearbyint(part)
        turns = left if turns is None else turns + left
    quarters = bind(turns * _wide(4.0))
    whole = bind(tirx.nearbyint(quarters))
    r = tirx.Cast("float32", (quarters - whole) * _wide(1.5707963267948966))
    return bind(r), bind(bits_of(tirx.Cast("float32", whole) + f32(ROUND)))


def _both(r: Expr, bind: Bind) -> tuple[Expr, Expr]:
    """(sin(r), cos(r)) for |r| <= pi / 4."""
    z = bind(r * r)
    odd = poly(z, [-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1])
    even = poly(z, [2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2])
    return bind(r + r * (z * odd)), bind(z * (z * even - f32(0.5)) + f32(1.0))


def _bit(q: Expr, bit: int) -> Expr:
    return q & tirx.IntImm("int32", bit)


def _is_odd(q: Expr) -> Expr:
    return tirx.NE(_bit(q, 1), tirx.IntImm("int32", 0))


def _signed(value: Expr, q: Expr) -> Expr:
    """``value``, with the other sign where bit 1 of ``q`` is set."""
    return float_of(bits_of(value) ^ (_bit(q, 2) << tirx.IntImm("int32", 30)))


def sin(x: Expr, bind: Bind, amend: Amend | None = None) -> Expr:
    """sin(x); relative error below 1.3e-7, 1.6 units in the last place, for every x; odd to the bit."""
    r, q = _reduced(x, bind, amend)
    odd, even = _both(r, bind)
    wave = bind(tirx.Select(_is_odd(q), even, odd))
    return tirx.Select(tirx.EQ(x, f32(0.0)), x, _signed(wave, q))  # -0 stays


def cos(x: Expr, bind: Bind, amend: Amend | None = None) -> Expr:
    """cos(x); relative error below 1.3e-7, 1.6 units in the last place, for every x."""
    r, q = _reduced(x, bind, amend)
    odd, even = _both(r, bind)
    wave = bind(tirx.Select(_is_odd(q), odd, even))
    return _signed(wave, bind(q + tirx.IntImm("int32", 1)))


def tan(x: Expr, bind: Bind, amend: Amend | None = None) -> Expr:
    """tan(x) = sin(r) / cos(r), or -cos(r) / sin(r); relative error below 2.5e-7 for every x."""
    r, q = _reduced(x, bind, amend)
    odd, even = _both(r, bind)
    swap = _is_odd(q)
    quotient = tirx.Select(swap, f32(0.0) - even, odd) / tirx.Select(swap, odd, even)
    return tirx.Select(tirx.EQ(x, f32(0.0)), x, bind(quotient))


def _halves(x: Expr, bind: Bind) -> tuple[Expr, Expr]:
    """``(far, s)``: s = asin(|x|) up to a half, asin(sqrt((1 - |x|) / 2)) where ``far``; NaN beyond one."""
    a = bind(float_of(bits_of(x) & tirx.IntImm("int32", 0x7FFFFFFF)))
    far = a > f32(0.5)
    half = bind((f32(1.0) - a) * f32(0.5))
    z = bind(tirx.Select(far, half, a * a))
    y = bind(tirx.Select(far, tirx.sqrt(half), a))
    p = poly(z, [4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1])
    return far, bind(y + y * (z * p))


def asin(x: Expr, bind: Bind) -> Expr:
    """asin(x): beyond a half pi / 2 - 2 asin(sqrt((1 - |x|) / 2)); relative error below 3e-7; odd to the bit."""
    far, s = _halves(x, bind)
    total = bind(tirx.Select(far, f32(1.5707963267948966) - (s + s), s))
    return float_of(bits_of(total) | (bits_of(x) & tirx.IntImm("int32", -(1 << 31))))


def acos(x: Expr, bind: Bind) -> Expr:
    """acos(x) = pi / 2 - asin(x), or with s = asin(sqrt((1 - |x|) / 2)) 2 s and pi - 2 s; relative error below 3e-7."""
    far, s = _halves(x, bind)
    negative = x < f32(0.0)
    signed = bind(tirx.Select(negative, f32(0.0) - s, s))
    outside = tirx.Select(negative, f32(3.141592653589793), f32(0.0)) + (signed + signed)
    return tirx.Select(far, outside, f32(1.5707963267948966) - signed)


FLOAT32 = {"tirx.sin": sin, "tirx.cos": cos}
LIBM = {"tanf": tan, "asinf": asin, "acosf": acos}
REDUCED = (sin, cos, tan)
