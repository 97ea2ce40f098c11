"""The transforms of Winograd's minimal filtering F(m x m, 3 x 3) (Lavin and Gray, "Fast Algorithms for Convolutional
Neural Networks", 2016), with m = 6 (points 0, 1, -1, 2, -2, 1/2, -1/2, infinity), m = 4 (0, 1, -1, 2, -2, infinity)
and m = 2 (0, 1, -1, infinity).

    y = AT [ (G w GT) * (BT d B) ] A        d: (m + 2)^2 inputs, w: 9 weights, y: m^2 outputs, *: element by element

With stride 2 (S4, S2) the even and the odd inputs of an axis are two convolutions of stride 1, with taps w0, w2 and
with w1 alone: y = F(m, 2)(d0 d2 d4 .., w0 w2) + (d1 d3 .., w1). The first takes m + 1 products (points 0, 1, -1, 2,
infinity for m = 4, and 0, 1, infinity for m = 2), the second one for each output, all by the same weight: S4 needs 81
products for 16 outputs (36 matrices of weights), where a direct convolution needs 144.

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
    """``m`` outputs an axis from ``extent`` inputs; its error is bounded by :func:`error_bound`. Products from the last
    row of ``weights`` on share that row."""

    m: int
    weights: np.ndarray  # G: extent x 3, or fewer rows
    data: np.ndarray  # BT: extent x extent
    result: np.ndarray  # AT: m x extent
    apply_data: Apply
    apply_result: Apply
    data_operations: int
    result_operations: int
    stride: int = 1

    @property
    def extent(self) -> int:
        return self.stride * (self.m - 1) + 3

    @property
    def rows(self) -> int:
        """Different rows of weights an axis."""
        return len(self.weights)

    @property
    def matrices(self) -> int:
        """Different matrices of transformed weights."""
        return self.rows**2

    @property
    def products(self) -> int:
        return self.extent**2

    def transform_weights(self, weight: np.ndarray) -> np.ndarray:
        """[O, I, 3, 3] -> [matrices, I, O], in float64: rounded once, by the caller."""
        outputs, inputs = weight.shape[:2]
        taps = np.ascontiguousarray(weight.transpose(2, 3, 1, 0), np.float64).reshape(9, inputs * outputs)
        return (np.kron(self.weights, self.weights) @ taps).reshape(self.matrices, inputs, outputs)


def _data6(d: Sequence[Any], c: Callable[[float], Any], name: Name) -> list[Any]:
    first = (d[0] - d[6]) + c(5.25) * (d[4] - d[2])
    last = (d[7] - d[1]) + c(5.25) * (d[3] - d[5])
    a, b = name((d[2] + d[6]) - c(4.25) * d[4]), name((d[1] + d[5]) - c(4.25) * d[3])
    e, f = name((d[6] + c(0.25) * d[2]) - c(1.25) * d[4]), name((d[5] + c(0.25) * d[1]) - c(1.25) * d[3])
    g, h = name((d[6] + c(4) * d[2]) - c(5) * d[4]), name((d[5] + c(4) * d[1]) - c(5) * d[3])
    return [first, a + b, a - b, e + c(2) * f, e - c(2) * f, g + c(0.5) * h, g - c(0.5) * h, last]


def _result6(m: Sequence[Any], c: Callable[[float], Any], name: Name) -> list[Any]:
    s, d = name(m[1] + m[2]), name(m[1] - m[2])
    t, u = name(m[3] + m[4]), name(m[3] - m[4])
    v, w = name(m[5] + m[6]), name(m[5] - m[6])
    return [
        (m[0] + s) + (t + v),
        (d + c(2) * u) + c(1 / 2) * w,
        (s + c(4) * t) + c(1 / 4) * v,
        (d + c(8) * u) + c(1 / 8) * w,
        (s + c(16) * t) + c(1 / 16) * v,
        ((d + c(32) * u) + c(1 / 32) * w) + m[7],
    ]


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


F6 = Transform(
    m=6,
    weights=np.array(
        [
            [1, 0, 0],
            [-2 / 9, -2 / 9, -2 / 9],
            [-2 / 9, 2 / 9, -2 / 9],
            [1 / 90, 1 / 45, 2 / 45],
            [1 / 90, -1 / 45, 2 / 45],
            [32 / 45, 16 / 45, 8 / 45],
            [32 / 45, -16 / 45, 8 / 45],
            [0, 0, 1],
        ]
    ),
    data=np.array(
        [
            [1.0, 0, -5.25, 0, 5.25, 0, -1, 0],
            [0, 1, 1, -4.25, -4.25, 1, 1, 0],
            [0, -1, 1, 4.25, -4.25, -1, 1, 0],
            [0, 0.5, 0.25, -2.5, -1.25, 2, 1, 0],
            [0, -0.5, 0.25, 2.5, -1.25, -2, 1, 0],
            [0, 2, 4, -2.5, -5, 0.5, 1, 0],
            [0, -2, 4, 2.5, -5, -0.5, 1, 0],
            [0, -1, 0, 5.25, 0, -5.25, 0, 1],
        ]
    ),
    result=np.array(
        [
            [1.0, 1, 1, 1, 1, 1, 1, 0],
            [0, 1, -1, 2, -2, 1 / 2, -1 / 2, 0],
            [0, 1, 1, 4, 4, 1 / 4, 1 / 4, 0],
            [0, 1, -1, 8, -8, 1 / 8, -1 / 8, 0],
            [0, 1, 1, 16, 16, 1 / 16, 1 / 16, 0],
            [0, 1, -1, 32, -32, 1 / 32, -1 / 32, 1],
        ]
    ),
    apply_data=_data6,
    apply_result=_result6,
    data_operations=24,
    result_operations=20,
)

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


def _data4_strided(d: Sequence[Any], c: Callable[[float], Any], name: Name) -> list[Any]:
    p, q = name(d[6] - d[2]), name(d[4] - d[2])
    even = [p - c(2) * (d[4] - d[0]), p - (d[4] + d[2]), (d[6] - d[4]) - c(2) * q, p, (d[8] - d[4]) - c(2) * p]
    return [*even, d[1], d[3], d[5], d[7]]


def _result4_strided(m: Sequence[Any], c: Callable[[float], Any], name: Name) -> list[Any]:
    s, d = name(m[1] + m[2]), name(m[1] - m[2])
    return [
        (m[0] + s) + (m[3] + m[5]),
        (d + c(2) * m[3]) + m[6],
        (s + c(4) * m[3]) + m[7],
        (d + c(8) * m[3]) + (m[4] + m[8]),
    ]


def _data2_strided(d: Sequence[Any], c: Callable[[float], Any], name: Name) -> list[Any]:
    return [d[0] - d[2], d[2], d[4] - d[2], d[1], d[3]]


def _result2_strided(m: Sequence[Any], c: Callable[[float], Any], name: Name) -> list[Any]:
    return [(m[0] + m[1]) + m[3], (m[1] + m[2]) + m[4]]


S4 = Transform(
    m=4,
    weights=np.array(
        [
            [1 / 2, 0, 0],
            [-1 / 2, 0, -1 / 2],
            [-1 / 6, 0, 1 / 6],
            [1 / 6, 0, 1 / 3],
            [0, 0, 1],
            [0, 1, 0],
        ]
    ),
    data=np.array(
        [
            [2.0, 0, -1, 0, -2, 0, 1, 0, 0],
            [0, 0, -2, 0, -1, 0, 1, 0, 0],
            [0, 0, 2, 0, -3, 0, 1, 0, 0],
            [0, 0, -1, 0, 0, 0, 1, 0, 0],
            [0, 0, 2, 0, -1, 0, -2, 0, 1],
            [0, 1, 0, 0, 0, 0, 0, 0, 0],
            [0, 0, 0, 1, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0, 1, 0, 0, 0],
            [0, 0, 0, 0, 0, 0, 0, 1, 0],
        ]
    ),
    result=np.array(
        [
            [1.0, 1, 1, 1, 0, 1, 0, 0, 0],
            [0, 1, -1, 2, 0, 0, 1, 0, 0],
            [0, 1, 1, 4, 0, 0, 0, 1, 0],
            [0, 1, -1, 8, 1, 0, 0, 0, 1],
        ]
    ),
    apply_data=_data4_strided,
    apply_result=_result4_strided,
    data_operations=10,
    result_operations=12,
    stride=2,
)

S2 = Transform(
    m=2,
    weights=np.array([[1.0, 0, 0], [1, 0, 1], [0, 0, 1], [0, 1, 0]]),
    data=np.array([[1.0, 0, -1, 0, 0], [0, 0, 1, 0, 0], [0, 0, -1, 0, 1], [0, 1, 0, 0, 0], [0, 0, 0, 1, 0]]),
    result=np.array([[1.0, 1, 0, 1, 0], [0, 1, 1, 0, 1]]),
    apply_data=_data2_strided,
    apply_result=_result2_strided,
    data_operations=2,
    result_operations=4,
    stride=2,
)

STRIDED = {1: (F6, F4, F2), 2: (S4, S2)}  # by stride, those with more outputs a tile first


LEFT_OUT = {0: 0.0, 3: 3 * 2.0**-18, 6: 2.0**-24}  # of a product, by how many products of parts stand for it


def error_bound(transform: Transform, channels: int, products: int = 0) -> float:
    """``b`` such that every sum is within ``b * max|x| * max|w| * channels`` of the exact one, in float32. A kernel of
    several planes sums over ``channels`` of each: all count.

    First-order analysis of the bilinear form. An intermediate result is at most what absolute values would give; along
    each axis that is ``K = max over rows of |AT| (|G| 1 * |BT| 1)`` times max|x| max|w|: 68 for F6, 48 for F4, 8 for
    F2, 21 for S4 and 5 for S2. On its way to the output a product is rounded once in the weights, at most four times an
    axis in the data and again in the result, and once for itself and each channel it is added to:

        |error| <= 2^-24 * (1 + 2 * 4 + (1 + channels) + 2 * 4) * K^2 * max|x| * max|w| * channels

    It holds for the worst signs everywhere at once; random data stays thousands of times below it.

    With ``products`` of parts (schedules/matrix/parts.py) for each product of float32, so many terms are added, and
    what they leave out counts once: of three, what is below two parts of either factor, 2^-18 of it each, and the
    product of both tails, 2^-18; of six, 2^-24.
    """
    shared = np.minimum(np.arange(transform.extent), transform.rows - 1)
    through = np.abs(transform.weights).sum(1)[shared] * np.abs(transform.data).sum(1)
    worst = float((np.abs(transform.result) @ through).max())
    return (2.0**-24 * (18 + max(1, products) * channels) + LEFT_OUT[products]) * worst**2
