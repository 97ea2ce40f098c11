"""VGG-16 with a small head (global pooling and one fully connected layer instead of 123 million weights)."""

from __future__ import annotations

import onnx

from ..graph import Dim, ExportForm, ModelGraph
from ..layers import activation, classifier, conv, max_pool

STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


def vgg16(
    *,
    form: ExportForm | None = None,
    batch: Dim = 1,
    size: int = 224,
    width: float = 1.0,
    classes: int = 1000,
    seed: int = 0,
) -> onnx.ModelProto:
    g = ModelGraph("vgg16", form, seed)
    x = g.input("input", (batch, 3, size, size))
    for stage, (channels, convs) in enumerate(STAGES):
        for index in range(convs):
            with g.scope(f"features.{stage}.{index}"):
                x = activation(
                    g, conv(g, x, int(channels * width), gain=2.0 if stage or index else 1.0), "relu"
                )
        x = max_pool(g, x, 2, 2)
    return g.finish(output=classifier(g, x, classes))
