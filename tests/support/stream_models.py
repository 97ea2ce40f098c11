"""Models whose height is open, for streams: random graphs of everything that moves rows, and a few networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Maker:
    """Collects nodes; every method gives the name of its result."""

    def __init__(self, seed: int = 0, channels: int = 4) -> None:
        self.random, self.channels = np.random.default_rng(seed), channels
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def const(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"n{len(self.nodes)}", **attributes))
        return name

    def weights(self, *shape: int) -> str:
        scale = 1 / np.sqrt(np.prod(shape[1:]))
        return self.const((self.random.standard_normal(shape) * scale).astype(np.float32))

    def conv(self, x: str, into: int, out: int, kernel: int = 3, pads: Any = None, **attributes: Any) -> str:
        dilation = attributes.get("dilations", [1])[0]
        pads = [dilation * (kernel // 2)] * 4 if pads is None else pads
        shape = [kernel, kernel]
        return self.op("Conv", x, self.weights(out, into, kernel, kernel), kernel_shape=shape, pads=pads, **attributes)

    def model(
        self, outputs: list[str], width: int, *, batch: int = 1, height: Any = "h", channels: int = 3
    ) -> onnx.ModelProto:
        """The nodes that the outputs need."""
        needed = set(outputs)
        for node in reversed(self.nodes):
            if needed & set(node.output):
                needed |= set(node.input)
        nodes = [n for n in self.nodes if n.output[0] in needed]
        constants = [c for c in self.constants if c.name in needed]
        given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, channels, height, width])]
        taken = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
        graph = helper.make_graph(nodes, "rows", given, taken, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def upscaler(width: int = 24, height: Any = "h") -> onnx.ModelProto:
    """Three convolutions and pixels shuffled to twice the size."""
    m = Maker()
    y = m.op("Relu", m.conv("x", 3, 8, 5))
    y = m.conv(m.op("Relu", m.conv(y, 8, 8)), 8, 12)
    return m.model([m.op("DepthToSpace", y, blocksize=2, mode="CRD")], width, height=height)


def unet(width: int = 24, batch: int = 1) -> onnx.ModelProto:
    """Two levels down and up again, the second time by interpolation, and skips."""
    m = Maker(1)
    a = m.op("Relu", m.conv("x", 3, 4))
    b = m.op("Relu", m.conv(m.op("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2]), 4, 8))
    c = m.op("Relu", m.conv(m.op("MaxPool", b, kernel_shape=[2, 2], strides=[2, 2]), 8, 8))
    up = m.op("ConvTranspose", c, m.weights(8, 8, 2, 2), strides=[2, 2])
    y = m.op("Relu", m.conv(m.op("Concat", up, b, axis=1), 16, 4))
    scales = m.const(np.array([1, 1, 2, 2], np.float32))
    up = m.op("Resize", y, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
    return m.model([m.conv(m.op("Concat", up, a, axis=1), 8, 2)], width, batch=batch)


def random_graph(seed: int, width: int = 8, batch: int = 1, channels: int = 4) -> onnx.ModelProto:
    """A chain with skips of three to seven operators that move rows; convolutions give so many channels."""
    m = Maker(seed, channels)
    known: list[Made] = [("x", 3, width, ())]
    for _ in range(int(m.random.integers(3, 8))):
        last = known[int(m.random.integers(max(0, len(known) - 3), len(known)))]
        grow = KINDS[int(m.random.integers(len(KINDS)))]
        if grow is not _skip:
            known += [made] if (made := grow(m, *last)) is not None and made[2] <= 8 * width else []
            continue
        alike = [k for k in known if k[0] != last[0] and k[2:] == last[2:]]
        if alike:
            other = alike[int(m.random.integers(len(alike)))]
            known.append((m.op("Concat", last[0], other[0], axis=1), last[1] + other[1], *last[2:]))
    outputs = [known[-1][0]] if len(known) > 1 else [m.op("Relu", "x")]
    if len(known) > 3 and seed % 2:
        outputs.append(known[-2][0])
    return m.model(outputs, width, batch=batch)


Made = tuple[str, int, int, tuple[Any, ...]]  # name, channels, width, and what its height is


def _number(m: Maker, low: int, high: int) -> int:
    return int(m.random.integers(low, high))


def _conv(m: Maker, x: str, c: int, w: int, h: tuple[Any, ...]) -> Made:
    k = int(m.random.choice([1, 3, 5]))
    a, b = _number(m, 0, k), _number(m, 0, k)
    return m.op("Relu", m.conv(x, c, m.channels, k, [a, k // 2, b, k // 2])), m.channels, w, (*h, k, a + b)


def _dilated(m: Maker, x: str, c: int, w: int, h: tuple[Any, ...]) -> Made:
    return m.conv(x, c, m.channels, dilations=[2, 2]), m.channels, w, h


def _depthwise(m: Maker, x: str, c: int, w: int, h: tuple[Any, ...]) -> Made:
    return m.op("Conv", x, m.weights(c, 1, 3, 3), pads=[1] * 4, group=c), c, w, h


def _strided(m: Maker, x: str, c: int, w: int, h: tuple[Any, ...]) -> Made:
    a, b = _number(m, 0, 3), _number(m, 0, 3)
    y = m.conv(x, c, m.channels, 3, [a, 1, b, 1], strides=[2, 2])
    return y, m.channels, (w - 1) // 2 + 1, (*h, "strided", a, b)


def _max(m: Maker, x: str, c: int, w: int, h: tuple[Any, ...]) -> Made:
    return m.op("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4), c, w, h


def _ceil(m: Maker, x: str, c: int, w: int, h: tuple[Any, ...]) -> Made | None:
    if w < 5:
        return None
    y = m.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    return y, c, -(-(w - 3) // 2) + 1, (*h, "ceil")


def _mean(m: Maker, x: str, c: int, w: int, h: tuple[Any, ...]) -> Made:
    return m.op("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=_number(m, 0, 2)), c, w, h


def _transposed(m: Maker, x: str, c: int, w: int, h: tuple[Any, ...]) -> Made:
    k, extra, d = _number(m, 2, 6), _number(m, 0, 2), _number(m, 1, 3)
    a, b = _number(m, 0, k), _number(m, 0, k)
    y = m.op(
        "ConvTranspose", x, m.weights(c, 3, k, 2), strides=[2, 2], pads=[a, 0, b, 0], output_padding=[extra, 0],
        dilations=[d, 1],
    )  # fmt: skip
    return y, 3, 2 * w, (*h, "transposed", k, a + b, extra, d)


def _resized(m: Maker, x: str, c: int, w: int, h: tuple[Any, ...]) -> Made:
    mode = str(m.random.choice(["nearest", "linear", "cubic"]))
    place = "asymmetric" if mode == "nearest" else "half_pixel"
    scales = m.const(np.array([1, 1, 2, 2], np.float32))
    y = m.op("Resize", x, "", scales, mode=mode, coordinate_transformation_mode=place, nearest_mode="floor")
    return y, c, 2 * w, (*h, "twice")


def _pad(m: Maker, x: str, c: int, w: int, h: tuple[Any, ...]) -> Made:
    a, b = _number(m, 0, 3), _number(m, 1, 3)
    mode = str(m.random.choice(["constant", "reflect", "edge"]))
    value = [m.const(np.float32(0.5))] if mode == "constant" else []
    y = m.op("Pad", x, m.const(np.array([0, 0, a, 0, 0, 0, b, 0])), *value, mode=mode)
    return y, c, w, (*h, "pad", a + b)


def _cut(m: Maker, x: str, c: int, w: int, h: tuple[Any, ...]) -> Made:
    a, b = _number(m, 0, 3), _number(m, 1, 3)
    y = m.op("Slice", x, m.const(np.array([a])), m.const(np.array([-b])), m.const(np.array([2])))
    return y, c, w, (*h, "cut", a + b)


def _shuffled(m: Maker, x: str, c: int, w: int, h: tuple[Any, ...]) -> Made | None:
    return None if c % 4 else (m.op("DepthToSpace", x, blocksize=2), c // 4, 2 * w, (*h, "twice"))


def _over_channels(m: Maker, x: str, c: int, w: int, h: tuple[Any, ...]) -> Made:
    y = m.op("Softmax", m.op("Transpose", x, perm=[0, 2, 3, 1]), axis=-1)
    return m.op("Transpose", y, perm=[0, 3, 1, 2]), c, w, h


def _gated(m: Maker, x: str, c: int, w: int, h: tuple[Any, ...]) -> Made:
    return m.op("Mul", x, m.op("Sigmoid", x)), c, w, h


def _skip(m: Maker, x: str, c: int, w: int, h: tuple[Any, ...]) -> Made | None:
    """Joins with a value of the same size, which may have come another way."""


KINDS: tuple[Callable[..., Made | None], ...] = (
    _conv, _conv, _dilated, _depthwise, _strided, _max, _ceil, _mean, _transposed, _transposed, _resized, _resized,
    _pad, _pad, _cut, _shuffled, _over_channels, _gated, _skip, _skip, _skip,
)  # fmt: skip
