"""ResNet-18 and ResNet-50 (stride on the 3x3 convolution of a bottleneck, as torchvision has it)."""

from __future__ import annotations

import onnx

from ..graph import Dim, ExportForm, ModelGraph
from ..layers import activation, classifier, conv_norm, max_pool


def resnet(
    *,
    form: ExportForm | None = None,
    batch: Dim = 1,
    size: int = 224,
    depth: int = 50,
    width: int = 64,
    classes: int = 1000,
    seed: int = 0,
) -> onnx.ModelProto:
    block, blocks = {18: (_basic, (2, 2, 2, 2)), 34: (_basic, (3, 4, 6, 3)), 50: (_bottleneck, (3, 4, 6, 3))}[
        depth
    ]
    g = ModelGraph(f"resnet{depth}", form, seed)
    x = g.input("input", (batch, 3, size, size))
    x = conv_norm(g, x, width, 7, stride=2, gain=1.0, name="conv1")
    x = max_pool(g, x, 3, 2, 1)
    for stage, count in enumerate(blocks):
        for index in range(count):
            with g.scope(f"layer{stage + 1}.{index}"):
                x = block(g, x, width << stage, stride=2 if stage and not index else 1)
    return g.finish(output=classifier(g, x, classes))


def _basic(g: ModelGraph, x: str, width: int, stride: int) -> str:
    y = conv_norm(g, x, width, 3, stride=stride, name="conv1")
    y = conv_norm(g, y, width, 3, act="none", scale=0.5, name="conv2")
    return _join(g, x, y, width, stride)


def _bottleneck(g: ModelGraph, x: str, width: int, stride: int) -> str:
    y = conv_norm(g, x, width, 1, name="conv1")
    y = conv_norm(g, y, width, 3, stride=stride, name="conv2")
    y = conv_norm(g, y, 4 * width, 1, act="none", scale=0.5, name="conv3")
    return _join(g, x, y, 4 * width, stride)


def _join(g: ModelGraph, x: str, y: str, width: int, stride: int) -> str:
    if stride != 1 or g.dim(x, 1) != width:
        x = conv_norm(g, x, width, 1, stride=stride, act="none", gain=1.0, name="downsample")
    return activation(g, g.op("Add", y, x), "relu")
