"""U-Net: an encoder, a decoder of transposed convolutions, and a concatenation across at every level."""

from __future__ import annotations

import onnx

from ..graph import Dim, ExportForm, ModelGraph
from ..layers import conv, conv_norm, conv_transpose, max_pool


def unet(
    *,
    form: ExportForm | None = None,
    batch: Dim = 1,
    size: int = 512,
    base: int = 32,
    levels: int = 4,
    classes: int = 2,
    seed: int = 0,
) -> onnx.ModelProto:
    g = ModelGraph("unet", form, seed)
    x = g.input("input", (batch, 3, size, size))
    skips = []
    for level in range(levels):
        with g.scope(f"down.{level}"):
            x = _double(g, x, base << level, first=level == 0)
        skips.append(x)
        x = max_pool(g, x, 2, 2)
    with g.scope("middle"):
        x = _double(g, x, base << levels)
    for level in reversed(range(levels)):
        with g.scope(f"up.{level}"):
            x = conv_transpose(g, x, base << level, 2, stride=2)
            x = _double(g, g.op("Concat", skips[level], x, axis=1), base << level)
    return g.finish(mask=conv(g, x, classes, 1, name="head"))


def _double(g: ModelGraph, x: str, channels: int, first: bool = False) -> str:
    x = conv_norm(g, x, channels, 3, gain=1.0 if first else 2.0, name="conv1")
    return conv_norm(g, x, channels, 3, name="conv2")
