"""Super-resolution: ESPCN (plain convolutions, pixel shuffle) and EDSR (residual blocks without normalisation)."""

from __future__ import annotations

import onnx

from ..graph import Dim, ExportForm, ModelGraph
from ..layers import activation, conv


def espcn(
    *,
    form: ExportForm | None = None,
    batch: Dim = 1,
    height: int = 720,
    width: int = 1280,
    factor: int = 3,
    channels: int = 3,
    features: int = 64,
    seed: int = 0,
) -> onnx.ModelProto:
    g = ModelGraph(f"espcn_x{factor}", form, seed)
    x = g.input("input", (batch, channels, height, width))
    x = activation(g, conv(g, x, features, 5, gain=1.0, name="conv1"), "relu")
    x = activation(g, conv(g, x, features, 3, name="conv2"), "relu")
    x = activation(g, conv(g, x, features // 2, 3, name="conv3"), "relu")
    x = conv(g, x, channels * factor * factor, 3, name="conv4")
    return g.finish(output=g.op("DepthToSpace", x, blocksize=factor, mode="CRD"))


def edsr(
    *,
    form: ExportForm | None = None,
    batch: Dim = 1,
    height: int = 360,
    width: int = 640,
    factor: int = 2,
    blocks: int = 8,
    features: int = 64,
    upsampler: str = "direct",
    seed: int = 0,
) -> onnx.ModelProto:
    """``upsampler``: ``direct`` (the last convolution makes every subpixel) or ``conv`` (shuffle, then a conv)."""
    g = ModelGraph(f"edsr_x{factor}", form, seed)
    x = g.input("input", (batch, 3, height, width))
    with g.scope("sub_mean"):
        x = g.op("Sub", x, g.weight("mean", g.uniform((1, 3, 1, 1), 0.4, 0.5)))
    head = y = conv(g, x, features, gain=1.0, name="head")
    for index in range(blocks):
        with g.scope(f"body.{index}"):
            z = activation(g, conv(g, y, features, gain=1.0, name="conv1"), "relu")
            y = g.op("Add", g.op("Mul", conv(g, z, features, name="conv2"), g.const(0.1)), y)
    y = g.op("Add", conv(g, y, features, gain=1.0, name="body.out"), head)
    wide = features if upsampler == "conv" else 3
    y = conv(g, y, wide * factor * factor, gain=1.0, name="upsample")
    y = g.op("DepthToSpace", y, blocksize=factor, mode="CRD")
    if upsampler == "conv":
        y = conv(g, y, 3, gain=1.0, name="tail")
    return g.finish(output=y)
