"""Small models whose dimensions are open, and the sizes to run them at: smallest, primes, off by one around tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tvm import sym, tirx

Sizes = dict[str, int]


def holds_at(condition: Any, sizes: Sizes) -> bool:
    """Whether a condition of symbols holds at ``sizes``."""
    analyzer = sym.Analyzer()
    for variable in tirx.analysis.undefined_vars(condition):
        analyzer.bind(variable, tirx.IntImm(str(variable.ty.dtype), sizes[variable.name]))
    return bool(int(analyzer.simplify(condition)))


class Drawing:
    """A graph under construction: every call of it adds a node and gives the name of its result."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.random = np.random.default_rng(seed)

    def __call__(self, operator: str, *operands: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(operands), [name], name=f"{operator}_{name}", **attributes))
        return name

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def drawn(self, *shape: int) -> str:
        """Random weights of which sums stay of order one."""
        depth = np.prod(shape[1:]) if len(shape) > 2 else shape[0]
        return self.constant(self.random.normal(0, 1 / np.sqrt(max(1, depth)), shape))

    def whole(self, *numbers: int) -> str:
        return self.constant(numbers, np.int64)

    def whole_scalar(self, number: int) -> str:
        return self.constant(number, np.int64)

    def input(self, name: str, *shape: int | str, kind: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def output(self, value: str, rank: int) -> None:
        name = f"y{len(self.outputs)}"
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * rank))

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "open", self.inputs, self.outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    # -- layers ------------------------------------------------------------------------------------

    def linear(self, x: str, width: int, columns: int) -> str:
        bias = self.constant(self.random.normal(0, 0.1, columns))
        return self("Add", self("MatMul", x, self.drawn(width, columns)), bias)

    def conv(
        self, x: str, inputs: int, outputs: int, kernel: int, *, groups: int = 1, rank: int = 2, **given: Any
    ) -> str:
        weight = self.drawn(outputs, inputs // groups, *[kernel] * rank)
        given.setdefault("pads", [kernel // 2] * (2 * rank))
        bias = self.constant(self.random.normal(0, 0.1, outputs))
        return self("Conv", x, weight, bias, kernel_shape=[kernel] * rank, group=groups, **given)

    def dims(self, x: str, *axes: int) -> list[str]:
        shape = self("Shape", x)
        return [self("Gather", shape, self.whole(a)) for a in axes]

    def reshaped(self, x: str, *dims: str | int) -> str:
        return self("Reshape", x, self("Concat", *[d if isinstance(d, str) else self.whole(d) for d in dims], axis=0))


@dataclass(frozen=True)
class OpenModel:
    """A model, sizes of its symbols, and texts that the schedules of its kernels must have: what has to have fired."""

    name: str
    build: Callable[[], onnx.ModelProto]
    sizes: tuple[Sizes, ...]
    fired: tuple[str, ...]


def encoder() -> onnx.ModelProto:
    """Two layers of a text encoder with a mask and a table of positions."""
    d, heads, longest = 48, 4, 40
    g = Drawing(1)
    ids, mask = (g.input(n, "batch", "length", kind=TensorProto.INT64) for n in ("ids", "mask"))
    batch, length = g.dims(ids, 0, 1)
    places = g("Slice", g.drawn(longest, d), g.whole(0), length, g.whole(0))
    x = g("Add", g("Gather", g.drawn(50, d), ids), places)
    far = g("Cast", g("Unsqueeze", mask, g.whole(1, 2)), to=TensorProto.FLOAT)
    far = g("Mul", g("Sub", g.constant(1), far), g.constant(-1e4))
    for _ in range(2):
        parts = [g("Transpose", g.reshaped(g.linear(x, d, d), batch, length, heads, d // heads), perm=[0, 2, 1, 3])
                 for _ in range(3)]  # fmt: skip
        scores = g("MatMul", parts[0], g("Transpose", parts[1], perm=[0, 1, 3, 2]))
        scores = g("Add", g("Mul", scores, g.constant((heads / d) ** 0.5)), far)
        made = g("Transpose", g("MatMul", g("Softmax", scores, axis=-1), parts[2]), perm=[0, 2, 1, 3])
        x = _normed(g, g("Add", x, g.linear(g.reshaped(made, batch, length, d), d, d)), d)
        x = _normed(g, g("Add", x, g.linear(g("Tanh", g.linear(x, d, 2 * d)), 2 * d, d)), d)
    g.output(x, 3)
    g.output(g("ReduceMean", x, axes=[1], keepdims=0), 2)
    return g.model()


def _normed(g: Drawing, x: str, width: int) -> str:
    return g("LayerNormalization", x, g.constant(np.ones(width)), g.constant(np.zeros(width)), axis=-1)


def classifier() -> onnx.ModelProto:
    """Convolutions of all kinds, a residual, a pool, a gate of means, a product."""
    g = Drawing(2)
    x = g("Relu", g.conv(g.input("x", "n", 3, "h", "w"), 3, 20, 3, strides=[2, 2]))
    x = g("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, ceil_mode=1)
    x = g("Relu", g("Add", x, g.conv(x, 20, 20, 3)))
    x = g("Relu", g.conv(x, 20, 20, 3, groups=20, strides=[1, 2]))
    x = g("Mul", x, g("Sigmoid", g.conv(g("GlobalAveragePool", x), 20, 20, 1)))
    x = g.conv(x, 20, 35, 3, dilations=[2, 2], pads=[2] * 4)
    g.output(x, 4)
    g.output(g.linear(g("Flatten", g("GlobalAveragePool", x), axis=1), 35, 7), 2)
    return g.model()


def segmenter() -> onnx.ModelProto:
    """An encoder and a decoder with a skip, and a pixel shuffle at the end."""
    g = Drawing(3)
    a = g("Relu", g.conv(g.input("x", 1, 1, "h", "w"), 1, 16, 5))
    b = g("Relu", g.conv(g("AveragePool", a, kernel_shape=[2, 2], strides=[2, 2]), 16, 24, 3))
    up = g("ConvTranspose", b, g.drawn(24, 16, 2, 2), kernel_shape=[2, 2], strides=[2, 2])
    x = g("Relu", g.conv(g("Concat", up, a, axis=1), 32, 12, 3))
    g.output(g("DepthToSpace", x, blocksize=2, mode="CRD"), 4)
    return g.model()


def listener() -> onnx.ModelProto:
    """One-dimensional convolutions and a mean over time."""
    g = Drawing(4)
    x = g("Relu", g.conv(g.input("x", "n", 1, "t"), 1, 17, 9, rank=1, strides=[4]))
    x = g("Relu", g.conv(x, 17, 24, 3, rank=1))
    x = g("Relu", g.conv(x, 24, 24, 3, rank=1, groups=24))
    g.output(g.linear(g("ReduceMean", x, axes=[2], keepdims=0), 24, 5), 2)
    return g.model()


def detector() -> onnx.ModelProto:
    """Maps of two sizes, a gate of one channel, boxes as means over bins, and their places counted at run time."""
    g, bins = Drawing(5), 4
    image = g.input("x", "n", 3, "h", "w")
    fine = _silu(g, g.conv(image, 3, 16, 3, strides=[2, 2]))
    coarse = _silu(g, g.conv(fine, 16, 16, 3, groups=16, strides=[2, 2]))
    up = g("Resize", coarse, "", g.constant([1, 1, 2, 2]), mode="nearest", nearest_mode="floor",
           coordinate_transformation_mode="asymmetric")  # fmt: skip
    fine = g.conv(_silu(g, g("Concat", up, fine, axis=1)), 32, 32, 3, groups=32)
    fine = g("Mul", fine, g("Sigmoid", g.conv(fine, 32, 1, 1)))
    heads, places = [], []
    for x, channels, step in ((fine, 32, 2), (coarse, 16, 4)):
        batch, height, width = g.dims(x, 0, 2, 3)
        heads.append(g.reshaped(g.conv(x, channels, 4 * bins + 2, 1), batch, 4 * bins + 2, -1))
        rows, columns = (g("Range", g.whole_scalar(0), g("Squeeze", n), g.whole_scalar(1)) for n in (height, width))
        both = g("Concat", height, width, axis=0)
        grid = [g("Expand", g("Unsqueeze", v, g.whole(a)), both) for v, a in ((columns, 0), (rows, 1))]
        flat = g("Concat", *(g("Reshape", v, g.whole(1, -1)) for v in grid), axis=0)
        places.append(g("Mul", g("Cast", flat, to=TensorProto.FLOAT), g.constant(step)))
    whole, at = g("Concat", *heads, axis=2), g("Concat", *places, axis=1)
    batch, count = g.dims(whole, 0, 2)
    box = g("Slice", whole, g.whole(0), g.whole(4 * bins), g.whole(1))
    box = g("Softmax", g("Transpose", g.reshaped(box, batch, 4, bins, count), perm=[0, 2, 1, 3]), axis=1)
    box = g("ReduceSum", g("Mul", box, g.constant(np.arange(bins).reshape(1, bins, 1, 1))), g.whole(1), keepdims=0)
    corners = [g("Slice", box, g.whole(a), g.whole(a + 2), g.whole(1)) for a in (0, 2)]
    scores = g("Sigmoid", g("Slice", whole, g.whole(4 * bins), g.whole(4 * bins + 2), g.whole(1)))
    g.output(g("Concat", g("Sub", at, corners[0]), g("Add", at, corners[1]), scores, axis=1), 3)
    return g.model()


def _silu(g: Drawing, x: str) -> str:
    return g("Mul", x, g("Sigmoid", x))


def reader() -> onnx.ModelProto:
    """Rows of text: convolutions down to one row, and a recurrent layer along it in both directions."""
    g, hidden = Drawing(6), 12
    x = g("Relu", g.conv(g.input("x", "n", 1, "h", "w"), 1, 16, 3))
    x = g("Relu", g.conv(g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), 16, 24, 3))
    x = g("AveragePool", x, kernel_shape=[8, 1], strides=[8, 1])
    x = g("Transpose", g("Squeeze", x, g.whole(2)), perm=[2, 0, 1])
    weights = [g.drawn(2, 4 * hidden, 24), g.drawn(2, 4 * hidden, hidden), g.constant(np.zeros((2, 8 * hidden)))]
    y = g("LSTM", x, *weights, hidden_size=hidden, direction="bidirectional")
    length, batch = g.dims(x, 0, 1)
    y = g.reshaped(g("Transpose", y, perm=[0, 2, 1, 3]), length, batch, 2 * hidden)
    g.output(g("LogSoftmax", g.linear(y, 2 * hidden, 11), axis=-1), 3)
    return g.model()


MODELS = (
    OpenModel(
        "encoder", encoder,
        tuple({"batch": b, "length": n} for b in (1, 3) for n in (1, 2, 7, 8, 9, 17, 40)),
        ("attention", "matmul packed"),
    ),
    OpenModel(
        "classifier", classifier,
        tuple({"n": n, "h": h, "w": w} for n, h, w in
              ((1, 8, 8), (1, 9, 13), (2, 31, 17), (3, 64, 47), (1, 100, 8), (0, 16, 16))),
        ("open images: winograd", "or direct conv", "depthwise conv", "matmul packed"),
    ),
    OpenModel(
        "segmenter", segmenter,
        tuple({"h": h, "w": w} for h, w in ((2, 2), (4, 10), (16, 16), (34, 22), (66, 18))),
        ("open images: transposed conv", "or direct conv"),
    ),
    OpenModel(
        "listener", listener,
        tuple({"n": n, "t": t} for n, t in ((1, 9), (2, 16), (1, 33), (3, 100), (1, 1001))),
        ("direct conv", "depthwise conv"),
    ),
    OpenModel(
        "detector", detector,
        tuple({"n": n, "h": h, "w": w} for n, h, w in ((1, 4, 4), (2, 32, 20), (1, 64, 92), (3, 36, 48), (1, 7, 8))),
        ("depthwise conv", "or direct conv"),
    ),
    OpenModel(
        "reader", reader,
        tuple({"n": n, "h": h, "w": w} for n, h, w in ((1, 16, 2), (2, 31, 3), (1, 16, 101), (3, 20, 34), (1, 17, 8))),
        ("or direct conv", "matmul packed"),
    ),
)  # fmt: skip


def feeds(model: onnx.ModelProto, sizes: Sizes, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs at ``sizes``: floats in [-1, 1), positions in a table of 50, masks with a one at least."""
    random, found = np.random.default_rng(seed), {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in tensor.shape.dim]
        if tensor.elem_type == TensorProto.FLOAT:
            found[value.name] = random.uniform(-1, 1, shape).astype(np.float32)
        else:
            dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            found[value.name] = random.integers(0, 2 if value.name == "mask" else 50, shape).astype(dtype)
            if value.name == "mask":
                found[value.name][..., :1] = 1
    return found
