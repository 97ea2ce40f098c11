"""Results of two branches whose condition is only known at run time: both are computed, and one is taken."""

from __future__ import annotations

from tvm import relax

from ...schedules.words.dims import is_open
from .node import Node
from .parts import with_part
from .value import Value

R = relax.op


def either(node: Node, condition: Value, a: Value, b: Value) -> Value | None:
    """``a`` where the condition (of run time) is true, else ``b``; None for two that differ in more than one length.

    If(c) then int64[0] else int64[n of 64]     becomes     int64[c ? 0 : n of 64]
    """
    if a.dtype != b.dtype or a.rank != b.rank:
        return None
    if a.shape == b.shape and a.part is None and b.part is None:
        return node.do(R.where, condition, a, b)
    if is_open((*a.shape, *b.shape)):
        return None
    parts = [v.part for v in (a, b) if v.part is not None]
    axes = {i for i in range(a.rank) if a.shape[i] != b.shape[i]} | {p.axis for p in parts}
    if len(axes) > 1:
        return None
    (axis,) = axes
    room = max(a.shape[axis], b.shape[axis])
    counts = [v.part.count if v.part is not None else node.const([v.shape[axis]], "int64") for v in (a, b)]
    one, other = (_with_room(node, v.with_part(None), axis, room) for v in (a, b))
    count = counts[0] if counts[0] is counts[1] else node.do(R.where, condition, *counts)
    return with_part(node.do(R.where, condition, one, other), axis, count)


def _with_room(node: Node, value: Value, axis: int, room: int) -> Value:
    shape = [room - value.shape[axis] if i == axis else d for i, d in enumerate(value.shape)]
    if not shape[axis]:
        return value
    zeros = node.broadcast(node.scalar(0, value), shape)
    return node.do(R.concat, [value, zeros], axis=axis) if value.shape[axis] else zeros
