"""DenseNet-121: BatchNormalization and ReLU before each convolution, every layer concatenated to all before it."""

from __future__ import annotations

import onnx

from ..graph import Dim, ExportForm, ModelGraph
from ..layers import activation, avg_pool, batch_norm, classifier, conv, conv_norm, max_pool


def densenet(
    *,
    form: ExportForm | None = None,
    batch: Dim = 1,
    size: int = 224,
    growth: int = 32,
    blocks: tuple[int, ...] = (6, 12, 24, 16),
    classes: int = 1000,
    seed: int = 0,
) -> onnx.ModelProto:
    g = ModelGraph("densenet", form, seed)
    x = g.input("input", (batch, 3, size, size))
    x = max_pool(g, conv_norm(g, x, 2 * growth, 7, stride=2, gain=1.0, name="stem"), 3, 2, 1)
    for stage, count in enumerate(blocks):
        features = [x]
        for index in range(count):
            with g.scope(f"block{stage}.{index}"):
                joined = g.op("Concat", *features, axis=1) if len(features) > 1 else x
                y = conv(g, _norm_relu(g, joined, "norm1"), 4 * growth, 1, bias=False, name="conv1")
                features.append(conv(g, _norm_relu(g, y, "norm2"), growth, 3, bias=False, name="conv2"))
        x = g.op("Concat", *features, axis=1)
        if stage < len(blocks) - 1:
            with g.scope(f"transition{stage}"):
                x = avg_pool(g, conv(g, _norm_relu(g, x, "norm"), g.dim(x, 1) // 2, 1, bias=False), 2, 2)
    return g.finish(output=classifier(g, _norm_relu(g, x, "norm"), classes))


def _norm_relu(g: ModelGraph, x: str, name: str) -> str:
    return activation(g, batch_norm(g, x, name=name), "relu")
