"""ConvNeXt-Tiny-like: 7x7 depthwise, LayerNorm over channels through transposes, GELU, layer scale."""

from __future__ import annotations

import onnx

from ..graph import Dim, ExportForm, ModelGraph
from ..layers import activation, conv, flatten, global_pool, layer_norm, linear, transpose


def convnext(
    *,
    form: ExportForm | None = None,
    batch: Dim = 1,
    size: int = 224,
    width: int = 96,
    depths: tuple[int, ...] = (3, 3, 9, 3),
    classes: int = 1000,
    seed: int = 0,
) -> onnx.ModelProto:
    g = ModelGraph("convnext", form, seed)
    x = g.input("input", (batch, 3, size, size))
    x = conv(g, x, width, 4, stride=4, pad=0, gain=1.0, name="stem")
    x = _channel_norm(g, x, "stem.norm")
    for stage, depth in enumerate(depths):
        with g.scope(f"stages.{stage}"):
            if stage:
                x = conv(
                    g, _channel_norm(g, x, "norm"), width << stage, 2, stride=2, pad=0, gain=1.0, name="down"
                )
            for index in range(depth):
                with g.scope(f"blocks.{index}"):
                    x = _block(g, x)
    y = flatten(g, global_pool(g, x))
    return g.finish(output=linear(g, layer_norm(g, y, name="norm"), classes, name="fc"))


def _channel_norm(g: ModelGraph, x: str, name: str) -> str:
    y = layer_norm(g, transpose(g, x, 0, 2, 3, 1), epsilon=1e-6, name=name)
    return transpose(g, y, 0, 3, 1, 2)


def _block(g: ModelGraph, x: str) -> str:
    c = g.dim(x, 1)
    y = transpose(g, conv(g, x, c, 7, groups=c, gain=1.0, name="dw"), 0, 2, 3, 1)
    y = activation(g, linear(g, layer_norm(g, y, epsilon=1e-6), 4 * c, name="pw1"), "gelu")
    y = linear(g, y, c, gain=2.35, name="pw2")
    y = g.op("Mul", y, g.weight("gamma", g.uniform((c,), 0.1, 0.5)))
    return g.op("Add", x, transpose(g, y, 0, 3, 1, 2))
