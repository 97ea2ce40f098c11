"""Models of images whose batch, height and width are open: tokens of any image, a detector to its end, a pair that
reads text."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from .graph import ExportForm, ModelGraph
from .layers import activation, attention, conv_norm, layer_norm, linear, transpose
from .open_sequences import block, length_of

RAW = ExportForm("torchscript", 17, raw=True)


def tokens_of(g: ModelGraph, x: str, name: str = "tokens") -> str:
    """[N, C, H, W] to [N, H*W, C]."""
    n, c, *_ = g.shape(x)
    y = g.op("Reshape", x, _sizes(g, length_of(g, x, 0), int(c), -1), shape=(n, c, name))
    return g.op("Transpose", y, perm=[0, 2, 1], shape=(n, name, c))


def image_of(g: ModelGraph, x: str, like: str) -> str:
    """[N, H*W, C] to [N, C, H, W], of the height and width of ``like``."""
    n, _, c = g.shape(x)
    whole = _sizes(g, length_of(g, like, 0), int(c), length_of(g, like, 2), length_of(g, like, 3))
    return g.op("Reshape", transpose(g, x, 0, 2, 1), whole, shape=(n, c, *g.shape(like)[2:]))


def resized_to(g: ModelGraph, x: str, like: str, mode: str = "linear") -> str:
    """``x`` at the height and width of ``like``."""
    n, c, *_ = g.shape(x)
    whole = _sizes(g, length_of(g, x, 0), length_of(g, x, 1), length_of(g, like, 2), length_of(g, like, 3))
    options = {"coordinate_transformation_mode": "half_pixel"}
    if mode == "nearest":
        options = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return g.op("Resize", x, "", "", whole, shape=(n, c, *g.shape(like)[2:]), mode=mode, **options)


def _sizes(g: ModelGraph, *sizes: str | int) -> str:
    return g.op("Concat", *(s if isinstance(s, str) else g.const([s], "int64") for s in sizes), axis=0)


def vit_image(width: int = 96, layers: int = 2, heads: int = 4, patch: int = 8, side: int = 14) -> onnx.ModelProto:
    """A ViT-like classifier of images of any size: the table of positions is resized to the patches that there are."""
    g = ModelGraph("vit_image", RAW)
    x = _conv(g, g.input("image", ("n", 3, "h", "w")), width, patch, ("y", "x"), stride=patch, pad=0)
    places = resized_to(g, g.weight("positions", g.normal((1, width, side, side), 0.3)), x, "linear")
    x = tokens_of(g, g.op("Add", x, places, shape=("n", width, "y", "x")))
    token = g.op("Expand", g.weight("token", g.normal((1, 1, width), 1.0)), _sizes(g, length_of(g, x, 0), 1, width),
                 shape=("n", 1, width))  # fmt: skip
    x = g.op("Concat", token, x, axis=1, shape=("n", "all", width))
    for index in range(layers):
        with g.scope(f"block.{index}"):
            x = block(g, x, heads)
    first = g.op("Gather", layer_norm(g, x), g.const(0, "int64"), axis=1)
    return g.finish(classes=linear(g, first, 10, name="head"))


def segformer_image(widths: tuple[int, ...] = (16, 32, 64), classes: int = 7) -> onnx.ModelProto:
    """SegFormer of images of any size: keys and values of fewer places, a depthwise convolution in the feed-forward
    part, maps resized to the first one's size."""
    g = ModelGraph("segformer_image", RAW)
    x, maps = g.input("image", ("n", 3, "h", "w")), []
    for stage, width in enumerate(widths):
        kernel, stride = (7, 4) if stage == 0 else (3, 2)
        here = (f"y{stage}", f"x{stage}")
        with g.scope(f"stage.{stage}"):
            x = _conv(g, x, width, kernel, here, stride=stride)
            y = layer_norm(g, tokens_of(g, x, f"tokens{stage}"))
            y = _reduced(g, y, x, heads=1 << stage, reduction=4 >> stage)
            x = image_of(g, layer_norm(g, y, name="norm_out"), x)
        maps.append(x)
    decoded = []
    for stage, x in enumerate(maps):
        with g.scope(f"decode.{stage}"):
            y = image_of(g, linear(g, tokens_of(g, x, f"tokens{stage}"), widths[-1]), x)
            decoded.append(resized_to(g, y, maps[0]) if stage else y)
    shape = ("n", len(widths) * widths[-1], *g.shape(maps[0])[2:])
    x = g.op("Concat", *reversed(decoded), axis=1, shape=shape)
    x = conv_norm(g, x, widths[-1], 1, name="fuse")
    return g.finish(logits=_conv(g, x, classes, 1, g.shape(maps[0])[2:], name="classify"))


def _reduced(g: ModelGraph, x: str, image: str, heads: int, reduction: int) -> str:
    """A block of SegFormer on the tokens ``x`` of ``image``."""
    n, count, c = g.shape(x)
    y, context = layer_norm(g, x, name="norm1"), None
    if reduction > 1:
        less = _conv(g, image_of(g, y, image), int(c), reduction, ("ky", "kx"), stride=reduction, pad=0, name="sr")
        context = layer_norm(g, tokens_of(g, less, f"keys of {count}"), name="sr.norm")
    x = g.op("Add", x, attention(g, y, heads, context=context))
    y = image_of(g, linear(g, layer_norm(g, x, name="norm2"), 4 * int(c), name="fc1"), image)
    y = _conv(g, y, 4 * int(c), 3, g.shape(image)[2:], groups=4 * int(c), name="dw")
    y = activation(g, tokens_of(g, y, str(count)), "gelu")
    return g.op("Add", x, linear(g, y, int(c), gain=2.35, name="fc2"))


def detector_full(width: int = 16, classes: int = 4, most: int = 50) -> onnx.ModelProto:
    """A YOLO-like detector to its end: two maps, boxes by places that are counted at run time, suppression, and the
    boxes, scores and classes that are left."""
    g = ModelGraph("detector_full", RAW)
    x, maps = g.input("image", (1, 3, "h", "w")), []
    for index in range(4):
        with g.scope(f"stage.{index}"):
            here = (f"y{index}", f"x{index}")
            x = activation(g, _conv(g, x, width << min(index, 2), 3, here, stride=2), "silu")
            half = width << min(index, 2)
            y = activation(g, _conv(g, x, half, 3, here, name="m1"), "silu")
            x = g.op("Add", x, activation(g, _conv(g, y, half, 3, here, name="m2"), "silu"), shape=g.shape(x))
        maps.append(x)
    fine, coarse = maps[2], maps[3]
    n, c, *around = g.shape(fine)
    up = resized_to(g, coarse, fine, "nearest")
    fine = g.op("Concat", up, fine, axis=1, shape=(n, 2 * int(c), *around))
    boxes, scores = [], []
    for level, (x, stride) in enumerate(((fine, 8), (coarse, 16))):
        with g.scope(f"head.{level}"):
            head = tokens_of(g, _conv(g, x, 4 + classes, 1, g.shape(x)[2:]), f"places{level}")
            box, score = g.ops("Split", head, g.const([4, classes], "int64"), outputs=2, axis=2)
            boxes.append(_corners(g, box, x, stride))
            scores.append(g.op("Sigmoid", score))
    whole = g.op("Concat", *boxes, axis=1, shape=(1, "all", 4))
    score = transpose(g, g.op("Concat", *scores, axis=1, shape=(1, "all", classes)), 0, 2, 1)
    limits = [g.const([most], "int64"), g.const([0.5]), g.const([0.4])]
    kept = g.op("NonMaxSuppression", whole, score, *limits, shape=("kept", 3))
    which = g.op("Gather", kept, g.const([1, 2], "int64"), axis=1, shape=("kept", 2))
    at = g.op("Squeeze", g.op("Slice", kept, *(g.const([v], "int64") for v in (2, 3, 1)), shape=("kept", 1)),
              g.const([1], "int64"), shape=("kept",))  # fmt: skip
    left = g.op("Gather", g.op("Squeeze", whole, g.const([0], "int64"), shape=("all", 4)), at, axis=0)
    best = g.op("GatherND", g.op("Squeeze", score, g.const([0], "int64"), shape=(classes, "all")), which)
    kinds = g.op("Squeeze", g.op("Slice", kept, *(g.const([v], "int64") for v in (1, 2, 1)), shape=("kept", 1)),
                 g.const([1], "int64"), shape=("kept",))  # fmt: skip
    return g.finish(boxes=left, scores=best, kinds=kinds)


def _corners(g: ModelGraph, box: str, x: str, stride: int) -> str:
    """Corners of boxes whose middles lie about the places of the map ``x``, [1, places, 4]."""
    rows, columns = (
        g.op("Range", g.const(0, "int64"), g.op("Gather", g.op("Shape", x), g.const(a, "int64"), axis=0),
             g.const(1, "int64"), shape=(g.shape(x)[a],))
        for a in (2, 3)
    )  # fmt: skip
    both = _sizes(g, length_of(g, x, 2), length_of(g, x, 3))
    grid = []
    for line, axis in ((columns, 0), (rows, 1)):
        line = g.op("Unsqueeze", line, g.const([axis], "int64"))
        line = g.op("Expand", line, both, shape=g.shape(x)[2:])
        grid.append(g.op("Reshape", line, g.const([1, -1, 1], "int64"), shape=(1, "places", 1)))
    places = g.op("Cast", g.op("Concat", *grid, axis=2, shape=(1, "places", 2)), to=TensorProto.FLOAT)
    middle, size = g.ops("Split", box, g.const([2, 2], "int64"), outputs=2, axis=2)
    middle = g.op("Mul", g.op("Add", g.op("Sigmoid", middle), places), g.const(float(stride)))
    size = g.op("Mul", g.op("Exp", g.op("Tanh", size)), g.const(float(stride)))
    half = g.op("Mul", size, g.const(0.5))
    return g.op("Concat", g.op("Sub", middle, half), g.op("Add", middle, half), axis=2, shape=(1, "places", 4))


def text_finder(width: int = 16) -> onnx.ModelProto:
    """Where text is in an image of any size, as DB's detector: four maps joined by nearest upsampling, two transposed
    convolutions to the image's size."""
    g = ModelGraph("text_finder", RAW)
    x, maps = g.input("image", ("n", 3, "h", "w")), []
    x = g.op("Relu", _conv(g, x, width, 3, ("y", "x"), stride=2, name="stem"))
    for index in range(4):
        with g.scope(f"stage.{index}"):
            here, channels = (f"y{index}", f"x{index}"), width << index
            x = g.op("Relu", _conv(g, x, channels, 3, here, stride=2, name="down"))
            y = activation(g, _conv(g, x, channels, 5, here, groups=channels, name="deep"), "hardswish")
            x = g.op("Add", x, _conv(g, y, channels, 1, here, name="point"), shape=g.shape(x))
        maps.append(x)
    joined, found = None, []
    for index, x in reversed(list(enumerate(maps))):
        with g.scope(f"join.{index}"):
            y = _conv(g, x, 2 * width, 1, g.shape(x)[2:], name="side")
            joined = y if joined is None else g.op("Add", y, _twice(g, joined, 2, g.shape(x)[2:]), shape=g.shape(y))
            y = _conv(g, joined, width // 2, 3, g.shape(x)[2:], name="out")
            found.append(_twice(g, y, 1 << index, g.shape(maps[0])[2:]))
    x = g.op("Concat", *found, axis=1, shape=("n", 4 * (width // 2), *g.shape(maps[0])[2:]))
    x = g.op("Relu", _conv(g, x, width // 2, 3, g.shape(maps[0])[2:], name="head"))
    x = g.op("Relu", _up(g, x, width // 2, ("y", "x"), "up1"))
    return g.finish(text=g.op("Sigmoid", _up(g, x, 1, ("h", "w"), "up2", gain=0.02)))


def text_reader(width: int = 32, letters: int = 40) -> onnx.ModelProto:
    """What a row of text of any width says: convolutions that keep columns, a mean over rows, an attention block and
    an LSTM in both directions over columns, letters."""
    g = ModelGraph("text_reader", RAW)
    x = g.input("line", ("n", 3, 32, "w"))
    for index, (channels, strides) in enumerate(((width, (2, 2)), (2 * width, (2, 2)), (4 * width, (2, 1)))):
        with g.scope(f"stage.{index}"):
            here = (16 >> index, f"x{min(index, 1)}")
            x = activation(g, _conv(g, x, channels, 3, here, stride=strides, name="down"), "hardswish")
            x = activation(g, _conv(g, x, channels, 3, here, groups=channels, name="deep"), "hardswish")
            x = activation(g, _conv(g, x, channels, 1, here, name="point"), "hardswish")
    x = g.op("Squeeze", g.op("AveragePool", x, kernel_shape=[4, 1], strides=[4, 1], shape=("n", 4 * width, 1, "x1")),
             g.const([2], "int64"), shape=("n", 4 * width, "x1"))  # fmt: skip
    x = block(g, g.op("Transpose", x, perm=[0, 2, 1], shape=("n", "x1", 4 * width)), 4)
    hidden, x = width, transpose(g, x, 1, 0, 2)
    given = [g.weight("w", g.normal((2, 4 * hidden, 4 * width), (4 * width) ** -0.5))]
    given += [g.weight("r", g.normal((2, 4 * hidden, hidden), hidden**-0.5))]
    given += [g.weight("b", g.normal((2, 8 * hidden), 0.1))]
    y = g.op("LSTM", x, *given, hidden_size=hidden, direction="bidirectional")
    y = g.op("Transpose", y, perm=[2, 0, 1, 3], shape=("n", "x1", 2, hidden))
    whole = _sizes(g, length_of(g, y, 0), length_of(g, y, 1), 2 * hidden)
    y = g.op("Reshape", y, whole, shape=("n", "x1", 2 * hidden))
    return g.finish(letters=g.op("Softmax", linear(g, y, letters, name="letters"), axis=-1))


def _conv(
    g: ModelGraph, x: str, channels: int, kernel: int, here: tuple[int | str, ...],
    *, stride: int | tuple[int, int] = 1, pad: int | None = None, groups: int = 1, name: str = "conv",
) -> str:  # fmt: skip
    """A convolution whose result has the height and width ``here``."""
    n, cin, *_ = g.shape(x)
    around = kernel // 2 if pad is None else pad
    with g.scope(name):
        inputs = [g.weight("weight", g.fan_in((channels, int(cin) // groups, kernel, kernel), 2.0))]
        inputs += [g.weight("bias", g.normal((channels,), 0.1))]
        return g.op("Conv", x, *inputs, group=groups, kernel_shape=[kernel] * 2, pads=[around] * 4,
                    strides=[stride] * 2 if isinstance(stride, int) else list(stride),
                    shape=(n, channels, *here))  # fmt: skip


def _twice(g: ModelGraph, x: str, factor: int, here: tuple[int | str, ...]) -> str:
    """Nearest upsampling by a whole factor."""
    if factor == 1:
        return x
    n, c, *_ = g.shape(x)
    scales = g.const(np.array([1, 1, factor, factor], np.float32))
    return g.op("Resize", x, "", scales, shape=(n, c, *here), mode="nearest", nearest_mode="floor",
                coordinate_transformation_mode="asymmetric")  # fmt: skip


def _up(g: ModelGraph, x: str, channels: int, here: tuple[int | str, ...], name: str, gain: float = 2.0) -> str:
    """A transposed convolution to twice the size."""
    n, cin, *_ = g.shape(x)
    with g.scope(name):
        weight = g.weight("weight", g.fan_in((int(cin), channels, 2, 2), gain, int(cin)))
        bias = g.weight("bias", g.normal((channels,), 0.1))
        return g.op("ConvTranspose", x, weight, bias, kernel_shape=[2, 2], strides=[2, 2], shape=(n, channels, *here))
