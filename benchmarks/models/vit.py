"""A ViT-S-like encoder: patches by convolution, class token, pre-norm blocks with one packed Q/K/V projection."""

from __future__ import annotations

import onnx

from ..graph import Dim, ExportForm, ModelGraph
from ..layers import activation, attention, conv, layer_norm, linear, reshape, transpose


def vit(
    *,
    form: ExportForm | None = None,
    batch: Dim = 1,
    size: int = 224,
    patch: int = 16,
    width: int = 384,
    layers: int = 6,
    heads: int = 6,
    classes: int = 1000,
    seed: int = 0,
) -> onnx.ModelProto:
    g = ModelGraph("vit", form, seed)
    x = g.input("input", (batch, 3, size, size))
    x = conv(g, x, width, patch, stride=patch, pad=0, gain=1.0, name="patches")
    grid = (size // patch) ** 2
    x = transpose(g, reshape(g, x, (batch, width, grid)), 0, 2, 1)
    token = g.weight("cls_token", g.normal((1, 1, width), 1.0))
    if isinstance(batch, str) or batch != 1:
        shape = g.op("Concat", g.op("Shape", x, start=0, end=1), g.const([1, width], "int64"), axis=0)
        token = g.op("Expand", token, shape, shape=(batch, 1, width))
    x = g.op("Concat", token, x, axis=1)
    x = g.op("Add", x, g.weight("pos_embed", g.normal((1, grid + 1, width), 0.3)))
    for index in range(layers):
        with g.scope(f"blocks.{index}"):
            x = g.op(
                "Add", x, attention(g, layer_norm(g, x, epsilon=1e-6, name="norm1"), heads, fused_qkv=True)
            )
            y = activation(
                g, linear(g, layer_norm(g, x, epsilon=1e-6, name="norm2"), 4 * width, name="fc1"), "gelu"
            )
            x = g.op("Add", x, linear(g, y, width, gain=2.35, name="fc2"))
    first = g.op("Gather", layer_norm(g, x, epsilon=1e-6), g.const(0, "int64"), axis=1)
    return g.finish(output=linear(g, first, classes, name="head"))
