"""How a frame's sides become the network's: the sizes, and of each pixel the taps that make it.

A tap is an index along the side and a weight; a pixel is the sum of its taps, along rows and then along columns. Sizes
are exact fractions, rounded, halves to even, as open_frames.py has them at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ShapeError
from ..images import Image

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

SHARP = -0.75  # the slope of OpenCV's cubic filter at the next pixel

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


def sides_of(
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
    size: SizeLike = image.size
    inner = inner_sizes(image, size, (height, width))
    first, second = (_side(n, i, wanted) for n, i, wanted in zip(size, inner, (height, width)))
    return have, (first, second)


def inner_sizes(image: Image, size: SizeLike, wanted: Sequence[int]) -> list[int]:
    """What the frame is resized to, before it is cut or framed."""
    ratios = [Fraction(most, n) for n, most in zip(size, wanted)]
    if image.resize == "letterbox":
        return [min(max(1, round(n * min(ratios))), most) for n, most in zip(size, wanted)]
    if image.resize == "crop":
        return [max(round(n * max(ratios)), least) for n, least in zip(size, wanted)]
    return list(wanted)


def _side(size: int, inner: int, wanted: int) -> Side:
    begin, before = max(inner - wanted, 0) // 2, max(wanted - inner, 0) // 2
    return Side(size, inner, begin, begin + min(inner, wanted), before, wanted - min(inner, wanted) - before)


def filter_of(image: Image) -> str:
    """The filter by which an image is resized."""
    return image.filter or (image.resize if image.resize in ("nearest", "area", "cubic") else "linear")


def taps_of(side: Side, image: Image) -> tuple[np.ndarray, np.ndarray]:
    """The taps of a side by the image's filter; one tap where it keeps its size."""
    if side.size == side.inner:
        return np.arange(side.begin, side.end)[None], np.ones([1, side.end - side.begin])
    return taps(side, filter_of(image))


def taps(side: Side, how: str) -> tuple[np.ndarray, np.ndarray]:
    """index[k, o] and weight[k, o] of the pixels that make pixel ``o``, by the formulas of OpenCV's filters."""
    step = side.size / side.inner
    places = np.arange(side.begin, side.end, dtype=np.float64)
    if how == "nearest":
        whole = np.arange(side.begin, side.end)[None]
        return (2 * whole + 1) * side.size // (2 * side.inner), np.ones(whole.shape)
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
    if how == "cubic":
        index, weight = left + np.arange(-1, 3)[:, None], np.stack(_cubic(part))
        used = (weight != 0).any(axis=1)
        return np.clip(index, 0, side.size - 1).astype(np.int64)[used], weight[used]
    index = np.clip(np.stack([left, left + 1]), 0, side.size - 1).astype(np.int64)
    return (index, np.stack([1 - part, part])) if part.any() else (index[:1], np.ones([1, len(places)]))


def _cubic(part: np.ndarray) -> list[np.ndarray]:
    """Weights of the pixels at -1, 0, 1 and 2 for a place between 0 and 1: Keys' cubic convolution."""
    weights = [np.polyval(factors, part) for factors in CUBIC]
    return [*weights, 1 - np.sum(weights, axis=0)]


# Of the pixels at -1, 0 and 1 as polynomials of the place between 0 and 1; the last weight is what is left of 1.
CUBIC = (
    (SHARP, -2 * SHARP, SHARP, 0.0), (SHARP + 2, -(SHARP + 3), 0.0, 1.0), (-(SHARP + 2), 2 * SHARP + 3, -SHARP, 0.0),
)  # fmt: skip
