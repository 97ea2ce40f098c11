"""The transforms of Winograd's minimal filtering F(m x m, 3 x 3) (Lavin and Gray, "Fast Algorithms for Convolutional
Neural Networks", 2016), with m = 4 (points 0, 1, -1, 2, -2, infinity) and m = 2 (points 0, 1, -1, infinity).

    y = AT [ (G w GT) * (BT d B) ] A        d: (m + 2)^2 inputs, w: 9 weights, y: m^2 outputs, *: element by element

Matrices are applied as short chains of additions and multiply-adds that share their common parts; each works on
expressions (or on numbers: the tests do that) through ``name``, which names a value that is used twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Name = Callable[[Any], Any]
Apply = Callable[[Sequence[Any], Callable[[float], Any], Name], "list[Any]"]


@dataclass(frozen=True)
class Transform:
    """``m`` outputs an axis from ``m + 2`` inputs; its error is bounded by :func:`error_bound`."""

    m: int
    weights: np.ndarray  # G: (m + 2) x 3
    data: np.ndarray  # BT: (m + 2) x (m + 2)
    result: np.ndarray  # AT: m x (m + 2)
    apply_data: Apply
    apply_result: Apply
    data_operations: int
    result_operations: int

    @property
    def extent(self) -> int:
        return self.m + 2

    @property
    def products(self) -> int:
        return self.extent**2

    def transform_weights(self, weight: np.ndarray) -> np.ndarray:
        """[O, I, 3, 3] -> [extent^2, I, O], in float64: rounded once, by the caller."""
        outputs, inputs = weight.shape[:2]
        taps = np.ascontiguousarray(weight.transpose(2, 3, 1, 0), np.float64).reshape(9, inputs * outputs)
        return (np.kron(self.weights, self.weights) @ taps).reshape(self.products, inputs, outputs)


def _data4(d: Sequence[Any], c: Callable[[float], Any], name: Name) -> list[Any]:
    a, b = name(d[4] - c(4) * d[2]), name(d[3] - c(4) * d[1])
    e, f = name(d[4] - d[2]), name(d[3] - d[1])
    first = c(4) * d[0] + (d[4] - c(5) * d[2])
    last = c(4) * d[1] + (d[5] - c(5) * d[3])
    return [first, a + b, a - b, e + c(2) * f, e - c(2) * f, last]


def _result4(m: Sequence[Any], c: Callable[[float], Any], name: Name) -> list[Any]:
    s, d = name(m[1] + m[2]), name(m[1] - m[2])
    t, u = name(m[3] + m[4]), name(m[3] - m[4])
    return [m[0] + s + t, d + c(2) * u, s + c(4) * t, (d + c(8) * u) + m[5]]


def _data2(d: Sequence[Any], c: Callable[[float], Any], name: Name) -> list[Any]:
    return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]


def _result2(m: Sequence[Any], c: Callable[[float], Any], name: Name) -> list[Any]:
    return [m[0] + m[1] + m[2], m[1] - m[2] - m[3]]


F4 = Transform(
    m=4,
    weights=np.array(
        [
            [1 / 4, 0, 0],
            [-1 / 6, -1 / 6, -1 / 6],
            [-1 / 6, 1 / 6, -1 / 6],
            [1 / 24, 1 / 12, 1 / 6],
            [1 / 24, -1 / 12, 1 / 6],
            [0, 0, 1],
        ]
    ),
    data=np.array(
        [
            [4.0, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ]
    ),
    result=np.array([[1.0, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]),
    apply_data=_data4,
    apply_result=_result4,
    data_operations=12,
    result_operations=10,
)

F2 = Transform(
    m=2,
    weights=np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]),
    data=np.array([[1.0, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]),
    result=np.array([[1.0, 1, 1, 0], [0, 1, -1, -1]]),
    apply_data=_data2,
    apply_result=_result2,
    data_operations=4,
    result_operations=4,
)


def error_bound(transform: Transform, channels: int) -> float:
    """``b`` such that every sum is within ``b * max|x| * max|w| * channels`` of the exact one, in float32.

    First-order analysis of the bilinear form. An intermediate result is at most what absolute values would give; along
    each axis that is ``K = max over rows of |AT| (|G| 1 * |BT| 1)`` times max|x| max|w|: 48 for m = 4, and 8 for m = 2.
    On its way to the output a product is rounded once in the weights, at most four times an axis in the data and
    again in the result, and once for itself and each channel it is added to:

        |error| <= 2^-24 * (1 + 2 * 4 + (1 + channels) + 2 * 4) * K^2 * max|x| * max|w| * channels

    It holds for the worst signs everywhere at once; random data stays thousands of times below it.
    """
    through = np.abs(transform.weights).sum(1) * np.abs(transform.data).sum(1)
    worst = float((np.abs(transform.result) @ through).max())
    return 2.0**-24 * (18 + channels) * worst**2
