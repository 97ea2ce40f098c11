"""Blocks on images, [N, C, H, W] -> [N, C', H', W']: what networks of the last ten years are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto
from whole_graph import Graph, Impossible, Tensor

Block = Callable[[Graph, Tensor], Tensor]
CHANNELS = (1, 3, 5, 8, 12, 16, 17, 24, 32, 33)


def activation(g: Graph, x: Tensor) -> Tensor:
    kind = g.pick("Relu Relu Relu Sigmoid Tanh LeakyRelu HardSwish HardSigmoid Elu Softplus Clip Swish Gelu PRelu "
                  "Mish Abs Erf Softsign Selu Celu ThresholdedRelu Shrink Exp".split())  # fmt: skip
    if kind == "Clip":
        bounds = g.pick([(0.0, 6.0), (-1.0, None), (None, 0.5)])
        return g.add("Clip", x, *(None if b is None else g.scalar(b) for b in bounds))
    if kind == "Swish":
        return g.add("Mul", x, g.add("Sigmoid", x))
    if kind == "Gelu":
        inner = g.add("Erf", g.add("Div", x, g.scalar(2**0.5)))
        return g.add("Mul", g.add("Mul", x, g.add("Add", inner, g.scalar(1.0))), g.scalar(0.5))
    if kind == "PRelu":
        return g.add("PRelu", x, g.weight(*g.pick([(1,), (x.shape[1],) + (1,) * (x.rank - 2)])))
    if kind == "Exp":
        return g.add("Exp", g.add("Neg", g.add("Abs", x)))
    known = {"LeakyRelu": {"alpha": 0.1}, "Shrink": {"bias": 0.1, "lambd": 0.3}, "ThresholdedRelu": {"alpha": 0.2}}
    return g.add(kind, x, **known.get(kind, {}))


def normal(g: Graph, x: Tensor) -> Tensor:
    c = x.shape[1]
    kind = g.pick(("batch", "batch", "batch", "instance", "group", "lrn", "layer"))
    if kind == "batch":
        return g.add("BatchNormalization", x, g.positive(c), g.weight(c), g.weight(c), g.positive(c))
    if kind == "instance" and x.shape[2] * x.shape[3] > 4:
        return g.add("InstanceNormalization", x, g.positive(c), g.weight(c))
    if kind == "group" and c % 4 == 0:  # as PyTorch exports it
        n, _, h, w = x.shape
        y = g.reshape(x, (n, 4, c // 4 * h * w))
        y = g.add("InstanceNormalization", y, g.constant(np.ones(4)), g.constant(np.zeros(4)))
        y = g.add("Mul", g.add("Reshape", y, g.ints(n, c, h, w)), g.positive(c, 1, 1))
        return g.add("Add", y, g.weight(c, 1, 1))
    if kind == "lrn" and c > 2:
        return g.add("LRN", x, size=3, alpha=0.1)
    if c > 2:  # over channels, as ConvNeXt has it
        y = g.transpose(x, 0, 2, 3, 1)
        y = g.add("LayerNormalization", y, g.positive(c), g.weight(c), epsilon=1e-3)
        return g.transpose(y, 0, 3, 1, 2)
    return x


def conv(g: Graph, x: Tensor, outputs: int | None = None, same: bool = False, kernel: int | None = None) -> Tensor:
    """A convolution of any kind; with ``same`` it keeps height and width."""
    c = x.shape[1]
    size = [kernel or g.pick((1, 3, 3, 3, 5))] * 2
    if not same and g.chance(0.3):
        size = [g.pick((1, 2, 3, 4, 7)), g.pick((1, 3))]
    if same:
        size = [k | 1 for k in size]
    groups = 1
    if outputs is None:
        kind = g.pick(("full", "full", "full", "deep", "grouped", "multiplied"))
        divisors = [d for d in range(2, c) if c % d == 0]
        if kind == "deep":
            groups = outputs = c
        elif kind == "multiplied":
            groups, outputs = c, 2 * c
        elif kind == "grouped" and divisors:
            groups = g.pick(divisors)
            outputs = groups * g.pick((1, 2, 3, c // groups))
        else:
            outputs = g.pick(CHANNELS)
    strides = [1, 1] if same or g.chance(0.6) else [g.pick((1, 2)), g.pick((1, 2, 3))]
    dilations = [1, 1] if g.chance(0.75) else [g.pick((1, 2, 3)), g.pick((1, 2))]
    attributes: dict[str, Any] = {}
    if same:
        attributes["pads"] = [d * (k - 1) // 2 for d, k in zip(dilations, size)] * 2
    elif g.chance(0.2) and dilations == [1, 1]:
        attributes["auto_pad"] = g.pick(("SAME_UPPER", "SAME_LOWER", "VALID"))
    else:
        attributes["pads"] = [g.between(0, 3) for _ in range(4)]
    bias = g.weight(outputs) if g.chance(0.7) else None
    return g.add("Conv", x, g.weight(outputs, c // groups, *size), bias, kernel_shape=size, group=groups,
                 strides=strides, dilations=dilations, **attributes)  # fmt: skip


def conv_layer(g: Graph, x: Tensor) -> Tensor:
    y = conv(g, x)
    y = normal(g, y) if g.chance(0.4) else y
    return activation(g, y) if g.chance(0.7) else y


def pool(g: Graph, x: Tensor) -> Tensor:
    size = [g.pick((2, 3)), g.pick((1, 2, 3))] if g.chance(0.5) else [g.pick((2, 3, 5))] * 2
    strides = [g.pick((1, 2, 2, 3)), g.pick((1, 2, 3))]
    pads = [g.between(0, (k - 1) // 2) for k in size * 2]
    kind = g.pick(("MaxPool", "MaxPool", "AveragePool"))
    extra: dict[str, Any] = {"ceil_mode": int(g.chance(0.3))}
    for i, n in enumerate(x.shape[2:]):  # about windows that begin in the padding after, runtimes disagree
        count = -(-(n + pads[i] + pads[i + 2] - size[i]) // strides[i])
        if count * strides[i] >= n + pads[i] or n + pads[i] + pads[i + 2] < size[i]:
            extra["ceil_mode"] = 0
    if kind == "AveragePool":
        extra = {"ceil_mode": 0, "count_include_pad": int(g.chance(0.5))}
    return g.add(kind, x, kernel_shape=size, pads=pads, strides=strides, **extra)


def residual(g: Graph, x: Tensor) -> Tensor:
    """A bottleneck with a shortcut, squeezed and excited as often as not."""
    inner, outputs = g.pick(CHANNELS[3:]), x.shape[1] if g.chance(0.6) else g.pick(CHANNELS[3:])
    y = activation(g, conv(g, x, inner, same=True, kernel=1))
    c = y.shape[1]
    pads, groups = [1] * 4, c if g.chance(0.5) else 1
    y = g.add("Conv", y, g.weight(c, c // groups, 3, 3), g.weight(c), pads=pads, group=groups)
    y = activation(g, normal(g, y))
    y = excite(g, y) if g.chance(0.5) else y
    y = conv(g, y, outputs, same=True, kernel=1)
    short = x if outputs == x.shape[1] else conv(g, x, outputs, same=True, kernel=1)
    y = g.add("Add", y, short) if g.chance(0.5) else g.add("Add", short, y)
    return activation(g, y) if g.chance(0.6) else y


def excite(g: Graph, x: Tensor) -> Tensor:
    n, c = x.shape[:2]
    if g.chance(0.5):
        y = g.add("GlobalAveragePool", x) if g.chance(0.5) else g.add("ReduceMean", x, g.ints(2, 3), keepdims=1)
        y = g.add("Relu", conv(g, y, max(1, c // 4), same=True, kernel=1))
        y = conv(g, y, c, same=True, kernel=1)
    else:
        y = g.add("ReduceMean", x, g.ints(-1, -2), keepdims=0)
        y = g.add("Gemm", y, g.weight(max(1, c // 4), c), g.weight(max(1, c // 4)), transB=1)
        y = g.add("Gemm", g.add("Relu", y), g.weight(y.shape[1], c), g.weight(c))
        y = g.reshape(y, (n, c, 1, 1))
    return g.add("Mul", x, g.add(g.pick(("Sigmoid", "HardSigmoid")), y))


def branches(g: Graph, x: Tensor) -> Tensor:
    """Several ways side by side, joined along channels."""
    ways = [conv(g, x, g.pick(CHANNELS), same=True) for _ in range(g.between(1, 3))]
    ways = [activation(g, w) if g.chance(0.6) else w for w in ways]
    if g.chance(0.5):
        ways.append(g.add("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1]))
    if g.chance(0.4):
        ways.append(x)
    if g.chance(0.2):
        ways.append(ways[0])  # twice the same
    return g.add("Concat", *ways, axis=g.pick((1, -3)))


def dense(g: Graph, x: Tensor) -> Tensor:
    for _ in range(g.between(1, 3)):
        x = g.add("Concat", x, activation(g, conv(g, x, g.pick((4, 8, 5)), same=True)), axis=1)
    return x


def split_ways(g: Graph, x: Tensor) -> Tensor:
    """Part of the channels goes through layers, as in ShuffleNet and CSP networks; perhaps they are shuffled then."""
    parts = g.chunks(x, 1, 2)
    y = conv_same(g, parts[0])
    order = [y, parts[1]] if g.chance(0.5) else [parts[1], y]
    y = g.add("Concat", *order, axis=1)
    return shuffle_channels(g, y) if g.chance(0.6) else y


def conv_same(g: Graph, x: Tensor) -> Tensor:
    return activation(g, conv(g, x, g.pick(CHANNELS), same=True))


def shuffle_channels(g: Graph, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    groups = next((k for k in (3, 2, 4) if c % k == 0), None)
    if groups is None:
        raise Impossible("channels do not divide")
    y = g.transpose(g.reshape(x, (n, groups, c // groups, h, w)), 0, 2, 1, 3, 4)
    return g.add("Reshape", y, g.ints(n, -1, h, w))


def resize(g: Graph, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    scale = g.pick((2, 2, 3, 1.5, 0.5, 0.7))
    sizes = g.ints(n, c, max(1, int(h * scale)), max(1, int(w * scale)))
    mode = g.pick(("nearest", "nearest", "linear", "linear", "cubic"))
    where = g.pick(("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"))
    attributes = {"mode": mode, "coordinate_transformation_mode": where}
    if mode == "nearest":
        attributes["nearest_mode"] = g.pick(("floor", "round_prefer_floor"))
    if g.chance(0.4) and where != "align_corners":
        return g.add("Resize", x, None, g.constant(np.array([1, 1, scale, scale], np.float32)), None, **attributes)
    return g.add("Resize", x, None, None, sizes, **attributes)


def upwards(g: Graph, x: Tensor) -> Tensor:
    if x.shape[1] % 4 == 0 and g.chance(0.4):
        return g.add("DepthToSpace", x, blocksize=2, mode=g.pick(("CRD", "DCR")))
    c, outputs, stride = x.shape[1], g.pick(CHANNELS[:6]), g.pick((1, 2, 2, 3))
    kernel = g.pick((stride, stride + 1, 3, 4))
    groups = g.pick((1, 1, c)) if outputs % c == 0 else 1
    extra = {"output_padding": [1, 0]} if stride > 1 and g.chance(0.3) else {}
    bias = g.weight(outputs) if g.chance(0.6) else None
    pads = [g.between(0, min(1, kernel - 1)) for _ in range(4)]
    return g.add("ConvTranspose", x, g.weight(c, outputs // groups, kernel, kernel, fan=c * 4), bias, group=groups,
                 kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, **extra)  # fmt: skip


def downwards(g: Graph, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    if h % 2 or w % 2:
        return pool(g, x)
    if g.chance(0.4):
        return g.add("SpaceToDepth", x, blocksize=2)
    if g.chance(0.5):  # YOLO's focus
        parts = [g.slice(g.slice(x, 2, i, h + 9, 2), 3, j, w + 9, 2) for j in (0, 1) for i in (0, 1)]
        return g.add("Concat", *parts, axis=1)
    y = g.transpose(g.reshape(x, (n, c, h // 2, 2, w // 2, 2)), 0, 3, 5, 1, 2, 4)
    return g.add("Reshape", y, g.ints(n, 4 * c, h // 2, w // 2))


def pad(g: Graph, x: Tensor) -> Tensor:
    mode = g.pick(("constant", "constant", "reflect", "edge"))
    most = min(3, min(x.shape[2:]) - 1)
    low = -1 if mode == "constant" and min(x.shape[2:]) > 4 else 0
    if most < 1:
        raise Impossible("too small")
    pads = [0, 0, g.between(low, most), g.between(0, most), 0, 0, g.between(0, most), g.between(low, most)]
    if mode == "constant" and g.chance(0.2):
        pads[1], pads[5] = g.between(0, 3), g.between(0, 5)
    value = g.scalar(g.pick((0.0, 0.5, -1.0))) if mode == "constant" and g.chance(0.7) else None
    return g.add("Pad", x, g.ints(*pads), value, mode=mode)


def cut(g: Graph, x: Tensor) -> Tensor:
    axis = g.pick((1, 2, 3, 2, 3))
    n = x.shape[axis]
    kind = g.pick(("plain", "steps", "flip", "roll"))
    if kind == "flip":
        return g.slice(x, axis, -1, -(n + 5), -1)
    if kind == "roll" and n > 2:
        at = g.between(1, n - 1)
        return g.add("Concat", g.slice(x, axis, at, 2**31), g.slice(x, axis, 0, at), axis=axis)
    start = g.between(0, n // 3)
    return g.slice(x, axis, start, n - g.between(0, n // 4), g.pick((2, 3)) if kind == "steps" else 1)


def broadcast(g: Graph, x: Tensor) -> Tensor:
    """With a constant, or a second input, of any shape that broadcasts."""
    n, c, h, w = x.shape
    shape = g.pick([(c, 1, 1), (1, c, 1, 1), (h, w), (w,), (), (1, 1, h, 1), (n, 1, 1, 1), (1, c, h, w), (n, c, 1, w)])
    kind = g.pick(("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow"))
    if kind == "Div":
        return g.add("Div", x, g.positive(*shape))
    if kind == "Pow":
        return g.add("Pow", x, g.scalar(2.0))
    if g.chance(0.2) and len(g.inputs) < 4 and shape:
        other = g.input(shape)
    else:
        other = g.weight(*shape, fan=2)
    return g.add(kind, x, other) if g.chance(0.6) else g.add(kind, other, x)


def join(g: Graph, x: Tensor) -> Tensor:
    """With an earlier value of the same shape, or one that broadcasts to it."""
    n, c, h, w = x.shape
    whole = [v for v in g.values if v.is_float and v.name != x.name and v.rank == 4]
    fits = [v for v in whole if all(a in (1, b) for a, b in zip(v.shape, x.shape))]
    if not fits:
        raise Impossible("nothing fits")
    return g.add(g.pick(("Add", "Add", "Mul", "Sub", "Max")), x, g.pick(fits))


def attend_in_space(g: Graph, x: Tensor) -> Tensor:
    """CBAM's spatial half: statistics over channels, a convolution, a gate."""
    both = g.add("Concat", g.add("ReduceMean", x, g.ints(1), keepdims=1), g.add("ReduceMax", x, g.ints(1)), axis=1)
    return g.add("Mul", g.add("Sigmoid", conv(g, both, 1, same=True, kernel=g.pick((3, 5)))), x)


def attend_over_channels(g: Graph, x: Tensor) -> Tensor:
    """Every channel's similarity with every other, on the flattened image."""
    n, c, h, w = x.shape
    flat = g.reshape(x, (n, c, h * w))
    scores = g.add("MatMul", flat, g.transpose(flat, 0, 2, 1))
    weights = g.add("Softmax", g.add("Mul", scores, g.scalar(1.0 / (h * w))), axis=g.pick((-1, 1)))
    return g.add("Add", g.reshape(g.add("MatMul", weights, flat), (n, c, h, w)), x)


def modulate(g: Graph, x: Tensor) -> Tensor:
    """A scale and shift for every channel, computed from the image's own mean."""
    n, c = x.shape[:2]
    mean = g.add("Flatten", g.add("GlobalAveragePool", x))
    both = g.add("Gemm", mean, g.weight(2 * c, c), g.weight(2 * c), transB=1)
    scale, shift = g.chunks(both, 1, 2)
    y = g.add("Mul", x, g.add("Unsqueeze", g.add("Unsqueeze", scale, g.ints(2)), g.ints(-1)))
    return g.add("Add", y, g.reshape(shift, (n, c, 1, 1)))


def run_time_weights(g: Graph, x: Tensor) -> Tensor:
    """A convolution whose weights are computed, as StyleGAN's (batch folded into groups)."""
    n, c, h, w = x.shape
    outputs = g.pick((3, 4, 8))
    style = g.add("Reshape", g.add("GlobalAveragePool", x), g.ints(n, 1, c, 1, 1))
    weights = g.add("Mul", g.weight(1, outputs, c, 3, 3, fan=9 * c), style)
    size = g.add("ReduceSumSquare", weights, g.ints(2, 3, 4), keepdims=1)
    norm = g.add("Reciprocal", g.add("Sqrt", g.add("Add", size, g.scalar(0.1))))
    weights = g.add("Reshape", g.add("Mul", weights, norm), g.ints(n * outputs, c, 3, 3))
    y = g.add("Conv", g.reshape(x, (1, n * c, h, w)), weights, group=n, pads=[1] * 4)
    return g.add("Reshape", y, g.ints(n, outputs, h, w))


def sampled(g: Graph, x: Tensor) -> Tensor:
    """The image read at positions that a convolution computes."""
    n, _, h, w = x.shape
    grid = g.transpose(g.add("Tanh", conv(g, x, 2, same=True)), 0, 2, 3, 1)
    return g.add("GridSample", x, grid, mode=g.pick(("bilinear", "nearest")), align_corners=g.between(0, 1),
                 padding_mode=g.pick(("zeros", "border", "reflection")))  # fmt: skip


def where(g: Graph, x: Tensor) -> Tensor:
    mask = g.add(g.pick(("Greater", "Less", "GreaterOrEqual")), x, g.scalar(0.1))
    if g.chance(0.3):
        mask = g.add("Not", mask)
    if g.chance(0.3):
        return g.add("Mul", x, g.cast(mask, g.real))
    return g.add("Where", mask, x, g.pick([g.scalar(0.25), g.weight(1, x.shape[1], 1, 1)]))


def quantized(g: Graph, x: Tensor) -> Tensor:
    """Quantised and back, then a convolution on weights stored in 8 bits."""
    if g.real != TensorProto.FLOAT:
        raise Impossible("quantisation has float32 scales here")
    signed = g.chance(0.5)
    kind, zero = (np.int8, g.between(-5, 5)) if signed else (np.uint8, g.between(100, 140))
    scale, offset = g.constant(np.array(0.03, np.float32)), g.constant(np.array(zero, kind))
    y = g.add("DequantizeLinear", g.add("QuantizeLinear", x, scale, offset), scale, offset)
    outputs, c = g.pick(CHANNELS), x.shape[1]
    stored = g.constant(g.rng.integers(-127, 128, (outputs, c, 3, 3)).astype(np.int8))
    scales = g.constant(g.rng.uniform(0.001, 0.01, outputs).astype(np.float32))
    weights = g.add("DequantizeLinear", stored, scales, g.constant(np.zeros(outputs, np.int8)), axis=0)
    return g.add("Relu", g.add("Conv", y, weights, g.weight(outputs), pads=[1] * 4))


BLOCKS: list[Block] = [
    *[conv_layer] * 8, *[pool] * 3, *[residual] * 4, *[branches] * 2, dense, split_ways, shuffle_channels,
    *[resize] * 3, *[upwards] * 2, *[downwards] * 2, *[pad] * 2, *[cut] * 2, *[broadcast] * 3, *[join] * 4, excite,
    attend_in_space, attend_over_channels, modulate, run_time_weights, sampled, where, activation, normal, quantized,
]  # fmt: skip
