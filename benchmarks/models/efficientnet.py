"""EfficientNet-B0: inverted residuals with squeeze-and-excitation and SiLU, 3x3 and 5x5 depthwise."""

from __future__ import annotations

import onnx

from ..graph import Dim, ExportForm, ModelGraph
from ..layers import activation, classifier, conv, conv_norm, global_pool

# expansion, channels, repeats, stride of the first, kernel
STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


def efficientnet_b0(
    *,
    form: ExportForm | None = None,
    batch: Dim = 1,
    size: int = 224,
    width: float = 1.0,
    classes: int = 1000,
    seed: int = 0,
) -> onnx.ModelProto:
    g = ModelGraph("efficientnet_b0", form, seed)
    x = g.input("input", (batch, 3, size, size))
    x = conv_norm(g, x, _channels(32, width), 3, stride=2, act="silu", gain=1.0, name="stem")
    for stage, (expansion, channels, repeats, stride, kernel) in enumerate(STAGES):
        for index in range(repeats):
            with g.scope(f"blocks.{stage}.{index}"):
                x = _block(g, x, _channels(channels, width), expansion, stride if index == 0 else 1, kernel)
    x = conv_norm(g, x, _channels(1280, width), 1, act="silu", gain=1.0, name="head")
    return g.finish(output=classifier(g, x, classes))


def _channels(channels: int, width: float) -> int:
    return max(8, int(channels * width + 4) // 8 * 8)


def _block(g: ModelGraph, x: str, channels: int, expansion: int, stride: int, kernel: int) -> str:
    cin = g.dim(x, 1)
    y = x
    if expansion != 1:
        y = conv_norm(g, y, cin * expansion, 1, act="silu", gain=1.0, name="expand")
    y = conv_norm(
        g,
        y,
        cin * expansion,
        kernel,
        stride=stride,
        groups=cin * expansion,
        act="silu",
        gain=2.8,
        name="depthwise",
    )
    y = squeeze_excite(g, y, max(1, cin // 4))
    # The gate of squeeze-and-excitation halves its input: 4 in the mean square, on top of SiLU's 2.8; the branch
    # adds half of the main path's amplitude, so that sixteen blocks stay in range.
    y = conv_norm(g, y, channels, 1, act="none", gain=11.0, scale=0.75, name="project")
    return g.op("Add", y, x) if stride == 1 and cin == channels else y


def squeeze_excite(g: ModelGraph, x: str, squeezed: int, act: str = "silu", gate: str = "sigmoid") -> str:
    """x * gate(conv(act(conv(mean of x over space))))."""
    with g.scope("se"):
        y = activation(g, conv(g, global_pool(g, x), squeezed, 1, name="reduce"), act)
        y = activation(g, conv(g, y, g.dim(x, 1), 1, name="expand"), gate)
        return g.op("Mul", x, y)
