"""Resampling along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from ..operator import define
from .common import shape_of

UNROLLED = 8  # taps up to this many are one expression (inlined by consumers), more are a reduction


@define("halotile.upsample")
def upsample(x: te.Tensor, *, factors: Sequence[int]) -> te.Tensor:
    """Every element repeated ``factors[a]`` times along axis a: y[..., o, ...] = x[..., o // factor, ...]."""
    shape = [d * f for d, f in zip(shape_of(x), factors)]
    return te.compute(
        shape,
        lambda *i: x(*[tirx.floordiv(p, f) if f > 1 else p for p, f in zip(i, factors)]),
        name="upsample",
    )


@define("halotile.resample")
def resample(x: te.Tensor, index: te.Tensor, weight: te.Tensor, *, axis: int) -> te.Tensor:
    """y[..., o, ...] = sum over k of weight[o, k] * x[..., index[o, k], ...]."""
    shape = shape_of(x)
    length, taps = shape_of(index)
    shape[axis] = length

    def term(i: Sequence[Any], k: Any) -> Any:
        at = list(i)
        at[axis] = index(i[axis], k)
        return weight(i[axis], k) * x(*at)

    if taps <= UNROLLED:

        def total(*i: Any) -> Any:
            result = term(i, 0)
            for k in range(1, taps):
                result = result + term(i, k)
            return result

        return te.compute(shape, total, name="resample")
    tap = te.reduce_axis((0, taps), name="rk")
    return te.compute(shape, lambda *i: te.sum(term(i, tap), axis=tap), name="resample")
