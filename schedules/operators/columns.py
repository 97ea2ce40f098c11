"""What the taps of a convolution read, laid out for a product with its weights.

    columns[n][c, ky, kx][oy, ox] = x[n][c][oy * stride + ky * dilation - begin][ox * ... + kx ...], 0 outside

Each row of outputs is one run of the image between zeros, whose ends follow from the tap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from ..emit import KernelBuilder
from ..operator import define
from .common import dtype_of, shape_of
from .loops import PARALLEL_WORK, written


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

    def write(k: KernelBuilder, ins: list[Any], outs: list[Any]) -> None:
        total = n * channels * taps
        with k.loop(total, "parallel" if total * outputs >= PARALLEL_WORK else "serial", "row") as row:
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


def _first(distance: Any, stride: int, most: int) -> Any:
    """The first output that lies at least ``distance`` from the first one's place."""
    return tirx.min(tirx.max(tirx.floordiv(distance + (stride - 1), stride), 0), most)
