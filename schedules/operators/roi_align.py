"""RoiAlign: regions of images read between the elements. All channels read the same places, so channels are the lanes:

    turned[image][pixel][channel] = x[image][channel][pixel]       a vector of channels is contiguous
    parallel for region:
        for every sample row, every sample column: places of the two elements around it, and their weights
        for vectors of channels, bin:  total = sum over samples, taps of weight * turned[place]

Regions that together read fewer elements than the images have are read from them as they lie.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from ..emit import KernelBuilder
from ..operator import define
from .common import dtype_of, larger, lowest, shape_of
from .loops import PARALLEL_WORK, cast, written

LANES = 16  # channels side by side
ACCUMULATORS = 8  # vectors of channels that one pass over the samples of a bin sums


@define("halotile.roi_align")
def roi_align(
    x: te.Tensor,
    rois: te.Tensor,
    batch: te.Tensor,
    *,
    height: int,
    width: int,
    ratio: int,
    scale: float,
    largest: bool,
    half_pixel: bool,
) -> list[te.Tensor]:
    """x [N, C, H, W] averaged (or its maximum) over ratio x ratio samples of every bin: [regions, C, height, width];
    what follows is memory to work in."""
    n, c, *image = shape_of(x)
    count, dtype, pixels = shape_of(rois)[0], dtype_of(x), image[0] * image[1]
    samples = height * width * ratio * ratio
    turned = 4 * count * samples >= n * pixels
    bins = [_Bins(1, height, image[0], image[1], ratio), _Bins(0, width, image[1], 1, ratio)]

    def write(k: KernelBuilder, ins: list[Any], outs: list[Any]) -> None:
        pixel, channel = (c, 1) if turned else (1, pixels)  # how far neighbours lie apart
        if turned:
            turn_channels(k, ins[0], outs[1], (n, c, pixels))
        with k.loop(count, "parallel" if count * c * samples >= PARALLEL_WORK else "serial", "region") as region:
            number = tirx.max(tirx.min(cast("int32", k.load(ins[2], region)), n - 1), 0)
            start = k.bind(number * (c * pixels))
            taps = [_taps(k, b, ins[1], region * 4, scale, half_pixel, pixel, dtype) for b in bins]
            _sum(k, outs[1] if turned else ins[0], start, channel, taps, ratio, largest, outs[0], (region, c, bins))

    shapes = [((count, c, height, width), dtype), ((n, pixels, c) if turned else (1,), dtype)]
    return written("roi_align", [x, rois, batch], shapes, write)


@dataclass(frozen=True)
class _Bins:
    """One axis: the position of its coordinate in a region, bins, elements of the image and their stride, samples."""

    coordinate: int
    count: int
    length: int
    stride: int
    ratio: int


def _taps(
    k: KernelBuilder, bins: _Bins, rois: Any, region: Any, scale: float, half_pixel: bool, pixel: int, dtype: str
) -> tuple[list[Any], list[Any]]:
    """Places of the lower and the upper element around every sample along an axis, and their weights: zero outside."""

    def const(v: float) -> Any:
        return tirx.const(v, dtype)

    samples = bins.count * bins.ratio
    places, weights = ([k.local(name, d, samples) for _ in range(2)] for name, d in (("at", "int32"), ("w", dtype)))
    offset = const(0.5 if half_pixel else 0.0)
    first, last = (k.load(rois, region + bins.coordinate + i) * const(scale) - offset for i in (0, 2))
    start = k.bind(first)
    extent = k.bind(last - start if half_pixel else tirx.max(last - start, const(1)))
    step = k.bind(extent / const(bins.count))
    with k.loop(samples, name="s") as s:
        inner = (s % bins.ratio).astype(dtype) + const(0.5)
        at = k.bind(start + (s // bins.ratio).astype(dtype) * step + inner * step / const(bins.ratio))
        inside = tirx.all(at >= const(-1), at <= const(bins.length))
        kept = k.bind(tirx.max(tirx.min(at, const(bins.length - 1)), const(0)))
        low = k.bind(tirx.floor(kept).astype("int32"))
        share = k.bind(kept - tirx.floor(kept))
        for i, (place, weight) in enumerate(((low, const(1) - share), (tirx.min(low + 1, bins.length - 1), share))):
            k.store(places[i], s, place * (bins.stride * pixel))
            k.store(weights[i], s, tirx.Select(inside, weight, const(0)))
    return places, weights


def _sum(
    k: KernelBuilder, x: Any, start: Any, stride: int, taps: Sequence[tuple[list[Any], list[Any]]], ratio: int,
    largest: bool, out: Any, place: tuple[Any, int, list[_Bins]],
) -> None:  # fmt: skip
    """Every bin of a region, a group of vectors of channels at a time; the last ones overlap those before them."""
    region, channels, (down, across) = place
    (y_at, y_weight), (x_at, x_weight) = taps
    dtype, lanes = str(x.dtype), min(channels, LANES)
    blocks = -(-channels // lanes)
    group = min(blocks, ACCUMULATORS)
    with k.loop(-(-blocks // group), name="g") as g, k.loop(down.count, name="y") as y, k.loop(across.count) as xx:
        first = [k.bind(tirx.min((g * group + i) * lanes, channels - lanes)) for i in range(group)]
        totals = [k.local("total", dtype, lanes) for _ in range(group)]
        for total in totals:
            with k.loop(lanes, "vectorized") as v:
                k.store(total, v, lowest(dtype) if largest else tirx.const(0, dtype))
        with k.loop(ratio, name="iy") as iy, k.loop(ratio, name="ix") as ix:
            row, column = y * ratio + iy, xx * ratio + ix
            corners = [
                (k.bind(start + y_at[i][row] + x_at[j][column]), k.bind(y_weight[i][row] * x_weight[j][column]))
                for i, j in itertools.product(range(2), repeat=2)
            ]
            for total, begin in zip(totals, first):
                with k.loop(lanes, "vectorized") as v:
                    value = total[v]
                    for at, weight in corners:
                        term = weight * k.load(x, at + (begin + v) * stride)
                        value = larger(value, k.bind(term)) if largest else value + term
                    k.store(total, v, value)
        for total, begin in zip(totals, first):
            with k.loop(lanes, "unroll") as v:
                value = total[v] if largest else total[v] * tirx.const(1.0 / (ratio * ratio), dtype)
                k.store(out, ((region * channels + begin + v) * down.count + y) * across.count + xx, value)


def turn_channels(k: KernelBuilder, x: Any, turned: Any, shape: tuple[int, int, int]) -> None:
    """x [images, channels, pixels] -> turned [images, pixels, channels], in squares of vectors that may overlap."""
    images, channels, pixels = shape
    wide, high = min(pixels, LANES), min(channels, LANES)
    across, down = -(-pixels // wide), -(-channels // high)
    kind = "parallel" if images * channels * pixels >= PARALLEL_WORK else "serial"
    with k.loop(images * across, kind, "strip") as strip, k.loop(down, name="block") as block:
        image, pixel = strip // across, k.bind(tirx.min(strip % across * wide, pixels - wide))
        channel = k.bind(tirx.min(block * high, channels - high))
        with k.loop(wide, "unroll") as p, k.loop(high, "vectorized") as v:
            value = k.load(x, (image * channels + channel + v) * pixels + pixel + p)
            k.store(turned, (image * pixels + pixel + p) * channels + channel + v, value)
