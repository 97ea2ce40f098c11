"""Transforms in whole numbers: of bytes less their zero and of weights that are bytes, with every bit of the result.

An axis with whole numbers in BT, and fractions in G and whole numbers in AT, becomes one of whole numbers alone: each
row of G times what makes it whole, each column of AT times what is then missing to ``scale``, the same for all.

    scale * y = AT' [ (G' w G'T) * (BT d B) ] A'        F(2x2, 3x3): scale 2 * 2,  F(4x4, 3x3): 24 * 24

Transformed data and weights are int16 (:func:`is_exact` checks it by the largest weight that there is), their products
are summed in 32 bits, and whatever leaves these comes back: sums are right modulo 2**32. So y is right modulo 2**32
over the power of two in ``scale``, of which the odd part has an inverse: 2**30 and 2**26. That holds all that y can be,
by the weights that there are, or the transform is not taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...words.group import Value
from .axis_transform import AxisTransform, Name
from .transform import Transform, axes_of, products_each

if TYPE_CHECKING:
    from ...words.tvm_types import Expr

SIZES = (6, 4)  # products an axis: more have points that are fractions, and data that leave 16 bits
DATA = 255  # the largest absolute value of a byte less another
MOST = 2**15 - 1
BITS = 32


class LayerMagnitudes(NamedTuple):
    """The largest absolute values of a layer's weights, and of its sums."""

    weight: int
    sum: int


def reach_of(weight: Value) -> LayerMagnitudes:
    """What ``weight``, constant bytes, makes of data of any bytes less any zero."""
    largest, total = weight.extremes
    return LayerMagnitudes(largest, DATA * total)


def whole_transforms(
    kernel: tuple[int, int], strides: tuple[int, int], reach: LayerMagnitudes
) -> tuple[Transform, ...]:
    """The transforms of a kernel that are exact within ``reach``, the ones with more outputs a tile first."""
    found: list[Transform] = []
    for able in _by_size(kernel, strides):
        best = min((t for t in able if is_exact(t, reach)), key=products_each, default=None)
        if best is not None and all(best.axes != t.axes for t in found):
            found.append(best)
    return tuple(found)


def is_exact(transform: Transform, reach: LayerMagnitudes) -> bool:
    """True if no transformed number leaves 16 bits, and no sum what is left of 32."""
    data, weight = (math.prod(_row(getattr(a, name)) for a in transform.axes) for name in ("data", "weights"))
    shift, _ = quotient_of(transform)
    return data * DATA <= MOST and weight * reach.weight <= MOST and reach.sum < 1 << (BITS - 1 - shift)


def quotient_of(transform: Transform) -> tuple[int, int]:
    """(shift, factor): results times ``factor`` modulo 2**32, shifted right, are the outputs."""
    scale = transform.down.scale * transform.across.scale
    shift = (scale & -scale).bit_length() - 1
    return shift, pow(scale >> shift, -1, 1 << BITS)


def _row(matrix: np.ndarray) -> int:
    """The largest sum of absolute values of a row."""
    return int(np.abs(matrix).sum(axis=1).max())


@lru_cache(maxsize=256)
def _by_size(kernel: tuple[int, int], strides: tuple[int, int]) -> tuple[tuple[Transform, ...], ...]:
    pairs = sorted(((down, across) for down in SIZES for across in SIZES), key=lambda pair: -pair[0] * pair[1])
    return tuple(tuple(_of_size(sizes, kernel, strides)) for sizes in pairs)


def _of_size(sizes: tuple[int, int], kernel: tuple[int, int], strides: tuple[int, int]) -> Iterator[Transform]:
    able = (axes_of(size, taps, stride) for size, taps, stride in zip(sizes, kernel, strides))
    for (down, step_down), (across, step_across) in product(*able):
        transform = Transform(whole_axis(down), whole_axis(across), kernel, (step_down, step_across))
        if transform.size > 1:
            yield transform


@lru_cache(maxsize=64)
def whole_axis(axis: AxisTransform) -> AxisTransform:
    """``axis`` in whole numbers. Rows of G are multiplied by as much of what AT would be as leaves none of them larger
    than the largest."""
    rows = [[Fraction(float(w)).limit_denominator(1 << 16) for w in row] for row in axis.weights]
    least = [math.lcm(*(w.denominator for w in row)) for row in rows]
    scale = math.lcm(*least)
    room = max(d * sum(map(abs, row)) for d, row in zip(least, rows))
    taken = []
    for least_of, row in zip(least, rows):
        able = (d for d in range(least_of, scale + 1, least_of) if scale % d == 0 and d * sum(map(abs, row)) <= room)
        taken.append(max(able))
    weights = np.array([[int(w * d) for w in row] for d, row in zip(taken, rows)], np.float64)
    factors = [scale // taken[min(i, axis.rows - 1)] for i in range(axis.extent)]

    def result(p: Sequence[Expr], c: Callable[[float], Expr], name: Name) -> list[Expr]:
        return axis.apply_result([x if f == 1 else name(c(f) * x) for x, f in zip(p, factors)], c, name)

    made = axis.result * np.array(factors, np.float64)
    return AxisTransform(axis.m, axis.taps, weights, axis.data, made, axis.apply_data, result, axis.stride, scale)
