"""Linear and cubic Resize of integers, rounded as ONNX Runtime rounds them.

    linear                    truncated towards zero, from float32 weights, products and sums in one fixed order
    linear of bytes, NHWC     truncated towards zero, from weights in 1024ths (rows and columns before the channels)
    antialiased               rounded to the nearest, and held within the type, after each axis, the last axis first
    cubic                     truncated towards zero and held within the type; ONNX Runtime has no such form

The first two are ONNX Runtime's to the last bit, which shows: 255 becomes 254 where weights add up to a little less
than one. So are antialiased bytes, whose weights it has in 2^-22ths. Of signed antialiased bytes it makes garbage; they
are treated like integers of 32 bits. The types that it has no Resize for (16 and 64 bits, uint32) are computed in
float64, like cubic ones: exact below 2^53, and a whole number that the weights miss by less than 2^-13 counts as
reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from ..node import OnnxNode
from ..value import OnnxValue

R = relax.op
F = np.float32

BYTES = ("int8", "uint8")
SUMMED_IN_FLOAT32 = (*BYTES, "int32")
MOST_AXES = 3  # that are summed at once
UNIT = 1 << 10  # of weights in fixed point
FILTER_UNIT = float(1 << 22)  # the same of antialiased bytes
NEAR = float(1 << 12)

Table = tuple[int, np.ndarray, np.ndarray]  # an axis, its index [o, taps] and weights [o, taps]


@dataclass(frozen=True)
class Filter:
    """The antialiasing kernel: the cubic one of this ``slope``, or (None) the linear one."""

    slope: float | None
    exclude: bool  # what lies outside, instead of repeating the border

    @property
    def reach(self) -> int:
        return 1 if self.slope is None else 2

    def __call__(self, t: np.ndarray) -> np.ndarray:
        t, (a, b, c, d, e) = np.abs(t), (F(v) for v in (1, 2, 3, 4, 5))
        if self.slope is None:
            return np.where(t < a, a - t, F(0))
        s = F(self.slope)
        near = ((s + b) * t - (s + c)) * t * t + a
        far = (((t - e) * t + F(8)) * t - d) * s
        return np.where(t < a, near, np.where(t < b, far, F(0)))


def linear_applies(x: OnnxValue, axes: Sequence[int]) -> bool:
    """True where ONNX Runtime's own sums are to be met."""
    return x.dtype in SUMMED_IN_FLOAT32 and len(axes) <= MOST_AXES


def linear(node: OnnxNode, x: OnnxValue, positions: dict[int, np.ndarray]) -> OnnxValue:
    """Between two neighbours along each axis, at ``positions`` in float32.

    ONNX Runtime sums over all axes of an image, also those that keep their length; so does this, for its last bit.
    """
    last = x.rank == 4 and 1 in positions and max(positions) < 3  # channels last
    image = {1, 2} if last else set(range(x.rank)[-2 if x.rank in (2, 4) else -3 :])
    axes = sorted(image if image.issuperset(positions) else positions)
    fixed = last and x.dtype in BYTES
    tables: list[OnnxValue] = []
    for axis in axes:
        position = positions.get(axis, np.arange(x.shape[axis]))
        index, weight = _neighbours(position.astype("float32"), x.shape[axis], fixed)
        tables += [node.const(index.astype("int32")), node.const(weight)]
    return node.own("halotile.interpolate_whole", x, *tables, axes=axes)


def _neighbours(position: np.ndarray, size: int, fixed: bool) -> tuple[np.ndarray, np.ndarray]:
    """The two elements around each position, and their weights: in float32, or in 1024ths."""
    position = np.clip(position, np.float32(0), np.float32(size - 1))
    first = np.minimum(position.astype("int32"), size - 1)
    index = np.stack([first, np.minimum(first + 1, size - 1)], axis=1)
    if fixed:
        place = np.floor(position * np.float32(UNIT)).astype("int32")[:, None]
        weight = np.abs(place - index[:, ::-1] * UNIT).astype("int32")
        half: float | int = UNIT // 2
    else:
        weight = np.abs(position[:, None] - index[:, ::-1].astype("float32"))
        half = 0.5
    weight[index[:, 0] == index[:, 1]] = half
    return index, np.ascontiguousarray(weight)


def antialiased(
    node: OnnxNode, x: OnnxValue, axes: Sequence[tuple[int, float, np.ndarray]], kernel: Filter
) -> OnnxValue:
    """Sums over the windows around the float32 positions of (axis, scale, positions), rounded after each axis."""
    v = node.cast(x, "float64")
    for axis, scale, position in reversed(axes):
        index, weights = _window(position, x.shape[axis], scale, kernel)
        wide = weights.astype("float64")
        if x.dtype in BYTES:
            wide = np.copysign(np.floor(np.abs(wide) * FILTER_UNIT + 0.5), wide) / FILTER_UNIT
        v = _summed(node, v, (axis, index, wide))
        v = _held(node, _nearest(node, v, up=x.dtype == "uint8"), x.dtype)
    return node.cast(v, x.dtype)


def _window(position: np.ndarray, size: int, scale: float, kernel: Filter) -> tuple[np.ndarray, np.ndarray]:
    """What lies around each position, and its weights, in float32 throughout; borders stand for what lies beyond."""
    step = F(1) / F(scale)
    wider = step if scale < 1 else F(1)
    middle = F(0.5) + position.astype(F)
    reach = F(kernel.reach) * wider
    first, last = (np.floor((middle + r).astype("float64") + 0.5).astype("int64") for r in (-reach, reach))
    if kernel.exclude:
        first, last = first.clip(0, None), last.clip(None, size)
    place = first[:, None] + np.arange(max(1, int((last - first).max())))
    distance = ((place.astype(F) - middle[:, None]).astype("float64") + 0.5) * (F(1) / wider)
    weight = np.where(place < last[:, None], kernel(distance.astype(F)), F(0)).astype(F)
    total = np.zeros(len(position), F)
    for column in weight.T:
        total = total + column
    start = first.clip(0, size - 1)[:, None]
    merged = np.zeros_like(weight)
    np.add.at(merged, (np.arange(len(position))[:, None], place.clip(0, size - 1) - start), weight)
    share = F(1) / np.where(total == 0, F(1), total)
    return (start + np.arange(place.shape[1])).clip(0, size - 1), merged * share[:, None]


def truncated(node: OnnxNode, x: OnnxValue, tables: Sequence[Table]) -> OnnxValue:
    """Sums in float64 along each axis, truncated once."""
    v = node.cast(x, "float64")
    for table in tables:
        v = _summed(node, v, table)
    near = node.do(R.round, node.do(R.multiply, v, node.scalar(NEAR, v)))
    v = node.do(R.trunc, node.do(R.multiply, near, node.scalar(1 / NEAR, v)))
    return node.cast(_held(node, v, x.dtype), x.dtype)


def _summed(node: OnnxNode, v: OnnxValue, table: Table) -> OnnxValue:
    axis, index, weights = table
    return node.own("halotile.resample", v, node.const(index.astype("int32")), node.const(weights), axis=axis)


def _nearest(node: OnnxNode, v: OnnxValue, up: bool) -> OnnxValue:
    """The nearest whole number; of two the one above if ``up``, else the one away from zero."""
    half = node.scalar(0.5, v)
    above = node.do(R.floor, node.do(R.add, v, half))
    if up:
        return above
    return node.do(
        R.where, node.do(R.less, v, node.scalar(0, v)), node.do(R.ceil, node.do(R.subtract, v, half)), above
    )


def _held(node: OnnxNode, v: OnnxValue, dtype: str) -> OnnxValue:
    """Within the type's limits, as far as float64 has them."""
    limits = np.iinfo(dtype)
    most = float(limits.max)
    return node.do(
        R.clip, v, min=float(limits.min), max=most if int(most) == limits.max else np.nextafter(most, 0.0)
    )
