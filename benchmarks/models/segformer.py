"""SegFormer-like: attention with reduced keys and values, depthwise feed-forward, MLP decoder with bilinear resize."""

from __future__ import annotations

import onnx

from ..graph import Dim, ExportForm, ModelGraph
from ..layers import activation, attention, conv, conv_norm, layer_norm, linear, reshape, resize, transpose


def segformer(
    *,
    form: ExportForm | None = None,
    batch: Dim = 1,
    size: int = 256,
    widths: tuple[int, ...] = (32, 64, 160, 256),
    depth: int = 2,
    classes: int = 19,
    seed: int = 0,
) -> onnx.ModelProto:
    g = ModelGraph("segformer", form, seed)
    x = g.input("input", (batch, 3, size, size))
    maps = []
    for stage, width in enumerate(widths):
        kernel, stride = (7, 4) if stage == 0 else (3, 2)
        with g.scope(f"stage.{stage}"):
            x = conv(g, x, width, kernel, stride=stride, gain=1.0, name="patch")
            side = g.dim(x, 2)
            y = layer_norm(g, _tokens(g, x))
            for index in range(depth):
                with g.scope(f"block.{index}"):
                    y = _block(
                        g, y, side, heads=1 << stage if width % (1 << stage) == 0 else 1, reduction=8 >> stage
                    )
            x = _image(g, layer_norm(g, y, name="norm_out"), side)
        maps.append(x)
    with g.scope("decode"):
        decoded = []
        for stage, x in enumerate(maps):
            side = g.dim(x, 2)
            y = _image(g, linear(g, _tokens(g, x), widths[-1], name=f"linear{stage}"), side)
            decoded.append(resize(g, y, 1 << stage, "linear") if stage else y)
        x = conv_norm(g, g.op("Concat", *reversed(decoded), axis=1), widths[-1], 1, gain=2.0, name="fuse")
        return g.finish(logits=conv(g, x, classes, 1, name="classify"))


def _tokens(g: ModelGraph, x: str) -> str:
    """[N, C, H, W] to [N, H*W, C]."""
    n, c, h, w = g.shape(x)
    return transpose(g, reshape(g, x, (n, c, int(h) * int(w))), 0, 2, 1)


def _image(g: ModelGraph, x: str, side: int) -> str:
    """[N, side*side, C] to [N, C, side, side]."""
    n, _, c = g.shape(x)
    return reshape(g, transpose(g, x, 0, 2, 1), (n, c, side, side))


def _block(g: ModelGraph, x: str, side: int, heads: int, reduction: int) -> str:
    c = g.dim(x, 2)
    y = layer_norm(g, x, name="norm1")
    context = None
    if reduction > 1 and side % reduction == 0:
        reduced = conv(g, _image(g, y, side), c, reduction, stride=reduction, pad=0, gain=1.0, name="sr")
        context = layer_norm(g, _tokens(g, reduced), name="sr.norm")
    x = g.op("Add", x, attention(g, y, heads, context=context))
    y = linear(g, layer_norm(g, x, name="norm2"), 4 * c, name="fc1")
    y = _tokens(g, conv(g, _image(g, y, side), 4 * c, 3, groups=4 * c, gain=1.0, name="dw"))
    return g.op("Add", x, linear(g, activation(g, y, "gelu"), c, gain=2.35, name="fc2"))
