"""Swin-like: attention in windows, every second block on a shifted image, with a constant bias and mask."""

from __future__ import annotations

import numpy as np
import onnx

from ..graph import ExportForm, ModelGraph
from ..layers import activation, attention, conv, layer_norm, linear, reduce_mean, reshape, slice_, transpose


def swin(
    *,
    form: ExportForm | None = None,
    batch: int = 1,
    size: int = 224,
    width: int = 96,
    depths: tuple[int, ...] = (2, 2),
    window: int = 7,
    classes: int = 1000,
    seed: int = 0,
) -> onnx.ModelProto:
    """The image's side over 4 must be a multiple of the window at every stage; windows multiply the batch: a number."""
    g = ModelGraph("swin", form, seed)
    x = g.input("input", (batch, 3, size, size))
    x = conv(g, x, width, 4, stride=4, pad=0, gain=1.0, name="patch")
    x = layer_norm(g, transpose(g, x, 0, 2, 3, 1))
    for stage, depth in enumerate(depths):
        with g.scope(f"layers.{stage}"):
            if stage:
                x = _merge(g, x)
            for index in range(depth):
                with g.scope(f"blocks.{index}"):
                    x = _block(
                        g, x, window, shift=window // 2 if index % 2 else 0, heads=max(1, g.dim(x, 3) // 32)
                    )
    x = reduce_mean(g, layer_norm(g, x, name="norm"), [1, 2], keepdims=False)
    return g.finish(output=linear(g, x, classes, name="head"))


def _block(g: ModelGraph, x: str, window: int, shift: int, heads: int) -> str:
    n, side, _, c = (int(d) for d in g.shape(x))
    y = layer_norm(g, x, name="norm1")
    mask: str | None = None
    if shift:
        y = _roll(g, _roll(g, y, 1, shift), 2, shift)
    bias = g.normal((1, heads, window * window, window * window), 0.5)
    if shift:
        bias = _shift_mask(side, window, shift).repeat(n, axis=0) + bias
    mask = g.weight("bias_and_mask", bias.astype(np.float32))
    count = side // window
    y = transpose(g, reshape(g, y, (n, count, window, count, window, c)), 0, 1, 3, 2, 4, 5)
    y = attention(g, reshape(g, y, (n * count * count, window * window, c)), heads, mask=mask, fused_qkv=True)
    y = transpose(g, reshape(g, y, (n, count, count, window, window, c)), 0, 1, 3, 2, 4, 5)
    y = reshape(g, y, (n, side, side, c))
    if shift:
        y = _roll(g, _roll(g, y, 1, side - shift), 2, side - shift)
    x = g.op("Add", x, y)
    y = activation(g, linear(g, layer_norm(g, x, name="norm2"), 4 * c, name="fc1"), "gelu")
    return g.op("Add", x, linear(g, y, c, gain=2.35, name="fc2"))


def _roll(g: ModelGraph, x: str, axis: int, shift: int) -> str:
    """x[shift:] then x[:shift] along ``axis``."""
    size = g.dim(x, axis)
    return g.op("Concat", slice_(g, x, axis, shift, size), slice_(g, x, axis, 0, shift), axis=axis)


def _merge(g: ModelGraph, x: str) -> str:
    """2x2 neighbours side by side in the channels, normalised, projected to twice the width."""
    parts = []
    for w in (0, 1):
        for h in (0, 1):
            bounds = [g.const(v, "int64") for v in ([h, w], [2**31 - 1] * 2, [1, 2], [2, 2])]
            parts.append(g.op("Slice", x, *bounds))
    y = layer_norm(g, g.op("Concat", *parts, axis=3), name="merge.norm")
    return linear(g, y, 2 * g.dim(x, 3), bias=False, name="merge")


def _shift_mask(side: int, window: int, shift: int) -> np.ndarray:
    """[windows, 1, T, T]: -100 between places that were not neighbours before the shift."""
    region = np.zeros(side, np.int64)
    region[side - window : side - shift], region[side - shift :] = 1, 2
    image = region[:, None] * 3 + region[None, :]
    count = side // window
    cells = image.reshape(count, window, count, window).transpose(0, 2, 1, 3).reshape(count * count, -1)
    return np.where(cells[:, None, :, None] == cells[:, None, None, :], 0.0, -100.0)
