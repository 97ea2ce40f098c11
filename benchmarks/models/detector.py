"""A detector's neck and head on three feature maps: nearest upsampling, concatenations, SiLU, six outputs."""

from __future__ import annotations

import onnx

from ..graph import Dim, ExportForm, ModelGraph
from ..layers import conv, conv_norm, resize


def detector_neck(
    *,
    form: ExportForm | None = None,
    batch: Dim = 1,
    size: int = 640,
    width: int = 64,
    classes: int = 80,
    seed: int = 0,
) -> onnx.ModelProto:
    """``size`` is the image's; inputs are its maps at strides 8, 16, 32 with 2, 4 and 8 times ``width`` channels."""
    g = ModelGraph("detector_neck", form, seed)
    p3 = g.input("p3", (batch, 2 * width, size // 8, size // 8))
    p4 = g.input("p4", (batch, 4 * width, size // 16, size // 16))
    p5 = g.input("p5", (batch, 8 * width, size // 32, size // 32))
    p5 = _block(g, p5, 4 * width, "lateral5", split=False)
    n4 = _block(g, g.op("Concat", resize(g, p5, 2), p4, axis=1), 4 * width, "top4")
    n3 = _block(g, g.op("Concat", resize(g, n4, 2), p3, axis=1), 2 * width, "top3")
    d4 = conv_norm(g, n3, 2 * width, 3, stride=2, act="silu", gain=2.8, name="down4")
    o4 = _block(g, g.op("Concat", d4, n4, axis=1), 4 * width, "bottom4")
    d5 = conv_norm(g, o4, 4 * width, 3, stride=2, act="silu", gain=2.8, name="down5")
    o5 = _block(g, g.op("Concat", d5, p5, axis=1), 8 * width, "bottom5")
    outputs = {}
    for level, x in ((3, n3), (4, o4), (5, o5)):
        with g.scope(f"head.{level}"):
            y = conv_norm(g, x, width, 3, act="silu", gain=2.8, name="stem")
            outputs[f"boxes{level}"] = conv(g, y, 4, 1, gain=2.8, name="boxes")
            outputs[f"scores{level}"] = g.op("Sigmoid", conv(g, y, classes, 1, gain=2.8, name="scores"))
    return g.finish(**outputs)


def _block(g: ModelGraph, x: str, channels: int, name: str, split: bool = True) -> str:
    """A cross-stage block: 1x1 convolution, split in halves, two 3x3 on one half with a residual, concatenated, 1x1."""
    with g.scope(name):
        x = conv_norm(g, x, channels, 1, act="silu", gain=2.0, name="in")
        if not split:
            return x
        half = channels // 2
        kept, y = g.ops("Split", x, g.const([half, half], "int64"), outputs=2, axis=1)
        z = conv_norm(g, y, half, 3, act="silu", gain=2.8, name="m1")
        z = g.op("Add", y, conv_norm(g, z, half, 3, act="silu", gain=2.8, name="m2"))
        return conv_norm(g, g.op("Concat", kept, y, z, axis=1), channels, 1, act="silu", gain=2.8, name="out")
