"""RoiAlign: regions of images read between the elements. All channels read the same places, so channels are the lanes:

    turned[image][pixel][channel] = x[image][channel][pixel]       a vector of channels is contiguous
    parallel for region:
        for every sample row, every sample column: places of the two elements around it, and their weights
        for vectors of channels, bin:  total = sum over samples, taps of weight * turned[place]

Regions that together read fewer elements than the images have are read from them as they lie. A ratio of 0 takes as
many samples as a bin has elements: the loops over samples end where a region says, and no places are kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import te, tirx

from ..emit.builder import KernelBuilder
from ..words.dims import Open, is_dim
from ..words.sizes import surely
from ..words.tvm_types import Buffer, Expr
from .common import dtype_of, larger, lowest, number, shape_of
from .loops import cast, kind_of, written
from .registry import define

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

LANES = 16  # channels side by side
ACCUMULATORS = 8  # vectors of channels that one pass over the samples of a bin sums
MOST_SAMPLES = 1 << 14  # along one axis of a bin whose region says how many; longer ones are no region of any image


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
    what follows is memory to work in. Ratio 0: one sample for each element that a bin is high and wide, rounded up."""
    n, c, *image = shape_of(x)
    count, dtype, pixels = shape_of(rois)[0], dtype_of(x), image[0] * image[1]
    if is_dim(c):
        raise Open(f"its {c} channels are open")
    samples = height * width * max(ratio, 1) ** 2
    turned = surely(lambda: 4 * count * samples >= n * pixels)
    bins = [_Bins(1, height, image[0], image[1], ratio), _Bins(0, width, image[1], 1, ratio)]

    def write(k: KernelBuilder, ins: list[Buffer], outs: list[Buffer]) -> None:
        pixel, channel = (c, 1) if turned else (1, pixels)  # how far neighbours lie apart
        if turned:
            turn_channels(k, ins[0], outs[1], (n, c, pixels))
        with k.loop(count, kind_of(count * c * samples), "region") as region:
            number = tirx.max(tirx.min(cast("int32", k.load(ins[2], region)), n - 1), 0)
            start = k.bind(number * (c * pixels))
            taps = [_Taps(k, b, ins[1], region * 4, scale, half_pixel, pixel, dtype, not largest) for b in bins]
            _sum(k, outs[1] if turned else ins[0], start, channel, taps, largest, outs[0], (region, c))

    shapes = [((count, c, height, width), dtype), ((n, pixels, c) if turned else (1,), dtype)]
    return written("roi_align", [x, rois, batch], shapes, write)


@dataclass(frozen=True)
class _Bins:
    """One axis: the position of its coordinate in a region, bins, elements of the image and their stride, samples."""

    coordinate: int
    count: int
    length: SizeLike
    stride: SizeLike
    ratio: int


class _Taps:
    """Places of the lower and the upper element around every sample along an axis of a region, and their weights: zero
    outside, and with ``halves`` two halves of an element that a sample falls on, so that none is zero inside. Of a
    fixed number of samples they are kept."""

    def __init__(
        self, k: KernelBuilder, bins: _Bins, rois: Buffer, region: Expr, scale: float, half_pixel: bool, pixel: int,
        dtype: str, halves: bool,
    ) -> None:  # fmt: skip
        def const(v: float) -> Expr:
            return tirx.const(v, dtype)

        self.k, self.bins, self.pixel, self.dtype, self.halves = k, bins, pixel, dtype, halves
        offset = const(0.5 if half_pixel else 0.0)
        first, last = (k.load(rois, region + bins.coordinate + i) * const(scale) - offset for i in (0, 2))
        self.start = k.bind(first)
        extent = k.bind(last - self.start if half_pixel else tirx.max(last - self.start, const(1)))
        self.step = k.bind(extent / const(bins.count))  # the length of a bin
        self.ratio: Expr = bins.ratio
        if not bins.ratio:
            self.ratio = k.bind(cast("int32", tirx.ceil(tirx.max(tirx.min(self.step, const(MOST_SAMPLES)), const(0)))))
            return
        samples = bins.count * bins.ratio
        self.kept = [k.local(name, d, samples) for name, d in (("at", "int32"), ("w", dtype)) for _ in range(2)]
        with k.loop(samples, name="s") as s:
            for buffer, value in zip(self.kept, self._around(s // bins.ratio, s % bins.ratio)):
                k.store(buffer, s, value)

    def __call__(self, index: Expr, sample: Expr) -> list[tuple[Expr, Expr]]:
        """(place, weight) of the lower and of the upper element around a sample of bin ``index``."""
        if self.bins.ratio:
            values = [buffer[index * self.bins.ratio + sample] for buffer in self.kept]
        else:
            values = [self.k.bind(v) for v in self._around(index, sample)]
        return [(values[0], values[2]), (values[1], values[3])]

    def _around(self, index: Expr, sample: Expr) -> list[Expr]:
        """Two places and two weights."""

        def const(v: float) -> Expr:
            return tirx.const(v, self.dtype)

        k, length = self.k, self.bins.length
        inner = cast(self.dtype, sample) + const(0.5)
        parts = const(self.bins.ratio) if self.bins.ratio else cast(self.dtype, self.ratio)
        at = k.bind(self.start + cast(self.dtype, index) * self.step + inner * self.step / parts)
        inside = tirx.all(at >= const(-1), at <= number(length, self.dtype))
        kept = k.bind(tirx.max(tirx.min(at, number(length - 1, self.dtype)), const(0)))
        low = k.bind(tirx.floor(kept).astype("int32"))
        share = k.bind(kept - tirx.floor(kept))
        upper, weights = tirx.min(low + 1, length - 1), [const(1) - share, share]
        if self.halves:
            between = k.bind(cast("int32", share > const(0))) > 0
            upper = tirx.Select(between, upper, low)
            weights = [tirx.Select(between, weight, const(0.5)) for weight in weights]
        places = [p * (self.bins.stride * self.pixel) for p in (low, upper)]
        return places + [tirx.Select(inside, weight, const(0)) for weight in weights]


def _sum(
    k: KernelBuilder, x: Expr, start: Expr, stride: int, taps: Sequence[_Taps], largest: bool, out: Buffer,
    place: tuple[Expr, int],
) -> None:  # fmt: skip
    """Every bin of a region, a group of vectors of channels at a time; the last ones overlap those before them."""
    region, channels = place
    down, across = taps
    high, wide = down.bins.count, across.bins.count
    dtype, lanes = str(x.dtype), min(channels, LANES)
    blocks = -(-channels // lanes)
    group = min(blocks, ACCUMULATORS)
    fixed = down.bins.ratio * across.bins.ratio
    share = tirx.const(1.0 / fixed if fixed else 1.0, dtype)
    samples = None if fixed else k.bind(cast(dtype, tirx.max(down.ratio * across.ratio, 1)))
    with k.loop(-(-blocks // group), name="g") as g, k.loop(high, name="y") as y, k.loop(wide, name="x") as xx:
        first = [k.bind(tirx.min((g * group + i) * lanes, channels - lanes)) for i in range(group)]
        totals = [k.local("total", dtype, lanes) for _ in range(group)]
        for total in totals:
            with k.loop(lanes, "vectorized") as v:
                k.store(total, v, lowest(dtype) if largest else tirx.const(0, dtype))
        with k.loop(down.ratio, name="iy") as iy:
            rows = down(y, iy)
            with k.loop(across.ratio, name="ix") as ix:
                columns = across(xx, ix)
                nothing = tirx.const(0, dtype)
                inside = k.bind(tirx.all(rows[0][1] > nothing, columns[0][1] > nothing))
                with k.when(inside):
                    corners = [
                        (k.bind(start + p + q), k.bind(a * b)) for (p, a), (q, b) in itertools.product(rows, columns)
                    ]
                    for total, begin in zip(totals, first):
                        with k.loop(lanes, "vectorized") as v:
                            value = total[v]
                            for at, weight in corners:
                                term = weight * k.load(x, at + (begin + v) * stride)
                                if largest:
                                    value = larger(value, k.bind(tirx.Select(weight > nothing, term, nothing)))
                                else:
                                    value = value + term
                            k.store(total, v, value)
                if largest:  # a sample outside of the image is 0
                    with k.when(tirx.Not(inside)):
                        for total in totals:
                            with k.loop(lanes, "vectorized") as v:
                                k.store(total, v, larger(total[v], nothing))
        for total, begin in zip(totals, first):
            with k.loop(lanes, "unroll") as v:
                value = total[v]
                if samples is not None:  # none at all give 0
                    empty = down.ratio * across.ratio < 1
                    value = tirx.Select(empty, tirx.const(0, dtype), value) if largest else value / samples
                elif not largest:
                    value = value * share
                k.store(out, ((region * channels + begin + v) * high + y) * wide + xx, value)


def turn_channels(k: KernelBuilder, x: Expr, turned: Buffer, shape: tuple[int, int, int]) -> None:
    """x [images, channels, pixels] -> turned [images, pixels, channels], in squares of vectors that may overlap."""
    images, channels, pixels = shape
    wide, high = min(pixels, LANES), min(channels, LANES)
    across, down = -(-pixels // wide), -(-channels // high)
    kind = kind_of(images * channels * pixels)
    with k.loop(images * across, kind, "strip") as strip, k.loop(down, name="block") as block:
        image, pixel = strip // across, k.bind(tirx.min(strip % across * wide, pixels - wide))
        channel = k.bind(tirx.min(block * high, channels - high))
        with k.loop(wide, "unroll") as p, k.loop(high, "vectorized") as v:
            value = k.load(x, (image * channels + channel + v) * pixels + pixel + p)
            k.store(turned, (image * pixels + pixel + p) * channels + channel + v, value)
