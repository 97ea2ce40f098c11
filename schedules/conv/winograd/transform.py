"""The transforms of Winograd's minimal filtering F(m, r) along rows and columns (Lavin and Gray, "Fast Algorithms for
Convolutional Neural Networks", 2016), for kernels of any few taps.

    y = AT [ (G w GT) * (BT d B) ] A        d: inputs, w: weights, y: outputs, *: element by element

Each axis has its own matrices (axis_transform.py). One of a single tap has one output and no transform: kernels of
1 x 7 and those of one spatial axis are F(1 x 4, 1 x 7). Each axis multiplies errors; what both together may is bounded
(``MOST_GROWTH``).

Long kernels are sums of shorter ones whose inputs lie further on, which are summed before they are transformed back:
11 taps are two parts of six, F(5, 6) twice, 20 products for 5 outputs. The last part ends where the kernel does, so
that nothing beyond is read, and has zeros for the taps that the one before it has.

So are kernels whose stride divides them: every second tap, and those between, are two parts of 4x4/2 an axis, on inputs
two apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from ...instructions.bf16_parts import LEFT_OUT
from .axis_transform import HALF_PAIRS, PAIRS, SINGLE, STRIDED, AxisTransform, axis

if TYPE_CHECKING:
    from ...words.tvm_types import Expr

SIZES = (10, 8, 6, 4)  # products an axis, those with more outputs a tile first
MOST_GROWTH = 2 * 68.0**2  # of errors: twice what F(6x6, 3x3) makes of them
MOST_HALF_GROWTH = 30.0**2  # in float16: that of F(4x4, 3x3) by its own points
RUN = 32  # products of float16 that are summed before they are added to the sum of all
DATA = 4.0  # times the largest input: what transformed ones in float16 are made to be at most


@dataclass(frozen=True, eq=False)
class Transform:
    """A transform F(m, r) with one matrix set ``down`` the rows and one ``across`` the columns; :func:`error_bound`
    bounds its error. Pairs are (rows, columns). ``kernel`` are the taps of the whole kernel, ``steps`` the distance of
    a part's taps in it."""

    down: AxisTransform
    across: AxisTransform
    kernel: tuple[int, int]  # taps, of all parts
    steps: tuple[int, int] = (1, 1)  # from one input of a part to the next
    shrink: float = 1.0  # a power of two: times the data, and the weights by it

    @property
    def axes(self) -> tuple[AxisTransform, AxisTransform]:
        return self.down, self.across

    @property
    def tile(self) -> tuple[int, int]:
        """Outputs of a tile, (rows, columns)."""
        return self.down.m, self.across.m

    @property
    def outputs(self) -> int:
        return self.down.m * self.across.m

    @property
    def parts(self) -> tuple[int, int]:
        """Number of parts, (down, across), that the kernel is cut into: each has at most as many taps as its axis'
        transform, and their sums are added."""
        down, across = (s * -(-taps // (s * a.taps)) for taps, s, a in zip(self.kernel, self.steps, self.axes))
        return down, across

    @property
    def planes(self) -> int:
        """Number of parts of both axes together."""
        return self.parts[0] * self.parts[1]

    def starts(self) -> Iterator[tuple[int, int]]:
        """The first tap (row, column) of each part, in order."""
        for down, across in product(*map(range, self.parts)):
            yield self.start(0, down, min), self.start(1, across, min)

    def start(self, axis: int, part: Expr, least: Callable[[Expr, int], Expr]) -> Expr:
        """The first tap along ``axis`` of part number ``part``, which may be an int or a TIR expression; ``least`` is
        the minimum of two of its kind."""
        step, taps = self.steps[axis], self.axes[axis].taps
        return part % step + step * least(part // step * taps, self.kernel[axis] // step - taps)

    @property
    def extents(self) -> tuple[int, int]:
        """Inputs of a tile, (rows, columns)."""
        return self.down.extent, self.across.extent

    @property
    def strides(self) -> tuple[int, int]:
        return self.down.stride * self.steps[0], self.across.stride * self.steps[1]

    @property
    def size(self) -> int:
        """Products along the axis that has more of them."""
        return max(self.extents)

    @property
    def matrices(self) -> int:
        """Number of different matrices of transformed weights; with stride 2 several products share one."""
        return self.down.rows * self.across.rows

    @property
    def products(self) -> int:
        return self.down.extent * self.across.extent

    @property
    def growth(self) -> float:
        """Bound of the factor by which rounding errors are multiplied."""
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
        """The operations of the data transform, for a tile of one vector."""
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
        found = (np.kron(self.down.weights, self.across.weights) @ taps).reshape(self.matrices, inputs, outputs)
        return found / self.shrink

    @property
    def weight_matrix(self) -> np.ndarray:
        """[matrices, taps]: the same as one matrix, by which a part's taps are multiplied."""
        return np.asarray(np.kron(self.down.weights, self.across.weights) / self.shrink)

    def __str__(self) -> str:
        down, across = self.strides
        stride = "" if down == across == 1 else f"/{across}" if down == across else f"/{down}x{across}"
        return f"F({self.tile[0]}x{self.tile[1]},{self.kernel[0]}x{self.kernel[1]}{stride})"


def transforms(kernel: tuple[int, int], strides: tuple[int, int], half: bool = False) -> tuple[Transform, ...]:
    """The transforms of a kernel of ``rows x columns``, the ones with more outputs a tile first; none where a stride
    neither divides the taps along its axis nor is 2 of 3. ``half``: those whose errors float16 has digits for."""
    return _transforms(kernel, strides, half)


@lru_cache(maxsize=256)
def _transforms(kernel: tuple[int, int], strides: tuple[int, int], half: bool) -> tuple[Transform, ...]:
    found: list[Transform] = []
    sizes = [(size, size) for size in SIZES]
    if half:
        sizes = [(down, across) for down in sorted(HALF_PAIRS)[::-1] for across in sorted(HALF_PAIRS)[::-1]]
    for size in sizes:
        best = min(_of_size(size, kernel, strides, half), key=products_each, default=None)
        if best is not None and all(best.axes != t.axes for t in found):
            found.append(best)
    return tuple(found)


def products_each(transform: Transform) -> tuple[float, int]:
    """For an output; of equal ones, that of fewer parts."""
    return transform.planes * transform.products / transform.outputs, transform.planes


def _of_size(
    sizes: tuple[int, int], kernel: tuple[int, int], strides: tuple[int, int], half: bool
) -> Iterator[Transform]:
    """Those of about ``sizes`` products along (rows, columns), by how many parts a kernel has along each."""
    able = (axes_of(size, taps, stride, half) for size, taps, stride in zip(sizes, kernel, strides))
    for (down, step_down), (across, step_across) in product(*able):
        transform = Transform(down, across, kernel, (step_down, step_across), _shrink(down, across) if half else 1.0)
        if transform.size > 1 and transform.growth <= (MOST_HALF_GROWTH if half else MOST_GROWTH):
            yield transform


def _shrink(down: AxisTransform, across: AxisTransform) -> float:
    """The power of two that keeps transformed data within DATA times the largest input."""
    most = np.prod([np.abs(a.data).sum(1).max() for a in (down, across)])
    return float(min(1.0, 2.0 ** np.round(np.log2(DATA / most))))


def axes_of(size: int, taps: int, stride: int, half: bool = False) -> list[tuple[AxisTransform, int]]:
    """What one axis of a kernel may be, and from one input of a part to the next."""
    if (taps, stride) == (3, 2):
        return [(STRIDED[size], 1)] if size in STRIDED else []
    own, rest = divmod(taps, stride)
    if rest or own == 1:
        return [] if rest else [(SINGLE, stride)]
    parts = {-(-own // parts) for parts in range(1, own + 1)} & set(range(2, size))
    return [(axis(size, r, HALF_PAIRS[size] if half else PAIRS), stride) for r in sorted(parts)]


S4, S2 = transforms((3, 3), (2, 2))
F6, F4, F2 = transforms((3, 3), (1, 1))
HALF4, HALF42, HALF24, HALF2 = transforms((3, 3), (1, 1), half=True)
HALF_S4, HALF_S42, HALF_S24, HALF_S2 = transforms((3, 3), (2, 2), half=True)


def error_bound(transform: Transform, channels: int, products: int = 0, half: bool = False) -> float:
    """``b`` such that every sum is within ``b * max|x| * max|w| * channels`` of the exact one, in float32. A kernel of
    several planes, or parts, sums over ``channels`` of each: all count.

    First-order analysis of the bilinear form. An intermediate result is at most what absolute values would give; along
    each axis that is ``K = max over rows of |AT| (|G| 1 * |BT| 1)`` times max|x| max|w| (its ``growth``): 68 for
    F(6, 3), 48 for F(4, 3), 8 for F(2, 3), 21 for S4 and 5 for S2, 87 for F(4, 5), 682 for F(4, 7), 1 for a single tap.
    On its way to the output a product is rounded once in the weights, at most four times an axis in the data (five in
    both together, of ten products along one) and again in the result, and once for itself and each channel it is added
    to:

        |error| <= 2^-24 * (1 + 2 * 4 + (1 + channels) + 2 * 4) * K * K' * max|x| * max|w| * channels

    It holds for the worst signs everywhere at once; random data stays thousands of times below it.

    With ``products`` of parts (schedules/instructions/bf16_parts.py) for each product of float32, so many terms are
    added, and what they leave out counts once: 2^-15 of three, 2^-24 of six, where no product is so small that the unit
    loses it.

    In float16 (``half``) 2^-11 stands for 2^-24, and a product meets RUN channels and then the sums of the others.
    """
    if half:
        return 2.0**-11 * (18 + min(channels, RUN) + -(-channels // RUN)) * transform.growth
    terms = max(1, products)
    return (2.0**-24 * (18 + terms * channels) + LEFT_OUT[terms]) * transform.growth
