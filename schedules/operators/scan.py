"""Running sums and products, and the k largest elements."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from ..operator import define
from .common import dtype_of, is_float, is_nan, shape_of


def _running(x: te.Tensor, axis: int, exclusive: bool, reverse: bool, product: bool) -> te.Tensor:
    """Each output reduces the elements on its side of itself: quadratic in the axis, but parallel and exact."""
    shape = shape_of(x)
    along = te.reduce_axis((0, shape[axis]), name="rk")
    neutral = tirx.const(1 if product else 0, dtype_of(x))

    def total(*i: Any) -> Any:
        here, k = i[axis], along.var
        inside = k >= here if reverse else k <= here
        if exclusive:
            inside = k > here if reverse else k < here
        at = list(i)
        at[axis] = k
        value = tirx.Select(inside, x(*at), neutral)
        if not product:
            return te.sum(value, axis=along)
        times = te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype), name="prod")
        return times(value, axis=along)

    return te.compute(shape, total, name="running")


@define("halotile.cumsum")
def cumsum(x: te.Tensor, *, axis: int, exclusive: bool, reverse: bool) -> te.Tensor:
    """The sum of the elements up to each one (without it when exclusive; from the end when reverse)."""
    return _running(x, axis, exclusive, reverse, product=False)


@define("halotile.cumprod")
def cumprod(x: te.Tensor, *, axis: int, exclusive: bool, reverse: bool) -> te.Tensor:
    """The product of the elements up to each one (without it when exclusive; from the end when reverse)."""
    return _running(x, axis, exclusive, reverse, product=True)


@define("halotile.topk")
def topk(x: te.Tensor, *, k: int, axis: int, largest: bool) -> list[te.Tensor]:
    """The k largest (smallest) elements along ``axis`` in order, and their positions (int64); equals keep theirs.

    rank[i] = how many elements come before i in the order wanted; the o-th result is the element of rank o.
    A NaN counts as larger than any number.
    """
    shape = shape_of(x)
    length = shape[axis]
    out = [k if a == axis else d for a, d in enumerate(shape)]

    def moved(i: Any, p: Any) -> list[Any]:
        return [p if a == axis else q for a, q in enumerate(i)]

    other = te.reduce_axis((0, length), name="rj")

    def before(*i: Any) -> Any:
        mine, theirs = x(*i), x(*moved(i, other.var))
        wins = theirs > mine if largest else theirs < mine
        same = theirs == mine
        if is_float(dtype_of(x)):
            my_nan, their_nan = is_nan(mine), is_nan(theirs)
            beats = (
                tirx.all(their_nan, tirx.Not(my_nan)) if largest else tirx.all(my_nan, tirx.Not(their_nan))
            )
            wins = tirx.any(wins, beats)
            same = tirx.any(same, tirx.all(my_nan, their_nan))
        first = tirx.any(wins, tirx.all(same, other.var < i[axis]))
        return te.sum(tirx.Select(first, tirx.const(1, "int32"), tirx.const(0, "int32")), axis=other)

    rank = te.compute(shape, before, name="rank")
    at = te.reduce_axis((0, length), name="ri")
    position = te.compute(
        out,
        lambda *o: te.sum(
            tirx.Select(rank(*moved(o, at.var)) == o[axis], at.var.astype("int64"), tirx.const(0, "int64")),
            axis=at,
        ),
        name="position",
    )
    values = te.compute(out, lambda *o: x(*moved(o, position(*o))), name="topk")
    return [values, position]
