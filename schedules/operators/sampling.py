"""Reading between the elements: GridSample, deformable convolution."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tvm import te, tirx

from ..emit.builder import KernelBuilder
from ..words.dims import is_dim, to_index
from ..words.sizes import surely
from ..words.tvm_types import Buffer, Expr
from .common import dtype_of, is_nan, number, shape_of
from .loops import VectorRun, kind_of, runs, written
from .open_shapes import Shape
from .registry import define

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

FAR = 2.0**22  # a position beyond which is taken for that one, so that it can be a whole number
LANES = 16  # positions side by side, whose places and weights all channels share


def _clamped(i: Expr, length: Expr) -> Expr:
    return tirx.max(tirx.min(i, number(length - 1, dtype_of(i))), tirx.const(0, dtype_of(i)))


def _inside(i: Expr, length: Expr) -> Expr:
    return tirx.all(i >= 0, i < to_index(length))


def _where_positive(extent: Expr, dtype: str, value: Callable[[Expr], Expr]) -> Expr:
    """``value(extent)`` in ``dtype``, or 0 where the extent is not positive."""
    zero = tirx.const(0, dtype)
    if is_dim(extent) and not surely(lambda: extent > 0):
        given = number(extent, dtype)
        return tirx.Select(given > zero, value(tirx.Select(given > zero, given, tirx.const(1, dtype))), zero)
    return value(number(extent, dtype)) if extent > 0 else zero


def _reflected(x: Expr, low: float, high: Expr) -> Expr:
    """x mirrored at the borders until it lies between them."""
    return _where_positive(high - low, dtype_of(x), lambda width: _mirrored(x, low, high, width))


def _mirrored(x: Expr, low: float, high: Expr, width: Expr) -> Expr:
    dtype = dtype_of(x)
    bottom, top = number(low, dtype), number(high, dtype)
    distance = tirx.Select(x < bottom, bottom - x, x - top)
    turns = tirx.floor(distance / width)
    rest = distance - turns * width
    even = turns - tirx.const(2.0, dtype) * tirx.floor(turns / tirx.const(2.0, dtype)) < tirx.const(
        0.5, dtype
    )
    below = tirx.Select(even, bottom + rest, top - rest)
    above = tirx.Select(even, top - rest, bottom + rest)
    return tirx.Select(x < bottom, below, tirx.Select(x > top, above, x))


def _within_a_period(x: Expr, low: float, period: Expr) -> Expr:
    """x in [low, low + period), where what repeats in periods is the same; zero where they have no length."""
    start = tirx.const(low, dtype_of(x))
    return _where_positive(period, dtype_of(x), lambda length: x - tirx.floor((x - start) / length) * length)


def _linear_weights(t: Expr) -> list[Expr]:
    return [tirx.const(1, dtype_of(t)) - t, t]


def _shared(weights: list[Expr], t: Expr) -> list[Expr]:
    """``weights`` of neighbours; equal parts where ``t`` is 0 and all of them are the element itself (:func:`_apart`),
    so that none is 0, and infinite elements stay what they are."""
    part = tirx.const(1.0 / len(weights), dtype_of(t))
    return [tirx.Select(t > tirx.const(0, dtype_of(t)), w, part) for w in weights]


def _apart(offset: int, t: Expr) -> Expr:
    """How far a neighbour lies from the element that a position is ``t`` above: nowhere, where only that one counts."""
    zero = tirx.IntImm("int32", 0)
    return tirx.Select(t > tirx.const(0, dtype_of(t)), tirx.IntImm("int32", offset), zero) if offset else zero


def _cubic_weights(t: Expr) -> list[Expr]:
    """Keys' kernel with a = -0.75 at distances t + 1, t, 1 - t, 2 - t."""
    dtype = dtype_of(t)
    a = -0.75

    def c(v: float) -> Expr:
        return tirx.const(v, dtype)

    def near(d: Expr) -> Expr:
        return (c(a + 2) * d - c(a + 3)) * d * d + c(1)

    def far(d: Expr) -> Expr:
        return ((c(a) * d - c(5 * a)) * d + c(8 * a)) * d - c(4 * a)

    return [far(t + c(1)), near(t), near(c(1) - t), far(c(2) - t)]


def _sampled(shapes: list[Shape], _: dict[str, Expr]) -> list[Shape]:
    return [[*shapes[0][:2], *shapes[1][1:-1]]]


@define("halotile.grid_sample", shapes=_sampled)
def grid_sample(x: te.Tensor, grid: te.Tensor, *, mode: str, padding: str, align_corners: bool) -> te.Tensor:
    """x [N, C, ...] read at grid [N, ..., d], whose last axis holds positions in [-1, 1], the last axis of x first.

    The read positions are made once (a stage of their own) and shared by all channels. Where one falls on an element,
    that alone is read: a NaN beside it does not count. A NaN in the grid is taken for -1, as in PyTorch.
    """
    n, c, *size = shape_of(x)
    out = shape_of(grid)[1:-1]
    rank = len(size)
    dtype = dtype_of(grid)

    def position(b: Expr, *rest: Expr) -> Expr:
        *at, d = rest
        value = None
        for axis in range(rank):  # the axis is the innermost index, unrolled as a choice
            here = _source(grid(b, *at, rank - 1 - axis), size[axis], dtype, mode, padding, align_corners)
            value = here if value is None else tirx.Select(d == axis, here, value)
        return value

    where = te.compute([n, *out, rank], position, name="position")

    def read(b: Expr, ch: Expr, index: Sequence[Expr]) -> Expr:
        resolved, inside = [], []
        for i, length in zip(index, size):
            if padding == "zeros":
                inside.append(_inside(i, length))
            elif padding == "reflection":
                low, high = (0.0, length - 1.0) if align_corners else (-0.5, length - 0.5)
                i = _reflected(i.astype(dtype), low, high).astype("int32")
            resolved.append(_clamped(i, length))
        value = x(b, ch, *resolved)
        return tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, dtype_of(x))) if inside else value

    def sample(b: Expr, ch: Expr, *at: Expr) -> Expr:
        point = [where(b, *at, d) for d in range(rank)]
        if mode == "nearest":
            return read(b, ch, [p.astype("int32") for p in point])
        base = [tirx.floor(p) for p in point]
        above = [p - f for p, f in zip(point, base)]
        weights = [_shared((_linear_weights if mode == "linear" else _cubic_weights)(t), t) for t in above]
        first = 0 if mode == "linear" else -1
        total = None
        for taps in itertools.product(range(len(weights[0])), repeat=rank):
            weight = weights[0][taps[0]]
            for d in range(1, rank):
                weight = weight * weights[d][taps[d]]
            near = [f.astype("int32") + _apart(tap + first, t) for f, tap, t in zip(base, taps, above)]
            term = weight * read(b, ch, near)
            total = term if total is None else total + term
        return total

    return te.compute([n, c, *out], sample, name="grid_sample")


def _source(g: Expr, length: Expr, dtype: str, mode: str, padding: str, align_corners: bool) -> Expr:
    """The position in elements of the normalised coordinate ``g``; of the only element, whatever ``g`` is: between the
    corners of one lies nothing, and infinity times that is no number."""
    if align_corners and length == 1:
        return tirx.const(0, dtype)
    one, two, size = tirx.const(1, dtype), tirx.const(2, dtype), number(length, dtype)
    g = tirx.Select(is_nan(g), -one, g)
    p = (g + one) / two * (size - one) if align_corners else ((g + one) * size - one) / two
    p = tirx.max(tirx.min(p, tirx.const(FAR, dtype)), tirx.const(-FAR, dtype))
    if mode == "nearest":
        p = tirx.nearbyint(p)
    low, high = (0.0, length - 1.0) if align_corners else (-0.5, length - 0.5)
    if mode == "cubic" and padding == "reflection":  # each of its neighbours for itself, as PyTorch and ONNX Runtime do
        return _within_a_period(p, low, 2 * (high - low))
    if mode != "cubic" and padding == "border":
        return tirx.max(tirx.min(p, size - one), tirx.const(0, dtype))
    if padding == "reflection":
        return _reflected(p, low, high)
    # Far outside everything is zero, or the border; the clamp keeps the conversion to an integer defined.
    return tirx.max(tirx.min(p, size + two), tirx.const(-3, dtype))


def _sum(terms: Sequence[Expr]) -> Expr:
    result = terms[0]
    for term in terms[1:]:
        result = result + term
    return result


@define("halotile.deformed")
def deformed(
    x: te.Tensor,
    offset: te.Tensor,
    *mask: te.Tensor,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[int],
    offset_groups: int,
) -> te.Tensor:
    """x [N, C, H, W] -> [N, C * kh * kw, OH * OW]: what each tap of a deformable convolution reads, moved by ``offset``
    and weighed by ``mask``, bilinearly, zero outside. A product with the weights does the rest: as a part of it, every
    output channel would read all of this again."""
    n, channels, rows, columns = shape_of(x)
    _, _, oh, ow = shape_of(offset)
    kh, kw = kernel
    dtype, positions, taps = dtype_of(x), oh * ow, kh * kw
    share = channels // offset_groups

    def write(k: KernelBuilder, ins: list[Buffer], outs: list[Buffer]) -> None:
        for run in runs(positions, LANES):
            sample(k, ins, outs, run)

    def sample(k: KernelBuilder, ins: list[Buffer], outs: list[Buffer], run: VectorRun) -> None:
        blocks, lanes = run.blocks, run.lanes
        kind = kind_of(n * channels * taps * positions)
        with k.loop(n * offset_groups * taps * blocks, kind, "row") as row:
            block, tap = row % blocks, row // blocks  # of all images and groups
            image, group = tap // (offset_groups * taps), tap // taps % offset_groups
            ky, kx = tap % taps // kw, tap % kw
            first = k.bind(run.first(block))
            places, weights = (k.local(name, d, 4 * lanes) for name, d in (("at", "int32"), ("w", dtype)))
            with k.loop(lanes, "vectorized") as v:
                p = first + v
                shifts = [k.load(ins[1], (tap * 2 + axis) * positions + p) for axis in range(2)]
                y = k.bind((p // ow * strides[0] - begin[0] + ky * dilations[0]).astype(dtype) + shifts[0])
                xx = k.bind((p % ow * strides[1] - begin[1] + kx * dilations[1]).astype(dtype) + shifts[1])
                for i, (weight, inside, at) in enumerate(_around(y, xx, rows, columns, dtype, k.bind)):
                    k.store(weights, i * lanes + v, weight)
                    k.store(places, i * lanes + v, tirx.Select(inside, at, tirx.IntImm("int32", -1)))
            with k.loop(share, name="c") as c:
                channel = k.bind(image * channels + group * share + c)
                with k.loop(lanes, "vectorized") as v:
                    terms = []
                    for i in range(4):
                        at = k.bind(places[i * lanes + v])
                        value = k.load(ins[0], channel * (rows * columns) + tirx.max(at, 0))
                        terms.append(tirx.Select(at >= 0, weights[i * lanes + v] * value, tirx.const(0, dtype)))
                    total = _sum(terms)
                    if mask:
                        total = total * k.load(ins[2], tap * positions + first + v)
                    k.store(outs[0], (channel * taps + tap % taps) * positions + first + v, total)

    return written("deformed", [x, offset, *mask], [((n, channels * taps, positions), dtype)], write)[0]


def _around(
    y: Expr, x: Expr, rows: int, columns: SizeLike, dtype: str, bind: Expr
) -> Iterator[tuple[Expr, Expr, Expr]]:
    """Weight, whether it lies inside, and place of the four elements around (y, x) of one image."""
    limit = [
        bind(tirx.max(tirx.min(p, number(m + 1, dtype)), tirx.const(-2, dtype)))
        for p, m in ((y, rows), (x, columns))
    ]
    base = [bind(tirx.floor(p)) for p in limit]
    corner = [bind(b.astype("int32")) for b in base]
    above = [bind(p - f) for p, f in zip(limit, base)]
    weights = [_shared(_linear_weights(t), t) for t in above]
    for dy in range(2):
        for dx in range(2):
            i, j = corner[0] + _apart(dy, above[0]), corner[1] + _apart(dx, above[1])
            inside = tirx.all(_inside(i, rows), _inside(j, columns))
            yield weights[0][dy] * weights[1][dx], inside, _clamped(i, rows) * columns + _clamped(j, columns)
