"""Models whose dimensions are open, of every kind that libraries for all sizes serve, small enough to build in seconds.

entry = OPEN_MODELS["tagger"]
model = entry.model()                      # ModelProto whose inputs have symbols
entry.typical                              # the size that a build plans for
entry.sizes                                # small, the typical one, large
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from .graph import ModelGraph
from .layers import activation, attention, extended_mask, layer_norm, linear, reduce_mean, reshape, transpose
from .models import MODELS
from .open_cases import with_dims
from .open_images import detector_full, segformer_image, text_finder, text_reader, vit_image
from .open_sequences import RAW, conv1d, gated, sound, speech, step

if TYPE_CHECKING:
    from ..targets.plain import Json

Sizes = dict[str, int]


@dataclass(frozen=True)
class OpenEntry:
    """One model: its builder, the sizes that a build plans for, and a smaller and a larger one."""

    name: str
    model: Callable[[], onnx.ModelProto]
    small: Sizes
    typical: Sizes
    large: Sizes
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # of integers that are no positions in a table

    @property
    def sizes(self) -> tuple[Sizes, Sizes, Sizes]:
        return self.small, self.typical, self.large


def images(name: str, **options: Any) -> onnx.ModelProto:
    """A model of the harness with the batch, rows and columns of its one input open."""
    model = MODELS[name].model(**options)
    (info,) = model.graph.input
    shape = tuple(d.dim_value for d in info.type.tensor_type.shape.dim)
    dims = {(info.name, 0): "n", (info.name, 2): "h", (info.name, 3): "w"}
    return with_dims(model, {info.name: np.broadcast_to(np.float32(0), shape)}, dims)


def maps(width: int = 16) -> onnx.ModelProto:
    """A detector's neck on maps of images of any size: names are those of the coarsest map."""
    model = MODELS["detector_neck"].model(size=128, width=width, classes=10)
    given, dims = {}, {}
    for info, name in zip(model.graph.input, ("4*{}", "2*{}", "{}")):
        given[info.name] = np.broadcast_to(np.float32(0), tuple(d.dim_value for d in info.type.tensor_type.shape.dim))
        dims.update({(info.name, 0): "n", (info.name, 2): name.format("h"), (info.name, 3): name.format("w")})
    return with_dims(model, given, dims)


def encoder(width: int = 128, layers: int = 2, heads: int = 4, vocabulary: int = 500) -> onnx.ModelProto:
    """A BERT-like encoder of sentences of any length, as exporters write it: masked, with a table of positions."""
    g = ModelGraph("encoder", RAW)
    ids = g.input("input_ids", ("batch", "length"), "int64")
    bias = extended_mask(g, g.input("attention_mask", ("batch", "length"), "int64"))
    x = g.op("Gather", g.weight("word", g.normal((vocabulary, width), 0.5)), ids, axis=0)
    x = layer_norm(g, g.op("Add", x, _places(g, ids, 512, width)))
    for index in range(layers):
        with g.scope(f"layer.{index}"):
            x = layer_norm(g, g.op("Add", attention(g, x, heads, mask=bias), x), name="norm1")
            y = activation(g, linear(g, x, 4 * width, name="fc1"), "gelu")
            x = layer_norm(g, g.op("Add", linear(g, y, width, name="fc2"), x), name="norm2")
    first = g.op("Gather", x, g.const(0, "int64"), axis=1)
    return g.finish(hidden=x, pooled=g.op("Tanh", linear(g, first, width, name="pooler")))


def _places(g: ModelGraph, ids: str, most: int, width: int) -> str:
    """The rows of a table of positions, as many as there are ids."""
    length = g.op("Unsqueeze", g.op("Gather", g.op("Shape", ids), g.const(1, "int64"), axis=0), g.const([0], "int64"))
    table = g.weight("position", g.normal((1, most, width), 0.3))
    bounds = [g.const([0], "int64"), length, g.const([1], "int64"), g.const([1], "int64")]
    return g.op("Slice", table, *bounds, shape=(1, "length", width))


def audio(width: int = 96, layers: int = 2, heads: int = 4) -> onnx.ModelProto:
    """A wav2vec2-like encoder: convolutions of one axis with group norms, places by a long grouped convolution,
    attention over all frames, letters."""
    g = ModelGraph("audio", RAW)
    x = g.op("Unsqueeze", g.input("input_values", ("batch", "samples")), g.const([1], "int64"))
    cin = 1
    for index, (kernel, stride) in enumerate(((10, 5), (3, 2), (3, 2), (3, 2), (2, 2))):
        with g.scope(f"conv.{index}"):
            x = conv1d(g, x, cin, width, kernel, stride)
            if index == 0:
                flat = g.op("Reshape", x, g.const([0, width, -1], "int64"))
                ones, zeros = g.weight("one", np.ones(width, np.float32)), g.weight("zero", np.zeros(width, np.float32))
                flat = g.op("InstanceNormalization", flat, ones, zeros, epsilon=1e-5)
                x = g.op("Reshape", flat, g.op("Shape", x), shape=("batch", width, "frames"))
            x = activation(g, x, "gelu")
            cin = width
    frames = ("batch", "frames", width)
    x = g.op("Transpose", x, perm=[0, 2, 1], shape=frames)
    x = linear(g, layer_norm(g, x), width, name="project")
    y = conv1d(g, transpose(g, x, 0, 2, 1), width, width, 16, 1, groups=8, pad=8)
    y = g.op("Slice", y, *(g.const([v], "int64") for v in (0, -1, 2, 1)))
    y = g.op("Transpose", activation(g, y, "gelu"), perm=[0, 2, 1], shape=frames)
    x = layer_norm(g, g.op("Add", x, y, shape=frames), name="places")
    for index in range(layers):
        with g.scope(f"layer.{index}"):
            x = layer_norm(g, g.op("Add", attention(g, x, heads), x), name="norm1")
            y = activation(g, linear(g, x, 4 * width, name="fc1"), "gelu")
            x = layer_norm(g, g.op("Add", linear(g, y, width, name="fc2"), x), name="norm2")
    return g.finish(logits=linear(g, x, 32, name="letters"))


def tagger(width: int = 48, hidden: int = 64, tags: int = 17) -> onnx.ModelProto:
    """A tagger of words: an LSTM in both directions and one behind it, a tag for every word."""
    g = ModelGraph("tagger", RAW)
    ids = g.input("ids", ("batch", "length"), "int64")
    x = g.op("Gather", g.weight("word", g.normal((400, width), 0.5)), ids, axis=0)
    x = transpose(g, x, 1, 0, 2)
    for index, directions in enumerate((2, 1)):
        with g.scope(f"lstm.{index}"):
            cin = g.dim(x, -1)
            given = [g.weight("w", g.normal((directions, 4 * hidden, cin), cin**-0.5))]
            given += [g.weight("r", g.normal((directions, 4 * hidden, hidden), hidden**-0.5))]
            given += [g.weight("b", g.normal((directions, 8 * hidden), 0.1))]
            kind = "bidirectional" if directions == 2 else "forward"
            y = g.op("LSTM", x, *given, hidden_size=hidden, direction=kind)
            if directions == 2:
                y = g.op("Transpose", y, perm=[0, 2, 1, 3], shape=("length", "batch", 2, hidden))
                x = reshape(g, y, ("length", "batch", 2 * hidden))
            else:
                x = g.op("Squeeze", y, g.const([1], "int64"), shape=("length", "batch", hidden))
    return g.finish(tags=g.op("LogSoftmax", transpose(g, linear(g, x, tags), 1, 0, 2), axis=-1))


def pooled(width: int = 24) -> onnx.ModelProto:
    """A classifier of images of any size, whose map becomes tokens that attend to each other."""
    g = ModelGraph("pooled", RAW)
    x, cin = g.input("image", ("n", 3, "h", "w")), 3
    for index, channels in enumerate((width, 2 * width, 4 * width)):
        with g.scope(f"stage.{index}"):
            weight = g.weight("weight", g.fan_in((channels, cin, 3, 3), 2.0))
            bias = g.weight("bias", g.normal((channels,), 0.1))
            x = g.op("Conv", x, weight, bias, kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2],
                     shape=("n", channels, "y", "x"))  # fmt: skip
            x, cin = activation(g, x, "silu"), channels
    n = g.op("Unsqueeze", g.op("Gather", g.op("Shape", x), g.const(0, "int64"), axis=0), g.const([0], "int64"))
    whole = g.op("Concat", n, g.const([cin], "int64"), g.const([-1], "int64"), axis=0)
    x = g.op("Reshape", x, whole, shape=("n", cin, "tokens"))
    x = g.op("Transpose", x, perm=[0, 2, 1], shape=("n", "tokens", cin))
    x = g.op("Add", attention(g, layer_norm(g, x), 4, fused_qkv=True), x)
    return g.finish(classes=linear(g, reduce_mean(g, x, [1], keepdims=False), 10, name="head"))


def _entries() -> list[OpenEntry]:
    def text(small: int, typical: int, large: int) -> tuple[Sizes, Sizes, Sizes]:
        return tuple({"batch": 1, "length": n} for n in (small, typical, large))  # type: ignore[return-value]

    def samples(*counts: int) -> tuple[Sizes, Sizes, Sizes]:
        return tuple({"batch": 1, "samples": n} for n in counts)  # type: ignore[return-value]

    def image(*sizes: int) -> tuple[Sizes, Sizes, Sizes]:
        return tuple({"n": 1, "h": s, "w": s} for s in sizes)  # type: ignore[return-value]

    def one_image(small: int, typical: int, large: int) -> tuple[Sizes, Sizes, Sizes]:
        return {"h": small, "w": small}, {"h": typical, "w": typical}, {"h": large, "w": large}

    def named(name: str, small: int, typical: int, large: int) -> tuple[Sizes, Sizes, Sizes]:
        return {"batch": 1, name: small}, {"batch": 1, name: typical}, {"batch": 1, name: large}

    def batch(*sizes: int) -> tuple[Sizes, Sizes, Sizes]:
        return tuple({"n": n} for n in sizes)  # type: ignore[return-value]

    mobile: Json = {"size": 96, "width": 0.5, "classes": 10}
    return [
        OpenEntry("encoder", encoder, *text(7, 128, 384), {"attention_mask": (0, 2)}),
        OpenEntry("audio", audio, *samples(2000, 16000, 48000)),
        OpenEntry("tagger", tagger, *text(5, 32, 100)),
        OpenEntry("vit_batch", lambda: MODELS["vit"].model(small=True, batch="n", width=96, size=64), *batch(1, 4, 16)),
        OpenEntry("tokens", pooled, *image(32, 128, 224)),
        OpenEntry("espcn", lambda: images("espcn", features=32), *image(24, 128, 360)),
        OpenEntry("unet", lambda: images("unet", size=128, base=16, levels=3), *image(32, 128, 256)),
        OpenEntry("mobilenet_batch", lambda: MODELS["mobilenet_v2"].model(batch="n", **mobile), *batch(1, 2, 8)),
        OpenEntry("mobilenet_image", lambda: images("mobilenet_v2", **mobile), *image(32, 96, 224)),
        OpenEntry("resnet_image", lambda: images("resnet18", width=32, classes=10), *image(32, 128, 224)),
        OpenEntry("detector", maps, *image(2, 6, 20)),
        OpenEntry("speech", speech, *named("frames", 60, 400, 1500)),
        OpenEntry("step", step, {"batch": 1, "past": 4}, {"batch": 1, "past": 64}, {"batch": 4, "past": 300}),
        OpenEntry("gated", gated, *text(5, 32, 100)),
        OpenEntry("sound", sound, *samples(2000, 16000, 48000)),
        OpenEntry("vit_image", vit_image, *image(32, 112, 224)),
        OpenEntry("segformer_image", segformer_image, *image(32, 128, 224)),
        OpenEntry("edsr_image", lambda: images("edsr", features=32, blocks=2), *image(24, 96, 240)),
        OpenEntry("resnet50_image", lambda: images("resnet50", width=32, classes=10), *image(64, 128, 224)),
        OpenEntry("detector_full", detector_full, *one_image(64, 192, 320)),
        OpenEntry("text_finder", text_finder, *image(64, 192, 352)),
        OpenEntry("text_reader", text_reader, {"n": 1, "w": 40}, {"n": 1, "w": 320}, {"n": 1, "w": 800}),
    ]


OPEN_MODELS: dict[str, OpenEntry] = {entry.name: entry for entry in _entries()}
