"""Models of sequences whose length and batch are open: speech, sound, a step of a decoder, tags of words."""

from __future__ import annotations

import onnx

from .graph import ExportForm, ModelGraph
from .layers import activation, attention, layer_norm, linear, reduce_mean, reshape, transpose

RAW = ExportForm("torchscript", 17, raw=True)


def speech(width: int = 128, layers: int = 2, heads: int = 4, bands: int = 40, most: int = 1500) -> onnx.ModelProto:
    """A Whisper-like encoder: two convolutions over a spectrogram, the first rows of a table of positions, blocks."""
    g = ModelGraph("speech", RAW)
    x = g.input("mel", ("batch", bands, "frames"))
    x = activation(g, conv1d(g, x, bands, width, 3, pad=1), "gelu")
    x = activation(g, conv1d(g, x, width, width, 3, stride=2, pad=1), "gelu")
    x = g.op("Transpose", x, perm=[0, 2, 1], shape=("batch", "places", width))
    table = g.weight("positions", g.normal((most, width), 0.3))
    bounds = [g.const([0], "int64"), length_of(g, x, 1), g.const([0], "int64"), g.const([1], "int64")]
    x = g.op("Add", x, g.op("Slice", table, *bounds, shape=("places", width)), shape=("batch", "places", width))
    for index in range(layers):
        with g.scope(f"layer.{index}"):
            x = block(g, x, heads)
    return g.finish(hidden=layer_norm(g, x))


def block(g: ModelGraph, x: str, heads: int) -> str:
    """Attention and a feed-forward part, each behind its norm."""
    width = g.dim(x, -1)
    x = g.op("Add", attention(g, layer_norm(g, x, name="norm1"), heads), x)
    y = activation(g, linear(g, layer_norm(g, x, name="norm2"), 4 * width, name="fc1"), "gelu")
    return g.op("Add", linear(g, y, width, gain=2.35, name="fc2"), x)


def step(width: int = 128, layers: int = 2, heads: int = 4, vocabulary: int = 500, most: int = 512) -> onnx.ModelProto:
    """A step of a GPT-like decoder: one token for each sentence, behind keys and values of all earlier ones."""
    g = ModelGraph("step", RAW)
    ids = g.input("ids", ("batch", 1), "int64")
    deep = width // heads
    kept = [g.input(f"{kind}.{i}", ("batch", heads, "past", deep)) for i in range(layers) for kind in ("key", "value")]
    start = length_of(g, kept[0], 2)
    end = g.op("Add", start, length_of(g, ids, 1))
    table = g.weight("positions", g.normal((most, width), 0.3))
    place = g.op("Slice", table, start, end, g.const([0], "int64"), g.const([1], "int64"), shape=(1, width))
    x = g.op("Add", g.op("Gather", g.weight("word", g.normal((vocabulary, width), 0.5)), ids, axis=0), place)
    outputs = {}
    for index in range(layers):
        with g.scope(f"layer.{index}"):
            packed = linear(g, layer_norm(g, x, name="norm1"), 3 * width, name="qkv")
            q, k, v = (
                transpose(g, reshape(g, part, ("batch", 1, heads, deep)), 0, 2, 1, 3)
                for part in g.ops("Split", packed, g.const([width] * 3, "int64"), outputs=3, axis=2)
            )
            k, v = (
                g.op("Concat", kept[2 * index + at], new, axis=2, shape=("batch", heads, "total", deep))
                for at, new in enumerate((k, v))
            )
            outputs[f"present_key_{index}"], outputs[f"present_value_{index}"] = k, v
            scores = g.op("Div", g.op("MatMul", q, transpose(g, k, 0, 1, 3, 2)), g.const(deep**0.5))
            y = transpose(g, g.op("MatMul", g.op("Softmax", scores, axis=-1), v), 0, 2, 1, 3)
            x = g.op("Add", linear(g, reshape(g, y, ("batch", 1, width)), width, name="proj"), x)
            y = activation(g, linear(g, layer_norm(g, x, name="norm2"), 4 * width, name="fc1"), "gelu_tanh")
            x = g.op("Add", linear(g, y, width, gain=2.35, name="fc2"), x)
    return g.finish(logits=linear(g, layer_norm(g, x), vocabulary, bias=False, name="head"), **outputs)


def gated(width: int = 48, hidden: int = 64, tags: int = 17) -> onnx.ModelProto:
    """A tagger of words: two GRUs in both directions, as PyTorch writes them, a tag for every word."""
    g = ModelGraph("gated", RAW)
    ids = g.input("ids", ("batch", "length"), "int64")
    x = transpose(g, g.op("Gather", g.weight("word", g.normal((400, width), 0.5)), ids, axis=0), 1, 0, 2)
    for index in range(2):
        with g.scope(f"gru.{index}"):
            cin = g.dim(x, -1)
            given = [g.weight("w", g.normal((2, 3 * hidden, cin), cin**-0.5))]
            given += [g.weight("r", g.normal((2, 3 * hidden, hidden), hidden**-0.5))]
            given += [g.weight("b", g.normal((2, 6 * hidden), 0.1))]
            y = g.op("GRU", x, *given, hidden_size=hidden, direction="bidirectional", linear_before_reset=1)
            y = g.op("Transpose", y, perm=[0, 2, 1, 3], shape=("length", "batch", 2, hidden))
            x = reshape(g, y, ("length", "batch", 2 * hidden))
    return g.finish(tags=g.op("LogSoftmax", transpose(g, linear(g, x, tags), 1, 0, 2), axis=-1))


def sound(width: int = 32, blocks: int = 3, classes: int = 10) -> onnx.ModelProto:
    """A classifier of sound by convolutions of one axis: a wide first one, dilated separable residual blocks, pools."""
    g = ModelGraph("sound", RAW)
    x = g.input("wave", ("batch", 1, "samples"))
    x = g.op("Relu", conv1d(g, x, 1, width, 80, stride=4, pad=38))
    for index in range(blocks):
        with g.scope(f"block.{index}"):
            channels = width << index
            x = g.op("MaxPool", x, kernel_shape=[4], strides=[4], shape=("batch", channels, "frames"))
            y = conv1d(g, x, channels, channels, 3, groups=channels, pad=1 << index, dilation=1 << index)
            x = g.op("Relu", g.op("Add", x, conv1d(g, g.op("Relu", y), channels, channels, 1)))
            x = g.op("Relu", conv1d(g, x, channels, 2 * channels, 3, pad=1))
    return g.finish(classes=linear(g, reduce_mean(g, x, [2], keepdims=False), classes, name="head"))


def conv1d(
    g: ModelGraph, x: str, cin: int, channels: int, kernel: int,
    stride: int = 1, groups: int = 1, pad: int = 0, dilation: int = 1,
) -> str:  # fmt: skip
    """A convolution along the last axis, with a bias."""
    inputs = [g.weight("weight", g.fan_in((channels, cin // groups, kernel), 2.0))]
    inputs += [g.weight("bias", g.normal((channels,), 0.1))]
    return g.op("Conv", x, *inputs, group=groups, kernel_shape=[kernel], pads=[pad] * 2, strides=[stride],
                dilations=[dilation], shape=("batch", channels, "frames"))  # fmt: skip


def length_of(g: ModelGraph, x: str, axis: int) -> str:
    """The length of an axis as a tensor of one element, as exporters compute it."""
    return g.op("Unsqueeze", g.op("Gather", g.op("Shape", x), g.const(axis, "int64"), axis=0), g.const([0], "int64"))
