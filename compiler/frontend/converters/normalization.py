"""Normalisations in inference form."""

from __future__ import annotations

import numpy as np
from tvm import relax

from ....schedules.words.dims import is_open
from ....schedules.words.refusal import Refusal
from ..functions import dtype_name
from ..implied import require_equal
from ..node import OnnxNode, normal_axes, normal_axis
from ..registry import converts
from ..value import OnnxValue
from .conv import per_channel

R = relax.op


@converts("BatchNormalization")
def batch_normalization(node: OnnxNode) -> OnnxValue | list[OnnxValue | None]:
    """x * a + b with a = scale / sqrt(var + eps) and b = bias - mean * a, computed here when they are constants."""
    x, scale, bias, mean, variance = (node.need(i) for i in range(5))
    if node.attr("training_mode", 0) and node.opset >= 14:
        return _trained(node)
    if node.opset < 14 and any(node.wants(i) for i in range(1, 5)):
        raise Refusal("it is in training mode")
    if node.opset < 7 and not node.attr("is_test", 0):
        raise Refusal("it is in training mode")
    if not node.attr("spatial", 1):
        raise Refusal("spatial=0 (one statistic for every position) is not supported")
    if is_open(x.shape[1:2]):
        require_equal(x.shape[1], scale.size, f"the channels of {x} and the scale {scale}")
    epsilon = node.attr("epsilon", 1e-5)
    known = [v.array for v in (scale, bias, mean, variance)]
    dtype = x.dtype
    if all(k is not None for k in known):
        s, b, m, v = (k.astype("float64") for k in known if k is not None)
        factor = s / np.sqrt(v + epsilon)
        a, c = node.const(factor, "float32"), node.const(b - m * factor, "float32")
        if dtype == "float64":
            a, c = node.const(factor), node.const(b - m * factor)
    else:
        wide = "float64" if dtype == "float64" else "float32"
        s_, b_, m_, v_ = (node.cast(k, wide) for k in (scale, bias, mean, variance))
        a = node.do(R.divide, s_, node.do(R.sqrt, node.do(R.add, v_, node.scalar(epsilon, v_))))
        c = node.do(R.subtract, b_, node.do(R.multiply, m_, a))
    x = node.cast(x, a.dtype)
    scaled = node.do(R.multiply, x, per_channel(node, a, x.rank))
    return node.cast(node.do(R.add, scaled, per_channel(node, c, x.rank)), dtype)


def _trained(node: OnnxNode) -> list[OnnxValue | None]:
    """Training mode: normalised by the batch's own statistics; the running ones move towards those."""
    x, scale, bias, old_mean, old_variance = (node.need(i) for i in range(5))
    axes = [0, *range(2, x.rank)]
    wide = "float64" if x.dtype == "float64" else "float32"
    v = node.cast(x, wide)
    mean = node.do(R.mean, v, axis=axes, keepdims=True)
    centred = node.own("halotile.centre", v, axes=axes)
    variance = node.do(R.mean, node.do(R.multiply, centred, centred), axis=axes, keepdims=True)
    root = node.do(R.sqrt, node.do(R.add, variance, node.scalar(node.attr("epsilon", 1e-5), v)))
    factor = node.do(R.divide, per_channel(node, node.cast(scale, wide), x.rank), root)
    y = node.do(R.add, node.do(R.multiply, centred, factor), per_channel(node, node.cast(bias, wide), x.rank))
    momentum = node.attr("momentum", 0.9)

    def moved(old: OnnxValue, new: OnnxValue) -> OnnxValue:
        kept = node.do(R.multiply, node.cast(old, wide), node.scalar(momentum, new))
        added = node.do(R.multiply, node.reshape(new, old.shape), node.scalar(1 - momentum, new))
        return node.cast(node.do(R.add, kept, added), old.dtype)

    return [node.cast(y, x.dtype), moved(old_mean, mean), moved(old_variance, variance)]


@converts("InstanceNormalization", since=6)
def instance_normalization(node: OnnxNode) -> OnnxValue:
    x, scale, bias = (node.need(i) for i in range(3))
    if x.rank < 3:
        raise Refusal(f"{x} has no spatial dimensions")
    if is_open(x.shape[1:2]):
        require_equal(x.shape[1], scale.size, f"the channels of {x} and the scale {scale}")

    def normalise(x: OnnxValue, scale: OnnxValue, bias: OnnxValue) -> OnnxValue:
        y = standardised(node, x, list(range(2, x.rank)), node.attr("epsilon", 1e-5))
        y = node.do(R.multiply, y, per_channel(node, scale, x.rank))
        return node.do(R.add, y, per_channel(node, bias, x.rank))

    return node.in_float32(normalise, x, scale, bias)


@converts("GroupNormalization", since=18)
def group_normalization(node: OnnxNode) -> OnnxValue:
    """Scale and bias are one per group before opset 21, one per channel since."""
    x, scale, bias = (node.need(i) for i in range(3))
    groups = node.attr("num_groups")
    n, channels = x.shape[:2]
    if groups < 1 or not is_open([channels]) and channels % groups:
        raise Refusal(f"{groups} groups do not divide the channels of {x}")
    if is_open([channels]):
        require_equal(channels, channels // groups * groups, f"{groups} groups of the channels of {x}")
        if scale.size != groups:
            require_equal(channels, scale.size, f"the channels of {x} and the scale {scale}")

    def normalise(x: OnnxValue, scale: OnnxValue, bias: OnnxValue) -> OnnxValue:
        grouped = node.reshape(x, (n, groups, -(-x.size // (n * groups))))
        y = standardised(node, grouped, [2], node.attr("epsilon", 1e-5))
        if scale.size == groups and node.opset < 21:
            y = node.do(R.multiply, y, per_channel(node, scale, 3))
            y = node.do(R.add, y, per_channel(node, bias, 3))
            return node.reshape(y, x.shape)
        y = node.do(R.multiply, node.reshape(y, x.shape), per_channel(node, scale, x.rank))
        return node.do(R.add, y, per_channel(node, bias, x.rank))

    return node.in_float32(normalise, x, scale, bias)


@converts("LayerNormalization")  # ONNX Runtime writes it into models of any opset
def layer_normalization(node: OnnxNode) -> list[OnnxValue | None]:
    """The statistics are of the type that ``stash_type`` names (float32 of float64 data too), which are computed in at
    least float32 and in float64 of such data."""
    x, scale, bias = node.need(0), node.need(1), node[2]
    axis = normal_axis(node.attr("axis", -1), x.rank)
    axes = list(range(axis, x.rank))
    epsilon = node.attr("epsilon", 1e-5)
    wide = "float64" if x.dtype == "float64" else "float32"
    v = node.cast(x, wide)
    full = v.shape[axis:]
    if not (node.wants(1) or node.wants(2)):
        gamma = node.broadcast(node.cast(scale, wide), full)
        beta = node.broadcast(node.const(np.zeros((), wide)) if bias is None else node.cast(bias, wide), full)
        y = node.do(R.nn.layer_norm, v, gamma, beta, axes=axes, epsilon=epsilon)
        return [node.cast(y, x.dtype), None, None]
    mean = node.do(R.mean, v, axis=axes, keepdims=True)
    inverse = inverse_deviation(node, v, axes, epsilon)
    y = node.cast(standardised(node, v, axes, epsilon), x.dtype)
    y = node.do(R.multiply, y, scale)
    stash = dtype_name(node.attr("stash_type", 1)) or "float32"
    return [y if bias is None else node.do(R.add, y, bias), node.cast(mean, stash), node.cast(inverse, stash)]


@converts("RMSNormalization", since=23)
def rms_normalization(node: OnnxNode) -> OnnxValue:
    x, scale = node.need(0), node.need(1)
    axis = normal_axis(node.attr("axis", -1), x.rank)
    wide = "float64" if x.dtype == "float64" else "float32"
    v = node.cast(x, wide)
    square = node.do(R.mean, node.do(R.multiply, v, v), axis=list(range(axis, x.rank)), keepdims=True)
    root = node.do(R.sqrt, node.do(R.add, square, node.scalar(node.attr("epsilon", 1e-5), v)))
    return node.do(R.multiply, node.cast(node.do(R.divide, v, root), scale.dtype), scale)


@converts("MeanVarianceNormalization", since=9)
def mean_variance_normalization(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    axes = normal_axes(node.attr("axes", [0, 2, 3]), x.rank)

    def normalise(x: OnnxValue) -> OnnxValue:
        centred = node.own("halotile.centre", x, axes=axes)
        square = node.do(R.mean, node.do(R.multiply, centred, centred), axis=axes, keepdims=True)
        return node.do(R.divide, centred, node.do(R.add, node.do(R.sqrt, square), node.scalar(1e-9, x)))

    return node.in_float32(normalise, x)


@converts("LpNormalization")
def lp_normalization(node: OnnxNode) -> OnnxValue:
    """x / norm, and zero where the norm is zero."""
    x = node.need(0)
    axis = normal_axis(node.attr("axis", -1), x.rank)

    def normalise(x: OnnxValue) -> OnnxValue:
        if node.attr("p", 2) == 1:
            norm = node.do(R.sum, node.do(R.abs, x), axis=[axis], keepdims=True)
        else:
            norm = node.do(R.sqrt, node.do(R.sum, node.do(R.multiply, x, x), axis=[axis], keepdims=True))
        zero = node.do(R.equal, norm, node.scalar(0, x))
        return node.do(R.divide, x, node.do(R.where, zero, node.scalar(1, x), norm))

    return node.in_float32(normalise, x)


@converts("LRN")
def local_response_normalization(node: OnnxNode) -> OnnxValue:
    """x / (bias + alpha / size * sum of squares over the neighbouring channels) ^ beta, by square roots where beta is
    0.5 or 0.75."""
    x = node.need(0)
    size = node.attr("size")
    if not 0 < size < 2**31:
        raise Refusal(f"its size {size} is no number of channels")
    alpha, beta, bias = node.attr("alpha", 1e-4), node.attr("beta", 0.75), node.attr("bias", 1.0)

    def normalise(x: OnnxValue) -> OnnxValue:
        total = node.own("halotile.channel_window_sum", node.do(R.multiply, x, x), size=size)
        base = node.do(R.multiply, total, node.scalar(alpha / size, x))
        base = node.do(R.add, base, node.scalar(bias, x))
        # where no base is below zero, these powers are roots, a fraction of the work of a power that is rounded once
        roots = alpha >= 0 and bias >= 0 and beta in (0.5, 0.75)
        if not roots:
            return node.do(R.divide, x, node.do(R.power, base, node.scalar(beta, x)))
        root = node.do(R.sqrt, base)
        return node.do(R.divide, x, root if beta == 0.5 else node.do(R.multiply, root, node.do(R.sqrt, root)))

    return node.in_float32(normalise, x)


def standardised(node: OnnxNode, x: OnnxValue, axes: list[int], epsilon: float) -> OnnxValue:
    """(x - mean) / sqrt(variance + eps), to the last digits of x however large the mean is."""
    return node.own("halotile.standardise", x, axes=axes, epsilon=epsilon)


def inverse_deviation(node: OnnxNode, x: OnnxValue, axes: list[int], epsilon: float) -> OnnxValue:
    """1 / sqrt(variance + eps) over ``axes``."""
    centred = node.own("halotile.centre", x, axes=axes)
    variance = node.do(R.mean, node.do(R.multiply, centred, centred), axis=axes, keepdims=True)
    root = node.do(R.sqrt, node.do(R.add, variance, node.scalar(epsilon, centred)))
    return node.do(R.divide, node.scalar(1, root), root)
