"""Networks as exporters write them without any simplifier behind them: shapes computed at run time, masks built from
constants, norms and activations in pieces. Each takes its batch and its length as numbers or as names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Dim = int | str
END = np.iinfo(np.int64).max


class Raw:
    """Emits ONNX nodes. ``dynamo``: scalars are initialisers and axes operands; else they are Constant nodes."""

    def __init__(self, opset: int, dynamo: bool = False, seed: int = 0) -> None:
        self.opset, self.dynamo = opset, dynamo
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"val_{self.count}"

    def input(self, name: str, shape: Sequence[Dim], element: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, element, list(shape)))
        return name

    def __call__(self, operator: str, *operands: str, outputs: int = 1, **attributes: Any) -> Any:
        names = [self.name() for _ in range(outputs)]
        self.nodes.append(helper.make_node(operator, operands, names, name=f"/{operator}_{self.count}", **attributes))
        return names[0] if outputs == 1 else names

    def const(self, value: Any, dtype: str = "int64") -> str:
        tensor = numpy_helper.from_array(np.asarray(value, dtype))
        if not self.dynamo:
            return self("Constant", value=tensor)
        tensor.name = self.name()
        self.weights.append(tensor)
        return tensor.name

    def f(self, value: Any) -> str:
        return self.const(value, "float32")

    def weight(self, *shape: int, scale: float | None = None) -> str:
        scale = 1 / math.sqrt(math.prod(shape[1:]) or 1) if scale is None else scale
        tensor = numpy_helper.from_array((self.rng.standard_normal(shape) * scale).astype("float32"), self.name())
        self.weights.append(tensor)
        return tensor.name

    # shape arithmetic, as torch.onnx writes it

    def size(self, x: str, axis: int) -> str:
        """x.size(axis) as a scalar."""
        return self("Gather", self("Shape", x), self.const(axis), axis=0)

    def unsqueeze(self, x: str, *axes: int) -> str:
        if self.opset < 13:
            return self("Unsqueeze", x, axes=list(axes))
        return self("Unsqueeze", x, self.const(list(axes)))

    def view(self, x: str, *dims: int | str) -> str:
        """x.view(dims): numbers, and names of scalars that hold one."""
        parts = [self.unsqueeze(d, 0) if isinstance(d, str) else self.const([d]) for d in dims]
        return self("Reshape", x, self("Concat", *parts, axis=0))

    def slice(self, x: str, axis: int, start: Any, end: Any, step: int = 1) -> str:
        bounds = [v if isinstance(v, str) else self.const([v]) for v in (start, end)]
        return self("Slice", x, *bounds, self.const([axis]), self.const([step]))

    def mean(self, x: str, axes: Sequence[int], keep: int = 1) -> str:
        if self.opset >= 18:
            return self("ReduceMean", x, self.const(list(axes)), keepdims=keep)
        return self("ReduceMean", x, axes=list(axes), keepdims=keep)

    def expand(self, x: str, *dims: int | str) -> str:
        """x.expand(dims), where -1 keeps: ConstantOfShape, Mul, Equal and Where decide at run time."""
        parts = [self.unsqueeze(d, 0) if isinstance(d, str) else self.const([d]) for d in dims]
        shape = self("Concat", *parts, axis=0)
        one = numpy_helper.from_array(np.array([1], "int64"))
        ones = self("ConstantOfShape", self("Shape", shape), value=one)
        kept = self("Equal", shape, self("Mul", ones, self.const(-1)))
        return self("Expand", x, self("Where", kept, ones, shape))

    # layers

    def linear(self, x: str, inner: int, outer: int, bias: bool = True) -> str:
        if self.dynamo:
            product = self("MatMul", x, self("Transpose", self.weight(outer, inner), perm=[1, 0]))
        else:
            product = self("MatMul", x, self.weight(inner, outer))
        return self("Add", self.weight(outer, scale=0.1), product) if bias else product

    def layer_norm(self, x: str, width: int) -> str:
        d = self("Sub", x, self.mean(x, [-1]))
        spread = self.mean(self("Pow", d, self.f(2)), [-1])
        y = self("Div", d, self("Sqrt", self("Add", spread, self.f(1e-5))))
        return self("Add", self("Mul", y, self.weight(width, scale=1.0)), self.weight(width, scale=0.1))

    def rms_norm(self, x: str, width: int) -> str:
        spread = self.mean(self("Pow", self("Cast", x, to=TensorProto.FLOAT), self.f(2)), [-1])
        root = self("Sqrt", self("Add", spread, self.f(1e-6)))
        return self("Mul", self.weight(width, scale=1.0), self("Mul", x, self("Div", self.f(1), root)))

    def gelu(self, x: str) -> str:
        gate = self("Add", self("Erf", self("Div", x, self.f(math.sqrt(2)))), self.f(1))
        return self("Mul", self("Mul", x, gate), self.f(0.5))

    def heads(self, x: str, count: int, width: int) -> str:
        split = self.view(x, self.size(x, 0), self.size(x, 1), count, width)
        return self("Transpose", split, perm=[0, 2, 1, 3])

    def merge(self, x: str, width: int) -> str:
        moved = self("Transpose", x, perm=[0, 2, 1, 3])
        return self.view(moved, self.size(moved, 0), self.size(moved, 1), width)

    def conv(self, x: str, cin: int, cout: int, k: int = 3, stride: int = 1, groups: int = 1, bias: bool = True) -> str:
        operands = [x, self.weight(cout, cin // groups, k, k), *([self.weight(cout, scale=0.1)] if bias else [])]
        return self("Conv", *operands, pads=[k // 2] * 4, strides=[stride] * 2, group=groups, kernel_shape=[k, k])

    def batch_norm(self, x: str, channels: int) -> str:
        variance = numpy_helper.from_array(self.rng.uniform(0.5, 1.5, channels).astype("float32"), self.name())
        self.weights.append(variance)
        parameters = [self.weight(channels, scale=s) for s in (1.0, 0.1, 0.1)]
        return self("BatchNormalization", x, *parameters, variance.name)

    def model(self, *outputs: str) -> onnx.ModelProto:
        """What the exporter leaves, wrong value_info and all: one shape that is not true."""
        infos = [onnx.ValueInfoProto(name=o) for o in outputs]
        for info in infos:
            info.type.tensor_type.elem_type = TensorProto.FLOAT
        graph = helper.make_graph(self.nodes, "raw", self.inputs, infos, self.weights)
        wrong = next(n.output[0] for n in self.nodes if n.op_type in ("MatMul", "Conv"))
        graph.value_info.append(helper.make_tensor_value_info(wrong, TensorProto.FLOAT, [7, 7, 7]))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


def _encoder(g: Raw, x: str, width: int, heads: int, mask: str | None, scale_query: bool = False) -> str:
    """A pre-norm attention and feed-forward block."""
    depth = width // heads
    q, k, v = (g.heads(g.linear(x, width, width), heads, depth) for _ in range(3))
    root = g("Sqrt", g("Cast", g.size(q, 3), to=TensorProto.FLOAT))
    if scale_query:
        q = g("Div", q, root)
    scores = g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2]))
    scores = scores if scale_query else g("Div", scores, root)
    scores = scores if mask is None else g("Add", scores, mask)
    y = g.linear(g.merge(g("MatMul", g("Softmax", scores, axis=-1), v), width), width, width)
    x = g.layer_norm(g("Add", x, y), width)
    y = g.linear(g.gelu(g.linear(x, width, 2 * width)), 2 * width, width)
    return g.layer_norm(g("Add", x, y), width)


def bert(batch: Dim, length: Dim, dynamo: bool = False) -> onnx.ModelProto:
    g = Raw(18 if dynamo else 14, dynamo)
    ids = g.input("input_ids", (batch, length), TensorProto.INT64)
    mask = g.input("attention_mask", (batch, length), TensorProto.INT64)
    wide = g("Cast", g.unsqueeze(g.unsqueeze(mask, 1), 2), to=TensorProto.FLOAT)
    bias = g("Mul", g("Sub", g.f(1), wide), g.f(np.finfo(np.float32).min))
    places = g.slice(g.const(np.arange(32)[None]), 1, 0, g.unsqueeze(g.size(ids, 1), 0))
    kinds = g.expand(g.const(np.zeros((1, 1))), g.size(ids, 0), g.size(ids, 1))
    x = g("Add", g("Gather", g.weight(40, 16), ids), g("Gather", g.weight(2, 16), kinds))
    x = g.layer_norm(g("Add", x, g("Gather", g.weight(32, 16), places)), 16)
    for _ in range(2):
        x = _encoder(g, x, 16, 4, bias)
    return g.model(x)


def distilbert(batch: Dim, length: Dim, dynamo: bool = False) -> onnx.ModelProto:
    """The mask is compared with zero, viewed, expanded as the scores, and fills them with the lowest number."""
    g = Raw(18 if dynamo else 14, dynamo)
    ids = g.input("input_ids", (batch, length), TensorProto.INT64)
    mask = g.input("attention_mask", (batch, length), TensorProto.INT64)
    x = g.layer_norm(g("Add", g("Gather", g.weight(40, 16), ids), g("Gather", g.weight(32, 16), _places(g, ids))), 16)
    q, k, v = (g.heads(g.linear(x, 16, 16), 4, 4) for _ in range(3))
    scores = g("MatMul", g("Div", q, g.f(2)), g("Transpose", k, perm=[0, 1, 3, 2]))
    off = g.view(g("Equal", mask, g.const(0)), g.size(mask, 0), 1, 1, g.size(scores, 3))
    off = g("Expand", off, g("Shape", scores))
    scores = g("Where", g("Cast", off, to=TensorProto.BOOL), g.f(np.finfo(np.float32).min), scores)
    return g.model(g.linear(g.merge(g("MatMul", g("Softmax", scores, axis=-1), v), 16), 16, 16))


def _places(g: Raw, ids: str) -> str:
    """torch.arange(ids.size(1)).unsqueeze(0).expand_as(ids)"""
    row = g("Range", g.const(0), g.size(ids, 1), g.const(1))
    return g("Expand", g.unsqueeze(row, 0), g("Shape", ids))


def t5_encoder(batch: Dim, length: Dim, dynamo: bool = False) -> onnx.ModelProto:
    """Relative positions in buckets, RMSNorm, ReLU, no scale on the scores."""
    g = Raw(18 if dynamo else 14, dynamo)
    ids = g.input("input_ids", (batch, length), TensorProto.INT64)
    x = g("Gather", g.weight(40, 16, scale=1.0), ids)
    n = g.size(x, 1)
    row = g("Range", g.const(0), n, g.const(1))
    distance = g("Sub", g.unsqueeze(row, 0), g.unsqueeze(row, 1))
    sign = g("Mul", g("Cast", g("Greater", distance, g.const(0)), to=TensorProto.INT64), g.const(16))
    far = g("Abs", distance)
    ratio = g("Div", g("Cast", far, to=TensorProto.FLOAT), g.f(8))
    slow = g("Div", g("Log", g("Max", ratio, g.f(1e-6))), g.f(math.log(16)))
    big = g("Add", g.const(8), g("Cast", g("Mul", slow, g.f(8)), to=TensorProto.INT64))
    big = g("Min", big, g("Expand", g.const(15), g("Shape", big)))
    bucket = g("Add", sign, g("Where", g("Less", far, g.const(8)), far, big))
    bias = g("Transpose", g("Gather", g.weight(32, 4, scale=1.0), bucket), perm=[2, 0, 1])
    bias = g.unsqueeze(bias, 0)
    for _ in range(2):
        y = g.rms_norm(x, 16)
        q, k, v = (g.heads(g.linear(y, 16, 16, bias=False), 4, 4) for _ in range(3))
        scores = g("Add", g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2])), bias)
        scores = g("Softmax", scores, axis=-1)
        x = g("Add", x, g.linear(g.merge(g("MatMul", scores, v), 16), 16, 16, bias=False))
        y = g("Relu", g.linear(g.rms_norm(x, 16), 16, 32, bias=False))
        x = g("Add", x, g.linear(y, 32, 16, bias=False))
    return g.model(g.rms_norm(x, 16))


def llama(batch: Dim, length: Dim, dynamo: bool = False) -> onnx.ModelProto:
    """One decoder block: rotary positions, a causal mask, keys shared by pairs of heads, a gated feed-forward."""
    g = Raw(18 if dynamo else 14, dynamo)
    ids = g.input("input_ids", (batch, length), TensorProto.INT64)
    x = g("Gather", g.weight(40, 16, scale=1.0), ids)
    b, n = g.size(ids, 0), g.size(ids, 1)
    row = g("Range", g.const(0), n, g.const(1))
    rates = g.f((1 / 10 ** (np.arange(2) / 2))[None, :, None])
    angles = g("MatMul", g.expand(rates, b, -1, 1), g("Cast", g.unsqueeze(row, 0, 1), to=TensorProto.FLOAT))
    angles = g("Transpose", angles, perm=[0, 2, 1])
    angles = g.unsqueeze(g("Concat", angles, angles, axis=2), 1)
    cos, sin = g("Cos", angles), g("Sin", angles)
    lowest = helper.make_tensor("value", TensorProto.FLOAT, [1], [float(np.finfo(np.float32).min)])
    square = g("Concat", g.unsqueeze(n, 0), g.unsqueeze(n, 0), axis=0)
    mask = g("Trilu", g("ConstantOfShape", square, value=lowest), g.const(1), upper=1)
    later = g("Greater", row, g("Reshape", row, g.const([-1, 1])))
    mask = g("Mul", mask, g("Cast", later, to=TensorProto.FLOAT))
    mask = g.expand(g.unsqueeze(mask, 0, 1), b, 1, -1, -1)

    def rotated(v: str) -> str:
        half = g("Div", g.size(v, 3), g.const(2))
        left = g.slice(v, 3, 0, g.unsqueeze(half, 0))
        right = g.slice(v, 3, g.unsqueeze(half, 0), END)
        turned = g("Concat", g("Neg", right), left, axis=-1)
        return g("Add", g("Mul", v, cos), g("Mul", turned, sin))

    def shared(v: str) -> str:
        """repeat_kv: [b, 2, n, 4] -> [b, 4, n, 4]"""
        wide = g.expand(g.unsqueeze(v, 2), g.size(v, 0), 2, 2, g.size(v, 2), 4)
        return g.view(wide, g.size(v, 0), 4, g.size(v, 2), 4)

    y = g.rms_norm(x, 16)
    q = rotated(g.heads(g.linear(y, 16, 16, bias=False), 4, 4))
    k = shared(rotated(g.heads(g.linear(y, 16, 8, bias=False), 2, 4)))
    v = shared(g.heads(g.linear(y, 16, 8, bias=False), 2, 4))
    scores = g("Div", g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2])), g.f(2))
    cut = g.slice(mask, 3, 0, g.unsqueeze(g.size(k, 2), 0))
    y = g("MatMul", g("Softmax", g("Add", scores, cut), axis=-1), v)
    x = g("Add", x, g.linear(g.merge(y, 16), 16, 16, bias=False))
    y = g.rms_norm(x, 16)
    gate = g.linear(y, 16, 24, bias=False)
    y = g("Mul", g("Mul", gate, g("Sigmoid", gate)), g.linear(y, 16, 24, bias=False))
    return g.model(g("Add", x, g.linear(y, 24, 16, bias=False)))


def vit(batch: Dim, length: Dim, dynamo: bool = False) -> onnx.ModelProto:
    g = Raw(18 if dynamo else 14, dynamo)
    x = g.input("pixel_values", (batch, 3, 16, 16))
    w = g.weight(16, 3, 8, 8)
    x = g("Conv", x, w, g.weight(16), strides=[8, 8], kernel_shape=[8, 8])
    shape = g("Concat", g.slice(g("Shape", x), 0, 0, 2), g.const([-1]), axis=0)
    x = g("Transpose", g("Reshape", x, shape), perm=[0, 2, 1])
    token = g.expand(g.weight(1, 1, 16), g.size(x, 0), -1, -1)
    x = g("Add", g("Concat", token, x, axis=1), g.weight(1, 5, 16))
    for _ in range(2):
        x = _encoder(g, x, 16, 4, None, scale_query=True)
    first = g("Gather", x, g.const(0), axis=1)
    return g.model(g("Gemm", first, g.weight(10, 16), g.weight(10), transB=1))


def swin2sr(batch: Dim, length: Dim, dynamo: bool = False) -> onnx.ModelProto:
    """Windows of 4 x 4 with cosine attention, a reflect pad whose widths are computed, and a pixel shuffle."""
    g = Raw(18 if dynamo else 14, dynamo)
    image = g.input("pixel_values", (batch, 3, 6, 7))
    need = [g("Mod", g("Sub", g.const(4), g("Mod", g.size(image, a), g.const(4))), g.const(4)) for a in (2, 3)]
    ends = [g.unsqueeze(n, 0) for n in need]
    pads = g("Concat", g.const([0] * 4), g.const([0, 0]), *ends, axis=0)
    x = g.conv(g("Pad", image, pads, mode="reflect"), 3, 8)
    h, w = g.size(x, 2), g.size(x, 3)
    tokens = g("Transpose", g.view(x, g.size(x, 0), 8, -1), perm=[0, 2, 1])
    y = g.view(tokens, g.size(tokens, 0), g("Div", h, g.const(4)), 4, g("Div", w, g.const(4)), 4, 8)
    y = g.view(g("Transpose", y, perm=[0, 1, 3, 2, 4, 5]), -1, 16, 8)
    q, k, v = (g.heads(g.linear(y, 8, 8), 2, 4) for _ in range(3))

    def unit(t: str) -> str:
        norm = g("ReduceL2", t, g.const([-1]), keepdims=1) if g.opset >= 18 else g("ReduceL2", t, axes=[-1], keepdims=1)
        return g("Div", t, g("Expand", g("Clip", norm, g.f(1e-12)), g("Shape", t)))

    scores = g("Mul", g("MatMul", unit(q), g("Transpose", unit(k), perm=[0, 1, 3, 2])), g.weight(2, 1, 1, scale=1.0))
    y = g.merge(g("MatMul", g("Softmax", g("Add", scores, g.weight(1, 2, 16, 16)), axis=-1), v), 8)
    hh, ww = (g("Div", d, g.const(4)) for d in (h, w))
    y = g.view(y, g.size(image, 0), hh, ww, 4, 4, 8)
    y = g.view(g("Transpose", y, perm=[0, 1, 3, 2, 4, 5]), g.size(image, 0), g("Mul", h, w), 8)
    x = g("Add", g.layer_norm(y, 8), tokens)
    x = g.view(g("Transpose", x, perm=[0, 2, 1]), g.size(x, 0), 8, h, w)
    x = g("DepthToSpace", g.conv(x, 8, 12), blocksize=2, mode="CRD")
    high = [g.unsqueeze(g("Mul", g.size(image, a), g.const(2)), 0) for a in (2, 3)]
    return g.model(g.slice(g.slice(x, 2, 0, high[0]), 3, 0, high[1]))


def regnet(batch: Dim, length: Dim, dynamo: bool = False) -> onnx.ModelProto:
    """Grouped convolutions, squeeze and excite, and a classifier behind a flattened global pool."""
    g = Raw(18 if dynamo else 14, dynamo)
    x = g.input("x", (batch, 3, 16, 16))
    x = g("Relu", g.batch_norm(g.conv(x, 3, 8, stride=2, bias=False), 8))
    y = g("Relu", g.batch_norm(g.conv(x, 8, 16, 1, bias=False), 16))
    y = g("Relu", g.batch_norm(g.conv(y, 16, 16, 3, 2, groups=4, bias=False), 16))
    pooled = g("GlobalAveragePool", y)
    gate = g("Sigmoid", g.conv(g("Relu", g.conv(pooled, 16, 4, 1)), 4, 16, 1))
    y = g.batch_norm(g.conv(g("Mul", gate, y), 16, 16, 1, bias=False), 16)
    x = g("Relu", g("Add", g.batch_norm(g.conv(x, 8, 16, 1, 2, bias=False), 16), y))
    x = g("Dropout", g.view(g.mean(x, [2, 3]), g.size(x, 0), -1)) if dynamo else g("Flatten", g("GlobalAveragePool", x))
    return g.model(g("Gemm", x, g.weight(5, 16), g.weight(5), transB=1))


def unet(batch: Dim, length: Dim, dynamo: bool = False) -> onnx.ModelProto:
    """The skip is padded to fit by amounts computed from both shapes; the other side is resized to computed sizes."""
    g = Raw(18 if dynamo else 14, dynamo)
    x = g.input("x", (batch, 3, 18, 20))
    skip = g("Relu", g.batch_norm(g.conv(x, 3, 4, bias=False), 4))
    low = g("Relu", g.conv(g("MaxPool", skip, kernel_shape=[2, 2], strides=[2, 2]), 4, 8))
    lowest = g("Relu", g.conv(g("MaxPool", low, kernel_shape=[2, 2], strides=[2, 2]), 8, 8))
    sizes = g("Concat", g.slice(g("Shape", lowest), 0, 0, 2), g.slice(g("Shape", low), 0, 2, 4), axis=0)
    empty = g.const([], "float32")
    modes = {"coordinate_transformation_mode": "asymmetric", "mode": "nearest", "nearest_mode": "floor"}
    y = g("Concat", low, g("Resize", lowest, empty, empty, sizes, **modes), axis=1)
    twice = []
    for axis in (2, 3):
        wide = g("Cast", g.size(y, axis), to=TensorProto.FLOAT)
        twice.append(g.unsqueeze(g("Cast", g("Floor", g("Mul", wide, g.f(2))), to=TensorProto.INT64), 0))
    sizes = g("Concat", g.slice(g("Shape", y), 0, 0, 2), *twice, axis=0)
    y = g("Resize", y, empty, empty, sizes, **modes)
    amounts = []
    for axis in (2, 3):
        gap = g("Sub", g.size(skip, axis), g.size(y, axis))
        half = g("Div", gap, g.const(2))
        amounts.append((half, g("Sub", gap, half)))
    (top, bottom), (left, right) = amounts
    places = [g.unsqueeze(p, 0) for p in (top, left, bottom, right)]
    pads = g("Concat", g.const([0, 0]), *places[:2], g.const([0, 0]), *places[2:], axis=0)
    y = g("Concat", skip, g("Pad", y, pads), axis=1)
    return g.model(g.conv(g("Relu", g.conv(y, 20, 4)), 4, 2, 1))


def yolo(batch: Dim, length: Dim, dynamo: bool = False) -> onnx.ModelProto:
    """Focus in, SiLU, split and concatenation, a head whose grid is computed from the size of the map."""
    g = Raw(18 if dynamo else 14, dynamo)
    x = g.input("images", (batch, 3, 16, 24))
    parts = [g.slice(g.slice(x, 2, a, END, 2), 3, b, END, 2) for b in (0, 1) for a in (0, 1)]
    x = g.conv(g("Concat", *parts, axis=1), 12, 16)
    x = g("Mul", x, g("Sigmoid", x))
    half = g("Div", g("Add", g.size(x, 1), g.const(1)), g.const(2))
    a = g.slice(x, 1, 0, g.unsqueeze(g("Mul", half, g.const(1)), 0))
    b = g.slice(x, 1, g.unsqueeze(half, 0), g.unsqueeze(g("Mul", half, g.const(2)), 0))
    x = g("Concat", a, g.conv(b, 8, 8), axis=1)
    x = g.conv(x, 16, 14, 1)
    n, h, w = (g.size(x, a) for a in (0, 2, 3))
    x = g("Transpose", g.view(x, n, 2, 7, h, w), perm=[0, 1, 3, 4, 2])
    x = g("Sigmoid", x)
    rows = g.view(g("Range", g.const(0), h, g.const(1)), h, 1)
    columns = g.view(g("Range", g.const(0), w, g.const(1)), 1, w)
    shape = g("Concat", g.unsqueeze(h, 0), g.unsqueeze(w, 0), axis=0)
    both = [g.unsqueeze(g("Expand", v, shape), 2) for v in (columns, rows)]
    grid = g("Cast", g.view(g("Concat", *both, axis=2), 1, 1, h, w, 2), to=TensorProto.FLOAT)
    xy, wh, rest = g("Split", x, g.const([2, 2, 3]), axis=4, outputs=3)
    xy = g("Mul", g("Add", g("Sub", g("Mul", xy, g.f(2)), g.f(0.5)), grid), g.f(8))
    wh = g("Mul", g("Pow", g("Mul", wh, g.f(2)), g.f(2)), g.f(np.arange(4).reshape(1, 2, 1, 1, 2) + 1.0))
    return g.model(g.view(g("Concat", xy, wh, rest, axis=4), n, -1, 7))


EXPORTS: dict[str, Callable[..., onnx.ModelProto]] = {
    f.__name__: f
    for f in (bert, distilbert, t5_encoder, llama, vit, swin2sr, regnet, unet, yolo)
}
#: Those whose length may be open as well.
SEQUENCES = ("bert", "distilbert", "t5_encoder", "llama")
