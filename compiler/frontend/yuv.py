"""Frames of brightness and colour: NV12, NV21, in one plane or two, and YUYV, pixel by pixel to red, green and blue.

They are converted in whole numbers, with 20 bits of fraction, as OpenCV does it: with BT.601 and the limited range,
which are all that it has, the result is OpenCV's to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto

from ...errors import ShapeError
from ..images import Image
from .emitter import FLOAT, Emitter
from .open_frames import RunTimeLengths, even, half, with_colour
from .resizing import Dim

Index = np.ndarray | int | str  # numbers, or the tensor that has them at run time

WHOLE_EXTREMA = 12  # the opset from which whole numbers have a maximum
SHIFT = 20  # bits of fraction of these
# By matrix and range: luma, V in red, U and V in green, U in blue. The first are OpenCV's numbers; the others those of
# Kr, Kb = 0.299, 0.114 (BT.601) and 0.2126, 0.0722 (BT.709), with 219 and 224 steps of luma and chroma or 255 of both.
FACTORS = {
    ("BT.601", "limited"): (1220542, 1673527, -409993, -852492, 2116026),
    ("BT.601", "full"): (1048576, 1470104, -360853, -748826, 1858077),
    ("BT.709", "limited"): (1220945, 1879825, -223607, -558796, 2215014),
    ("BT.709", "full"): (1048576, 1651297, -196424, -490864, 1945738),
}


def planes_of(image: Image, frame: str, batch: Dim, size: tuple[Dim, Dim], what: str) -> dict[str, list[Dim]]:
    """The planes of a frame of brightness and colour by name, with their shapes."""
    height, width = size
    halves = image.colour != "YUYV"  # rows of colour
    odd = [isinstance(n, int) and n % 2 for n in (height, width)]
    if (odd[0] and halves) or odd[1]:
        raise ShapeError(f"{what}: {image.colour} frames have even sides, not {height}x{width}")
    open_sides = [not isinstance(n, int) for n in (height, width)]
    height = even(height or f"{frame}_height") if open_sides[0] and halves else height
    width = even(width or f"{frame}_width") if open_sides[1] else width
    if image.colour == "YUYV":
        return {frame: [batch, height, width, 2]}
    if image.colour != "NV12_TWO_PLANES":
        known = isinstance(height, int) or height is None
        rows = height if height is None else height * 3 // 2 if known else with_colour(height)
        return {frame: [batch, rows, width, 1]}
    y, uv = image.planes(frame)
    return {y: [batch, height, width, 1], uv: [batch, half(height), half(width), 2]}


def open_pixels(emit: Emitter, image: Image, planes: Mapping[str, list[Dim]]) -> str:
    """All pixels of a frame whose batch or size is open, as whole numbers [N, 3, H, W] from 0 to 255. Values of colour
    are repeated over the pixels that share them; in a kernel that is where they are read from."""
    first, *more = planes
    if image.colour == "YUYV":
        y, pairs = emit.slice(_planar(emit, first), 1, 0, 1), emit.reshape(first, [0, 0, -1, 4])
        chroma, across = _planar(emit, pairs), (1.0, 1.0, 1.0, 2.0)
        places = (1, 3)
    else:
        bright, colours = first, more[0] if more else ""
        if not more:
            rows = RunTimeLengths(emit).number(1)
            rows = emit.do("Gather", emit.do("Shape", first), rows, axis=0)
            height = RunTimeLengths(emit).do("Div", RunTimeLengths(emit).do("Mul", rows, 2), 3)
            axis = emit.const([1], np.int64)
            bright = emit.do("Slice", first, emit.const([0], np.int64), height, axis)
            colours = emit.reshape(emit.do("Slice", first, height, rows, axis), [0, 0, -1, 2])
        y, chroma, across = _planar(emit, bright), _planar(emit, colours), (1.0, 1.0, 2.0, 2.0)
        places = (1, 0) if image.colour == "NV21" else (0, 1)
    read = [y]
    for place in places:
        part = emit.cast(emit.slice(chroma, 1, place, place + 1), FLOAT)  # which every Resize takes
        how: dict[str, Any] = {"mode": "nearest", "nearest_mode": "floor"}
        how["coordinate_transformation_mode"] = "asymmetric"
        read.append(emit.do("Resize", part, "", emit.const(across), **how))
    return _converted(emit, image, *(emit.cast(x, TensorProto.INT32) for x in read))


def _planar(emit: Emitter, x: str) -> str:
    """[N, H, W, C] as [N, C, H, W]."""
    return emit.do("Transpose", x, perm=[0, 3, 1, 2])


class FramePixels:
    """The pixels of a frame of brightness and colour, by rows and columns: arrays, or tensors of run time, for which
    ``height`` is the frame's."""

    def __init__(self, emit: Emitter, image: Image, planes: Mapping[str, list[Dim]], height: str | None = None) -> None:
        self.emit, self.image = emit, image
        names = list(planes)
        self.height: Index = 0
        if image.colour == "YUYV":
            self.y = self._plane(names[0], planes)
            self.chroma = self.y
        elif image.colour == "NV12_TWO_PLANES":
            self.y, self.chroma = (self._plane(name, planes) for name in names)
        else:
            self.y = self._plane(names[0], planes)
            self.chroma, self.height = self.y, height or planes[names[0]][1] * 2 // 3

    def _plane(self, name: str, planes: Mapping[str, list[Dim]]) -> str:
        """A plane as [N, 1, H, W]: what lies side by side in it are columns."""
        n, height, width, parts = planes[name]
        if all(isinstance(d, int) for d in (n, height, width)):
            return self.emit.reshape(name, [n, 1, height, width * parts])
        return self.emit.do("Transpose", name, perm=[0, 3, 1, 2])

    def at(self, rows: Index, columns: Index) -> str:
        """The pixels at these rows and columns from 0 to 255, (batch, channels, rows, columns): int32, floats before
        opset 12."""
        known = isinstance(columns, np.ndarray)
        colour, pairs = self.image.colour, self._times(self._divided(columns, 2), 2)
        if colour == "YUYV" and known:
            read = [self._read(self.y, rows, self._plus(self._times(c, 2), i))
                    for c, i in ((columns, 0), (pairs, 1), (pairs, 3))]  # fmt: skip
        elif colour == "YUYV":
            parts = [self.emit.slice(self.y, 1, i, i + 1) for i in range(2)]
            read = [self._read(parts[i], rows, c) for i, c in ((0, columns), (1, pairs), (1, self._plus(pairs, 1)))]
        else:
            below = self._plus(self._divided(rows, 2), self.height)
            read = [self._read(self.y, rows, columns)]
            if colour == "NV12_TWO_PLANES" and not known:
                halves = self._divided(columns, 2)
                parts = [self.emit.slice(self.chroma, 1, i, i + 1) for i in range(2)]
                read += [self._read(part, below, halves) for part in parts]
            else:
                order = (1, 0) if colour == "NV21" else (0, 1)
                read += [self._read(self.chroma, below, self._plus(pairs, i)) for i in order]
        return _converted(self.emit, self.image, *(self.emit.cast(x, TensorProto.INT32) for x in read))

    def _read(self, plane: str, rows: Index, columns: Index) -> str:
        for axis, index in ((2, rows), (3, columns)):
            named = index if isinstance(index, str) else self.emit.const(index, np.int64)
            plane = self.emit.do("Gather", plane, named, axis=axis)
        return plane

    def _plus(self, index: Index, other: Index) -> Index:
        if isinstance(index, str):
            return self.emit.do("Add", index, other if isinstance(other, str) else self.emit.const([other], np.int64))
        numbers: Any = index
        return numbers + other

    def _times(self, index: Index, factor: int) -> Index:
        return index * factor if not isinstance(index, str) else RunTimeLengths(self.emit).do("Mul", index, factor)

    def _divided(self, index: Index, divisor: int) -> Index:
        return index // divisor if not isinstance(index, str) else RunTimeLengths(self.emit).do("Div", index, divisor)


def _converted(emit: Emitter, image: Image, y: str, u: str, v: str) -> str:
    """Brightness and two differences as three colours, as OpenCV does it."""
    luma, red_v, green_u, green_v, blue_u = FACTORS[image.matrix, image.range]
    dark = y
    if image.range == "limited":
        dark = emit.do("Sub", y, emit.const(16, np.int32))
        whole = emit.opset >= WHOLE_EXTREMA
        dark = emit.do("Max", dark, emit.const(0, np.int32)) if whole else _not_negative(emit, dark)
    order = slice(None, None, -1 if image.model_colour == "BGR" else 1)
    chroma = []  # added up first: pixels that share it are alike up to there
    for x, factors in ((u, (0, green_u, blue_u)), (v, (red_v, green_v, 0))):
        colours = emit.const(np.reshape(factors[order], [1, 3, 1, 1]), np.int32)
        chroma.append(emit.do("Mul", emit.do("Sub", x, emit.const(128, np.int32)), colours))
    light = emit.do("Add", emit.do("Mul", dark, emit.const(luma, np.int32)), emit.const(1 << (SHIFT - 1), np.int32))
    total = emit.do("Add", light, emit.do("Add", *chroma))
    if emit.opset >= WHOLE_EXTREMA:
        total = emit.do("Max", total, emit.const(0, np.int32))
        total = emit.do("Min", total, emit.const((256 << SHIFT) - 1, np.int32))
        return emit.do("Div", total, emit.const(1 << SHIFT, np.int32))
    return emit.clip(emit.cast(emit.do("Div", total, emit.const(1 << SHIFT, np.int32)), FLOAT), 0, 255)


def _not_negative(emit: Emitter, x: str) -> str:
    """Before opset 12, which has no maximum of whole numbers."""
    return emit.cast(emit.do("Relu", emit.cast(x, FLOAT)), TensorProto.INT32)
