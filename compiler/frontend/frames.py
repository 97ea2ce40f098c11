"""A frame in place of an input: the operators that make of it what the model takes, before its graph.

    frame (uint8 NHWC) -> Cast -> colour -> resize -> mean, scale -> layout -> Cast -> the model's input

Resizing is a sum of taps along each axis: ``sum over k of Gather(x, index[k]) * weight[k]``, which every opset has and
which kernels take apart like any other index. NV12 and YUYV are converted in whole numbers, with 20 bits of fraction,
as OpenCV does it: with BT.601 and the limited range, which are all that it has, the result is OpenCV's to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from ...errors import HalotileError, ShapeError
from ..images import CHANNELS, Image
from .emitter import FLOAT, Emitter

SHIFT = 20  # bits of fraction of these
# By matrix and range: luma, V in red, U and V in green, U in blue. The first are OpenCV's numbers; the others those of
# Kr, Kb = 0.299, 0.114 (BT.601) and 0.2126, 0.0722 (BT.709), with 219 and 224 steps of luma and chroma or 255 of both.
YUV = {
    ("BT.601", "limited"): (1220542, 1673527, -409993, -852492, 2116026),
    ("BT.601", "full"): (1048576, 1470104, -360853, -748826, 1858077),
    ("BT.709", "limited"): (1220945, 1879825, -223607, -558796, 2215014),
    ("BT.709", "full"): (1048576, 1651297, -196424, -490864, 1945738),
}
GREY = (0.299, 0.587, 0.114)  # of R, G and B
INTEGERS: dict[int, tuple[int, int]] = {
    TensorProto.UINT8: (0, 255), TensorProto.INT8: (-128, 127), TensorProto.UINT16: (0, 65535),
}  # fmt: skip
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)

MOST_TAPS = 4  # that a pixel of NV12 or YUYV is converted from, each by itself

Dim = Any  # a number, or the text of an open dimension, or None


@dataclass(frozen=True)
class Side:
    """How a side is resized: to ``inner``, of which ``begin`` to ``end`` stays, ``before`` and ``after`` around it."""

    size: int
    inner: int
    begin: int
    end: int
    before: int
    after: int


def put_before(emit: Emitter, image: Image, frame: str, dims: Sequence[Dim], kind: int) -> tuple[str, list[Dim]]:
    """Appends the operators to ``emit``; the name of their result and the frame's shape.

    ``dims`` and ``kind`` are shape and element type of the model's input. HalotileError for what can't be.
    """
    what = f"image input {emit.about!r}"
    layout, colour = _of_model(image, dims, what)
    batch, height, width = dims[0], *(dims[1:3] if layout == "NHWC" else dims[2:4])
    have, sides = _sides(image, height, width, what)
    if kind not in FLOATS and kind not in INTEGERS:
        raise HalotileError(f"{what}: the model takes {TensorProto.DataType.Name(kind)} there, not numbers of an image")
    if image.colour in ("NV12", "YUYV"):
        x, shape, sides = _from_yuv(emit, image, frame, (batch, *have), sides, what)
        now, axis = "BGR" if colour == "BGR" else "RGB", 1
    else:
        channels, axis = CHANNELS[image.colour], 1 if image.layout == "NCHW" else 3
        shape = [batch, channels, *have] if axis == 1 else [batch, *have, channels]
        x, now = (frame if image.dtype == "float32" else emit.cast(frame, FLOAT)), image.colour
    x = _colours(emit, x, now, colour, axis)
    if sides is not None:
        for i, side in enumerate(sides):
            x = _resized(emit, x, i, side, image, planes=axis == 1)
        x = _padded(emit, x, [_left(side) if axis == 1 else side for side in sides], axis, image.pad)
    if colour != "grey" and now == "grey":
        x = emit.do("Concat", x, x, x, axis=axis)
    count = 1 if colour == "grey" else 3
    mean = _per_channel(image.mean, count, axis, f"{what}: mean")
    scale = _per_channel(image.scale, count, axis, f"{what}: scale")
    if mean is not None:
        x = emit.do("Sub", x, emit.const(mean))
    if scale is not None:
        x = emit.do("Mul", x, emit.const(1.0 / np.asarray(scale, np.float64)))
    if (axis == 1) != (layout == "NCHW"):
        x = emit.do("Transpose", x, perm=[0, 3, 1, 2] if layout == "NCHW" else [0, 2, 3, 1])
    if kind in INTEGERS:
        x = emit.clip(emit.round(x), *INTEGERS[kind])
    return x if kind == FLOAT else emit.cast(x, kind), shape


def _of_model(image: Image, dims: Sequence[Dim], what: str) -> tuple[str, str]:
    """Layout and colour of the model's input, as told or by its number of channels."""
    if len(dims) != 4:
        raise ShapeError(f"{what}: the model's input has {len(dims)} dimensions; an image is for one of 4")
    found = [name for name, d in (("NCHW", dims[1]), ("NHWC", dims[3])) if d in (1, 3)]
    layout: str | None = image.model_layout or (found[0] if found else None)
    if layout is None:
        raise ShapeError(f"{what}: the shape {list(dims)} does not say where the channels are; give model_layout")
    channels = dims[1] if layout == "NCHW" else dims[3]
    if channels not in (1, 3):
        raise ShapeError(f"{what}: the model takes {channels} channels there; images become 1 or 3")
    colour = image.model_colour or ("grey" if channels == 1 else "RGB")
    if (colour == "grey") != (channels == 1):
        raise ShapeError(f"{what}: the model takes {channels} channels there, which is not {colour}")
    return layout, colour


def _sides(
    image: Image, height: Dim, width: Dim, what: str
) -> tuple[tuple[Dim, Dim], tuple[Side, Side] | None]:
    """The frame's height and width, and how it is resized; None where it is not."""
    fixed = isinstance(height, int) and isinstance(width, int)
    have = image.size or (height, width)
    if image.resize in (None, "none"):
        if image.size and (height, width) != image.size and fixed:
            raise ShapeError(
                f"{what}: the frame is {image.size[0]}x{image.size[1]} and the model takes {height}x{width}; "
                "give resize=linear, letterbox, ..."
            )
        return have, None
    if not fixed:
        raise ShapeError(f"{what}: resizing to an open size {height}x{width} can't be done; fix it (--shape)")
    if image.size is None or image.size == (height, width):
        return have, None
    h, w = image.size
    if image.resize == "letterbox":
        ratio = min(height / h, width / w)
        inner = [min(max(1, round(n * ratio)), most) for n, most in ((h, height), (w, width))]
    elif image.resize == "crop":
        ratio = max(height / h, width / w)
        inner = [max(round(n * ratio), least) for n, least in ((h, height), (w, width))]
    else:
        inner = [height, width]
    first, second = (_side(n, i, wanted) for n, i, wanted in zip((h, w), inner, (height, width)))
    return have, (first, second)


def _side(size: int, inner: int, wanted: int) -> Side:
    begin, before = max(inner - wanted, 0) // 2, max(wanted - inner, 0) // 2
    return Side(size, inner, begin, begin + min(inner, wanted), before, wanted - min(inner, wanted) - before)


def taps(side: Side, how: str) -> tuple[np.ndarray, np.ndarray]:
    """index[k, o] and weight[k, o] of the pixels that make pixel ``o``, by the formulas of OpenCV's filters."""
    step = side.size / side.inner
    places = np.arange(side.begin, side.end, dtype=np.float64)
    if how == "nearest":
        index = np.floor((places + 0.5) * step)[None]
        return np.clip(index, 0, side.size - 1).astype(np.int64), np.ones_like(index)
    if how == "area" and step > 1:
        low, high = places * step, np.minimum((places + 1) * step, side.size)
        index = np.floor(low + 1e-9) + np.arange(int(np.ceil(step - 1e-9)) + 1)[:, None]
        weight = np.clip(np.minimum(index + 1, high) - np.maximum(index, low), 0, None)
        weight[weight < 1e-9] = 0
        used = (weight > 0).any(axis=1)
        return np.clip(index, 0, side.size - 1).astype(np.int64)[used], (weight / weight.sum(0))[used]
    centre = (places + 0.5) * step - 0.5
    left = np.floor(centre)
    part = centre - left
    index = np.clip(np.stack([left, left + 1]), 0, side.size - 1).astype(np.int64)
    return (index, np.stack([1 - part, part])) if part.any() else (index[:1], np.ones([1, len(places)]))


def _taps_of(side: Side, image: Image) -> tuple[np.ndarray, np.ndarray]:
    """The taps of a side by the image's filter; one tap where it keeps its size."""
    if side.size == side.inner:
        return np.arange(side.begin, side.end)[None], np.ones([1, side.end - side.begin])
    return taps(side, image.resize if image.resize in ("nearest", "area") else "linear")


def _resized(emit: Emitter, x: str, which: int, side: Side, image: Image, planes: bool) -> str:
    """The height (0) or width (1) resized. That of ``planes``, whose rows are vectors, gets its pads with that."""
    axis = which + (2 if planes else 1)
    if side.size == side.inner:
        return x if (side.begin, side.end) == (0, side.size) else emit.slice(x, axis, side.begin, side.end)
    terms = []
    index, weight = _taps_of(side, image)
    pads = planes and (side.before or side.after)
    if pads:
        index, weight = _around(side, index, weight)
    for places, factor in zip(index, weight):
        term = emit.do("Gather", x, emit.const(places, np.int64), axis=axis)
        terms.append(_weighted(emit, term, factor, axis))
    if pads:
        terms.append(emit.const(image.pad * np.round(1 - weight.sum(0)).reshape(_along(axis, weight.shape[1]))))
    return _sum(emit, terms)


def _weighted(emit: Emitter, x: str, factor: np.ndarray, axis: int) -> str:
    if (factor == 1).all():
        return x
    one = (factor == factor[0]).all()
    return emit.do("Mul", x, emit.const(factor[0] if one else factor.reshape(_along(axis, len(factor)))))


def _sum(emit: Emitter, terms: Sequence[str]) -> str:
    total = terms[0]
    for term in terms[1:]:
        total = emit.do("Add", total, term)
    return total


def _along(axis: int, length: int) -> list[int]:
    return [length if i == axis else 1 for i in range(4)]


def _colours(emit: Emitter, x: str, now: str, wanted: str, axis: int) -> str:
    """Floats of one order of channels as another; grey stays grey, and is repeated later."""
    if now == wanted or now == "grey":
        return x
    if wanted == "grey":
        return _grey(emit, x, axis, (0, 1, 2) if now.startswith("RGB") else (2, 1, 0))
    if now[:3] != wanted:
        return emit.do("Gather", x, emit.const([2, 1, 0], np.int64), axis=axis)
    return emit.slice(x, axis, 0, 3)


def _grey(emit: Emitter, x: str, axis: int, places: Sequence[int]) -> str:
    parts = [emit.do("Mul", emit.slice(x, axis, p, p + 1), emit.const(w)) for p, w in zip(places, GREY)]
    return emit.do("Add", emit.do("Add", parts[0], parts[1]), parts[2])


def _left(side: Side) -> Side:
    """What is left of a side of planes after it has been resized: its pads are there where it has another size."""
    return side if side.size == side.inner else replace(side, before=0, after=0)


def _padded(emit: Emitter, x: str, sides: Sequence[Side], axis: int, value: float) -> str:
    first, second = sides
    if not any(side.before or side.after for side in sides):
        return x
    before, after = [first.before, second.before], [first.after, second.after]
    if axis == 3:
        return emit.pad(x, [0, *before, 0], [0, *after, 0], value)
    return emit.pad(x, [0, 0, *before], [0, 0, *after], value)


def _from_yuv(
    emit: Emitter, image: Image, frame: str, lengths: Sequence[Dim], sides: tuple[Side, Side] | None, what: str
) -> tuple[str, list[Dim], tuple[Side, Side] | None]:
    """Whole numbers from 0 to 255 as floats, NCHW, in the model's order of channels; the frame's shape; and what is
    left to do of the resizing.

    Where few taps make a pixel, each is read where it lies in the frame and converted there: no image of the frame's
    size exists then. Else the frame is converted to bytes first.
    """
    batch, height, width = lengths
    if not all(isinstance(n, int) for n in lengths):
        raise ShapeError(f"{what}: {image.colour} frames need a fixed size; fix it with size= and shapes (--shape)")
    if width % 2 or (image.colour == "NV12" and height % 2):
        raise ShapeError(f"{what}: {image.colour} frames have even sides, not {height}x{width}")
    shape = [batch, height * 3 // 2, width, 1] if image.colour == "NV12" else [batch, height, width, 2]
    every = np.arange(height), np.arange(width)
    if sides is None:
        return _converted(emit, image, frame, shape, *every), shape, None
    rows, columns = (_taps_of(side, image) for side in sides)
    if len(rows[0]) * len(columns[0]) > MOST_TAPS:
        x = emit.cast(_converted(emit, image, frame, shape, *every), TensorProto.UINT8)
        return emit.cast(x, FLOAT), shape, sides
    rows, columns = (_around(side, *found) for side, found in zip(sides, (rows, columns)))
    lines = []
    for row, down in zip(*rows):
        terms = [
            _weighted(emit, _converted(emit, image, frame, shape, row, column), across, 3)
            for column, across in zip(*columns)
        ]
        lines.append(_weighted(emit, _sum(emit, terms), down, 2))
    outside = [1 - w.sum(0).reshape(_along(2 + i, w.shape[1])) for i, (_, w) in enumerate((rows, columns))]
    for side, weight in zip(sides, outside):  # of which a letterbox has one: the other side fits
        if side.before or side.after:
            lines.append(emit.const(image.pad * np.round(weight)))
    return _sum(emit, lines), shape, None


def _around(side: Side, index: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same taps, and around them pixels of no weight: so that loops of vectors need not ask where they are."""
    wide = ((0, 0), (side.before, side.after))
    return np.pad(index, wide, mode="edge"), np.pad(weight, wide)


def _converted(
    emit: Emitter, image: Image, frame: str, shape: Sequence[int], rows: np.ndarray, columns: np.ndarray
) -> str:
    """The pixels of these rows and columns as floats, (batch, channels, rows, columns)."""
    even = columns // 2 * 2
    if image.colour == "NV12":
        plane = emit.reshape(frame, [shape[0], 1, shape[1], shape[2]])
        height = shape[1] * 2 // 3
        y = _picked(emit, plane, rows, columns)
        u, v = (_picked(emit, plane, height + rows // 2, even + i) for i in range(2))
    else:
        pairs = emit.reshape(frame, [shape[0], 1, shape[1], 2 * shape[2]])
        y = _picked(emit, pairs, rows, 2 * columns)
        u, v = (_picked(emit, pairs, rows, 2 * even + i) for i in (1, 3))
    y, u, v = (emit.cast(x, TensorProto.INT32) for x in (y, u, v))
    luma, red_v, green_u, green_v, blue_u = YUV[image.matrix, image.range]
    dark = y
    if image.range == "limited":
        dark = emit.do("Sub", y, emit.const(16, np.int32))
        dark = emit.do("Max", dark, emit.const(0, np.int32)) if emit.opset >= 12 else _not_negative(emit, dark)
    order = slice(None, None, -1 if image.model_colour == "BGR" else 1)
    chroma = []  # added up first: pixels that share it are alike up to there
    for x, factors in ((u, (0, green_u, blue_u)), (v, (red_v, green_v, 0))):
        colours = emit.const(np.reshape(factors[order], [1, 3, 1, 1]), np.int32)
        chroma.append(emit.do("Mul", emit.do("Sub", x, emit.const(128, np.int32)), colours))
    light = emit.do("Add", emit.do("Mul", dark, emit.const(luma, np.int32)), emit.const(1 << (SHIFT - 1), np.int32))
    total = emit.do("Add", light, _sum(emit, chroma))
    quotient = emit.do("Div", total, emit.const(1 << SHIFT, np.int32))
    return emit.clip(emit.cast(quotient, FLOAT), 0, 255)


def _picked(emit: Emitter, plane: str, rows: np.ndarray, columns: np.ndarray) -> str:
    """Bytes of a plane (batch, 1, height, width) at these rows and columns."""
    x = emit.do("Gather", plane, emit.const(rows, np.int64), axis=2)
    return emit.do("Gather", x, emit.const(columns, np.int64), axis=3)


def _not_negative(emit: Emitter, x: str) -> str:
    """Before opset 12, which has no maximum of whole numbers."""
    return emit.cast(emit.do("Relu", emit.cast(x, FLOAT)), TensorProto.INT32)


def _per_channel(value: float | tuple[float, ...], count: int, axis: int, what: str) -> Any:
    """A constant that stands beside the image; None where it would change nothing."""
    if isinstance(value, tuple) and len(value) not in (1, count):
        raise HalotileError(f"{what} has {len(value)} numbers, and the model takes {count} channels")
    numbers = value if isinstance(value, tuple) else (value,)
    if all(n == (1.0 if what.endswith("scale") else 0.0) for n in numbers):
        return None
    return numbers[0] if len(numbers) == 1 else np.reshape(numbers, [count if i == axis else 1 for i in range(4)])


def frame_info(name: str, image: Image, shape: Sequence[Dim]) -> onnx.ValueInfoProto:
    """What the graph says of the frame."""
    kinds = {"uint8": TensorProto.UINT8, "uint16": TensorProto.UINT16, "float32": FLOAT}
    return helper.make_tensor_value_info(name, kinds[image.dtype], list(shape))
