"""The transforms of Winograd's minimal filtering F(m, r) along rows and columns (Lavin and Gray, "Fast Algorithms for
Convolutional Neural Networks", 2016), for kernels of any few taps.

    y = AT [ (G w GT) * (BT d B) ] A        d: inputs, w: weights, y: outputs, *: element by element

Along one axis, m outputs of r taps take m + r - 1 products, by Toom and Cook's method: polynomials are multiplied at
points and found again (Winograd, "Arithmetic Complexity of Computations", 1980). With n = m + r - 1 the points are

    n = 4     0, 1, -1, infinity                        F(2, 3), F(3, 2)
    n = 6     those, 2, -2                              F(4, 3), F(2, 5), F(3, 4), F(5, 2)
    n = 8     those, 1/2, -1/2                          F(6, 3), F(4, 5), F(2, 7), F(5, 4), F(3, 6), F(7, 2)
    n = 10    those, 3/4, -3/4                          F(8, 3), F(6, 5), F(4, 7), F(2, 9), ...

so that inputs are transformed alike whatever m and r are, and two points of one size share their even and odd parts.
An axis of a single tap has one output and no transform: kernels of 1 x 7 and those of one spatial axis are F(1 x 4,
1 x 7). Each axis multiplies errors; what both together may is bounded (``MOST_GROWTH``).

Long kernels are sums of shorter ones whose inputs lie further on, which are summed before they are transformed back:
11 taps are two parts of six, F(5, 6) twice, 20 products for 5 outputs. The last part ends where the kernel does, so
that nothing beyond is read, and has zeros for the taps that the one before it has.

So are kernels whose stride divides them: every second tap, and those between, are two parts of 4x4/2 an axis, on inputs
two apart.

With stride 2 and three taps (S4, S2) the even and the odd inputs of an axis are two convolutions of stride 1, with taps
w0, w2 and with w1 alone: y = F(m, 2)(d0 d2 d4 .., w0 w2) + (d1 d3 .., w1). The first takes m + 1 products (points 0, 1,
-1, 2, infinity for m = 4, and 0, 1, infinity for m = 2), the second one for each output, all by the same weight: S4
needs 81 products for 16 outputs (36 matrices of weights), where a direct convolution needs 144.

Matrices are applied as short chains of additions and multiply-adds that share their common parts; each works on
expressions (or on numbers: the tests do that) through ``name``, which names a value that is used twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

Name = Callable[[Any], Any]
Apply = Callable[[Sequence[Any], Callable[[float], Any], Name], "list[Any]"]

SIZES = (10, 8, 6, 4)  # products an axis, those with more outputs a tile first
PAIRS = (Fraction(1), Fraction(2), Fraction(1, 2), Fraction(3, 4))  # points, with either sign, beside 0 and infinity
MOST_GROWTH = 2 * 68.0**2  # of errors: twice what F(6x6, 3x3) makes of them


@dataclass(frozen=True, eq=False)
class Axis:
    """``m`` outputs of ``taps`` taps from ``extent`` inputs. Products from the last row of ``weights`` on share that
    row."""

    m: int
    taps: int
    weights: np.ndarray  # G: extent x taps, or fewer rows
    data: np.ndarray  # BT: extent x extent
    result: np.ndarray  # AT: m x extent
    apply_data: Apply
    apply_result: Apply
    stride: int = 1

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
        return float((np.abs(self.result) @ through).max())

    @property
    def data_operations(self) -> int:
        return _operations(self.apply_data, self.extent)

    @property
    def result_operations(self) -> int:
        return _operations(self.apply_result, self.extent)


@dataclass(frozen=True, eq=False)
class Transform:
    """A transform ``down`` the rows and one ``across`` the columns; its error is bounded by :func:`error_bound`. Pairs
    are of rows and columns."""

    down: Axis
    across: Axis
    kernel: tuple[int, int]  # taps, of all parts
    steps: tuple[int, int] = (1, 1)  # from one input of a part to the next

    @property
    def axes(self) -> tuple[Axis, Axis]:
        return self.down, self.across

    @property
    def tile(self) -> tuple[int, int]:
        """Outputs."""
        return self.down.m, self.across.m

    @property
    def outputs(self) -> int:
        return self.down.m * self.across.m

    @property
    def parts(self) -> tuple[int, int]:
        """Kernels of the axes' taps that are added up to the whole."""
        down, across = (s * -(-taps // (s * a.taps)) for taps, s, a in zip(self.kernel, self.steps, self.axes))
        return down, across

    @property
    def planes(self) -> int:
        """All parts."""
        return self.parts[0] * self.parts[1]

    def starts(self) -> Iterator[tuple[int, int]]:
        """The first taps of all parts."""
        for down, across in product(*map(range, self.parts)):
            yield self.start(0, down, min), self.start(1, across, min)

    def start(self, axis: int, part: Any, least: Callable[[Any, int], Any]) -> Any:
        """The first tap of a part along an axis, counted or an expression; ``least`` of two is for either."""
        step, taps = self.steps[axis], self.axes[axis].taps
        return part % step + step * least(part // step * taps, self.kernel[axis] // step - taps)

    @property
    def extents(self) -> tuple[int, int]:
        """Inputs of a tile."""
        return self.down.extent, self.across.extent

    @property
    def strides(self) -> tuple[int, int]:
        return self.down.stride * self.steps[0], self.across.stride * self.steps[1]

    @property
    def size(self) -> int:
        """Products along the longer axis."""
        return max(self.extents)

    @property
    def matrices(self) -> int:
        """Different matrices of transformed weights."""
        return self.down.rows * self.across.rows

    @property
    def products(self) -> int:
        return self.down.extent * self.across.extent

    @property
    def growth(self) -> float:
        """What rounding errors are multiplied by, at most."""
        return self.down.growth * self.across.growth

    @property
    def is_large(self) -> bool:
        """True for F(6x6, 3x3) and those that multiply errors as it does, by more than F(4x4, 3x3)."""
        return self.growth > F4.growth

    @property
    def reads(self) -> float:
        """How often each input is read."""
        return self.products / (self.outputs * self.strides[0] * self.strides[1])

    @property
    def data_operations(self) -> int:
        """Of a tile of one vector."""
        return self.across.extent * self.down.data_operations + self.down.extent * self.across.data_operations

    @property
    def result_operations(self) -> int:
        return self.across.extent * self.down.result_operations + self.down.m * self.across.result_operations

    def split(self, weight: np.ndarray) -> np.ndarray:
        """[..., rows, columns] -> [parts, ..., rows, columns]: the taps of each part."""
        found, left = [], np.array(weight)
        for down, across in self.starts():
            part = left[..., down :: self.steps[0], across :: self.steps[1]][..., : self.down.taps, : self.across.taps]
            found.append(part.copy())
            part[...] = 0
        return np.stack(found)

    def transform_weights(self, weight: np.ndarray) -> np.ndarray:
        """[O, I, rows, columns] of a part -> [matrices, I, O], in float64: rounded once, by the caller."""
        outputs, inputs = weight.shape[:2]
        taps = np.ascontiguousarray(weight.transpose(2, 3, 1, 0), np.float64).reshape(-1, inputs * outputs)
        return (np.kron(self.down.weights, self.across.weights) @ taps).reshape(self.matrices, inputs, outputs)

    def __str__(self) -> str:
        down, across = self.strides
        stride = "" if down == across == 1 else f"/{across}" if down == across else f"/{down}x{across}"
        return f"F({self.tile[0]}x{self.tile[1]},{self.kernel[0]}x{self.kernel[1]}{stride})"


@lru_cache(maxsize=256)
def transforms(kernel: tuple[int, int], strides: tuple[int, int]) -> tuple[Transform, ...]:
    """Those of a kernel of ``rows x columns``, the ones with more outputs a tile first; none where a stride neither
    divides the taps along its axis nor is 2 of 3."""
    found: list[Transform] = []
    for size in SIZES:
        best = min(_of_size(size, kernel, strides), key=_products, default=None)
        if best is not None and all(best.axes != t.axes for t in found):
            found.append(best)
    return tuple(found)


def _products(transform: Transform) -> tuple[float, int]:
    """For an output; of equal ones, that of fewer parts."""
    return transform.planes * transform.products / transform.outputs, transform.planes


def _of_size(size: int, kernel: tuple[int, int], strides: tuple[int, int]) -> Iterator[Transform]:
    """Those of about ``size`` products an axis, by how many parts a kernel has along each."""
    able = (_axes(size, taps, stride) for taps, stride in zip(kernel, strides))
    for (down, step_down), (across, step_across) in product(*able):
        transform = Transform(down, across, kernel, (step_down, step_across))
        if transform.size > 1 and transform.growth <= MOST_GROWTH:
            yield transform


def _axes(size: int, taps: int, stride: int) -> list[tuple[Axis, int]]:
    """What one axis of a kernel may be, and from one input of a part to the next."""
    if (taps, stride) == (3, 2):
        return [(STRIDED[size], 1)] if size in STRIDED else []
    own, rest = divmod(taps, stride)
    if rest or own == 1:
        return [] if rest else [(SINGLE, stride)]
    parts = {-(-own // parts) for parts in range(1, own + 1)} & set(range(2, size))
    return [(axis(size, r), stride) for r in sorted(parts)]


@lru_cache(maxsize=64)
def axis(size: int, taps: int) -> Axis:
    """F(m, taps) of ``size = m + taps - 1`` products: the points 0, pairs of either sign, infinity."""
    pairs = PAIRS[: (size - 2) // 2]
    squares = [a * a for a in pairs]
    whole = _polynomial(squares)
    others = [_polynomial([b for b in squares if b != a * a]) for a in pairs]
    m = size - taps + 1

    def data(d: Sequence[Any], c: Callable[[float], Any], name: Name) -> list[Any]:
        made = [_sum(zip(whole, d[0::2]), c)]
        for a, other in zip(pairs, others):
            even, odd = (name(_sum(zip(other, d[first::2]), c)) for first in (2, 1))
            made += [_sum([(Fraction(1), even), (a, odd)], c), _sum([(Fraction(1), even), (-a, odd)], c)]
        return [*made, _sum(zip(whole, d[1::2]), c)]

    def result(p: Sequence[Any], c: Callable[[float], Any], name: Name) -> list[Any]:
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
    return Axis(m, taps, np.array(weights, np.float64), matrices[0], matrices[1], data, result)


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


def _sum(terms: Iterable[tuple[Fraction, Any]], c: Callable[[float], Any]) -> Any:
    """The sum of all factors times values, one of which at least is 1: values with factors of one size are added
    before they are multiplied."""
    sizes: dict[Fraction, list[tuple[bool, Any]]] = {Fraction(1): []}
    for factor, value in terms:
        if factor:
            sizes.setdefault(abs(factor), []).append((factor > 0, value))
    total, _ = _added(sizes.pop(Fraction(1)))
    for size, values in sizes.items():
        value, positive = _added(values)
        total = total + c(float(size)) * value if positive else total - c(float(size)) * value
    return total


def _added(values: Sequence[tuple[bool, Any]]) -> tuple[Any, bool]:
    """Values of either sign, added in pairs; False if it is the negative of their sum."""
    level = sorted(values, key=lambda v: not v[0])
    while len(level) > 1:
        pairs = [_both(a, b) for a, b in zip(level[0::2], level[1::2])]
        level = pairs + level[len(level) - len(level) % 2 :]
    positive, value = level[0]
    return value, positive


def _both(a: tuple[bool, Any], b: tuple[bool, Any]) -> tuple[bool, Any]:
    if a[0] == b[0]:
        return a[0], a[1] + b[1]
    return a[0], a[1] - b[1]


class _Counted:
    """Stands for a value, and counts the additions it goes into: products are part of them."""

    def __init__(self, count: list[int]) -> None:
        self.count = count

    def __add__(self, other: Any) -> _Counted:
        self.count[0] += 1
        return self

    __sub__ = __add__

    def __rmul__(self, number: float) -> _Counted:
        return self


@lru_cache(maxsize=256)
def _operations(apply: Apply, extent: int) -> int:
    """Additions and multiply-adds of a chain."""
    count = [0]
    apply([_Counted(count)] * extent, float, lambda v: v)
    return count[0]


def _same(d: Sequence[Any], c: Callable[[float], Any], name: Name) -> list[Any]:
    return list(d)


SINGLE = Axis(1, 1, np.ones((1, 1)), np.ones((1, 1)), np.ones((1, 1)), _same, _same)  # of one tap


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


_STRIDED4 = Axis(
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

_STRIDED2 = Axis(
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

S4, S2 = transforms((3, 3), (2, 2))
F6, F4, F2 = transforms((3, 3), (1, 1))

LEFT_OUT = {0: 0.0, 3: 3 * 2.0**-18, 6: 2.0**-24}  # of a product, by how many products of parts stand for it


def error_bound(transform: Transform, channels: int, products: int = 0) -> float:
    """``b`` such that every sum is within ``b * max|x| * max|w| * channels`` of the exact one, in float32. A kernel of
    several planes, or parts, sums over ``channels`` of each: all count.

    First-order analysis of the bilinear form. An intermediate result is at most what absolute values would give; along
    each axis that is ``K = max over rows of |AT| (|G| 1 * |BT| 1)`` times max|x| max|w| (``Axis.growth``): 68 for
    F(6, 3), 48 for F(4, 3), 8 for F(2, 3), 21 for S4 and 5 for S2, 87 for F(4, 5), 682 for F(4, 7), 1 for a single tap.
    On its way to the output a product is rounded once in the weights, at most four times an axis in the data (five in
    both together, of ten products along one) and again in the result, and once for itself and each channel it is added
    to:

        |error| <= 2^-24 * (1 + 2 * 4 + (1 + channels) + 2 * 4) * K * K' * max|x| * max|w| * channels

    It holds for the worst signs everywhere at once; random data stays thousands of times below it.

    With ``products`` of parts (schedules/matrix/parts.py) for each product of float32, so many terms are added, and
    what they leave out counts once: of three, what is below two parts of either factor, 2^-18 of it each, and the
    product of both tails, 2^-18; of six, 2^-24.
    """
    return (2.0**-24 * (18 + max(1, products) * channels) + LEFT_OUT[products]) * transform.growth
