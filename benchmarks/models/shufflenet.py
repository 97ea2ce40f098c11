"""ShuffleNetV2 x1.0: halves of the channels, depthwise convolutions, channel shuffle by reshape and transpose."""

from __future__ import annotations

import onnx

from ..graph import Dim, ExportForm, ModelGraph
from ..layers import classifier, conv_norm, max_pool, reshape, transpose


def shufflenet_v2(
    *,
    form: ExportForm | None = None,
    batch: Dim = 1,
    size: int = 224,
    widths: tuple[int, ...] = (24, 116, 232, 464, 1024),
    repeats: tuple[int, ...] = (4, 8, 4),
    classes: int = 1000,
    seed: int = 0,
) -> onnx.ModelProto:
    g = ModelGraph("shufflenet_v2", form, seed)
    x = g.input("input", (batch, 3, size, size))
    x = max_pool(g, conv_norm(g, x, widths[0], 3, stride=2, gain=1.0, name="conv1"), 3, 2, 1)
    for stage, (channels, count) in enumerate(zip(widths[1:-1], repeats)):
        for index in range(count):
            with g.scope(f"stage{stage + 2}.{index}"):
                x = shuffle(g, _reduce(g, x, channels) if index == 0 else _keep(g, x), 2)
    x = conv_norm(g, x, widths[-1], 1, gain=1.0, name="conv5")
    return g.finish(output=classifier(g, x, classes))


def shuffle(g: ModelGraph, x: str, groups: int) -> str:
    """Channel g*(C/groups) + c goes to c*groups + g."""
    n, c, h, w = g.shape(x)
    y = transpose(g, reshape(g, x, (n, groups, int(c) // groups, h, w)), 0, 2, 1, 3, 4)
    return reshape(g, y, (n, c, h, w))


def _keep(g: ModelGraph, x: str) -> str:
    half = g.dim(x, 1) // 2
    a, b = g.ops("Split", x, g.const([half, half], "int64"), outputs=2, axis=1)
    b = conv_norm(g, b, half, 1, gain=1.5, name="pw1")
    b = conv_norm(g, b, half, 3, groups=half, act="none", name="dw")
    return g.op("Concat", a, conv_norm(g, b, half, 1, gain=1.0, name="pw2"), axis=1)


def _reduce(g: ModelGraph, x: str, channels: int) -> str:
    half, cin = channels // 2, g.dim(x, 1)
    a = conv_norm(g, x, cin, 3, stride=2, groups=cin, act="none", gain=1.5, name="left.dw")
    a = conv_norm(g, a, half, 1, gain=1.0, name="left.pw")
    b = conv_norm(g, x, half, 1, gain=1.5, name="right.pw1")
    b = conv_norm(g, b, half, 3, stride=2, groups=half, act="none", name="right.dw")
    return g.op("Concat", a, conv_norm(g, b, half, 1, gain=1.0, name="right.pw2"), axis=1)
