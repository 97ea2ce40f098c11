"""A frame in place of an input: the operators that make of it what the model takes, before its graph.

    frame (uint8 NHWC) -> Cast -> colour -> resize -> mean, scale -> layout -> Cast -> the model's input

Resizing is a sum of taps along each axis: ``sum over k of Gather(x, index[k]) * weight[k]``, which every opset has and
which kernels take apart like any other index. Indices and weights are numbers where the frame's size is one
(resizing.py), and are computed at run time where it is open (open_frames.py). yuv.py has frames of brightness and
colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper

from ...errors import HalotileError, ShapeError, UnsupportedError, several
from ..images import CHANNELS, YUV, Image
from .emitter import FLOAT, Emitter
from .open_frames import OLDEST, RunTimeLengths, open_resized, open_sides, pad_around, weighted
from .resizing import Dim, Side, sides_of, taps_of
from .yuv import FramePixels, open_pixels, planes_of

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

GREY = (0.299, 0.587, 0.114)  # of R, G and B
INTEGERS: dict[int, tuple[int, int]] = {
    TensorProto.UINT8: (0, 255), TensorProto.INT8: (-128, 127), TensorProto.UINT16: (0, 65535),
}  # fmt: skip
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)

MOST_TAPS = 4  # that a pixel of NV12 or YUYV is converted from, each by itself


def put_before(
    emit: Emitter, image: Image, frame: str, dims: Sequence[Dim], kind: int
) -> tuple[str, dict[str, list[Dim]]]:
    """Appends the operators to ``emit``; the name of their result and the shapes of the frame's planes by name.

    ``dims`` and ``kind`` are shape and element type of the model's input. HalotileError for what can't be.
    """
    what = f"image input {emit.about!r}"
    layout, colour = _of_model(image, dims, what)
    batch, height, width = dims[0], *(dims[1:3] if layout == "NHWC" else dims[2:4])
    have: SizeLike
    have, sides = (image.size, None) if image.is_open else sides_of(image, height, width, what)
    if kind not in FLOATS and kind not in INTEGERS:
        raise HalotileError(f"{what}: the model takes {TensorProto.DataType.Name(kind)} there, not numbers of an image")
    if image.colour in YUV:
        now, axis = "BGR" if colour == "BGR" else "RGB", 1
        planes = planes_of(image, frame, batch, have, what)
    else:
        now, axis = image.colour, 1 if image.layout == "NCHW" else 3
        channels = CHANNELS[image.colour]
        planes = {frame: [batch, channels, *have] if axis == 1 else [batch, *have, channels]}
    if image.is_open:
        x = _any_size(emit, image, planes, (height, width), axis, what)
    elif image.colour in YUV:
        x, sides = _from_yuv(emit, image, planes, (batch, *have), sides, what)
    else:
        x = frame if image.dtype == "float32" else emit.cast(frame, FLOAT)
    x = _colours(emit, x, now, colour, axis)
    if sides is not None:
        for i, side in enumerate(sides):
            x = _resized(emit, x, i, side, image, planes=axis == 1)
        x = _padded(emit, x, (sides[0], _left(sides[1])) if axis == 1 else sides, axis, image.pad)
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
    return x if kind == FLOAT else emit.cast(x, kind), planes


def _of_model(image: Image, dims: Sequence[Dim], what: str) -> tuple[str, str]:
    """Layout and colour of the model's input, as told or by its number of channels."""
    if len(dims) != 4:
        raise ShapeError(f"{what}: the model's input has {several(len(dims), 'dimension')}; an image is for one of 4")
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


def _resized(emit: Emitter, x: str, which: int, side: Side, image: Image, planes: bool) -> str:
    """The height (0) or width (1) resized. Widths of ``planes``, whose rows are vectors, get their pads with that."""
    axis = which + (2 if planes else 1)
    if side.size == side.inner:
        return x if (side.begin, side.end) == (0, side.size) else emit.slice(x, axis, side.begin, side.end)
    terms = []
    index, weight = taps_of(side, image)
    pads = planes and which == 1 and (side.before or side.after)
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
    """What is left of the width of planes after it has been resized: its pads are there where it has another size."""
    return side if side.size == side.inner else replace(side, before=0, after=0)


def _padded(emit: Emitter, x: str, sides: Sequence[Side], axis: int, value: float) -> str:
    first, second = sides
    if not any(side.before or side.after for side in sides):
        return x
    before, after = [first.before, second.before], [first.after, second.after]
    if axis == 3:
        return emit.pad(x, [0, *before, 0], [0, *after, 0], value)
    return emit.pad(x, [0, 0, *before], [0, 0, *after], value)


def _any_size(
    emit: Emitter, image: Image, planes: Mapping[str, list[Dim]], wanted: Sequence[Dim], axis: int, what: str
) -> str:
    """Floats of the network's size from a frame of any; colours are still the frame's."""
    if not all(isinstance(n, int) for n in wanted):
        raise ShapeError(f"{what}: resizing to an open size {wanted[0]}x{wanted[1]} can't be done; fix it (--shape)")
    if emit.opset < OLDEST:
        raise UnsupportedError(f"{what}: frames of any size need opset {OLDEST} or later; the model has {emit.opset}")
    if image.resize == "none":
        raise ShapeError(f"{what}: frames of any size have to be resized; give resize=linear, letterbox, ...")
    first, lengths = next(iter(planes)), RunTimeLengths(emit)
    axes = (2, 3) if axis == 1 and image.colour not in YUV else (1, 2)
    size = [lengths.of(first, a) for a in axes]
    if image.colour in ("NV12", "NV21"):
        size[0] = lengths.do("Div", lengths.do("Mul", size[0], 2), 3)
    sides = open_sides(emit, image, size, wanted, (2, 3) if axis == 1 else (1, 2))
    if image.colour not in YUV:
        return pad_around(emit, open_resized(emit, first, sides, axes), sides, image.pad)
    pixels, lines = FramePixels(emit, image, planes, size[0]), []
    for row, down in zip(sides[0].index, sides[0].weight):
        terms = [
            weighted(emit, [emit.cast(pixels.at(row, column), FLOAT)], across)
            for column, across in zip(sides[1].index, sides[1].weight)
        ]
        lines.append(weighted(emit, terms, down))
    return pad_around(emit, weighted(emit, lines, ""), sides, image.pad)


def _from_yuv(
    emit: Emitter, image: Image, planes: Mapping[str, list[Dim]], lengths: Sequence[Dim],
    sides: tuple[Side, Side] | None, what: str,
) -> tuple[str, tuple[Side, Side] | None]:
    """Whole numbers from 0 to 255 as floats, NCHW, in the model's order of channels; and what is left to do of the
    resizing.

    Where few taps make a pixel, and none makes two, each is read where it lies in the frame and converted there: no
    image of the frame's size exists then. Else the frame is converted to bytes first, so that each pixel is converted
    once.
    """
    batch, height, width = lengths
    if not isinstance(height, int) or not isinstance(width, int):
        if emit.opset < OLDEST:
            raise UnsupportedError(
                f"{what}: {image.colour} frames of open size need opset {OLDEST} or later; the model has {emit.opset}"
            )
        return emit.cast(open_pixels(emit, image, planes), FLOAT), None
    pixels = FramePixels(emit, image, planes)
    every = np.arange(height), np.arange(width)
    if sides is None:
        return emit.cast(pixels.at(*every), FLOAT), None
    rows, columns = (taps_of(side, image) for side in sides)
    taps, made = len(rows[0]) * len(columns[0]), rows[0].shape[1] * columns[0].shape[1]
    if taps > 1 and (taps > MOST_TAPS or taps * made > height * width):
        x = emit.cast(pixels.at(*every), TensorProto.UINT8)
        return emit.cast(x, FLOAT), sides
    columns = _around(sides[1], *columns)
    parts = [[pixels.at(row, column) for column in columns[0]] for row in rows[0]]
    down, across = rows[1], columns[1]
    if (down == down[0, 0]).all() and (across == across[0, 0]).all():  # of whole numbers, the sum is one
        total = emit.cast(_sum(emit, [_sum(emit, line) for line in parts]), FLOAT)
        factor = down[0, 0] * across[0, 0]
        total = total if factor == 1 else emit.do("Mul", total, emit.const(factor))
    else:
        terms = [[_weighted(emit, emit.cast(x, FLOAT), w, 3) for x, w in zip(line, across)] for line in parts]
        lines = [_weighted(emit, _sum(emit, line), w, 2) for line, w in zip(terms, down)]
        if sides[1].before or sides[1].after:
            lines.append(emit.const(image.pad * np.round(1 - across.sum(0)).reshape(_along(3, across.shape[1]))))
        total = _sum(emit, lines)
    return _padded(emit, total, (sides[0], replace(sides[1], before=0, after=0)), 1, image.pad), None


def _around(side: Side, index: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same taps, and around them pixels of no weight: so that loops of vectors need not ask where they are."""
    wide = ((0, 0), (side.before, side.after))
    return np.pad(index, wide, mode="edge"), np.pad(weight, wide)


def _per_channel(value: float | tuple[float, ...], count: int, axis: int, what: str) -> float | np.ndarray | None:
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
