"""Vectorisable float32 forms of the transcendental functions.

LLVM turns ``exp`` of a vector into a scalar library call per lane. These are plain arithmetic instead, so they
vectorise and fuse into any kernel. Each keeps NaN and the limits of its function; the bounds were measured against
float64 over all exponents (tests/schedules/test_mathlib.py).

Methods: range reduction by ln 2 with a two-part constant (Cody and Waite, "Software Manual for the Elementary
Functions", 1980); the minimax coefficients of log and atan are those of the Cephes library (Moshier, 1989).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import tirx

from ..words.tvm_types import Expr

_F = "float32"
Bind = Callable[[Expr], Expr]


def f32(value: float) -> Expr:
    return tirx.FloatImm(_F, float(np.float32(value)))


def ordered(x: Expr) -> Expr:
    """True unless ``x`` is NaN. Written as a comparison with infinity: TVM's simplifier takes ``x == x`` for true."""
    return x <= tirx.FloatImm(x.ty, float("inf"))


def is_nan(x: Expr) -> Expr:
    """True for NaN, from the bits, which no simplifier looks through."""
    mantissa = {"float32": 23, "float64": 52, "float16": 10, "bfloat16": 7}[str(x.ty.dtype)]
    width = int("".join(c for c in str(x.ty.dtype) if c.isdigit()))
    kind = f"int{width}"
    exponent = ((1 << (width - 1)) - 1) & ~((1 << mantissa) - 1)
    magnitude = tirx.reinterpret(kind, x) & tirx.IntImm(kind, (1 << (width - 1)) - 1)
    return magnitude > tirx.IntImm(kind, exponent)


def bits_of(x: Expr) -> Expr:
    return tirx.reinterpret("int32", x)


def float_of(x: Expr) -> Expr:
    return tirx.reinterpret(_F, x)


def poly(x: Expr, coefficients: list[float]) -> Expr:
    """Horner, highest power first."""
    total = f32(coefficients[0])
    for c in coefficients[1:]:
        total = total * x + f32(c)
    return total


def poly_of_pairs(x: Expr, coefficients: list[float], bind: Bind) -> Expr:
    """The same of an even number of coefficients, by Horner in ``x`` squared: what pairs of them make is added to in
    its own register, where Horner's constants are copied into one for each step."""
    square = bind(x * x)
    pairs = [f32(a) * x + f32(b) for a, b in zip(coefficients[::2], coefficients[1::2])]
    total = pairs[0]
    for pair in pairs[1:]:
        total = total * square + pair
    return total


ROUND = 12582912.0  # 1.5 * 2**23: adding it rounds to an integer, which is then in the low bits
BIASED = ROUND + 127  # the same, and those low bits are the exponent's of a float32
_HALF_BIASED = 1536.0 + 15  # the same of float16


def _scale(m: Expr) -> Expr:
    """2**k, where k + 127 is in the low bits of ``m``: what is above them is shifted out."""
    return float_of(m << tirx.IntImm("int32", 23))


def _reduced(c: Expr, bind: Bind) -> tuple[Expr, Expr]:
    """``(m, p)`` with exp(c) = 2**k * p and k in the low bits of the integer ``m``, for |c| below 2**21.

    The sum passes through an integer: in a guarded read nothing can be named, and TVM's simplifier would take a + b - b
    for a, which is no rounding at all.

    The polynomial is a minimax fit of the relative error within ln 2 / 2 (3e-9 in real numbers, 6e-8 in float32).
    """
    m = bind(bits_of(c * f32(1.44269504088896341) + f32(ROUND)))
    n = bind(float_of(m) - f32(ROUND))
    r = bind((c - n * f32(0.693359375)) - n * f32(-2.12194440e-4))
    tail = [1.381460228e-3, 8.368715644e-3, 4.166838899e-2, 1.666652113e-1, 4.999999404e-1, 1.0, 1.0]
    return m, bind(poly(r, tail))


def _clamped(x: Expr, low: float, high: float, bind: Bind) -> Expr:
    """``x`` held within the limits; NaN stays, since each choice keeps its second arm where it can't compare."""
    c = bind(tirx.Select(x < f32(low), f32(low), x))
    return bind(tirx.Select(c > f32(high), f32(high), c))


def nearest(x: Expr, bind: Bind) -> Expr:
    """The whole number nearest to ``x``, even where two are, as C's nearbyint to the bit: for machines that round no
    vectors. A sum of 2**23 and less than that is rounded to it; what is larger is whole."""
    sign, size = tirx.IntImm("int32", -(1 << 31)), tirx.IntImm("int32", 0x7FFFFFFF)
    bits = bind(bits_of(x))
    a = bind(float_of(bits & size))
    summed = bind(bits_of(a + f32(8388608.0)))
    whole = bind(tirx.Select(a < f32(8388608.0), float_of(summed) - f32(8388608.0), a))
    return float_of(bits_of(whole) | (bits & sign))


def exp(x: Expr, bind: Bind) -> Expr:
    """exp(x); relative error below 2e-7; 0 below -103.97, inf above 88.73, denormal results kept."""
    m, p = _reduced(_clamped(x, -104.0, 88.8, bind), bind)
    k = bind(m - tirx.IntImm("int32", int(np.float32(ROUND).view(np.int32))))
    # scale in two steps, so that 2**k may lie outside the range of normal numbers
    half = bind(k >> 1)
    one, shift = tirx.IntImm("int32", 127), tirx.IntImm("int32", 23)
    return p * float_of((half + one) << shift) * float_of((k - half + one) << shift)


def exp_of_negative(x: Expr, bind: Bind, rounded: bool = False) -> Expr:
    """exp(x) for x <= 0 or NaN: relative error below 3e-7 down to -87.33, 0 below -87.69; below 1.1e-4, and 1 at 0, if
    the result is ``rounded`` to float16, by which it may be off by 4.9e-4.

    For the weights of a softmax, which are set against their largest, 1: nothing above is held, ln 2 is taken away in
    one fused step, the polynomial is a degree shorter than that of ``exp`` (minimax fit of the relative error, 1.2e-7)
    and one factor scales. Without fused multiply-add the error is below 1e-7 * (3 + |x|).
    """
    c = bind(tirx.Select(x < f32(-87.7), f32(-87.7), x))  # there 2**n becomes 0
    m = bind(bits_of(c * f32(1.44269504088896341) + f32(BIASED)))
    n = bind(float_of(m) - f32(BIASED))
    r = bind(n * f32(-0.69314718055994531) + c)
    exact = [8.524437435e-3, 4.195518419e-2, 1.666465700e-1, 4.999848008e-1, 1.000000358, 1.000000119]
    p = poly(r, [1.651797556e-1, 5.041303816e-1, 1.000195841, 1.0] if rounded else exact)
    return p * _scale(m)


def expm1(x: Expr, bind: Bind) -> Expr:
    """exp(x) - 1; relative error below 3e-7, also near zero; -1 below -25, inf above 88.73.

    2**n (1 + q) - 1 = 2 (h q + (h - 1/2)) with h = 2**(n - 1), which is finite wherever the result is; q = exp(r) - 1
    is the polynomial of :func:`exp` without its 1.
    """
    half, q = fraction(_clamped(x, -25.0, 88.8, bind), 1, bind)
    total = bind(q * half + (half - f32(0.5)))
    return total + total


def fraction(c: Expr, less: int, bind: Bind) -> tuple[Expr, Expr]:
    """``(h, q)`` with exp(c) = 2**less h (1 + q) and h a power of two."""
    m = bind(bits_of(c * f32(1.44269504088896341) + f32(BIASED - less)))
    n = bind(float_of(m) - f32(BIASED - less))
    r = bind((c - n * f32(0.693359375)) - n * f32(-2.12194440e-4))
    p = poly(r, [1.381460228e-3, 8.368715644e-3, 4.166838899e-2, 1.666652113e-1, 4.999999404e-1])
    return bind(_scale(m)), bind(r * r * p + r)


def atan(x: Expr, bind: Bind) -> Expr:
    """atan(x); absolute and relative error below 3e-7; odd to the bit.

    Beyond tan(3 pi / 8) it is pi / 2 - atan(1 / x), beyond tan(pi / 8) pi / 4 + atan((x - 1) / (x + 1)); the odd
    polynomial between is that of Cephes. Of infinity -1 / inf is zero.
    """
    a = bind(tirx.Select(x < f32(0.0), f32(0.0) - x, x))
    far, near = a > f32(2.414213562373095), a > f32(0.4142135623730950)
    above = bind(tirx.Select(far, f32(-1.0), a - f32(1.0)))
    below = bind(tirx.Select(far, a, a + f32(1.0)))
    c = bind(tirx.Select(near, above / below, a))
    start = tirx.Select(far, f32(1.5707963267948966), tirx.Select(near, f32(0.7853981633974483), f32(0.0)))
    z = bind(c * c)
    p = poly(z, [8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1])
    total = bind(start + (c + c * (z * p)))
    signed = tirx.Select(x < f32(0.0), f32(0.0) - total, total)
    return tirx.Select(x == f32(0.0), x, signed)


def log(x: Expr, bind: Bind) -> Expr:
    """Natural logarithm; -inf at 0, NaN below, inf at inf; relative error below 2e-7, denormals included."""
    tiny = f32(1.17549435e-38)
    small = x < tiny
    scaled = bind(tirx.Select(small, x * f32(8388608.0), x))
    bits = bind(bits_of(scaled))
    e = bind(
        tirx.Cast(_F, ((bits >> 23) & 255) - 126) - tirx.Select(small, f32(23.0), f32(0.0))
    )
    m = bind(float_of((bits & 0x007FFFFF) | 0x3F000000))
    low = m < f32(0.707106781186547524)
    e = bind(tirx.Select(low, e - f32(1.0), e))
    m = bind(tirx.Select(low, m + m, m) - f32(1.0))
    z = bind(m * m)
    p = poly(
        m,
        [
            7.0376836292e-2,
            -1.1514610310e-1,
            1.1676998740e-1,
            -1.2420140846e-1,
            1.4249322787e-1,
            -1.6668057665e-1,
            2.0000714765e-1,
            -2.4999993993e-1,
            3.3333331174e-1,
        ],
    )
    y = bind(m * z * p + e * f32(-2.12194440e-4) - z * f32(0.5))
    result = m + y + e * f32(0.693359375)
    infinity, nan = f32(np.inf), f32(np.nan)
    result = tirx.Select(x < infinity, result, x)  # +inf and NaN pass through
    result = tirx.Select(x == f32(0.0), f32(-np.inf), result)
    return tirx.Select(x < f32(0.0), nan, result)


def gated(a: Expr, x: Expr, bind: Bind) -> Expr:
    """a * sigmoid(x), as the quotient a / (1 + exp(-x)): relative error below 4e-7, 5e-7 for |x| above 40; 0 below
    -88.38 (sigmoid(x) is denormal there).

    This is the inner loop of every swish, so ln 2 is taken away in one fused step, and the polynomial is a degree
    shorter than that of ``exp`` (minimax fit of the relative error, 1.2e-7): what is lost is lost beside the one.
    Without fused multiply-add the error is below 1e-7 * (4 + |x|).
    """
    # beyond the limits 2**-n is 0 or inf in one step, and the result a or 0
    c = _clamped(x, -88.6, 88.0, bind)
    m = bind(bits_of(c * f32(-1.44269504088896341) + f32(BIASED)))
    n = bind(float_of(m) - f32(BIASED))
    r = bind(n * f32(0.69314718055994531) + c)
    coefficients = [-8.524437435e-3, 4.195518419e-2, -1.666465700e-1, 4.999848008e-1, -1.000000358, 1.000000119]
    return a / bind(poly(r, coefficients) * _scale(m) + f32(1.0))


def sigmoid(x: Expr, bind: Bind) -> Expr:
    """1 / (1 + exp(-x)); relative error below 2e-7 with and without fused multiply-add; 0 below -88.38 (the exact
    result is denormal there).

    exp(-x) = 2**n * exp(-r) = 2**n * (d - r) / (d + r) with d = r / tanh(r / 2), which is even: two terms in r^2 (a fit
    of the relative error of the quotient, 7e-10) do what six in r would, and the division is there anyway.
    """
    # beyond the limits 2**n is 0 or inf in one step, and the result 1 or 0
    c = _clamped(x, -88.6, 88.0, bind)
    m = bind(bits_of(c * f32(-1.44269504088896341) + f32(BIASED)))
    n = bind(float_of(m) - f32(BIASED))
    r = bind(c + n * f32(0.693359375) + n * f32(-2.12194440e-4))
    z = bind(r * r)
    d = bind((z * f32(-2.7659242e-3) + f32(0.16666616)) * z + f32(2.0))
    upper = bind(d + r)
    return upper / bind((d - r) * _scale(m) + upper)


def tanh(x: Expr, bind: Bind) -> Expr:
    """tanh(x) = u / (u + 1) with 2 u = exp(2|x|) - 1; absolute and relative error below 2e-7; odd to the bit.

    u keeps its digits near zero (see :func:`expm1`), so there is one form for all x.
    """
    bits = bind(bits_of(x))
    a = bind(float_of(bits & tirx.IntImm("int32", 0x7FFFFFFF)))
    half, q = fraction(bind(tirx.Select(a > f32(10.0), f32(20.0), a + a)), 1, bind)
    u = bind(q * half + (half - f32(0.5)))
    large = bind(bits_of(u / (u + f32(1.0))))
    return float_of(large | (bits & tirx.IntImm("int32", -(1 << 31))))


def erf(x: Expr, bind: Bind) -> Expr:
    """erf(x): x * P(x^2) / Q(x^2), with x held within 3.92, beyond which erf rounds to one; absolute and relative error
    below 3e-7; odd to the bit.

    The coefficients are a minimax fit of the relative error over [0, 3.92] (2e-8 in real numbers; all are positive, so
    nothing cancels). An exponential and two more polynomials would give a third of the error for three times the work,
    and this is the inner loop of every GELU.
    """
    c = _clamped(x, -3.92, 3.92, bind)
    z = bind(c * c)
    p = poly(
        z,
        [
            2.050092634e-06,
            2.848816117e-04,
            3.765575841e-03,
            5.274859928e-02,
            1.904055393e-01,
            1.128379146e+00,
        ],
    )
    q = poly(
        z,
        [
            3.809171062e-05,
            1.162525104e-03,
            1.496913574e-02,
            1.141087270e-01,
            5.020752570e-01,
            1.000000000e+00,
        ],
    )
    return _clamped(bind(c * p / q), -1.0, 1.0, bind)  # rounding may end one step above


def normal_cdf(x: Expr, bind: Bind, rounded: bool = False) -> Expr:
    """(1 + erf(x / sqrt 2)) / 2, the factor of GELU: the quotient of :func:`erf` with the factors within and before it
    in its coefficients; absolute error below 2e-7, 0 and 1 beyond 5.544. ``rounded``: ``x`` has been rounded to
    float16, by which the result may be off by 6e-5; then a polynomial that is off by less than 4e-5, 0 and 1 beyond 4,
    takes the place of two and a division."""
    if rounded:
        c = _clamped(x, -4.0, 4.0, bind)  # where it reaches 0.500002 in real numbers, so that rounding leaves one
        p = [-1.229235318e-09, 1.015891325e-07, -3.643174735e-06, 7.540791520e-05]
        p += [-1.016157324e-03, 9.565890158e-03, -6.604276377e-02, 3.987972260e-01]
        return _clamped(bind(c * poly_of_pairs(bind(c * c), p, bind) + f32(0.5)), 0.0, 1.0, bind)
    c = _clamped(x, -5.5437171, 5.5437171, bind)
    z = bind(c * c)
    p = [2.265053756e-08, 6.295053733e-06, 1.664165133e-04, 4.662361531e-03, 3.365926200e-02, 3.989422729e-01]
    q = [1.190365957e-06, 7.265781900e-05, 1.871141968e-03, 2.852718175e-02, 2.510376285e-01, 1.0]
    return _clamped(bind(c * poly(z, p) / poly(z, q)), -0.5, 0.5, bind) + f32(0.5)


def gelu_of_half(x: Expr, bind: Bind) -> Expr:
    """x (1 + erf(x / sqrt 2)) / 2 of a float16 number in float16; NaN stays, 0 and ``x`` beyond 4. Off by less than
    1.3e-3 of ``x``, of negative ones by less than 9e-4 at all; a rounding of the exact result is off by up to 4.9e-4 of
    it.

    It is max(x, 0) - t (1 - t / 4)^2 R(t) with t = min(|x|, 4), the tail of the distribution: what is subtracted is at
    most 0.17, so that its roundings are smaller than those of x, and there is none near 4, where it ends. R is a
    minimax fit of that product, 4.2e-4, with R(0) = 1 / 2 and coefficients rounded to float16."""
    size = bind(tirx.abs(x))
    t = bind(tirx.Select(size > f16(4.0), f16(4.0), size))
    v, square = bind(t * f16(-0.25) + f16(1.0)), bind(t * t)
    low = bind(t * f16(-0.145263671875) + f16(0.5))
    high = bind(t * f16(0.06976318359375) + f16(-0.1337890625))
    r = bind((square * f16(-0.0089111328125) + high) * square + low)
    return _above_zero(x, bind) - t * r * v * v  # NaN is in t


def silu_of_half(x: Expr, bind: Bind) -> Expr:
    """x sigmoid(x) of a float16 number in float16; NaN stays, 0 and ``x`` beyond 10.1. Off by less than 1.4e-3 of
    ``x``, of negative ones by less than 9e-4 at all; a rounding of the exact result is off by up to 4.9e-4 of it.

    It is max(x, 0) - t e / (1 + e) with t = |x| and e = exp(-t): what is subtracted is at most 0.28, so that its
    roundings are smaller than those of x. e is 2**n times a polynomial of what -t log2(e) is below n (1.3e-4), where
    2**-15 is taken for 0; 1 / (1 + e) is a polynomial of e within 0 and 1 (1.7e-3, which e makes less of). Minimax
    fits, whose coefficients, rounded to float16, were searched near these for the least error of the whole."""
    size = bind(tirx.abs(x))
    t = bind(tirx.Select(size > f16(10.5), f16(10.5), size))  # n is -15 there
    m = bind(tirx.reinterpret("int16", t * f16(-1.4423828125) + f16(_HALF_BIASED)))
    below = bind(tirx.reinterpret("float16", m) - f16(_HALF_BIASED) + t * f16(1.4423828125))
    low = bind(below * f16(-0.6943359375) + f16(0.9990234375))
    high = bind(below * f16(-0.054473876953125) + f16(0.2418212890625))
    p = bind(high * bind(below * below) + low)
    e = bind(p * tirx.reinterpret("float16", m << tirx.IntImm("int16", 10)))
    low = bind(e * f16(-0.94384765625) + f16(0.9990234375))
    high = bind(e * f16(-0.222412109375) + f16(0.66650390625))
    return _above_zero(x, bind) - bind(t * e) * bind(high * bind(e * e) + low)  # NaN is in t


def f16(value: float) -> Expr:
    return tirx.FloatImm("float16", value)


def _above_zero(x: Expr, bind: Bind) -> Expr:
    """max(x, 0) of a float16, one or a vector; of NaN, either."""
    bits = tirx.max(tirx.reinterpret("int16", x), tirx.IntImm("int16", 0))
    return bind(tirx.reinterpret("float16", bits))


BELOW_ZERO = "halotile.below_zero"  # attribute of a TE stage exp(x) in float32 whose x is never above 0
LIBM = {"expm1f": expm1, "atanf": atan}  # by the names of the C library's
FLOAT32 = {"tirx.exp": exp, "tirx.log": log, "tirx.sigmoid": sigmoid, "tirx.tanh": tanh, "tirx.erf": erf}
