"""Resampling along an axis."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from tvm import te, tirx

from ..instructions.opaque_numbers import fence
from ..words.tvm_types import Attributes, Expr
from .common import dtype_of, shape_of
from .open_shapes import Shape, replaced
from .registry import define

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

UNROLLED = 8  # taps up to this many are one expression (inlined by consumers), more are a reduction


def _upsampled(shapes: list[Shape], a: dict[str, list[SizeLike]]) -> list[Shape]:
    return [[d * f if f != 1 else d for d, f in zip(shapes[0], a["factors"])]]


def _resampled(shapes: list[Shape], a: Attributes) -> list[Shape]:
    return [replaced(shapes[0], a["axis"], shapes[1][0])]


@define("halotile.upsample", shapes=_upsampled)
def upsample(x: te.Tensor, *, factors: Sequence[int]) -> te.Tensor:
    """Every element repeated ``factors[a]`` times along axis a: y[..., o, ...] = x[..., o // factor, ...]."""
    shape = [d * f for d, f in zip(shape_of(x), factors)]
    return te.compute(
        shape,
        lambda *i: x(*[tirx.floordiv(p, f) if f > 1 else p for p, f in zip(i, factors)]),
        name="upsample",
    )


@define("halotile.resample", shapes=_resampled)
def resample(x: te.Tensor, index: te.Tensor, weight: te.Tensor, *, axis: int) -> te.Tensor:
    """y[..., o, ...] = sum over k of weight[o, k] * x[..., index[o, k], ...]."""
    shape = shape_of(x)
    length, taps = shape_of(index)
    shape[axis] = length

    def term(i: Sequence[Expr], k: int) -> Expr:
        at = list(i)
        at[axis] = index(i[axis], k)
        return weight(i[axis], k) * x(*at)

    if taps <= UNROLLED:

        def total(*i: Expr) -> Expr:
            result = term(i, 0)
            for k in range(1, taps):
                result = result + term(i, k)
            return result

        return te.compute(shape, total, name="resample")
    tap = te.reduce_axis((0, taps), name="rk")
    return te.compute(shape, lambda *i: te.sum(term(i, tap), axis=tap), name="resample")


FIXED_UNIT = 1 << 10  # of weights that are whole numbers


@define("halotile.interpolate_whole")
def interpolate_whole(x: te.Tensor, *tables: te.Tensor, axes: Sequence[int]) -> te.Tensor:
    """Integers between two neighbours along each axis, truncated towards zero: ``tables`` are an index [o, 2] and
    weights [o, 2] for each, float32 or in FIXED_UNITths.

    The last axis varies fastest, weights are multiplied from the last axis on, and every product and sum is rounded for
    itself: a reference that does the same truncates to the same integers.
    """
    shape, dtype = shape_of(x), dtype_of(x)
    pairs = list(zip(axes, tables[::2], tables[1::2]))
    for axis, index, _ in pairs:
        shape[axis] = shape_of(index)[0]
    wide = dtype_of(tables[1])
    fixed = wide == "int32"

    def total(*i: Expr) -> Expr:
        result = None
        for taps in itertools.product(range(2), repeat=len(pairs)):
            at, weight = list(i), None
            for (axis, index, weights), tap in reversed(list(zip(pairs, taps))):
                at[axis] = index(i[axis], tap)
                own = weights(i[axis], tap)
                weight = own if weight is None else weight * own
            term = weight * x(*at).astype(wide)
            term = term if fixed else fence(term)
            result = term if result is None else result + term
        if fixed:
            return tirx.truncdiv(result, tirx.const(FIXED_UNIT ** len(pairs), wide)).astype(dtype)
        return _truncated(result, dtype)

    return te.compute(shape, total, name="interpolate_whole")


def _truncated(value: Expr, dtype: str) -> Expr:
    """A float32 as an integer of ``dtype``, its largest where float32 has no such number."""
    most = float(np.iinfo(dtype).max)
    if int(np.float32(most)) == np.iinfo(dtype).max:
        return value.astype(dtype)
    below = tirx.const(float(np.nextafter(np.float32(most), np.float32(0))), "float32")
    held = tirx.min(value, below).astype(dtype)
    return tirx.Select(value > below, tirx.const(np.iinfo(dtype).max, dtype), held)
