"""Networks whose kernels are measured: chains of layers, so that each reads what the one before has just written.

Two sets of other shapes: constants are fitted on the first, and predictions judged on the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from ..graph import ModelGraph
from ..layers import activation, conv, layer_norm, max_pool

Layer = tuple[str | int, ...]


@dataclass(frozen=True)
class LayerChain:
    """Layers one after the other on an input of ``shape``. A layer is its kind and its numbers:

    ("conv", channels, kernel, stride, activation), ("depthwise", kernel, stride, activation), ("product", columns,
    activation), ("pool", kernel, stride), ("softmax", axis), ("norm",), ("turn", axis, ...), ("map", activation)
    """

    name: str
    shape: tuple[int, ...]
    layers: tuple[Layer, ...]

    def model(self) -> onnx.ModelProto:
        """The chain as an ONNX model with random weights."""
        g = ModelGraph(self.name)
        x = g.input("input", self.shape)
        for i, layer in enumerate(self.layers):
            with g.scope(f"{layer[0]}{i}"):
                x = _added(g, x, layer)
        return g.finish(output=x)


def _added(g: ModelGraph, x: str, layer: Layer) -> str:
    kind, *more = layer
    numbers = [n for n in more if isinstance(n, int)]
    act = next((n for n in more if isinstance(n, str)), "none")
    if kind == "conv":
        channels, kernel, stride = numbers
        return activation(g, conv(g, x, channels, kernel, stride=stride), act)
    if kind == "depthwise":
        kernel, stride = numbers
        channels = g.dim(x, 1)
        return activation(g, conv(g, x, channels, kernel, stride=stride, groups=channels), act)
    if kind == "product":
        weight = g.weight("weight", g.fan_in((g.dim(x, -1), *numbers), 1.0, g.dim(x, -1)))
        return activation(g, g.op("MatMul", x, weight), act)
    if kind == "pool":
        kernel, stride = numbers
        return max_pool(g, x, kernel, stride, kernel // 2)
    if kind == "softmax":
        return g.op("Softmax", x, axis=numbers[0])
    if kind == "norm":
        return layer_norm(g, x)
    if kind == "turn":
        return g.op("Transpose", x, perm=numbers)
    return activation(g, x, act)


def starts(count: int, small: bool) -> onnx.ModelProto:
    """A chain of ``count`` products of a few numbers, or of as many as cores just share."""
    rows, width = (1, 16) if small else (8, 160)
    return LayerChain("starts", (rows, width), (("product", width, "relu"),) * count).model()


IMAGES: tuple[Layer, ...] = (
    ("conv", 64, 3, 1, "relu"), ("conv", 96, 1, 1, "silu"), ("depthwise", 3, 1, "relu"), ("conv", 64, 1, 1, "none"),
    ("pool", 3, 2), ("conv", 128, 3, 1, "relu"), ("depthwise", 5, 1, "relu6"), ("conv", 256, 1, 1, "relu"),
    ("conv", 128, 3, 2, "relu"), ("depthwise", 3, 2, "relu"), ("conv", 256, 3, 1, "relu"), ("conv", 512, 1, 1, "relu"),
)  # fmt: skip
OTHER_IMAGES: tuple[Layer, ...] = (
    ("conv", 48, 3, 1, "relu"), ("conv", 144, 1, 1, "relu"), ("depthwise", 3, 1, "silu"), ("conv", 80, 3, 1, "relu"),
    ("pool", 2, 2), ("conv", 160, 1, 1, "relu6"), ("depthwise", 5, 1, "relu"), ("conv", 96, 3, 2, "relu"),
    ("conv", 192, 3, 1, "relu"), ("depthwise", 3, 1, "relu"), ("conv", 320, 1, 1, "relu"),
)  # fmt: skip
ROWS: tuple[Layer, ...] = (
    ("product", 512, "relu"), ("product", 768, "gelu"), ("product", 256, "none"), ("softmax", -1),
    ("product", 1024, "relu"), ("product", 384, "none"), ("norm",), ("product", 384, "relu"),
)  # fmt: skip
OTHER_ROWS: tuple[Layer, ...] = (
    ("product", 640, "relu"), ("product", 320, "gelu"), ("product", 960, "relu"), ("product", 448, "none"), ("norm",),
    ("product", 512, "relu"), ("softmax", -1),
)  # fmt: skip
MAPS: tuple[Layer, ...] = (
    ("turn", 0, 1, 3, 2), ("pool", 3, 1), ("softmax", -1), ("turn", 0, 2, 3, 1), ("norm",), ("turn", 0, 3, 1, 2),
    ("pool", 5, 1), ("softmax", 1), ("pool", 3, 2), ("turn", 0, 1, 3, 2), ("pool", 2, 2),
)  # fmt: skip
OTHER_MAPS: tuple[Layer, ...] = (
    ("turn", 0, 1, 3, 2), ("pool", 3, 1), ("softmax", -1), ("turn", 0, 2, 3, 1), ("norm",), ("turn", 0, 3, 1, 2),
    ("pool", 2, 2), ("softmax", 1),
)  # fmt: skip

FITTED: tuple[LayerChain, ...] = (
    LayerChain("images", (1, 32, 56, 56), IMAGES), LayerChain("rows", (1, 196, 256), ROWS),
    LayerChain("maps", (1, 64, 56, 56), MAPS),
)  # fmt: skip
HELD_OUT: tuple[LayerChain, ...] = (
    LayerChain("other images", (1, 40, 44, 52), OTHER_IMAGES), LayerChain("other rows", (1, 328, 384), OTHER_ROWS),
    LayerChain("other maps", (1, 48, 72, 40), OTHER_MAPS),
)  # fmt: skip


def chains(names: Sequence[str] = ()) -> tuple[tuple[LayerChain, ...], tuple[LayerChain, ...]]:
    """What is fitted on, and what is held out; those of ``names`` alone, if there are any."""
    fitted, held = ([c for c in found if not names or c.name in names] for found in (FITTED, HELD_OUT))
    return tuple(fitted), tuple(held)
