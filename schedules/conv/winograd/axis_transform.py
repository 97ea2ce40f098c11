"""One axis of Winograd's minimal filtering: F(m, r), m outputs of r taps from m + r - 1 products.

By Toom and Cook's method polynomials are multiplied at points and found again (Winograd, "Arithmetic Complexity of
Computations", 1980). With n = m + r - 1 the points are

    n = 4     0, 1, -1, infinity                        F(2, 3), F(3, 2)
    n = 6     those, 2, -2                              F(4, 3), F(2, 5), F(3, 4), F(5, 2)
    n = 8     those, 1/2, -1/2                          F(6, 3), F(4, 5), F(2, 7), F(5, 4), F(3, 6), F(7, 2)
    n = 10    those, 3/4, -3/4                          F(8, 3), F(6, 5), F(4, 7), F(2, 9), ...

so that inputs are transformed alike whatever m and r are, and two points of one size share their even and odd parts.
In float16 the six are 0, 3/4, -3/4, 3/2, -3/2, infinity: a quarter of the others' error (HALF_PAIRS).

With stride 2 and three taps the even and the odd inputs of an axis are two convolutions of stride 1, with taps w0, w2
and with w1 alone: y = F(m, 2)(d0 d2 d4 .., w0 w2) + (d1 d3 .., w1). The first takes m + 1 products (points 0, 1, -1, 2,
infinity for m = 4, and 0, 1, infinity for m = 2), the second one for each output, all by the same weight: two axes with
m = 4 need 81 products for 16 outputs (36 matrices of weights), where a direct convolution needs 144.

Matrices are applied as short chains of additions and multiply-adds that share their common parts; each works on
expressions (or on numbers: the tests do that) through ``name``, which names a value that is used twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ...words.tvm_types import Expr

if TYPE_CHECKING:
    pass

Name = Callable[[Expr], Expr]
Apply = Callable[[Sequence[Expr], Callable[[float], Expr], Name], "list[Expr]"]

Pairs = tuple[Fraction, ...]
PAIRS = (Fraction(1), Fraction(2), Fraction(1, 2), Fraction(3, 4))  # points, with either sign, beside 0 and infinity
# The same by products of an axis, for float16: all factors have at most eleven bits. Results of 256 channels are off by
# 0.004 of their size with these (root of the mean square), 0.015 with 1 and 2, 0.0012 without a transform.
HALF_PAIRS = {4: (Fraction(1),), 6: (Fraction(3, 4), Fraction(3, 2))}


@dataclass(frozen=True, eq=False)
class AxisTransform:
    """``m`` outputs of ``taps`` taps from ``extent`` inputs. Products from the last row of ``weights`` on share that
    row. Results are ``scale`` times the outputs."""

    m: int
    taps: int
    weights: np.ndarray  # G: extent x taps, or fewer rows
    data: np.ndarray  # BT: extent x extent
    result: np.ndarray  # AT: m x extent
    apply_data: Apply
    apply_result: Apply
    stride: int = 1
    scale: int = 1

    @property
    def extent(self) -> int:
        return self.stride * (self.m - 1) + self.taps

    @property
    def rows(self) -> int:
        """Different rows of weights."""
        return len(self.weights)

    @property
    def growth(self) -> float:
        """The largest intermediate result there can be, in units of max|x| max|w|: what rounding errors are multiplied
        by."""
        shared = np.minimum(np.arange(self.extent), self.rows - 1)
        through = np.abs(self.weights).sum(1)[shared] * np.abs(self.data).sum(1)
        return float((np.abs(self.result) @ through).max()) / self.scale

    @property
    def data_operations(self) -> int:
        return _operations(self.apply_data, self.extent)

    @property
    def result_operations(self) -> int:
        return _operations(self.apply_result, self.extent)


@lru_cache(maxsize=64)
def axis(size: int, taps: int, pairs: Pairs = PAIRS) -> AxisTransform:
    """F(m, taps) of ``size = m + taps - 1`` products: the points 0, pairs of either sign, infinity."""
    pairs = pairs[: (size - 2) // 2]
    squares = [a * a for a in pairs]
    whole = _polynomial(squares)
    others = [_polynomial([b for b in squares if b != a * a]) for a in pairs]
    m = size - taps + 1

    def data(d: Sequence[Expr], c: Callable[[float], Expr], name: Name) -> list[Expr]:
        made = [_sum(zip(whole, d[0::2]), c)]
        for a, other in zip(pairs, others):
            even, odd = (name(_sum(zip(other, d[first::2]), c)) for first in (2, 1))
            made += [_sum([(Fraction(1), even), (a, odd)], c), _sum([(Fraction(1), even), (-a, odd)], c)]
        return [*made, _sum(zip(whole, d[1::2]), c)]

    def result(p: Sequence[Expr], c: Callable[[float], Expr], name: Name) -> list[Expr]:
        both = [(name(p[i] + p[i + 1]), name(p[i] - p[i + 1])) for i in range(1, size - 1, 2)]
        made = []
        for power in range(m):
            terms = [(a**power, parts[power % 2]) for a, parts in zip(pairs, both)]
            terms += [(Fraction(1), p[0])] if power == 0 else []
            terms += [(Fraction(1), p[-1])] if power == m - 1 else []
            made.append(_sum(terms, c))
        return made

    points = [Fraction(0), *(p for a in pairs for p in (a, -a))]
    weights = [[x**k / _distances(x, points) for k in range(taps)] for x in points]
    weights.append([Fraction(int(k == taps - 1)) for k in range(taps)])
    unit = list(np.eye(size))
    matrices = [np.array(apply(unit, float, lambda v: v)) for apply in (data, result)]
    return AxisTransform(m, taps, np.array(weights, np.float64), matrices[0], matrices[1], data, result)


def _polynomial(squares: Iterable[Fraction]) -> list[Fraction]:
    """The coefficients of the product of all t^2 - a, for a among ``squares``, from the lowest power of t^2 on."""
    found = [Fraction(1)]
    for a in squares:
        found = [low - a * high for low, high in zip([Fraction(0), *found], [*found, Fraction(0)])]
    return found


def _distances(point: Fraction, points: Sequence[Fraction]) -> Fraction:
    found = Fraction(1)
    for other in points:
        found *= point - other if other != point else 1
    return found


def _sum(terms: Iterable[tuple[Fraction, Expr]], c: Callable[[float], Expr]) -> Expr:
    """The sum of all factors times values: those with factors of one size are added before they are multiplied. No
    factor is negative where none is 1."""
    sizes: dict[Fraction, list[tuple[bool, Expr]]] = {}
    for factor, value in terms:
        if factor:
            sizes.setdefault(abs(factor), []).append((factor > 0, value))
    first = Fraction(1) if Fraction(1) in sizes else next(iter(sizes))
    total, _ = _added(sizes.pop(first))
    total = total if first == 1 else c(float(first)) * total
    for size, values in sizes.items():
        value, positive = _added(values)
        total = total + c(float(size)) * value if positive else total - c(float(size)) * value
    return total


def _added(values: Sequence[tuple[bool, Expr]]) -> tuple[Expr, bool]:
    """Values of either sign, added in pairs; False if it is the negative of their sum."""
    level = sorted(values, key=lambda v: not v[0])
    while len(level) > 1:
        pairs = [_both(a, b) for a, b in zip(level[0::2], level[1::2])]
        level = pairs + level[len(level) - len(level) % 2 :]
    positive, value = level[0]
    return value, positive


def _both(a: tuple[bool, Expr], b: tuple[bool, Expr]) -> tuple[bool, Expr]:
    if a[0] == b[0]:
        return a[0], a[1] + b[1]
    return a[0], a[1] - b[1]


class _CountedValue:
    """Stands for a value, and counts the additions it goes into: products are part of them."""

    def __init__(self, count: list[int]) -> None:
        self.count = count

    def __add__(self, other: Expr) -> _CountedValue:
        self.count[0] += 1
        return self

    __sub__ = __add__

    def __rmul__(self, number: float) -> _CountedValue:
        return self


@lru_cache(maxsize=256)
def _operations(apply: Apply, extent: int) -> int:
    """Additions and multiply-adds of a chain."""
    count = [0]
    apply([_CountedValue(count)] * extent, float, lambda v: v)
    return count[0]


def _same(d: Sequence[Expr], c: Callable[[float], Expr], name: Name) -> list[Expr]:
    return list(d)


SINGLE = AxisTransform(1, 1, np.ones((1, 1)), np.ones((1, 1)), np.ones((1, 1)), _same, _same)  # of one tap


def _data4_strided(d: Sequence[Expr], c: Callable[[float], Expr], name: Name) -> list[Expr]:
    p, q = name(d[6] - d[2]), name(d[4] - d[2])
    even = [p - c(2) * (d[4] - d[0]), p - (d[4] + d[2]), (d[6] - d[4]) - c(2) * q, p, (d[8] - d[4]) - c(2) * p]
    return [*even, d[1], d[3], d[5], d[7]]


def _result4_strided(m: Sequence[Expr], c: Callable[[float], Expr], name: Name) -> list[Expr]:
    s, d = name(m[1] + m[2]), name(m[1] - m[2])
    return [
        (m[0] + s) + (m[3] + m[5]),
        (d + c(2) * m[3]) + m[6],
        (s + c(4) * m[3]) + m[7],
        (d + c(8) * m[3]) + (m[4] + m[8]),
    ]


def _data2_strided(d: Sequence[Expr], c: Callable[[float], Expr], name: Name) -> list[Expr]:
    return [d[0] - d[2], d[2], d[4] - d[2], d[1], d[3]]


def _result2_strided(m: Sequence[Expr], c: Callable[[float], Expr], name: Name) -> list[Expr]:
    return [(m[0] + m[1]) + m[3], (m[1] + m[2]) + m[4]]


_STRIDED4 = AxisTransform(
    m=4,
    taps=3,
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
    stride=2,
)

_STRIDED2 = AxisTransform(
    m=2,
    taps=3,
    weights=np.array([[1.0, 0, 0], [1, 0, 1], [0, 0, 1], [0, 1, 0]]),
    data=np.array([[1.0, 0, -1, 0, 0], [0, 0, 1, 0, 0], [0, 0, -1, 0, 1], [0, 1, 0, 0, 0], [0, 0, 0, 1, 0]]),
    result=np.array([[1.0, 1, 0, 1, 0], [0, 1, 1, 0, 1]]),
    apply_data=_data2_strided,
    apply_result=_result2_strided,
    stride=2,
)

STRIDED = {8: _STRIDED4, 6: _STRIDED4, 4: _STRIDED2}  # beside axes of so many products
