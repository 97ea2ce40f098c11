"""Operands that are there in part (partial.py): which they are, how much of them counts, what fills the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from ...schedules.words.dims import Dim, is_open
from ...schedules.words.refusal import Refusal
from .lengths import length_of
from .node import OnnxNode, normal_axis
from .value import FilledPart, OnnxValue

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

R = relax.op
Write = Callable[[Sequence["OnnxValue | None"]], "Sequence[OnnxValue | None]"]
Rule = Callable[[OnnxNode, Write], "Sequence[OnnxValue | None]"]


def is_partial(value: object) -> bool:
    return isinstance(value, OnnxValue) and value.part is not None


def with_part(value: OnnxValue, axis: int, count: OnnxValue) -> OnnxValue:
    """The same tensor, of which ``count`` (int64 [1]) positions along ``axis`` are there."""
    length_of(count, value.shape[axis])
    return value.with_part(FilledPart(axis, count))


def length(value: OnnxValue) -> Dim:
    """How many positions are there, as a length of run time (lengths.py)."""
    part = part_of(value)
    return length_of(part.count, value.shape[part.axis])


def zeroed(node: OnnxNode, value: OnnxValue) -> OnnxValue:
    """The whole tensor, zero where nothing is."""
    return filled(node, value, 0) if value.part is not None else value


def told(node: OnnxNode) -> str:
    value = next(v for v in node.inputs if v is not None and v.part is not None)
    assert value.part is not None
    return f"the length of axis {value.part.axis} of its operand {value} depends on the data"


def part_of(value: OnnxValue | None) -> FilledPart:
    assert value is not None and value.part is not None
    return value.part


def untagged(values: Sequence[OnnxValue | None]) -> list[OnnxValue | None]:
    return [None if v is None else v.with_part(None) for v in values]


def partial_operands(node: OnnxNode) -> list[int]:
    return [i for i, v in enumerate(node.inputs) if v is not None and v.part is not None]


def count_of(node: OnnxNode) -> OnnxValue:
    """The count of all operands that have one; refuses different ones."""
    values = [node.need(i) for i in partial_operands(node)]
    if any(length(v) != length(values[0]) for v in values):
        raise Refusal("its operands have lengths that depend on the data in different ways")
    return part_of(values[0]).count


def only(node: OnnxNode, *places: int) -> None:
    if not set(partial_operands(node)) <= set(places):
        raise Refusal(f"{told(node)}, which it does not take there")


def tagged(results: Sequence[OnnxValue | None], axis: int, count: OnnxValue) -> list[OnnxValue | None]:
    return [None if r is None else with_part(r, axis, count) for r in results]


def there(node: OnnxNode, value: OnnxValue) -> OnnxValue:
    """Which positions along the axis count, to broadcast over the tensor."""
    part = part_of(value)
    shape = [value.shape[part.axis] if a == part.axis else 1 for a in range(value.rank)]
    places = node.reshape(node.counting(shape[part.axis]), shape)
    return node.do(R.less, places, node.reshape(part.count, [1] * value.rank))


def filled(node: OnnxNode, value: OnnxValue, neutral: float) -> OnnxValue:
    """The whole tensor with ``neutral`` where nothing is; an infinity is the type's extreme."""
    if math.isinf(neutral) and not value.is_float:
        limits = np.iinfo(value.dtype)
        neutral = limits.min if neutral < 0 else limits.max
    return node.do(R.where, there(node, value), value.with_part(None), node.scalar(neutral, value))


def in_one_room(node: OnnxNode, values: Sequence[OnnxValue | None]) -> list[OnnxValue | None]:
    """``values``, where those that are partly there, which are equally long, have the least room that one of them
    has."""
    rooms = [v.shape[v.part.axis] for v in values if v is not None and v.part is not None]
    return [v if v is None or v.part is None else _with_room(node, v, min(rooms)) for v in values]


def _with_room(node: OnnxNode, value: OnnxValue, room: int) -> OnnxValue:
    part = part_of(value)
    return with_part(node.slice(value.with_part(None), part.axis, 0, room), part.axis, part.count)


def held(node: OnnxNode, value: OnnxValue, axis: int, room: SizeLike) -> list[OnnxValue]:
    """A tensor that is as long as ``room`` along the axis, or cut to that, and how much of it is there (int64 [1])."""
    whole = value.with_part(None)
    have = whole.shape[axis]
    count = value.part.count if value.part is not None else counted(node, have)
    if have != room and (not isinstance(have - room, Dim)) and have > room:
        whole = node.slice(whole, axis, 0, room)
    elif have != room:
        gap = [room - have if i == axis else d for i, d in enumerate(whole.shape)]
        zeros = node.broadcast(node.scalar(0, whole), gap)
        whole = zeros if have == 0 else node.do(R.concat, [whole, zeros], axis=axis)
    return [whole, count]


def counted(node: OnnxNode, dim: SizeLike) -> OnnxValue:
    """A dim as a tensor (int64 [1])."""
    return OnnxValue.of_contents(np.array([dim], object), "int64") if is_open([dim]) else node.const([dim], "int64")


def from_front(node: OnnxNode, value: OnnxValue, axis: int) -> OnnxValue:
    """The tensor with its first axis, that of the rounds, at ``axis``."""
    axis = normal_axis(axis, value.rank)
    order = [*range(1, axis + 1), 0, *range(axis + 1, value.rank)]
    moved = node.transpose(value.with_part(None), order)
    return moved if value.part is None else with_part(moved, axis, value.part.count)


def wrapped(
    node: OnnxNode, indices: OnnxValue, part: FilledPart, length: int, columns: np.ndarray | None = None
) -> OnnxValue:
    """Positions from the end of what is there, for a kernel that counts them from the end of the room."""
    left = node.cast(node.do(R.subtract, part.count, node.scalar(length, part.count)), indices.dtype)
    if columns is not None:
        left = node.do(R.multiply, left, node.const(columns.astype(indices.dtype)))
    moved = node.do(R.add, indices, left)
    return node.do(R.where, node.do(R.less, indices, node.scalar(0, indices)), moved, indices)


def positions_in(node: OnnxNode, x: OnnxValue, indices: OnnxValue, axis: int) -> OnnxValue:
    """Positions along the axis of which ``x`` has a part, for a kernel that sees all of its room."""
    if indices.is_constant and not node.guarded:
        raise Refusal(f"{told(node)}, and may be shorter than the positions that it reads")
    if indices.array is None or (indices.array < 0).any():
        return wrapped(node, indices.with_part(None), part_of(x), x.shape[axis])
    # behind a condition, which sees to it that they are there
    return node.const(np.minimum(indices.array, x.shape[axis] - 1))


def row_by_row(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    """What works on each row of its first operand by itself."""
    only(node, 0)
    if part_of(node[0]).axis != 0:
        raise Refusal(f"{told(node)}, and it does not work row by row along it")
    return tagged(write(untagged(node.inputs)), 0, count_of(node))
