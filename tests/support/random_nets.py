"""Random networks of layers as exporters write them: images and rows of tokens, odd sizes, skips, several outputs.

    model = random_nets([seed])         one network
    model = random_nets(range(8))       several beside each other, each with an input and outputs of its own: one build

Values keep about the size of what they are made of, so that what a layer rounds shows in the outputs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from half_models import Net
from onnx import TensorProto, helper, numpy_helper, shape_inference

Shape = tuple[int, ...]
LARGEST = 60_000  # elements of a value
CHANNELS = (3, 5, 8, 16, 17, 24, 32, 37)


@dataclass(frozen=True)
class Made:
    """A value of the network: (batch, channels, height, width), or (batch, rows, features)."""

    name: str
    shape: Shape


class Grown:
    """A network in the making, within ``net``."""

    def __init__(self, net: Net, seed: int) -> None:
        self.net, self.random = net, random.Random(seed)
        shape = (self.pick(1, 1, 2, 3), self.pick(1, 3, 8, 17), self.random.randint(7, 29), self.random.randint(7, 29))
        name = f"x{len(net.inputs)}"
        net.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        self.known = [Made(name, shape)]
        self.used: set[str] = set()

    def pick(self, *values: Any) -> Any:
        return self.random.choice(values)

    def ints(self, low: int, high: int, count: int = 2) -> list[int]:
        return [self.random.randint(low, high) for _ in range(count)]

    def ints_const(self, *values: int) -> str:
        return self.net.const(np.array(values, np.int64))

    def op(self, kind: str, *inputs: Made | str, **attributes: Any) -> Made:
        """The result of one operator, with the shape that ONNX infers."""
        known = [i for i in inputs if isinstance(i, Made)]
        self.used.update(i.name for i in known)
        names = [i if isinstance(i, str) else i.name for i in inputs]
        name = self.net.add(kind, *names, **attributes)
        given = [helper.make_tensor_value_info(i.name, TensorProto.FLOAT, i.shape) for i in known]
        constants = [t for t in self.net.tensors if t.name in names]
        result = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        graph = helper.make_graph([self.net.nodes[-1]], "one", given, [result], constants)
        made = shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), strict_mode=True, data_prop=True
        )
        shape = tuple(d.dim_value for d in made.graph.output[0].type.tensor_type.shape.dim)
        return Made(name, shape)

    def grow(self, steps: int) -> list[Made]:
        """Adds layers; returns the values that nothing reads, the last three of them."""
        while steps:
            x = self.random.choice(self.known[-3:])
            kinds = IMAGES if len(x.shape) == 4 else ROWS
            nodes, tensors, used = len(self.net.nodes), len(self.net.tensors), set(self.used)
            try:
                made = self.random.choice(kinds)(self, x)
            except (ValueError, shape_inference.InferenceError):  # more window than image
                made = None
            if made is None or min(made.shape) < 1 or np.prod(made.shape) > LARGEST:
                del self.net.nodes[nodes:], self.net.tensors[tensors:]
                self.used = used
                continue
            self.known.append(made)
            steps -= 1
        return [v for v in self.known[1:] if v.name not in self.used][-3:]


def conv(g: Grown, x: Made) -> Made:
    """Any convolution, with or without a bias and an activation."""
    c = x.shape[1]
    groups = g.pick(1, 1, 1, c, *(d for d in (2, 3, 4) if c % d == 0))
    outputs = c * g.pick(1, 1, 2) if groups > 1 else g.pick(*CHANNELS)
    kernel = g.pick([1, 1], [3, 3], [3, 3], [5, 5], g.ints(1, 5))
    stride, dilation = g.pick([1, 1], [1, 1], [2, 2], g.ints(1, 3)), g.pick([1, 1], [1, 1], [2, 2], g.ints(1, 3))
    middle = [d * (k - 1) // 2 for d, k in zip(dilation, kernel)]
    pads = g.pick([*middle, *middle], g.ints(0, 2, 4))
    if any(x.shape[2 + i] + pads[i] + pads[i + 2] < dilation[i] * (kernel[i] - 1) + 1 for i in (0, 1)):
        raise ValueError("more kernel than image")
    inputs: list[Made | str] = [x, g.net.weight(outputs, c // groups, *kernel)]
    if g.random.random() < 0.7:
        inputs.append(g.net.const(g.net.rng.standard_normal(outputs).astype(np.float32) / 4))
    y = g.op("Conv", *inputs, group=groups, strides=stride, dilations=dilation, pads=pads)
    return activated(g, y)


def activated(g: Grown, x: Made) -> Made:
    kind = g.pick("", "Relu", "Relu", "Sigmoid", "HardSwish", "LeakyRelu", "Tanh", "Clip", "silu")
    if kind == "silu":
        return g.op("Mul", x, g.op("Sigmoid", x))
    if kind == "Clip":
        return g.op("Clip", x, g.net.const(np.float32(-0.5)), g.net.const(np.float32(6)))
    return g.op(kind, x) if kind else x


def transposed(g: Grown, x: Made) -> Made:
    outputs, strides = g.pick(3, 8, 16, 21), g.pick([2, 2], g.ints(1, 3))
    kernel = [s + n for s, n in zip(strides, g.ints(0, 2))]
    pads = [g.random.randint(0, (k - 1) // 2) for k in (*kernel, *kernel)]
    weight = g.net.weight(x.shape[1], outputs, *kernel, fan=x.shape[1] * int(np.prod(kernel)) // int(np.prod(strides)))
    return activated(g, g.op("ConvTranspose", x, weight, strides=strides, pads=pads))


def pool(g: Grown, x: Made) -> Made:
    kernel, strides, up = g.ints(2, 3), g.ints(1, 2), g.pick(0, 1)
    pads = [0 if up else g.random.randint(0, 1) for _ in range(4)]  # ONNX Runtime counts padded windows otherwise
    if any(size < k for size, k in zip(x.shape[2:], kernel)):
        raise ValueError("more window than image")
    if g.random.random() < 0.5:
        return g.op("MaxPool", x, kernel_shape=kernel, strides=strides, pads=pads, ceil_mode=up)
    return g.op("AveragePool", x, kernel_shape=kernel, strides=strides, pads=pads, count_include_pad=g.pick(0, 1))


def excited(g: Grown, x: Made) -> Made:
    """Squeeze and excite."""
    c, few = x.shape[1], g.pick(4, 7, 16)
    s = g.op("Relu", g.op("Conv", g.op("GlobalAveragePool", x), g.net.weight(few, c, 1, 1)))
    return g.op("Mul", x, g.op("Sigmoid", g.op("Conv", s, g.net.weight(c, few, 1, 1))))


def resized(g: Grown, x: Made) -> Made:
    scales = g.net.const(np.array([1, 1, *g.pick([2, 2], [1, 2], [2, 1])], np.float32))
    mode, where = g.pick(("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners"))
    return g.op("Resize", x, "", scales, mode=mode, coordinate_transformation_mode=where)


def sliced(g: Grown, x: Made) -> Made:
    axis = g.pick(1, 2, 3)
    size = x.shape[axis]
    begin = g.random.randint(0, size // 3)
    end = g.random.randint(min(size, begin + 2), size)
    return g.op("Slice", x, g.ints_const(begin), g.ints_const(end), g.ints_const(axis), g.ints_const(g.pick(1, 1, 2)))


def padded(g: Grown, x: Made) -> Made:
    a, b, c, d = (min(n, x.shape[2 + i % 2] - 1) for i, n in enumerate(g.ints(0, 2, 4)))
    return g.op("Pad", x, g.ints_const(0, 0, a, b, 0, 0, c, d), mode=g.pick("constant", "reflect", "edge"))


def joined(g: Grown, x: Made) -> Made | None:
    """Added to, multiplied by or beside another value of its sizes."""
    others = [v for v in g.known if v.name != x.name and v.shape[2:] == x.shape[2:] and v.shape[0] == x.shape[0]]
    if not others or len(x.shape) != 4:
        return None
    other = g.random.choice(others)
    if other.shape == x.shape and g.random.random() < 0.6:
        return g.op(g.pick("Add", "Add", "Sub", "Max"), x, other)
    return g.op("Concat", x, other, axis=1)


def tokens(g: Grown, x: Made) -> Made:
    """The pixels as rows."""
    rows = g.op("Reshape", x, g.ints_const(0, x.shape[1], -1))
    return g.op("Transpose", rows, perm=[0, 2, 1])


def product(g: Grown, x: Made) -> Made:
    f, outputs = x.shape[-1], g.pick(8, 19, 24, 33, 48)
    y = g.op("MatMul", x, g.net.weight(f, outputs, fan=f))
    if g.random.random() < 0.7:
        y = g.op("Add", y, g.net.const(g.net.rng.standard_normal(outputs).astype(np.float32) / 4))
    return activated(g, y)


def normed(g: Grown, x: Made) -> Made:
    """Layer norm, as PyTorch's exporter writes it."""
    f = x.shape[-1]
    centred = g.op("Sub", x, g.op("ReduceMean", x, axes=[-1]))
    variance = g.op("ReduceMean", g.op("Mul", centred, centred), axes=[-1])
    y = g.op("Div", centred, g.op("Sqrt", g.op("Add", variance, g.net.const(np.float32(1e-5)))))
    return g.op("Mul", y, g.net.const(np.linspace(0.5, 1.5, f, dtype=np.float32)))


def attention(g: Grown, x: Made) -> Made | None:
    _, rows, f = x.shape
    if rows > 160:
        return None
    heads, size = g.pick(1, 2, 3), g.pick(5, 8, 16)
    q, k, v = (
        g.op("Transpose", g.op("Reshape", g.op("MatMul", x, g.net.weight(f, heads * size, fan=f, scale=1.0)),
                               g.ints_const(0, 0, heads, size)), perm=perm)
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )  # fmt: skip
    scores = g.op("Mul", g.op("MatMul", q, k), g.net.const(np.float32(size**-0.5)))
    mixed = g.op("MatMul", g.op("Softmax", scores, axis=-1), v)
    return g.op("Reshape", g.op("Transpose", mixed, perm=[0, 2, 1, 3]), g.ints_const(0, 0, heads * size))


def skipped(g: Grown, x: Made) -> Made:
    """A block of two products and what goes around it."""
    f, wide = x.shape[-1], g.pick(16, 37, 64)
    inner = activated(g, g.op("MatMul", x, g.net.weight(f, wide, fan=f)))
    return g.op("Add", x, g.op("MatMul", inner, g.net.weight(wide, f, fan=wide)))


def pooled(g: Grown, x: Made) -> Made:
    """The mean of the rows, as a row."""
    return g.op("ReduceMean", x, axes=[1], keepdims=1)


Layer = Callable[[Grown, Made], "Made | None"]
IMAGES: list[Layer] = [conv, conv, conv, conv, conv, transposed, pool, excited, resized, sliced, padded, joined, joined,
                       tokens]  # fmt: skip
ROWS: list[Layer] = [product, product, normed, attention, skipped, pooled]


def random_nets(seeds: Iterable[int], steps: tuple[int, int] = (3, 8)) -> onnx.ModelProto:
    """A model of one network for each seed, which share nothing."""
    net = Net()
    outputs: list[str] = []
    for seed in seeds:
        net.rng = np.random.default_rng(seed)
        grown = Grown(net, seed)
        outputs += [v.name for v in grown.grow(grown.random.randint(*steps))]
    return net.model(*outputs, opset=17)


def in_float16(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray], seed: int = 0) -> dict[str, np.ndarray]:
    """What the network may make in float16: sums are off by a rounding of float16 of the sum of their terms' sizes."""
    return _rounding(model, inputs, np.dtype(np.float16), 2**-11, seed)


def in_bfloat16(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray], seed: int = 0) -> dict[str, np.ndarray]:
    """What the network may make in bfloat16, whose sums are float32's."""
    return _rounding(model, inputs, np.dtype(ml_dtypes.bfloat16), 2**-24, seed)


def _rounding(
    model: onnx.ModelProto, inputs: Mapping[str, np.ndarray], kind: np.dtype, step: float, seed: int
) -> dict[str, np.ndarray]:
    """The outputs by ONNX Runtime node by node: weights and values are rounded to ``kind``, and sums are off by a
    ``step`` of the sum of their terms' sizes, in a random direction."""
    rng = np.random.default_rng(seed)
    values = {t.name: _rounded(numpy_helper.to_array(t), kind) for t in model.graph.initializer}
    values |= {name: _rounded(array, kind) for name, array in inputs.items()}
    for node in model.graph.node:
        given = {name: values[name] for name in node.input if name}
        made = _alone(node, given)
        if node.op_type in ("Conv", "ConvTranspose", "MatMul"):
            size = _alone(node, {name: np.abs(array) for name, array in given.items()})
            made = made + size * rng.uniform(-1, 1, made.shape) * step
        values[node.output[0]] = _rounded(made, kind)
    return {o.name: values[o.name] for o in model.graph.output}


def _rounded(array: np.ndarray, kind: np.dtype) -> np.ndarray:
    return array.astype(kind).astype(np.float32) if array.dtype.kind == "f" else array


def _alone(node: onnx.NodeProto, given: Mapping[str, np.ndarray]) -> np.ndarray:
    """The first result of a node."""
    kinds = {"f": TensorProto.FLOAT, "i": TensorProto.INT64}
    infos = [helper.make_tensor_value_info(n, kinds[a.dtype.kind], a.shape) for n, a in given.items()]
    result = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "one", infos, [result])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(given))[0]


def of_outputs(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """ONNX Runtime's answers in float32."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip((o.name for o in model.graph.output), session.run(None, dict(inputs)), strict=True))


def drawn(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    """Normal numbers for every input."""
    rng = np.random.default_rng(seed)
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
