"""What the taps of a convolution read, laid out for a product with its weights.

    columns[n][c, ky, kx][oy, ox] = x[n][c][oy * stride + ky * dilation - begin][ox * ... + kx ...], 0 outside

Each row of outputs is one run of the image between zeros, whose ends follow from the tap. The way back, for transposed
convolutions and Col2Im, adds what falls on the same place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext

from tvm import te, tirx

from ..emit.builder import KernelBuilder
from ..math.wrapping import plus
from ..words.tvm_types import Buffer, Expr
from .common import dtype_of, shape_of
from .loops import kind_of, written
from .registry import define

LINE = 4096  # elements of a line whose sums are held on the stack
UNROLLED = 16  # taps and phases that are written out; more are loops


@define("halotile.columns")
def columns(
    x: te.Tensor,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[int],
    size: Sequence[int],
) -> te.Tensor:
    """x [N, C, spatial...] -> [N, C * taps, outputs] for a convolution with outputs of ``size``; one entry of each list
    a spatial axis."""
    n, channels, *image = shape_of(x)
    dtype, taps, outputs = dtype_of(x), math.prod(kernel), math.prod(size)
    rank, width = len(image), size[-1]

    def write(k: KernelBuilder, ins: list[Buffer], outs: list[Buffer]) -> None:
        total = n * channels * taps
        with k.loop(total, kind_of(total * outputs), "row") as row:
            places, rest = [], row % taps
            for extent, dilation, first in reversed(list(zip(kernel, dilations, begin))):
                places.append(k.bind(rest % extent * dilation - first))  # of the first output, along an axis
                rest = rest // extent
            places.reverse()
            low = _first(-places[-1], strides[-1], width)
            high = _first(image[-1] - places[-1], strides[-1], width)
            with k.loop(outputs // width, name="line") as line:
                source, inside, rest, step = row // taps * math.prod(image), [], line, image[-1]
                for axis in range(rank - 2, -1, -1):
                    at = k.bind(rest % size[axis] * strides[axis] + places[axis])
                    inside += [at >= 0, at < image[axis]]
                    source, rest, step = source + at * step, rest // size[axis], step * image[axis]
                whole = tirx.all(*inside) if inside else tirx.IntImm("bool", 1)
                start = k.bind(tirx.Select(whole, low, tirx.IntImm("int32", width)))
                end = k.bind(tirx.Select(whole, tirx.max(low, high), tirx.IntImm("int32", width)))
                target, source = row * outputs + line * width, k.bind(source + places[-1])
                with k.loop(start, name="z") as z:
                    k.store(outs[0], target + z, tirx.const(0, dtype))
                with k.loop(end - start, name="i", begin=start) as i:
                    k.store(outs[0], target + i, k.load(ins[0], source + i * strides[-1]))
                with k.loop(width - end, name="z", begin=end) as z:
                    k.store(outs[0], target + z, tirx.const(0, dtype))

    return written("columns", [x], [((n, channels * taps, outputs), dtype)], write)[0]


def _first(distance: Expr, stride: int, most: int) -> Expr:
    """The first output that lies at least ``distance`` from the first one's place."""
    return tirx.min(tirx.max(tirx.floordiv(distance + (stride - 1), stride), 0), most)


def _each(k: KernelBuilder, count: int, name: str) -> Iterator[Expr]:
    """0 to ``count`` - 1: numbers, or the variable of a loop where they are many."""
    if count <= UNROLLED:
        yield from range(count)
        return
    with k.loop(count, name=name) as i:
        yield i


def _divided(k: KernelBuilder, place: Expr, stride: int) -> tuple[Expr, Expr]:
    """The quotient and the remainder of a place, rounded down."""
    if isinstance(place, int):
        return divmod(place, stride)
    place = k.bind(place)
    return k.bind(tirx.floordiv(place, stride)), k.bind(tirx.floormod(place, stride))


@define("halotile.col2im")
def col2im(
    x: te.Tensor,
    *,
    image: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[int],
) -> te.Tensor:
    """x [N, C, taps..., counts...] -> [N, C, image...]: every place sums what the taps give it, in their order.

        y[oy * stride + ky * dilation - begin][ox * ...] += x[ky, kx][oy, ox]

    A line of places is summed at once, its phases apart: what one tap gives to the places of a phase are neighbours.
    """
    n, channels, *rest = shape_of(x)
    rank, dtype = len(image), dtype_of(x)
    kernel, counts = rest[:rank], rest[rank:]
    strides = [s if count > 1 else 1 for s, count in zip(strides, counts)]
    plane, taps, width = math.prod(image), math.prod(kernel), counts[-1]
    lines, stride = math.prod(counts) // width if width else 0, strides[-1]
    length = -(-image[-1] // stride)  # places of a phase
    part = min(length, max(1, LINE // stride))

    def line_of(k: KernelBuilder, y: Expr, tap: Expr) -> tuple[Expr, list[Expr]]:
        """The line of counts that gives something to the places of line ``y`` by a tap of all axes but the last, and
        whether there is one."""
        inside, line, step = [], tirx.IntImm("int32", 0), 1
        for axis in range(rank - 2, -1, -1):
            place = y % image[axis] + begin[axis] - tap % kernel[axis] * dilations[axis]
            y, tap, place = y // image[axis], tap // kernel[axis], k.bind(place)
            count = k.bind(tirx.floordiv(place, strides[axis]))
            inside += [tirx.floormod(place, strides[axis]) == 0, count >= 0, count < counts[axis]]
            line, step = line + count * step, step * counts[axis]
        return line, inside

    def write(k: KernelBuilder, ins: list[Buffer], outs: list[Buffer]) -> None:
        with k.loop(n * channels, kind_of(n * channels * (plane + taps * lines * width)), "row") as row:
            sums = k.local("sums", dtype, stride * part, "global")
            with k.loop(plane // image[-1], name="y") as y, k.loop(-(-length // part), name="part") as block:
                first = k.bind(block * part)
                with k.loop(stride * part, name="z") as z:
                    k.store(sums, z, tirx.const(0, dtype))
                with k.loop(taps // kernel[-1], name="tap") as tap:
                    line, inside = line_of(k, y, tap)
                    with k.when(tirx.all(*inside)) if inside else nullcontext():
                        source = row * taps + tap * kernel[-1]
                        for tap_x in _each(k, kernel[-1], "tap_x"):
                            behind, phase = _divided(k, tap_x * dilations[-1] - begin[-1], stride)
                            low = k.bind(tirx.max(first - behind, 0))
                            high = k.bind(tirx.min(tirx.min(first + part, length) - behind, width))
                            give = k.bind(((source + tap_x) * lines + line) * width)
                            to = k.bind(phase * part + behind - first)
                            with k.loop(high - low, name="i", begin=low) as i:
                                k.store(sums, to + i, plus(sums[to + i], k.load(ins[0], give + i)))
                target, there = k.bind(row * plane + y * image[-1]), k.bind(tirx.min(length - first, part))
                with k.loop(there, name="i") as i:
                    for phase in _each(k, stride, "phase"):
                        at = (first + i) * stride + phase
                        with k.when(at < image[-1]) if image[-1] % stride else nullcontext():
                            k.store(outs[0], target + at, sums[phase * part + i])

    return written("col2im", [x], [((n, channels, *image), dtype)], write)[0]
