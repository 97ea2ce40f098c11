"""MobileNetV2: inverted residuals with depthwise convolutions, ReLU6 and linear bottlenecks."""

from __future__ import annotations

import onnx

from ..graph import Dim, ExportForm, ModelGraph
from ..layers import classifier, conv_norm

# expansion, channels, repeats, stride of the first
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2(
    *,
    form: ExportForm | None = None,
    batch: Dim = 1,
    size: int = 224,
    width: float = 1.0,
    classes: int = 1000,
    seed: int = 0,
) -> onnx.ModelProto:
    g = ModelGraph("mobilenet_v2", form, seed)
    x = g.input("input", (batch, 3, size, size))
    x = conv_norm(g, x, _channels(32, width), 3, stride=2, act="relu6", gain=1.0, name="stem")
    for stage, (expansion, channels, repeats, stride) in enumerate(STAGES):
        for index in range(repeats):
            with g.scope(f"features.{stage}.{index}"):
                x = _block(g, x, _channels(channels, width), expansion, stride if index == 0 else 1)
    x = conv_norm(g, x, _channels(1280, width), 1, act="relu6", gain=1.0, name="head")
    return g.finish(output=classifier(g, x, classes))


def _channels(channels: int, width: float) -> int:
    """Rounded to a multiple of 8, as the architecture's authors do."""
    return max(8, int(channels * width + 4) // 8 * 8)


def _block(g: ModelGraph, x: str, channels: int, expansion: int, stride: int) -> str:
    cin = g.dim(x, 1)
    y = x
    if expansion != 1:
        y = conv_norm(g, y, cin * expansion, 1, act="relu6", gain=2.0, name="expand")
    y = conv_norm(
        g, y, cin * expansion, 3, stride=stride, groups=cin * expansion, act="relu6", name="depthwise"
    )
    y = conv_norm(g, y, channels, 1, act="none", name="project")
    return g.op("Add", x, y) if stride == 1 and cin == channels else y
