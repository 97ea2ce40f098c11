"""Models for builds in float16: every family of kernels, odd sizes, several inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    """A model in the making: ``net.add("Conv", "x", w, pads=...)`` returns the name of the result."""

    def __init__(self, *shapes: Sequence[Any], seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.inputs = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, s) for i, s in enumerate(shapes)]

    def weight(self, *shape: int, fan: int | None = None, scale: float = 1.4) -> str:
        """Random weights that keep the size of what they are multiplied with."""
        fan = int(np.prod(shape[1:])) if fan is None else fan
        return self.const((self.rng.standard_normal(shape) * scale / np.sqrt(fan)).astype(np.float32))

    def const(self, array: np.ndarray) -> str:
        name = f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, name=f"n{len(self.nodes)}", **attributes))
        return names[0] if outputs == 1 else names

    def conv(self, x: str, outputs: int, inputs: int, *kernel: int, act: str = "Relu", **attributes: Any) -> str:
        """A convolution with its bias, and an activation behind it."""
        groups = attributes.get("group", 1)
        bias = self.const(self.rng.standard_normal(outputs).astype(np.float32) / 4)
        y = self.add("Conv", x, self.weight(outputs, inputs // groups, *kernel), bias, **attributes)
        return self.add(act, y) if act else str(y)

    def model(self, *outputs: str, opset: int = 17) -> onnx.ModelProto:
        made = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
        graph = helper.make_graph(self.nodes, "halves", self.inputs, made, self.tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def classifier() -> onnx.ModelProto:
    """Few channels, depthwise, 1x1, squeeze and excite, silu, a pool and products, two outputs."""
    net = Net((2, 3, 37, 41))
    a = net.conv("x0", 24, 3, 3, 3, pads=[1] * 4, strides=[2, 2])
    b = net.conv(a, 24, 24, 3, 3, pads=[1] * 4, group=24, act="Sigmoid")
    c = net.add("Mul", a, b)
    s = net.add("GlobalAveragePool", c)
    s = net.conv(s, 7, 24, 1, 1)
    s = net.conv(s, 24, 7, 1, 1, act="Sigmoid")
    c = net.add("Mul", c, s)
    d = net.conv(c, 72, 24, 1, 1)
    p = net.add("MaxPool", d, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    e = net.add("Add", net.conv(p, 72, 72, 3, 3, pads=[1] * 4, act=""), p)
    f = net.add("Flatten", net.add("GlobalAveragePool", e))
    y = net.add("Gemm", f, net.weight(72, 33, fan=72), net.const(np.arange(33, dtype=np.float32) / 33))
    return net.model(net.add("Softmax", y), e)


def decoder() -> onnx.ModelProto:
    """Transposed and grouped convolutions, dilation, concatenation, slices, resizing, an average pool, few outputs."""
    net = Net((1, 16, 13, 17), (1, 8, 26, 34))
    a = net.conv("x0", 40, 16, 5, 5, pads=[2] * 4)
    up = net.add("ConvTranspose", a, net.weight(40, 24, 4, 4, fan=160), strides=[2, 2], pads=[1] * 4)
    both = net.add("Concat", net.add("LeakyRelu", up, alpha=0.1), "x1", axis=1)
    b = net.conv(both, 32, 32, 3, 3, pads=[2] * 4, dilations=[2, 2], group=4)
    left, right = net.add("Split", b, outputs=2, axis=1)
    c = net.conv(left, 16, 16, 3, 3, pads=[1] * 4, act="HardSwish")
    d = net.add("AveragePool", net.add("Mul", c, right), kernel_shape=[3, 3], pads=[1] * 4)
    scales = net.const(np.array([1, 1, 2, 2], np.float32))
    e = net.add("Resize", d, "", scales, mode="linear")
    return net.model(net.conv(e, 3, 16, 3, 3, pads=[1] * 4, act="Tanh"), net.conv(d, 5, 16, 1, 1, act=""))


def encoder() -> onnx.ModelProto:
    """A transformer's layer: norms, products, attention, GELU, for 19 tokens of 48 numbers."""
    net, heads, width = Net((2, 19, 48)), 4, 48
    one, zero = net.const(np.ones(width, np.float32)), net.const(np.zeros(width, np.float32))
    x = net.add("LayerNormalization", "x0", one, zero)
    parts = []
    for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        y = net.add("Add", net.add("MatMul", x, net.weight(width, width, fan=width)), zero)
        y = net.add("Reshape", y, net.const(np.array([2, 19, heads, width // heads], np.int64)))
        parts.append(net.add("Transpose", y, perm=perm))
    scores = net.add("Mul", net.add("MatMul", parts[0], parts[1]), net.const(np.float32(0.3)))
    mixed = net.add("MatMul", net.add("Softmax", scores, axis=-1), parts[2])
    mixed = net.add("Transpose", mixed, perm=[0, 2, 1, 3])
    mixed = net.add("Reshape", mixed, net.const(np.array([2, 19, width], np.int64)))
    x = net.add("Add", net.add("MatMul", mixed, net.weight(width, width, fan=width)), "x0")
    y = net.add("MatMul", net.add("LayerNormalization", x, one, zero), net.weight(width, 190, fan=width))
    y = net.add("Gelu", y)
    return net.model(net.add("Add", net.add("MatMul", y, net.weight(190, width, fan=190)), x), opset=20)


def lines() -> onnx.ModelProto:
    """Convolutions along one axis and three."""
    net = Net((1, 5, 101), (1, 4, 5, 7, 9))
    a = net.conv("x0", 19, 5, 7, pads=[3, 3])
    a = net.conv(a, 23, 19, 3, pads=[1, 1], strides=[2])
    b = net.conv("x1", 18, 4, 3, 3, 3, pads=[1] * 6)
    return net.model(a, net.conv(b, 9, 18, 1, 1, 1, act=""))


def stack(channels: Sequence[int], size: Sequence[int], kernel: int, scales: Sequence[float] = ()) -> onnx.ModelProto:
    """Convolutions of one size of kernel, one behind the other, with ReLU between, weights times ``scales``."""
    net, y = Net((1, channels[0], *size)), "x0"
    for i, (before, after) in enumerate(zip(channels, channels[1:])):
        scale = 1.4 * (scales[i] if scales else 1.0)
        y = net.add("Conv", y, net.weight(after, before, kernel, kernel, scale=scale), pads=[kernel // 2] * 4)
        y = y if i == len(channels) - 2 else net.add("Relu", y)
    return net.model(y)


def windows() -> onnx.ModelProto:
    """3x3 layers that Winograd's transforms are for, of sizes that no tile divides, and a residual."""
    net = Net((2, 61, 31, 37))
    a = net.conv("x0", 59, 61, 3, 3, pads=[1] * 4)
    b = net.conv(a, 59, 59, 3, 3, pads=[1] * 4, act="")
    c = net.add("Relu", net.add("Add", a, b))
    d = net.conv(c, 64, 59, 1, 1)
    return net.model(net.conv(d, 61, 64, 3, 3, act=""), b)


MODELS = {f.__name__: f for f in (classifier, decoder, encoder, lines, windows)}
