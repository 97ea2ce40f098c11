"""Activations that are one operator here and several in Relax, and normalisation without weights.

Written as plain arithmetic around ``exp``, so that they vectorise, unlike the C library's log1p.
"""

from __future__ import annotations

import numpy as np
from tvm import te, tirx

from ..words.sizes import dim_of
from ..words.tvm_types import Expr
from .common import dtype_of, elementwise, larger, share_of, smaller
from .open_shapes import same
from .registry import define
from .standardised import centred, standardised


def _number(value: float, like: Expr) -> Expr:
    return tirx.const(value, dtype_of(like))


@define("halotile.hard_sigmoid", movable=True, reference=lambda x, alpha, beta: np.clip(x * alpha + beta, 0, 1))
def hard_sigmoid(x: te.Tensor, *, alpha: float, beta: float) -> te.Tensor:
    """min(1, max(0, alpha x + beta)); constants first, so that a NaN stays one."""

    def apply(v: Expr) -> Expr:
        line = v * _number(alpha, v) + _number(beta, v)
        return tirx.min(_number(1.0, v), tirx.max(_number(0.0, v), line))

    return elementwise("hard_sigmoid", apply, x)


@define("halotile.hard_swish", movable=True, reference=lambda x: x * np.clip(x / 6 + 0.5, 0, 1))
def hard_swish(x: te.Tensor) -> te.Tensor:
    """x * min(1, max(0, x / 6 + 1/2))"""

    def apply(v: Expr) -> Expr:
        line = v * _number(1.0 / 6.0, v) + _number(0.5, v)
        return v * tirx.min(_number(1.0, v), tirx.max(_number(0.0, v), line))

    return elementwise("hard_swish", apply, x)


@define("halotile.softplus", movable=True, reference=lambda x: np.logaddexp(0, x))
def softplus(x: te.Tensor) -> te.Tensor:
    """log(1 + e^x) = max(x, 0) + log1p(t) with t = e^-|x|, which neither overflows nor cancels.

    log1p(t) = 2 atanh(s) with s = t / (2 + t) <= 1/3, whose series 2 s (1 + s^2/3 + s^4/5 + ...) is cut where a
    term is below half a unit in the last place of float32 (7 terms) or float64 (17).
    """

    def apply(v: Expr) -> Expr:
        t = tirx.exp(-tirx.abs(v))
        s = t / (t + _number(2.0, v))
        q = s * s
        count = 17 if dtype_of(v) == "float64" else 7
        total = _number(1.0 / (2 * count - 1), v)
        for k in range(count - 2, -1, -1):
            total = total * q + _number(1.0 / (2 * k + 1), v)
        return larger(v, _number(0.0, v)) + _number(2.0, v) * s * total

    return elementwise("softplus", apply, x)


@define("halotile.mish", movable=True, reference=lambda x: x * np.tanh(np.logaddexp(0, x)))
def mish(x: te.Tensor) -> te.Tensor:
    """x tanh(log(1 + e^x)) = x n / (n + 2) with n = e^x (e^x + 2); from x = 20 on the quotient is 1."""

    def apply(v: Expr) -> Expr:
        e = tirx.exp(smaller(v, _number(20.0, v)))
        n = e * (e + _number(2.0, v))
        return v * (n / (n + _number(2.0, v)))

    return elementwise("mish", apply, x)


@define("halotile.standardise", shapes=same)
def standardise(x: te.Tensor, *, axes: list[int], epsilon: float) -> te.Tensor:
    """(x - mean) / sqrt(mean((x - mean)^2) + epsilon) over ``axes``; the variance is that of the centred values."""
    return standardised(x, axes, epsilon, "standardise")


@define("halotile.centre", shapes=same)
def centre(x: te.Tensor, *, axes: list[int]) -> te.Tensor:
    """x - mean over ``axes``, where the mean is not rounded first."""
    return centred(x, axes, "centre")


@define("halotile.moment")
def moment(x: te.Tensor, about: te.Tensor, *, power: int) -> te.Tensor:
    """The mean of x - about, or of its square, over the rows and columns of each channel of [N, C, H, W]."""
    n, c, h, w = x.shape
    y, z = (te.reduce_axis((0, d), name=name) for d, name in ((h, "y"), (w, "x")))

    def term(i: Expr, j: Expr) -> Expr:
        beyond = x(i, j, y, z) - about(i, j, 0, 0)
        return te.sum(beyond if power == 1 else beyond * beyond, axis=[y, z])

    total = te.compute([n, c, 1, 1], lambda i, j, _y, _x: term(i, j), name="moment_total")
    share = share_of(dim_of(h) * dim_of(w), str(x.dtype))
    return te.compute(total.shape, lambda *i: total(*i) * share, name="moment")
