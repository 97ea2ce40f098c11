"""Unique: sorted, equal neighbours are one; how many there are is only known at run time (partial.py).

    x = [2, 1, 1, 3]     order = [1, 2, 0, 3]     fresh = [1, 0, 1, 1]     groups = [0, 0, 1, 2]

Equal elements stay in their order, so that the first of a group is where its value occurs first. NaN equal each other
and come last, as in NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from ....schedules.words.dims import Open, is_open
from ....schedules.words.refusal import Refusal
from ..node import OnnxNode, normal_axis
from ..parts import with_part
from ..registry import converts
from ..value import OnnxValue
from .elementwise import nan
from .indexing import chosen, read

if TYPE_CHECKING:
    from ....schedules.words.size_like import SizeLike

R = relax.op

MOST_COMPARED = 1 << 22  # elements of all pairs of rows, which are compared each with each


@converts("Unique", since=11)
def unique(node: OnnxNode) -> list[OnnxValue | None]:
    x = node.need(0)
    axis = normal_axis(node.attr("axis", 0), x.rank) if "axis" in node.attributes else None
    if axis is None or x.rank == 0:
        x, axis = node.reshape(x, (x.size,)), 0
    length = x.shape[axis]
    if x.size == 0:
        raise Refusal(f"{x} has no elements")
    if is_open(x.shape) and x.rank > 1:
        raise Open(f"slices of {x} are compared each with each")
    order, fresh = _sorted(node, x) if x.rank == 1 else _sorted_rows(node, x, axis)
    positions = node.counting(length)
    found = chosen(node, fresh)
    assert found.part is not None
    count = found.part.count
    starts = node.reshape(found.with_part(None), (length,))
    last = node.do(R.equal, positions, node.do(R.subtract, count, node.const([1], "int64")))
    after = node.do(
        R.minimum, node.do(R.add, positions, node.const(1, "int64")), _whole(length - 1)
    )
    following = read(node, starts, after, 0)
    ends = node.do(R.where, last, _whole(length), following)
    counts = node.do(R.subtract, ends, starts)
    first = read(node, order, starts, 0)
    groups = node.own("halotile.cumsum", node.cast(fresh, "int64"), axis=0, exclusive=False, reverse=False)
    groups = node.do(R.subtract, groups, node.const([1], "int64"))
    inverse = read(node, groups, _order(node, order), 0)
    if not node.attr("sorted", 1):
        there = node.do(R.less, positions, count)
        place = _order(
            node, node.do(R.where, there, first, node.do(R.add, positions, _whole(length)))
        )
        first, counts = read(node, first, place, 0), read(node, counts, place, 0)
        inverse = read(node, _order(node, place), inverse, 0)
    values = read(node, x, first, axis)
    return [with_part(values, axis, count), with_part(first, 0, count), inverse, with_part(counts, 0, count)]


def _whole(number: SizeLike) -> OnnxValue:
    """A number or dim as a tensor."""
    return OnnxValue.of_contents(number, "int64")


def _all(vector: OnnxValue) -> int | None:
    """How many elements a vector has, to sort all of them; None where that is open."""
    return None if is_open(vector.shape) else int(vector.size)


def _order(node: OnnxNode, vector: OnnxValue) -> OnnxValue:
    """The positions that sort a vector, equal ones in their order."""
    return node.own_many("halotile.topk", vector, k=_all(vector), axis=0, largest=False)[1]


def _sorted(node: OnnxNode, x: OnnxValue) -> tuple[OnnxValue, OnnxValue]:
    """The order of a vector, and which of its elements in that order are not as the one before."""
    if x.dtype == "bool":
        x = node.cast(x, "int32")
    values, order = node.own_many("halotile.topk", x, k=_all(x), axis=0, largest=False)
    return order, _fresh(node, _differ(node, values, _before(node, values)))


def _sorted_rows(node: OnnxNode, x: OnnxValue, axis: int) -> tuple[OnnxValue, OnnxValue]:
    """The same of slices along an axis, compared element by element from the first that differs."""
    length = x.shape[axis]
    width = x.size // length
    if length * x.size > MOST_COMPARED:
        raise Refusal(f"{length} slices of {width} elements are too many to compare each with each")
    if x.dtype == "bool":
        x = node.cast(x, "int32")
    rows = node.transpose(x, [axis, *(a for a in range(x.rank) if a != axis)])
    rows = node.reshape(rows, (length, width))
    one, other = node.reshape(rows, (length, 1, width)), node.reshape(rows, (1, length, width))
    differ = node.cast(_differ(node, one, other), "int32")
    where = node.own("halotile.argmax", differ, axis=2, keepdims=True, last=False)
    less = node.do(R.less, one, other)
    if x.is_float:  # of two that differ, where the second is NaN, the first is less
        less = node.do(R.logical_or, less, nan(node, other))
    less = node.cast(less, "int32")
    less = node.reshape(node.own("halotile.gather_elements", less, where, axis=2), (length, length))
    same = node.do(R.equal, node.do(R.max, differ, axis=[2]), node.const(0, "int32"))
    earlier = node.const(np.tri(length, k=-1).T, "bool")  # row i before row j
    before = node.do(R.logical_or, node.cast(less, "bool"), node.do(R.logical_and, same, earlier))
    rank = node.do(R.sum, node.cast(before, "int64"), axis=[0])
    order = _order(node, rank)
    pairs = node.do(R.add, order, node.do(R.multiply, _before(node, order), node.const([length], "int64")))
    alike = read(node, node.reshape(node.cast(same, "int32"), (length * length,)), pairs, 0)
    return order, _fresh(node, node.do(R.equal, alike, node.const(0, "int32")))


def _differ(node: OnnxNode, one: OnnxValue, other: OnnxValue) -> OnnxValue:
    """Where two differ; NaN do not."""
    differ = node.do(R.not_equal, one, other)
    if not one.is_float:
        return differ
    both = node.do(R.logical_and, nan(node, one), nan(node, other))
    return node.do(R.logical_and, differ, node.do(R.logical_not, both))


def _before(node: OnnxNode, vector: OnnxValue) -> OnnxValue:
    """For each element the one before it; for the first itself."""
    before = node.do(R.subtract, node.counting(vector.size), node.const(1, "int64"))
    return read(node, vector, node.do(R.maximum, before, node.const(0, "int64")), 0)


def _fresh(node: OnnxNode, differs: OnnxValue) -> OnnxValue:
    """What differs from the one before it, and the first."""
    first = node.do(R.equal, node.counting(differs.size), node.const(0, "int64"))
    return node.do(R.logical_or, differs, first)
