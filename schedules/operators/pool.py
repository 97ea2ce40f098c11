"""Means by reciprocals, and windowed sums and maxima with positions, for the pooling forms that Relax lacks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import te, tirx, topi

from ..words.dims import maximum
from ..words.sizes import dim_of
from ..words.tvm_types import Attributes, Expr
from .common import largest_number, lowest, shape_of
from .open_shapes import Shape, same
from .registry import define, override


def _padded(x: te.Tensor, begin: Sequence[int], end: Sequence[int], fill: Expr) -> te.Tensor:
    """x with ``fill`` around its spatial axes (from the third on)."""
    if all(e == 0 for e in (*begin, *end)):
        return x
    n, c, *size = shape_of(x)

    def read(*i: Expr) -> Expr:
        sides = zip(i[2:], begin, end, size)
        inside = [t for p, b, e, s in sides for t, pad in ((p >= b, b), (p < b + s, e)) if pad != 0]
        return tirx.if_then_else(tirx.all(*inside), x(*i[:2], *[p - b for p, b in zip(i[2:], begin)]), fill)

    return te.compute([n, c, *[s + b + e for s, b, e in zip(size, begin, end)]], read, name="padded")


def _reach(
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[int],
    output: Sequence[int],
) -> list[int]:
    """Padding at the end that makes the last window fit."""
    spans = zip(size, kernel, strides, dilations, begin, output)
    return [maximum((o - 1) * s + (k - 1) * d + 1 - n - b, 0) for n, k, s, d, b, o in spans]


def _largest(call: Expr, x: te.Tensor) -> te.Tensor:
    """The largest element of every window that is no NaN, -inf outside and of a window of nothing else. (Relax's own
    pads with the lowest finite number, which is more than all of a window of -inf.)"""
    attrs, spatial = call.attrs, len(x.shape) - 2
    if not str(attrs.layout).startswith("NC"):
        raise ValueError(f"max_pool in layout {attrs.layout} has no TE expression")
    padding = [int(p) for p in attrs.padding]
    steps = [[int(n) for n in given] for given in (attrs.pool_size, attrs.strides, attrs.dilation)]
    output = [dim_of(d) for d in call.ty.shape][2:]

    def along(x: te.Tensor, axes: Sequence[int]) -> te.Tensor:
        """Windows over ``axes`` alone."""
        begin = [p if a in axes else 0 for a, p in enumerate(padding[:spatial])]
        kernel, strides, dilations = ([n if a in axes else 1 for a, n in enumerate(given)] for given in steps)
        size = [o if a in axes else dim_of(x.shape[2 + a]) for a, o in enumerate(output)]
        reach = _reach(shape_of(x)[2:], kernel, strides, dilations, begin, size)
        data = _padded(x, begin, reach, lowest(x.dtype))
        taps = [te.reduce_axis((0, k), name=f"rk{a}") for a, k in enumerate(kernel)]
        largest = largest_number(x.dtype)

        def best(b: Expr, ch: Expr, *o: Expr) -> Expr:
            return largest(data(b, ch, *[p * s + k * d for p, s, k, d in zip(o, strides, taps, dilations)]), axis=taps)

        return te.compute([*shape_of(x)[:2], *size], best, name="max_pool")

    depth, area = steps[0][0], math.prod(steps[0][1:])
    if spatial == 3 and area > 1 and depth * area > area * steps[1][0] + depth:
        # images first, then along the depth: 9 + 3 taps for 27, and no padding of all axes to be tested at once
        return along(along(x, (1, 2)), (0,))
    return along(x, range(spatial))


for _rank in (1, 2, 3):
    override(f"relax.nn.max_pool{_rank}d")(_largest)


def _flattened(shapes: list[Shape], a: Attributes) -> list[Shape]:
    return [[1 if k in a["axes"] else d for k, d in enumerate(shapes[0])]]


def _windowed(shapes: list[Shape], a: Attributes) -> list[Shape]:
    return [[*shapes[0][:2], *a["output"]]]


def _pooled_with_indices(shapes: list[Shape], a: Attributes) -> list[Shape]:
    return _windowed(shapes, a) * 2


@define("halotile.global_max_pool", shapes=_flattened)
def global_max_pool(x: te.Tensor, *, axes: Sequence[int]) -> te.Tensor:
    """The largest element over ``axes``, which stay with length one, that is no NaN; -inf if there is none."""
    shape = shape_of(x)
    along = {a: te.reduce_axis((0, shape[a]), name=f"k{a}") for a in axes}
    largest = largest_number(x.dtype)
    return te.compute(
        [1 if a in along else d for a, d in enumerate(shape)],
        lambda *i: largest(x(*[along.get(a, p) for a, p in enumerate(i)]), axis=list(along.values())),
        name="global_max_pool",
    )


@define("halotile.window_sum", shapes=_windowed)
def window_sum(
    x: te.Tensor,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[int],
    output: Sequence[int],
) -> te.Tensor:
    """The sum over every window of the spatial axes, zero outside: [N, C, ...] -> [N, C, output...]."""
    n, c, *size = shape_of(x)
    end = _reach(size, kernel, strides, dilations, begin, output)
    data = _padded(x, begin, end, tirx.const(0, x.dtype))
    taps = [te.reduce_axis((0, k), name=f"rk{a}") for a, k in enumerate(kernel)]

    def total(b: Expr, ch: Expr, *o: Expr) -> Expr:
        at = [p * s + k * d for p, s, k, d in zip(o, strides, taps, dilations)]
        return te.sum(data(b, ch, *at), axis=taps)

    return te.compute([n, c, *output], total, name="window_sum")


@define("halotile.channel_window_sum", shapes=same)
def channel_window_sum(x: te.Tensor, *, size: int) -> te.Tensor:
    """The sum over ``size`` neighbouring channels, floor((size - 1) / 2) of them before: [N, C, ...] -> same."""
    n, c, *rest = shape_of(x)
    before = (size - 1) // 2
    tap = te.reduce_axis((0, size), name="rk")

    def read(b: Expr, ch: Expr, *i: Expr) -> Expr:
        inside = tirx.all(ch >= before, ch < before + c)
        return tirx.if_then_else(inside, x(b, ch - before, *i), tirx.const(0, x.dtype))

    data = te.compute([n, c + size - 1, *rest], read, name="padded")
    return te.compute(
        [n, c, *rest], lambda b, ch, *i: te.sum(data(b, ch + tap, *i), axis=tap), name="channel_window_sum"
    )


@define("halotile.max_pool_with_indices", shapes=_pooled_with_indices, dtypes=[None, "int64"])
def max_pool_with_indices(
    x: te.Tensor,
    *,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[int],
    output: Sequence[int],
) -> list[te.Tensor]:
    """The largest element of every window that is no NaN, and the flat position (int64) in the whole tensor of the
    first such; -inf and the position of the first element, if there is nothing else."""
    n, c, *size = shape_of(x)
    end = _reach(size, kernel, strides, dilations, begin, output)
    data = _padded(x, begin, end, lowest(x.dtype))
    taps = [te.reduce_axis((0, k), name=f"rk{a}") for a, k in enumerate(kernel)]
    larger_first = te.comm_reducer(
        lambda p, q: (
            tirx.Select(tirx.any(q[1] > p[1], tirx.all(q[0] < p[0], tirx.Not(p[1] > q[1]))), q[0], p[0]),
            tirx.Select(q[1] > p[1], q[1], p[1]),
        ),
        lambda _i, v: (tirx.max_value("int64"), lowest(v)),
        name="larger_first",
    )
    space = 1
    for s in size:
        space *= s

    def best(b: Expr, ch: Expr, *o: Expr) -> tuple[Expr, Expr]:
        at = [p * s + k * d for p, s, k, d in zip(o, strides, taps, dilations)]
        real = [a - f for a, f in zip(at, begin)]
        flat: Expr = tirx.const(0, "int64")
        for position, length in zip(real, size):
            flat = flat * length + position.astype("int64")
        flat = flat + (b.astype("int64") * c + ch.astype("int64")) * space
        inside = [t for p, s in zip(real, size) for t in (p >= 0, p < s)]
        flat = tirx.Select(tirx.all(*inside), flat, tirx.max_value("int64"))
        return larger_first((flat, data(b, ch, *at)), axis=taps)

    indices, values = te.compute([n, c, *output], best, name="max_pool_with_indices")
    return [values, indices]


@override("relax.nn.avg_pool1d")
@override("relax.nn.avg_pool2d")
@override("relax.nn.avg_pool3d")
def average_pool(call: Expr, x: te.Tensor) -> te.Tensor:
    """The sum over a window times the reciprocal of its size, which is known at compile time but beside the edges: a
    division of vectors takes as long as twenty additions."""
    attrs, spatial = call.attrs, len(x.shape) - 2
    pool = {1: topi.nn.pool1d, 2: topi.nn.pool2d, 3: topi.nn.pool3d}[spatial]
    kernel, strides, pads = ([int(v) for v in a] for a in (attrs.pool_size, attrs.strides, attrs.padding))
    dilations = [int(d) for d in attrs.dilation]
    layout, include = str(attrs.layout), bool(attrs.count_include_pad)
    pooled = pool(x, kernel, strides, dilations, pads, "avg", bool(attrs.ceil_mode), layout, include)
    if attrs.ceil_mode or not layout.startswith("NC") or any(d > 1 for d in dilations):
        return pooled
    (total,) = pooled.op.input_tensors
    whole = tirx.const(1.0 / math.prod(kernel), x.dtype)

    def mean(*i: Expr) -> Expr:
        if include or not any(pads):
            return total(*i) * whole
        count: Expr = tirx.const(1, "int32")
        for at, k, s, before, size in zip(i[2:], kernel, strides, pads, shape_of(x)[2:]):
            first = at * s - before
            count = count * (tirx.min(first + k, size) - tirx.max(first, 0))
        return total(*i) * (tirx.const(1, x.dtype) / tirx.Cast(x.dtype, tirx.max(count, 1)))

    return te.compute(pooled.shape, mean, name="average_pool")
