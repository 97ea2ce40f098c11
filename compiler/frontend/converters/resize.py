"""Resize and Upsample. Shapes are static, so every axis becomes a table of positions and weights, made here.

    output[o] = sum over k of weight[o, k] * input[index[o, k]]          (one such sum for each resized axis)

Nearest has one tap, linear two, cubic four, antialiasing as many as the footprint needs. Tables that are a plain
repetition or a plain step are written as that, so the common cases need no table at run time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from ....schedules.words.dims import Dim, Open, is_open, quotient, to_relax
from ....schedules.words.refusal import Refusal
from ....targets.target import Target
from ..node import OnnxNode, normal_axes
from ..registry import converts
from ..value import OnnxValue
from . import resize_integers, resize_open
from .movement import take

if TYPE_CHECKING:
    from ....schedules.words.size_like import SizeLike

R = relax.op


@dataclass(frozen=True)
class ResizedAxis:
    """One resized axis: its length, the output's, the scale between them and the region of interest."""

    axis: int
    size: SizeLike
    output: SizeLike
    scale: float
    roi: tuple[float, float]


@converts("Upsample", since=7)
def upsample(node: OnnxNode) -> OnnxValue:
    scales = node.attr("scales")
    if scales is None:
        array = node.constant(1, "its scales")
        scales = [] if array is None else array.reshape(-1).tolist()
    return _simple(node, node.need(0), [float(s) for s in scales])


@converts("Resize", since=10)
def resize_10(node: OnnxNode) -> OnnxValue:
    scales = node.constant(1, "its scales")
    return _simple(node, node.need(0), [] if scales is None else scales.reshape(-1).astype(float).tolist())


def _simple(node: OnnxNode, x: OnnxValue, scales: list[float]) -> OnnxValue:
    """Before opset 11: o / scale, and nearest takes the floor (the ceiling when shrinking)."""
    if len(scales) != x.rank:
        raise Refusal(f"scales {scales} do not fit {x}")
    _require_factors(scales)
    axes = [
        ResizedAxis(a, n, _scaled(n, s), s, (0.0, 1.0)) for a, (n, s) in enumerate(zip(x.shape, scales)) if s != 1.0
    ]
    mode = node.attr("mode", "nearest")
    if all(a.output == a.size for a in axes):
        return x
    if any(a.size == 0 for a in axes):
        return _nothing(node, x, axes)
    if mode == "nearest":
        return _nearest(node, x, axes, "asymmetric", "simple")
    if mode not in ("linear", "bilinear"):
        raise Refusal(f"mode '{mode}' does not exist")
    if is_open(a.size for a in axes):
        reason = Open(f"interpolating along an open dimension of {x}")
        return _open_scale(node, x, axes, "asymmetric", "linear", reason)
    return _interpolated(node, x, axes, "asymmetric", _between)


@converts("Resize", since=11)
def resize(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    coordinate = node.attr("coordinate_transformation_mode", "half_pixel")
    try:
        axes = _axes(node, x, coordinate)
    except Open as reason:
        return _open_ratio(node, x, coordinate, reason)
    if all(a.output == a.size for a in axes) and coordinate != "tf_crop_and_resize":
        return x  # whatever the scale: ONNX Runtime copies a tensor that keeps its shape
    if any(a.size == 0 for a in axes):
        return _nothing(node, x, axes)
    mode = node.attr("mode", "nearest")
    if mode in ("linear", "cubic") and is_open(a.size for a in axes):
        along = Open(f"interpolating along an open dimension of {x}")
        if coordinate == "align_corners" or all(a.output == a.scale * a.size for a in axes):
            return _open_ratio(node, x, coordinate, along, axes)
        return _open_scale(node, x, axes, coordinate, mode, along)
    antialias = bool(node.attr("antialias", 0))
    a = node.attr("cubic_coeff_a", -0.75)
    if mode == "nearest":
        y = _nearest(node, x, axes, coordinate, node.attr("nearest_mode", "round_prefer_floor"))
    elif mode in ("linear", "cubic"):
        plain = _linear if mode == "linear" else (lambda ratio: _cubic(ratio, a))
        reach, kernel = (1, _hat) if mode == "linear" else (2, lambda t: _cubic_kernel(t, a))

        def coefficients(ratio: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
            return _filtered(ratio, scale, reach, kernel) if antialias else plain(ratio)

        exclude = bool(node.attr("exclude_outside", 0))
        window = resize_integers.Filter(a if mode == "cubic" else None, exclude) if antialias else None
        given = _between if mode == "linear" and not antialias else coefficients
        y = _interpolated(node, x, axes, coordinate, given, exclude, window)
    else:
        raise Refusal(f"mode '{mode}' does not exist")
    return _extrapolated(node, y, axes) if coordinate == "tf_crop_and_resize" else y


def _nothing(node: OnnxNode, x: OnnxValue, axes: Sequence[ResizedAxis]) -> OnnxValue:
    """An image without elements, resized along such an axis."""
    outputs = {a.axis: a.output for a in axes}
    return node.empty([outputs.get(i, d) for i, d in enumerate(x.shape)], x.dtype)


def _open_ratio(
    node: OnnxNode, x: OnnxValue, coordinate: str, reason: Open, changed: Sequence[ResizedAxis] | None = None
) -> OnnxValue:
    """Relax's own operator: an image to a size that is in no fixed ratio to its own, as between two levels of a network
    whose input is open, or one with an open side to interpolate along (``changed``)."""
    sizes, mode = node.ints(3, "its sizes"), node.attr("mode", "nearest")
    axes = node.attr("axes")
    if changed is not None:
        outputs = {a.axis: a.output for a in changed}
        sizes = [outputs.get(i, d) for i, d in enumerate(x.shape)]
    elif sizes is not None and axes is not None and normal_axes(axes, x.rank) == [2, 3]:
        sizes = [*x.shape[:2], *sizes]
    known = coordinate in ("half_pixel", "align_corners", "asymmetric") and mode in ("nearest", "linear", "cubic")
    plain = node.attr("keep_aspect_ratio_policy", "stretch") == "stretch" and not node.attr("antialias", 0)
    plain = plain and not node.attr("exclude_outside", 0) and (mode == "nearest" or x.is_float)
    fits = sizes is not None and len(sizes) == x.rank and x.rank in (3, 4) and tuple(sizes[:2]) == x.shape[:2]
    if sizes is None or not (known and plain and fits):
        raise reason
    if mode == "nearest" and coordinate == "half_pixel":
        raise reason  # centres fall on exact halves, which rounding in floats puts to either side
    line = x.rank == 3
    image = node.reshape(x, [*x.shape[:2], 1, x.shape[2]]) if line else x
    y = node.do(
        R.image.resize2d,
        image,
        relax.ShapeExpr([to_relax(d) for d in ([1, *sizes[2:]] if line else sizes[2:])]),
        layout="NCHW",
        method="nearest_neighbor" if mode == "nearest" else mode,
        coordinate_transformation_mode=coordinate,
        rounding_method=node.attr("nearest_mode", "round_prefer_floor") if mode == "nearest" else "",
        cubic_alpha=node.attr("cubic_coeff_a", -0.75),
    )
    return node.reshape(y, sizes) if line else y


def _open_scale(
    node: OnnxNode, x: OnnxValue, axes: Sequence[ResizedAxis], coordinate: str, mode: str, reason: Open
) -> OnnxValue:
    """Interpolation between elements at places that a scale gives, which is no whole number or no ratio of sizes."""
    shrinks = any(a.scale < 1 for a in axes) and bool(node.attr("antialias", 0))
    if not x.is_float or node.attr("exclude_outside", 0) or shrinks:
        raise reason
    alpha = node.attr("cubic_coeff_a", -0.75)
    taps = resize_open.linear if mode == "linear" else resize_open.cubic(alpha)
    closed = [a for a in axes if not isinstance(a.size, Dim)]

    def run(v: OnnxValue) -> OnnxValue:
        for a in (a for a in axes if isinstance(a.size, Dim)):
            places = resize_open.places(a.size, a.output, a.scale, coordinate)
            v = resize_open.interpolated(node, v, a.axis, a.output, places, taps)
        table = _between if mode == "linear" else (lambda ratio, _: _cubic(ratio, alpha))
        return _interpolated(node, v, closed, coordinate, table) if closed else v

    return node.in_float32(run, x)


def _axes(node: OnnxNode, x: OnnxValue, coordinate: str) -> list[ResizedAxis]:
    """The axes that change, from scales or sizes and the policy that keeps the aspect ratio.

    A region of interest does not change the size that follows from scales: so ONNX's shape inference and reference and
    ONNX Runtime have it, though ONNX's text multiplies by the region's length. The policy holds for negative axes too,
    as in ONNX's shape inference; ONNX Runtime forgets such axes.
    """
    given = node.attr("axes")
    chosen = list(range(x.rank)) if given is None else normal_axes(given, x.rank)
    roi_index, scale_index, size_index = 1, 2, 3
    scales = node.constant(scale_index, "its scales")
    sizes = node.ints(size_index, "its sizes")
    roi = node.constant(roi_index, "its region of interest") if coordinate == "tf_crop_and_resize" else None
    if coordinate == "tf_crop_and_resize":
        if roi is None or roi.size != 2 * len(chosen):
            raise Refusal("its region of interest does not fit the axes")
        boxes = [(float(roi[i]), float(roi[i + len(chosen)])) for i in range(len(chosen))]
    else:
        boxes = [(0.0, 1.0)] * len(chosen)
    lengths = [x.shape[a] for a in chosen]
    if sizes:
        if len(sizes) != len(chosen):
            raise Refusal(f"sizes {sizes} do not fit {len(chosen)} axes")
        target = sizes
        policy = node.attr("keep_aspect_ratio_policy", "stretch")
        factors = [_ratio(t, n) for t, n in zip(target, lengths)]
        if policy != "stretch":
            one = min(factors) if policy == "not_larger" else max(factors)
            factors = [one] * len(factors)
            target = [math.floor(float(np.float32(one) * np.float32(n)) + 0.5) for n in lengths]
    elif scales is not None and scales.size:
        if scales.size != len(chosen):
            raise Refusal(f"scales {scales.tolist()} do not fit {len(chosen)} axes")
        factors = [float(s) for s in scales.reshape(-1)]
        _require_factors(factors)
        target = [_scaled(n, s) for n, s in zip(lengths, factors)]
    else:
        raise Refusal("it has neither scales nor sizes")
    _require_factors(factors)
    every = [ResizedAxis(a, n, o, f, b) for a, n, o, f, b in zip(chosen, lengths, target, factors, boxes)]
    if coordinate == "tf_crop_and_resize":
        return [a for a in every if a.scale != 1.0 or a.roi != (0.0, 1.0)]
    return [a for a in every if a.scale != 1.0 or a.output != a.size]


def _require_factors(factors: Sequence[float]) -> None:
    if any(not 0 < f < 2**31 for f in factors):  # neither is NaN
        raise Refusal(f"scales {list(factors)} are not positive numbers")


def _scaled(length: SizeLike, scale: float) -> SizeLike:
    """floor(length * scale) in float32, where 10 * 0.7 is 7 and no less."""
    if not isinstance(length, Dim):
        return math.floor(np.float32(length) * np.float32(scale))
    return resize_open.scaled(length, scale)


def _ratio(target: Target, length: SizeLike) -> float:
    if target == length:
        return 1.0
    if length == 0:
        raise Refusal(f"there is nothing of which {target} could be made")
    if not is_open((target, length)):
        return float(target / length)
    exact = quotient(target, length)
    if exact is None or isinstance(exact, Dim):
        raise Open(f"the dimension {length} becomes {target}, whose ratio is open")
    return float(exact)


def _positions(axis: ResizedAxis, coordinate: str, real: type[np.floating] = np.float64) -> np.ndarray:
    """Where in the input each output position lies, computed in ``real``.

    Nearest neighbours are chosen from float32 positions, as ONNX Runtime does and exporters' models expect: 17 / 1.7 is
    10 in float32 and a little less in float64, which is another pixel.
    """
    o = np.arange(axis.output, dtype=real)
    scale = np.float32(axis.scale).astype(real)  # ONNX's scales are float32, also where they follow from sizes
    if coordinate == "half_pixel":
        return (o + 0.5) / scale - 0.5
    if coordinate == "pytorch_half_pixel":
        return (o + 0.5) / scale - 0.5 if axis.output > 1 else np.zeros_like(o)
    if coordinate == "half_pixel_symmetric":
        size = real(axis.size)
        offset = size / 2 * (1 - real(axis.output) / (scale * size))
        return (np.float64(offset) + (o.astype(np.float64) + 0.5) / np.float64(scale) - 0.5).astype(real)
    if coordinate == "align_corners":  # the last pixel that there is, as in PyTorch; ONNX's tests do not round
        return o * (axis.size - 1) / (axis.output - 1) if axis.output > 1 else np.zeros_like(o)
    if coordinate == "asymmetric":
        return o / scale
    if coordinate == "tf_half_pixel_for_nn":
        return (o + 0.5) / scale
    if coordinate == "tf_crop_and_resize":
        low, high = axis.roi
        if axis.output == 1:
            return np.full_like(o, 0.5 * (low + high) * (axis.size - 1))
        return low * (axis.size - 1) + o * (high - low) * (axis.size - 1) / (axis.output - 1)
    raise Refusal(f"coordinate_transformation_mode '{coordinate}' does not exist")


TIE = 1e-6  # a position this near the middle of two pixels counts as the middle, as in ONNX Runtime 1.31


def _round(position: np.ndarray, up: bool) -> np.ndarray:
    """The nearest integer; the larger of two equally near ones if ``up``, else the smaller."""
    low = np.floor(position)
    beyond = position.astype(np.float64) - low - 0.5
    return np.where(np.abs(beyond) < TIE, low + up, np.where(beyond > 0, low + 1, low))


_ROUND: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "round_prefer_floor": lambda p, _s: _round(p, up=False),
    "round_prefer_ceil": lambda p, _s: _round(p, up=True),
    "floor": lambda p, _s: np.floor(p),
    "ceil": lambda p, _s: np.ceil(p),
    "simple": lambda p, s: np.ceil(p) if s < 1 else np.floor(p),  # before opset 11
}


def _nearest(node: OnnxNode, x: OnnxValue, axes: list[ResizedAxis], coordinate: str, rounding: str) -> OnnxValue:
    if rounding not in _ROUND or rounding == "simple" and node.opset > 10:
        raise Refusal(f"nearest_mode '{rounding}' does not exist")
    factors = [1] * x.rank
    tables: list[tuple[int, np.ndarray]] = []
    for axis in axes:
        if isinstance(axis.size, Dim):
            if (factor := _open_factor(axis, coordinate, rounding)) is not None:
                factors[axis.axis] = factor
            else:
                how = rounding if rounding != "simple" else "ceil" if axis.scale < 1 else "floor"
                places = resize_open.places(axis.size, axis.output, axis.scale, coordinate)
                x = resize_open.nearest(node, x, axis.axis, axis.output, places, how)
            continue
        position = _positions(axis, coordinate, np.float32)
        index = _ROUND[rounding](position, axis.scale).astype("int64").clip(0, axis.size - 1)
        factor, rest = divmod(axis.output, axis.size)
        if factor > 1 and not rest and (index == np.arange(axis.output) // factor).all():
            factors[axis.axis] = factor
        else:
            tables.append((axis.axis, index))
    for where, index in tables:
        x = take(node, x, index, where)
    return node.own("halotile.upsample", x, factors=factors) if any(f > 1 for f in factors) else x


def _open_factor(axis: ResizedAxis, coordinate: str, rounding: str) -> int | None:
    """How often every element of an open axis is repeated, where the scale makes it just that for every length."""
    plain = coordinate == "asymmetric" and rounding in ("floor", "simple")
    centred = coordinate in ("half_pixel", "half_pixel_symmetric") and rounding.startswith("round")
    return int(axis.scale) if axis.scale >= 1 and axis.scale == int(axis.scale) and (plain or centred) else None


Coefficients = Callable[[np.ndarray, float], "tuple[np.ndarray, np.ndarray]"]


def _interpolated(
    node: OnnxNode,
    x: OnnxValue,
    axes: list[ResizedAxis],
    coordinate: str,
    coefficients: Coefficients,
    exclude: bool = False,
    antialiased: resize_integers.Filter | None = None,
) -> OnnxValue:
    if is_open(a.size for a in axes):
        raise Open(f"interpolating along an open dimension of {x}")
    if x.dtype == "bool":
        raise Refusal("interpolating bool is not supported")

    def table(axis: ResizedAxis) -> tuple[int, np.ndarray, np.ndarray]:
        position = _positions(axis, coordinate)
        base = np.floor(position)
        offsets, weights = coefficients(position - base, axis.scale)
        index = base[:, None].astype("int64") + offsets[None, :]
        if exclude:
            weights = np.where((index < 0) | (index >= axis.size), 0.0, weights)
            weights = weights / weights.sum(axis=1, keepdims=True)
        index = index.clip(0, axis.size - 1)
        used = np.flatnonzero((weights != 0).any(axis=0))
        return axis.axis, index[:, used], weights[:, used]

    if x.is_integer:
        axes = sorted(axes, key=lambda a: a.axis)
        two = coefficients is _between and not exclude
        if two and resize_integers.linear_applies(x, [a.axis for a in axes]):
            return resize_integers.linear(node, x, {a.axis: _positions(a, coordinate, np.float32) for a in axes})
        if antialiased is not None:
            places = [(a.axis, a.scale, _positions(a, coordinate, np.float32)) for a in axes]
            return resize_integers.antialiased(node, x, places, antialiased)
        return resize_integers.truncated(node, x, [table(a) for a in axes])

    def run(v: OnnxValue) -> OnnxValue:
        for axis in axes:
            index, weights = _without_zeros(*table(axis)[1:])
            v = node.own(
                "halotile.resample",
                v,
                node.const(index.astype("int32")),
                node.const(weights.astype(v.dtype)),
                axis=axis.axis,
            )
        return v

    return node.in_float32(run, x)


def _between(ratio: np.ndarray, _scale: float) -> tuple[np.ndarray, np.ndarray]:
    return _linear(ratio)


def _without_zeros(index: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same sums without weights of 0, by which a NaN or an infinity beside a position would count: such a place
    reads the row's heaviest element, half of whose weight it takes."""
    index, weights = index.copy(), weights.copy()
    rows = np.arange(len(weights))
    heaviest = np.abs(weights).argmax(axis=1)
    for column in range(weights.shape[1]):
        zero = rows[weights[:, column] == 0]
        index[zero, column] = index[zero, heaviest[zero]]
        weights[zero, heaviest[zero]] /= 2
        weights[zero, column] = weights[zero, heaviest[zero]]
    return index, weights


def _linear(ratio: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.array([0, 1]), np.stack([1 - ratio, ratio], axis=1)


def _cubic(ratio: np.ndarray, a: float) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.array([-1, 0, 1, 2])
    return offsets, _cubic_kernel(offsets[None, :] - ratio[:, None], a)


def _cubic_kernel(t: np.ndarray, a: float) -> np.ndarray:
    t = np.abs(t)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


def _hat(t: np.ndarray) -> np.ndarray:
    return np.clip(1 - np.abs(t), 0, 1)


def _filtered(
    ratio: np.ndarray, scale: float, reach: int, kernel: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Antialiasing: when shrinking, the kernel is stretched by 1/scale and its weights are normalised."""
    shrink = min(scale, 1.0)
    start = math.floor(-reach / shrink) + 1
    offsets = np.arange(start, reach + 1 - start + (1 - reach))
    weights = kernel((offsets[None, :] - ratio[:, None]) * shrink)
    return offsets, weights / weights.sum(axis=1, keepdims=True)


def _extrapolated(node: OnnxNode, y: OnnxValue, axes: list[ResizedAxis]) -> OnnxValue:
    """Positions outside the input take the extrapolation value."""
    outside = np.zeros((1,) * y.rank, bool)
    for axis in axes:
        position = _positions(axis, "tf_crop_and_resize")
        slack = 1e-6 * axis.size  # a position on the border is inside, however its float32 box was rounded
        beyond = (position < -slack) | (position > axis.size - 1 + slack)
        outside = outside | beyond.reshape([-1 if a == axis.axis else 1 for a in range(y.rank)])
    if not outside.any():
        return y
    value = node.scalar(node.attr("extrapolation_value", 0.0), y)
    return node.do(R.where, node.const(outside), value, y)
