"""Single layers whose kernels are measured: a list of shapes, and all dense layers of the harness's networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import onnx
from onnx import helper, shape_inference

from .graph import ExportForm, ModelGraph
from .layers import activation, avg_pool, conv, layer_norm, linear, max_pool
from .models import MODELS

Body = Callable[[ModelGraph, str], str]
ANCHORED = ("conv", "matmul")  # families whose limit is arithmetic
NETWORKS = ("resnet50", "vgg16", "unet", "edsr", "bert", "vit", "swin", "convnext")
VECTOR = 16  # channels that fill the widest vectors


@dataclass(frozen=True)
class Case:
    """One layer on one input.

    ``operations`` are what our formula takes for an element of the output, of those that wait for the ports of
    multiply-adds (products, maxima, comparisons, a division as one; no sums, which have their own on many machines).
    """

    family: str
    name: str
    shape: tuple[int, ...]
    body: Body
    odd: bool = False  # extents that no register tile divides
    operations: int = 0

    @property
    def mark(self) -> float:
        """The share of its limit that a kernel of this shape should reach."""
        return (0.88 if self.odd else 0.95) if self.family in ANCHORED else 0.80

    def model(self) -> onnx.ModelProto:
        g = ModelGraph(f"{self.family}_{self.name}", ExportForm(opset=17))
        return g.finish(y=self.body(g, g.input("x", self.shape)))


def conv_case(
    cin: int,
    cout: int,
    size: int | Sequence[int],
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    odd: bool = False,
    pad: int | None = None,
) -> Case:
    """Convolution and ReLU of a square image, or one of ``size`` (height, width); ``pad`` is half the kernel."""
    height, width = (size, size) if isinstance(size, int) else size

    def body(g: ModelGraph, x: str) -> str:
        return activation(g, conv(g, x, cout, kernel, stride=stride, groups=groups, pad=pad), "relu")

    family = "depthwise" if groups == cin and groups > 1 else "conv"
    at = f"{height}" if height == width else f"{height}x{width}"
    name = f"{kernel}x{kernel}/{stride} {cin}->{cout} at {at}"
    return Case(
        family, name + (f" g{groups}" if groups not in (1, cin) else ""), (1, cin, height, width), body, odd
    )


def matmul_case(m: int, k: int, n: int, odd: bool = False) -> Case:
    """A linear layer; with one row (a fully connected layer at batch 1) its limit is bandwidth."""
    return Case("matmul" if m > 1 else "gemv", f"{m}x{k}x{n}", (m, k), lambda g, x: linear(g, x, n), odd)


def _unary(
    name: str, shape: tuple[int, ...], body: Body, family: str = "elementwise", operations: int = 0
) -> Case:
    return Case(family, f"{name} {'x'.join(map(str, shape))}", shape, body, operations=operations)


def _softmax(g: ModelGraph, x: str) -> str:
    return g.op("Softmax", x, axis=-1)


PRODUCTS = (
    (128, 384, 1536), (128, 1536, 384), (512, 512, 512), (197, 384, 1152), (197, 1536, 384), (3136, 96, 384),
    (784, 192, 768), (784, 768, 192), (512, 1024, 1024), (128, 1024, 4096), (256, 2048, 512), (49, 768, 3072),
)  # fmt: skip
ODD_PRODUCTS = ((49, 3072, 768), (1000, 1000, 1000), (61, 127, 251), (331, 509, 613))
CASES: tuple[Case, ...] = (
    conv_case(64, 64, 56, 3),
    conv_case(128, 128, 28, 3),
    conv_case(256, 256, 14, 3),
    conv_case(512, 512, 7, 3),
    conv_case(64, 256, 56, 1),
    conv_case(256, 64, 56, 1),
    conv_case(512, 128, 28, 1),
    conv_case(1024, 256, 14, 1),
    conv_case(128, 128, 56, 3, stride=2),
    conv_case(256, 512, 56, 1, stride=2),
    conv_case(3, 64, 224, 7, stride=2),
    conv_case(48, 96, 27, 5, odd=True),
    conv_case(50, 70, 29, 3, odd=True),
    conv_case(33, 65, 31, 3, odd=True),
    conv_case(64, 64, 56, 3, groups=4, odd=True),
    conv_case(32, 3, 256, 3, odd=True),
    *(matmul_case(*shape) for shape in PRODUCTS),
    *(matmul_case(*shape, odd=True) for shape in ODD_PRODUCTS),
    *(matmul_case(1, depth, columns) for depth, columns in ((1280, 1000), (4096, 4096))),
    conv_case(32, 32, 112, 3, groups=32),
    conv_case(96, 96, 112, 3, stride=2, groups=96),
    conv_case(144, 144, 56, 3, groups=144),
    conv_case(384, 384, 14, 5, groups=384),
    conv_case(96, 96, 56, 7, groups=96),
    _unary("maxpool 3/2", (1, 64, 112, 112), lambda g, x: max_pool(g, x, 3, 2, 1), "pool", 18),
    _unary("maxpool 2/2", (1, 64, 112, 112), lambda g, x: max_pool(g, x, 2, 2, 0), "pool", 8),
    _unary("avgpool 3/1", (1, 192, 35, 35), lambda g, x: avg_pool(g, x, 3, 1, 1), "pool"),
    _unary("global pool", (1, 1280, 7, 7), lambda g, x: g.op("GlobalAveragePool", x), "pool"),
    _unary("relu", (1, 64, 112, 112), lambda g, x: activation(g, x, "relu")),
    _unary("silu", (1, 64, 112, 112), lambda g, x: activation(g, x, "silu"), operations=11),
    _unary("gelu", (1, 128, 1536), lambda g, x: activation(g, x, "gelu"), operations=18),
    _unary("softmax", (12, 128, 128), _softmax, "reduce", 11),
    _unary("layer norm", (1, 197, 384), lambda g, x: layer_norm(g, x), "reduce", 5),
)


def network_layers(names: Sequence[str] = NETWORKS) -> list[Case]:
    """Every distinct dense layer of these networks: convolutions of one group, and products of more than one row by
    constant weights. Those whose outputs don't fill vectors are odd. Nothing is left out."""
    found = [case for name in names for case in layers_of(MODELS[name].model())]
    return list({(case.family, case.name): case for case in found}.values())


def layers_of(model: onnx.ModelProto) -> Iterator[Case]:
    """The dense layers of one model, in its order; shapes must be fixed, pads even."""
    graph = shape_inference.infer_shapes(model).graph
    weights = {t.name: tuple(t.dims) for t in graph.initializer}
    shapes = {
        v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim)
        for v in (*graph.input, *graph.value_info, *graph.output)
    }
    for node in graph.node:
        kernel = weights.get(node.input[1]) if len(node.input) > 1 else None
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if kernel is None:
            continue
        if node.op_type == "Conv" and attributes.get("group", 1) == 1:
            outputs, channels, taps = kernel[0], kernel[1], kernel[-1]
            (stride, _), (pad, *_) = attributes["strides"], attributes["pads"]
            size = shapes[node.input[0]][2:]
            yield conv_case(channels, outputs, size, taps, stride, odd=outputs % VECTOR > 0, pad=pad)
        elif node.op_type in ("MatMul", "Gemm"):
            columns = kernel[0] if attributes.get("transB") else kernel[1]
            *rows, depth = shapes[node.input[0]]
            if math.prod(rows) > 1:
                yield matmul_case(math.prod(rows), depth, columns, odd=columns % VECTOR > 0)
