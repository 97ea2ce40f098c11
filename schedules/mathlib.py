"""Vectorisable float32 forms of the transcendental functions.

LLVM turns ``exp`` of a vector into a scalar library call per lane. These are plain arithmetic instead, so they
vectorise and fuse into any kernel. Each keeps NaN and the limits of its function; the bounds were measured against
float64 over all exponents (tests/schedules/test_mathlib.py).

Methods: range reduction by ln 2 with a two-part constant (Cody and Waite, "Software Manual for the Elementary
Functions", 1980); the minimax coefficients for single precision are those of the Cephes library (Moshier, 1989).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import tirx

_F = "float32"
Bind = Callable[[Any], Any]


def f32(value: float) -> Any:
    return tirx.FloatImm(_F, float(np.float32(value)))


def ordered(x: Any) -> Any:
    """True unless ``x`` is NaN. Written as a comparison with infinity: TVM's simplifier takes ``x == x`` for true."""
    return x <= tirx.FloatImm(x.ty, float("inf"))


def is_nan(x: Any) -> Any:
    """True for NaN, from the bits, which no simplifier looks through."""
    mantissa = {"float32": 23, "float64": 52, "float16": 10, "bfloat16": 7}[str(x.ty.dtype)]
    width = int("".join(c for c in str(x.ty.dtype) if c.isdigit()))
    kind = f"int{width}"
    exponent = ((1 << (width - 1)) - 1) & ~((1 << mantissa) - 1)
    magnitude = tirx.reinterpret(kind, x) & tirx.IntImm(kind, (1 << (width - 1)) - 1)
    return magnitude > tirx.IntImm(kind, exponent)


def _bits(x: Any) -> Any:
    return tirx.reinterpret("int32", x)


def _float(x: Any) -> Any:
    return tirx.reinterpret(_F, x)


def _poly(x: Any, coefficients: list[float]) -> Any:
    """Horner, highest power first."""
    total = f32(coefficients[0])
    for c in coefficients[1:]:
        total = total * x + f32(c)
    return total


def exp(x: Any, bind: Bind) -> Any:
    """exp(x); relative error below 2e-7; 0 below -103.97, inf above 88.73, denormal results kept."""
    low, high = f32(-104.0), f32(88.8)
    # NaN clamps to ``low`` here, since its conversion to an integer is undefined, and is put back at the end
    c = bind(tirx.Select(x > low, x, low))
    c = bind(tirx.Select(c < high, c, high))
    # round to nearest through the integer conversion, which truncates
    scaled = bind(c * f32(1.44269504088896341))
    k = bind(tirx.Cast("int32", scaled + tirx.Select(scaled < f32(0.0), f32(-0.5), f32(0.5))))
    n = bind(tirx.Cast(_F, k))
    r = bind((c - n * f32(0.693359375)) - n * f32(-2.12194440e-4))
    p = _poly(r, [1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0e-1])
    y = bind(p * (r * r) + r + f32(1.0))
    # scale in two steps, so that 2**n may lie outside the range of normal numbers
    half = bind(k >> 1)
    one = tirx.IntImm("int32", 127)
    shift = tirx.IntImm("int32", 23)
    result = y * _float((half + one) << shift) * _float((k - half + one) << shift)
    return tirx.Select(ordered(x), result, x)


def log(x: Any, bind: Bind) -> Any:
    """Natural logarithm; -inf at 0, NaN below, inf at inf; relative error below 2e-7, denormals included."""
    tiny = f32(1.17549435e-38)
    small = x < tiny
    scaled = bind(tirx.Select(small, x * f32(8388608.0), x))
    bits = bind(_bits(scaled))
    e = bind(
        tirx.Cast(_F, ((bits >> 23) & 255) - 126) - tirx.Select(small, f32(23.0), f32(0.0))
    )
    m = bind(_float((bits & 0x007FFFFF) | 0x3F000000))
    low = m < f32(0.707106781186547524)
    e = bind(tirx.Select(low, e - f32(1.0), e))
    m = bind(tirx.Select(low, m + m, m) - f32(1.0))
    z = bind(m * m)
    p = _poly(
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


def sigmoid(x: Any, bind: Bind) -> Any:
    """1 / (1 + exp(-x)); relative error below 2e-7, 0 below -88.73 (the exact result is denormal there)."""
    return f32(1.0) / (f32(1.0) + exp(bind(f32(0.0) - x), bind))


def tanh(x: Any, bind: Bind) -> Any:
    """tanh(x): an odd polynomial below 0.625, 1 - 2/(exp(2|x|)+1) above; absolute and relative error below
    2e-7; odd to the bit."""
    a = bind(tirx.Select(x < f32(0.0), f32(0.0) - x, x))
    z = bind(x * x)
    p = _poly(z, [-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1])
    small = x * (z * p + f32(1.0))  # not x + x * z * p, which turns -0 into +0
    large = bind(f32(1.0) - f32(2.0) / (exp(bind(a + a), bind) + f32(1.0)))
    signed = tirx.Select(x < f32(0.0), f32(0.0) - large, large)
    return tirx.Select(a < f32(0.625), small, signed)


def erf(x: Any, bind: Bind) -> Any:
    """erf(x): x * P(x^2) near zero, 1 - exp(-x^2) * Q(t)/t-form beyond (Cephes' erfc split at 1);
    absolute and relative error below 2e-7; odd to the bit."""
    a = bind(tirx.Select(x < f32(0.0), f32(0.0) - x, x))
    z = bind(x * x)
    near = x * _poly(
        z,
        [
            7.853861353153693e-5,
            -8.010193625184903e-4,
            5.188327685732524e-3,
            -2.685381193529856e-2,
            1.128358514861418e-1,
            -3.761262582423300e-1,
            1.128379165726710e0,
        ],
    )
    q = bind(f32(1.0) / tirx.Select(a < f32(1.0), f32(1.0), a))
    y = bind(q * q)
    mid = _poly(
        y,
        [
            2.326819970068386e-2,
            -1.387039388740657e-1,
            3.687424674597105e-1,
            -5.824733027278666e-1,
            6.210004621745983e-1,
            -4.944515323274145e-1,
            3.404879937665872e-1,
            -2.741127028184656e-1,
            5.638259427386472e-1,
        ],
    )
    far = _poly(
        y,
        [
            -1.047766399936249e1,
            1.297719955372516e1,
            -7.495518717768503e0,
            2.921019019210786e0,
            -1.015265279202700e0,
            4.218463358204948e-1,
            -2.820767439740514e-1,
            5.641895067754075e-1,
        ],
    )
    tail = exp(bind(f32(0.0) - z), bind) * q * tirx.Select(a < f32(2.0), mid, far)
    large = bind(f32(1.0) - tail)
    signed = tirx.Select(x < f32(0.0), f32(0.0) - large, large)
    return tirx.Select(a < f32(1.0), near, tirx.Select(a >= f32(1.0), signed, x))


FLOAT32 = {"tirx.exp": exp, "tirx.log": log, "tirx.sigmoid": sigmoid, "tirx.tanh": tanh, "tirx.erf": erf}
