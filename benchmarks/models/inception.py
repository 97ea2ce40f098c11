"""Inception-v3-like: parallel branches of 1x1, 5x5, 1x7 and 7x1 convolutions and average pooling, concatenated."""

from __future__ import annotations

import onnx

from ..graph import Dim, ExportForm, ModelGraph
from ..layers import avg_pool, classifier, conv_norm, max_pool


def inception(
    *,
    form: ExportForm | None = None,
    batch: Dim = 1,
    size: int = 299,
    width: float = 1.0,
    cells: int = 3,
    classes: int = 1000,
    seed: int = 0,
) -> onnx.ModelProto:
    """``cells`` of each of the two kinds, at 1/8 and at 1/16 of the image."""
    g = ModelGraph("inception", form, seed)

    def c(channels: int) -> int:
        return max(4, int(channels * width))

    x = g.input("input", (batch, 3, size, size))
    x = conv_norm(g, x, c(32), 3, stride=2, pad=0, gain=1.0, name="stem1")
    x = conv_norm(g, conv_norm(g, x, c(32), 3, pad=0, name="stem2"), c(64), 3, name="stem3")
    x = max_pool(g, x, 3, 2)
    x = conv_norm(g, conv_norm(g, x, c(80), 1, name="stem4"), c(192), 3, pad=0, name="stem5")
    x = max_pool(g, x, 3, 2)
    for index in range(cells):
        with g.scope(f"mixed5.{index}"):
            a = conv_norm(g, x, c(64), 1, name="b1")
            b = conv_norm(g, conv_norm(g, x, c(48), 1, name="b5_1"), c(64), 5, name="b5_2")
            d = conv_norm(g, conv_norm(g, x, c(64), 1, name="b3_1"), c(96), 3, name="b3_2")
            d = conv_norm(g, d, c(96), 3, name="b3_3")
            p = conv_norm(g, avg_pool(g, x, 3, 1, 1), c(64), 1, name="pool")
            x = g.op("Concat", a, b, d, p, axis=1)
    with g.scope("mixed6a"):
        a = conv_norm(g, x, c(384), 3, stride=2, pad=0, name="b3")
        d = conv_norm(g, conv_norm(g, x, c(64), 1, name="d1"), c(96), 3, name="d2")
        d = conv_norm(g, d, c(96), 3, stride=2, pad=0, name="d3")
        x = g.op("Concat", a, d, max_pool(g, x, 3, 2), axis=1)
    for index in range(cells):
        with g.scope(f"mixed6.{index}"):
            a = conv_norm(g, x, c(192), 1, name="b1")
            b = conv_norm(g, conv_norm(g, x, c(160), 1, name="b7_1"), c(160), (1, 7), name="b7_2")
            b = conv_norm(g, b, c(192), (7, 1), name="b7_3")
            p = conv_norm(g, avg_pool(g, x, 3, 1, 1), c(192), 1, name="pool")
            x = g.op("Concat", a, b, p, axis=1)
    return g.finish(output=classifier(g, x, classes))
