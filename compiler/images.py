"""Image and Output: what a caller gives in place of a model's input and takes in place of its output, as plain data.

    inputs={"x": Image(colour="NV12", size=(720, 1280), resize="letterbox", scale=255)}
    outputs={"y": Output(argmax=True, dtype="uint8")}

The names and the order of steps are those of OpenVINO's PrePostProcessor: element type, colour, resize, mean, scale,
layout. Neither onnx nor NumPy is needed here; frontend/frames.py and frontend/results.py make operators of it.
"""

from __future__ import annotations

import contextlib
import math
import operator
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..errors import HalotileError, did_you_mean
from ..targets.plain import JsonView
from .extents import Extent

if TYPE_CHECKING:
    from ..targets.plain import Json

Colour = Literal["RGB", "BGR", "grey", "RGBA", "BGRA", "NV12", "NV12_TWO_PLANES", "NV21", "YUYV"]
ModelColour = Literal["RGB", "BGR", "grey"]
Layout = Literal["NHWC", "NCHW"]
Resize = Literal["none", "nearest", "linear", "cubic", "area", "letterbox", "crop"]
Filter = Literal["nearest", "linear", "cubic", "area"]
FrameType = Literal["uint8", "uint16", "float32"]
Matrix = Literal["BT.601", "BT.709"]
Range = Literal["limited", "full"]
ResultType = Literal["uint8", "int8", "int32", "int64", "float32"]
Plain = Mapping[str, JsonView]  # of an input or output: field -> value, as JSON has it

MOST_SIDE = 1 << 15
CHANNELS = {"RGB": 3, "BGR": 3, "grey": 1, "RGBA": 4, "BGRA": 4}
YUV = ("NV12", "NV12_TWO_PLANES", "NV21", "YUYV")
Length = int | str  # a number, or of an open one the name, and perhaps bounds: "h", "h:64..2160"


@dataclass(frozen=True)
class Image:
    """A frame that is given in place of an input, and how it becomes what the model takes.

    ``size`` is (height, width) of the frame, None for the model's own; names, ("h", "w") or ("h:64..2160", "w"), take
    frames of any size. ``resize``: ``nearest`` takes the pixel that holds the centre, ``linear`` is bilinear between
    centres (half-pixel), ``cubic`` weighs four pixels a side, ``area`` is the mean over a pixel's area; ``letterbox``
    is to the largest size of the same ratio, centred, ``pad`` around it; ``crop`` to the smallest that covers, and its
    centre; both are linear, or by ``filter``. ``mean`` is taken off and then divided by ``scale``, in the frame's
    units, numbers or one for each channel of the model. ``colour`` and ``layout`` are the frame's, ``model_colour`` and
    ``model_layout`` the model's (None: told from the shape). ``matrix`` and ``range`` are those of NV12, NV21
    and YUYV: cameras of high definition have ``BT.709``, JPEGs the ``full`` range. ``NV12_TWO_PLANES`` makes two inputs
    of input ``x``: ``x/y`` and ``x/uv``.
    """

    colour: Colour = "RGB"
    layout: Layout = "NHWC"
    size: tuple[Length, Length] | None = None
    resize: Resize | None = None
    mean: float | tuple[float, ...] = 0.0
    scale: float | tuple[float, ...] = 1.0
    pad: float = 114.0
    dtype: FrameType = "uint8"
    model_colour: ModelColour | None = None
    model_layout: Layout | None = None
    matrix: Matrix = "BT.601"
    range: Range = "limited"
    filter: Filter | None = None

    def __post_init__(self) -> None:
        for name, kinds in _IMAGE_WORDS.items():
            _word(self, name, kinds, optional=name in _OPTIONAL)
        object.__setattr__(self, "size", _size(self.size))
        for name in ("mean", "scale"):
            object.__setattr__(self, name, _numbers(getattr(self, name), name))
        object.__setattr__(self, "pad", _number(self.pad, "pad"))
        if 0.0 in (self.scale if isinstance(self.scale, tuple) else (self.scale,)):
            raise HalotileError("Image: scale=0: frames are divided by it; give another number")
        if self.filter is not None and self.resize not in ("letterbox", "crop"):
            raise HalotileError(f"Image: a filter is of letterbox and crop; give resize={self.filter!r}")
        if self.is_open and "area" in (self.resize, self.filter):
            raise HalotileError("Image: area weighs as many pixels as the sizes say; give numbers as size, or linear")
        if self.colour in YUV:
            if self.layout != "NHWC":
                raise HalotileError(f"Image: {self.colour} frames are NHWC; leave the layout out")
            if self.dtype != "uint8":
                raise HalotileError(f"Image: {self.colour} frames are uint8, not {self.dtype}")
        elif (self.matrix, self.range) != ("BT.601", "limited"):
            raise HalotileError(f"Image: matrix and range are of NV12, NV21 and YUYV frames, not of {self.colour}")
        if self.size is not None and self.resize is None:
            object.__setattr__(self, "resize", "linear")

    @property
    def is_open(self) -> bool:
        """Whether frames may have any size."""
        return self.size is not None and any(isinstance(n, str) for n in self.size)

    def planes(self, name: str) -> list[str]:
        """The inputs that stand for input ``name``."""
        return [f"{name}/y", f"{name}/uv"] if self.colour == "NV12_TWO_PLANES" else [name]

    def text(self) -> str:
        """``uint8 frame 720x1280, NV12``."""
        size = f" {self.size[0]}x{self.size[1]}" if self.size else ""
        return f"{self.dtype} frame{size}, {self.colour}, {self.layout}"


@dataclass(frozen=True)
class Output:
    """What is taken in place of an output: these steps in this order, those that are asked for.

    ``dequantise`` (scale, zero point) makes floats of integers, ``softmax`` along ``axis``, ``argmax`` the place of the
    largest along it (which goes), ``top`` the largest so many, in order, and a second output ``<name>.indices``;
    ``multiply``; ``dtype``: to an integer type floats are rounded to the nearest, halves to even, and clipped;
    ``layout``: of the result, where the model's is the other one.
    """

    axis: int = 1
    dequantise: tuple[float, float] | None = None
    softmax: bool = False
    argmax: bool = False
    top: int | None = None
    multiply: float = 1.0
    dtype: ResultType | None = None
    layout: Layout | None = None

    def __post_init__(self) -> None:
        _word(self, "dtype", get_args(ResultType), optional=True)
        _word(self, "layout", get_args(Layout), optional=True)
        for name in ("softmax", "argmax"):
            if not isinstance(getattr(self, name), bool):
                raise HalotileError(f"Output: {name}={getattr(self, name)!r}: give True or False")
        object.__setattr__(self, "axis", _whole(self.axis, "axis", None))
        if self.top is not None:
            object.__setattr__(self, "top", _whole(self.top, "top", 1))
        object.__setattr__(self, "multiply", _number(self.multiply, "multiply"))
        if self.dequantise is not None:
            pair = _numbers(self.dequantise, "dequantise")
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise HalotileError(f"Output: dequantise={self.dequantise!r}: give (scale, zero point)")
            object.__setattr__(self, "dequantise", pair)
        if self.argmax and (self.top is not None or self.multiply != 1.0 or self.layout):
            raise HalotileError("Output: argmax gives places; it does not go with top, multiply or layout")
        if self.argmax and self.dtype == "float32":
            raise HalotileError("Output: argmax gives places, not float32; give uint8, int32 or int64")


_IMAGE_WORDS: dict[str, tuple[str, ...]] = {
    "colour": get_args(Colour),
    "layout": get_args(Layout),
    "resize": get_args(Resize),
    "dtype": get_args(FrameType),
    "model_colour": get_args(ModelColour),
    "model_layout": get_args(Layout),
    "matrix": get_args(Matrix),
    "range": get_args(Range),
    "filter": get_args(Filter),
}
_OPTIONAL = ("resize", "model_colour", "model_layout", "filter")


def checked_images(given: object, kind: type[Image] | type[Output], argument: str) -> Plain | None:
    """Name -> the fields that are not the default's, of a dict of Image or Output, or of plain data that says the same;
    None when nothing is asked for."""
    if given is None:
        return None
    what = kind.__name__
    if not isinstance(given, Mapping):
        raise HalotileError(f"{argument}={given!r}: give a dict of names and halotile.{what}(...)")
    return {str(name): plain(made(value, kind, str(name))) for name, value in given.items()} or None


def both(inputs: object, outputs: object, file: Path | None) -> tuple[Plain | None, Plain | None]:
    """All that is asked for of inputs and of outputs, by a file and beside it; what is said twice is an error."""
    told = checked_images(inputs, Image, "inputs"), checked_images(outputs, Output, "outputs")
    found = []
    for given, read in zip(told, read_toml(file) if file is not None else (None, None)):
        for name in given or ():
            if name in (read or {}):
                raise HalotileError(f"{name!r} is said both in {file} and beside it")
        found.append({**(read or {}), **(given or {})} or None)
    return found[0], found[1]


def made(value: Any, kind: Any, name: str) -> Any:
    """``value``, or what its plain data says; HalotileError that names the input or output."""
    if isinstance(value, kind):
        return value
    what = kind.__name__
    if not isinstance(value, Mapping):
        raise HalotileError(f"{name!r}: give a halotile.{what}(...), not {type(value).__name__}")
    known = [f.name for f in fields(kind)]
    for key in value:
        if key not in known:
            raise HalotileError(f"{name!r}: {what} has no {key!r}; it has {', '.join(known)}")
    try:
        return kind(**value)
    except HalotileError as error:
        raise HalotileError(f"{name!r}: {error}") from None


def plain(value: Image | Output) -> Json:
    """The fields that differ from the default's, as JSON has them."""
    found = {f.name: (getattr(value, f.name), f.default) for f in fields(value)}
    return {n: list(v) if isinstance(v, tuple) else v for n, (v, default) in found.items() if v != default}


def read_toml(path: Path) -> tuple[Plain | None, Plain | None]:
    """The ``[inputs.NAME]`` and ``[outputs.NAME]`` of a file."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        data = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise HalotileError(f"{path} can't be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise HalotileError(f"{path} is not TOML: {' '.join(str(error).split())}") from None
    for key in data:
        if key not in ("inputs", "outputs"):
            raise HalotileError(f"{path}: unknown table {key!r}; there are [inputs.NAME] and [outputs.NAME]")
    try:
        inputs = checked_images(data.get("inputs"), Image, "inputs")
        return inputs, checked_images(data.get("outputs"), Output, "outputs")
    except HalotileError as error:
        raise HalotileError(f"{path}: {error}") from None


def from_text(text: str, kind: type[Image] | type[Output]) -> tuple[str, Json]:
    """``x=NV12,size=720x1280,scale=255`` -> ("x", its fields); words that only one field has need no name."""
    name, equals, rest = text.partition("=")
    if not equals or not name:
        raise HalotileError(f"{text!r} is not of the form NAME=KEY=VALUE,...")
    found: Json = {}
    for part in filter(None, (p.strip() for p in rest.split(","))):
        key, has_value, value = part.partition("=")
        key, read = (key, _read(key, value)) if has_value else _bare(part, kind, name)
        if key in found:
            raise HalotileError(f"{name!r}: {key} is given twice")
        found[key] = read
    return name, plain(made(found, kind, name))


def _bare(word: str, kind: type[Image] | type[Output], name: str) -> tuple[str, object]:
    if kind is Output and word in ("softmax", "argmax"):
        return word, True
    words: Mapping[str, Sequence[str]] = (
        _IMAGE_WORDS if kind is Image else {"dtype": get_args(ResultType), "layout": get_args(Layout)}
    )
    for key, known in words.items():
        if word in known:
            return key, word
    listed = list(dict.fromkeys(w for known in words.values() for w in known))
    near = did_you_mean(word, listed)
    raise HalotileError(f"{name!r}: {word!r} is none of {', '.join(listed)}, nor KEY=VALUE{near}")


def _read(key: str, value: str) -> Any:
    """A value of the command line: ``720x1280``, ``123.7/116.3/103.5``, a number, a word."""
    parts = value.split("x") if key == "size" else value.split("/")
    if key == "size":
        return [int(p) if p.isdecimal() else p for p in parts]
    try:
        numbers = [float(p) if any(c in p for c in ".eE") else int(p) for p in parts]
    except ValueError:
        return {"true": True, "false": False}.get(value, value)
    return numbers[0] if len(numbers) == 1 else numbers


def _word(value: Image | Output, name: str, known: Sequence[str], optional: bool) -> None:
    found = getattr(value, name)
    if not (found in known or (optional and found is None)):
        near = did_you_mean(str(found), known)
        raise HalotileError(f"{type(value).__name__}: {name}={found!r}: give one of {', '.join(known)}{near}")


def _size(size: tuple[int | str, int | str] | None) -> tuple[Length, Length] | None:
    if size is None:
        return None
    with contextlib.suppress(TypeError, ValueError):
        if not isinstance(size, str):
            height, width = (_length(n) for n in size)
            return height, width
    raise HalotileError(
        f"Image: size={size!r}: give (height, width), numbers from 1 to {MOST_SIDE}, or names such as ('h', 'w')"
    )


def _length(length: int | str) -> Length:
    """A number of pixels, or what is said of an open one."""
    if isinstance(length, str):
        if Extent.parse(length).name is None:
            raise HalotileError(f"Image: size {length!r} of an open side has no name; write h or h:64..2160")
        return length
    number = operator.index(length)
    if not 1 <= number <= MOST_SIDE:
        raise ValueError
    return number


def _number(value: Any, name: str) -> float:
    try:
        found = float(value) if not isinstance(value, str) else math.nan
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise HalotileError(f"{name}={value!r}: give a finite number")
    return found


def _numbers(value: object, name: str) -> float | tuple[float, ...]:
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value):
        return tuple(_number(v, name) for v in value)
    return _number(value, name)


def _whole(value: Any, name: str, least: int | None) -> int:
    try:
        found = operator.index(value)
        if not isinstance(value, bool) and (least is None or found >= least):
            return found
    except TypeError:
        pass
    raise HalotileError(f"Output: {name}={value!r}: give a whole number{f' from {least}' if least else ''}")
