"""Reading at computed positions, and positions of extremes."""

from __future__ import annotations

from tvm import te, tirx

from ..words.tvm_types import Attributes, Expr
from .common import highest, is_float, is_nan, lowest, shape_of, wide
from .open_shapes import Shape, replaced, same
from .registry import define
from .te_stages import EXTREME, FIRST, LARGEST, LAST, SMALLEST


def wrapped(index: Expr, length: Expr) -> Expr:
    """A run-time index as int64: negative ones count from the end, the rest is clamped so that no read strays."""
    signed = index.astype("int64")
    size = wide(length)
    positive = tirx.Select(signed < 0, signed + size, signed)
    return tirx.max(tirx.min(positive, size - 1), tirx.const(0, "int64"))


def _gathered(shapes: list[Shape], a: Attributes) -> list[Shape]:
    return [replaced(shapes[0], a["axis"], *shapes[1])]


def _gathered_nd(shapes: list[Shape], a: Attributes) -> list[Shape]:
    data, indices = shapes
    if not isinstance(indices[-1], int):
        raise ValueError("the length of an index is open")
    return [[*indices[:-1], *data[a["batch_dims"] + indices[-1] :]]]


def _reduced(shapes: list[Shape], a: Attributes) -> list[Shape]:
    return [replaced(shapes[0], a["axis"], *([1] if a["keepdims"] else []))]


@define("halotile.gather", shapes=_gathered)
def gather(x: te.Tensor, indices: te.Tensor, *, axis: int) -> te.Tensor:
    """x[..., indices, ...] along ``axis``; the result has the shape of indices in its place."""
    return gathered(x, indices, axis, False)


def gathered(x: te.Tensor, indices: te.Tensor, axis: int, inside: bool) -> te.Tensor:
    """:func:`gather`; with indices known to be ``inside`` of the axis, they stand once in the position."""
    shape, index_shape = shape_of(x), shape_of(indices)
    rank = len(index_shape)

    def read(*i: Expr) -> Expr:
        at = indices(*i[axis : axis + rank])
        at = at.astype("int64") if inside else wrapped(at, shape[axis])
        return x(*i[:axis], at, *i[axis + rank :])

    return te.compute(shape[:axis] + index_shape + shape[axis + 1 :], read, name="gather")


def _extreme(x: te.Tensor, axis: int, keepdims: bool, last: bool, largest: bool) -> te.Tensor:
    shape = shape_of(x)
    along = te.reduce_axis((0, shape[axis]), name="rk")

    def better(a: Expr, b: Expr) -> Expr:
        """True when the pair a (position, value) wins over b."""
        earlier = a[0] > b[0] if last else a[0] < b[0]
        wins = a[1] > b[1] if largest else a[1] < b[1]
        if not is_float(x.dtype):
            return tirx.any(wins, tirx.all(a[1] == b[1], earlier))
        nan_a, nan_b = is_nan(a[1]), is_nan(b[1])  # a NaN counts as the extreme, as in numpy
        same = tirx.any(a[1] == b[1], tirx.all(nan_a, nan_b))
        return tirx.any(wins, tirx.all(nan_a, tirx.Not(nan_b)), tirx.all(same, earlier))

    def combine(a: Expr, b: Expr) -> tuple[Expr, Expr]:
        wins = better(a, b)
        return tirx.Select(wins, a[0], b[0]), tirx.Select(wins, a[1], b[1])

    start = tirx.const(-1, "int64") if last else tirx.max_value("int64")
    reducer = te.comm_reducer(
        combine, lambda _i, v: (start, lowest(v) if largest else highest(v)), name="extreme"
    )
    out = [1 if a == axis and keepdims else d for a, d in enumerate(shape) if keepdims or a != axis]

    def best(*i: Expr) -> tuple[Expr, Expr]:
        at = [*i[:axis], along, *(i[axis + 1 :] if keepdims else i[axis:])]
        return reducer((along.var.astype("int64"), x(*at)), axis=along)

    kind = f"{LAST if last else FIRST} {LARGEST if largest else SMALLEST}"
    position, _value = te.compute(out, best, name="extreme", attrs={EXTREME: kind})
    return position


@define("halotile.argmax", shapes=_reduced, dtypes=["int64"])
def argmax(x: te.Tensor, *, axis: int, keepdims: bool, last: bool) -> te.Tensor:
    """The position (int64) of the largest element along ``axis``: the first of equals, or the last."""
    return _extreme(x, axis, keepdims, last, largest=True)


@define("halotile.argmin", shapes=_reduced, dtypes=["int64"])
def argmin(x: te.Tensor, *, axis: int, keepdims: bool, last: bool) -> te.Tensor:
    """The position (int64) of the smallest element along ``axis``: the first of equals, or the last."""
    return _extreme(x, axis, keepdims, last, largest=False)


@define("halotile.gather_elements", shapes=lambda shapes, _: [shapes[1]])
def gather_elements(x: te.Tensor, indices: te.Tensor, *, axis: int) -> te.Tensor:
    """y[i] = x[i with indices[i] in place of i[axis]]; the shape is that of indices."""
    length = shape_of(x)[axis]

    def read(*i: Expr) -> Expr:
        at = list(i)
        at[axis] = wrapped(indices(*i), length)
        return x(*at)

    return te.compute(shape_of(indices), read, name="gather_elements")


@define("halotile.gather_nd", shapes=_gathered_nd)
def gather_nd(x: te.Tensor, indices: te.Tensor, *, batch_dims: int) -> te.Tensor:
    """The last axis of indices holds positions in the axes of x after the batch ones."""
    shape, index_shape = shape_of(x), shape_of(indices)
    depth = index_shape[-1]
    outer = len(index_shape) - 1

    def read(*i: Expr) -> Expr:
        at = [wrapped(indices(*i[:outer], d), shape[batch_dims + d]) for d in range(depth)]
        return x(*i[:batch_dims], *at, *i[outer:])

    return te.compute(index_shape[:-1] + shape[batch_dims + depth :], read, name="gather_nd")


@define("halotile.reverse_sequence", shapes=same)
def reverse_sequence(x: te.Tensor, lengths: te.Tensor, *, batch_axis: int, time_axis: int) -> te.Tensor:
    """The first lengths[b] elements along time_axis of every b turned round, the rest left where they are."""
    size = shape_of(x)[time_axis]

    def read(*i: Expr) -> Expr:
        t = i[time_axis].astype("int64")
        count = lengths(i[batch_axis]).astype("int64")
        at = list(i)
        at[time_axis] = wrapped(tirx.Select(t < count, count - 1 - t, t), size)
        return x(*at)

    return te.compute(shape_of(x), read, name="reverse_sequence")
