"""Operators whose sizes are only known at run time: their results have room for the most that these can be.

    Range(0, n, 1)               arange(room), of which n are there
    Slice(x, [i], [j])           x at i, i + 1, ..., of which min(j, n) - i are there
    Reshape(x, [n, -1])          x, when its own n elements lie along that axis

The sizes are numbers and lengths (lengths.py); only the bounds of Slice may be any integers of run time. One axis of a
result may have such a length; more are refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from ...schedules.words.dims import Dim, Open, bounds, floor_div, is_open, maximum, minimum, quotient
from ...schedules.words.refusal import Refusal
from .converters.movement import constant_pad, take
from .lengths import length_of, most_of, run_time
from .node import OnnxNode, normal_axes, normal_axis
from .parts import Rule, Write, filled, length, part_of, with_part
from .value import OnnxValue, unknown

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

R = relax.op


def rule(node: OnnxNode) -> Rule | None:
    """How to convert a node that has sizes, when some are only known at run time, or its first operand is there in
    part; None for any other."""
    places, write = _RULES.get(node.operator, ((), None)) if node.domain == "" else ((), None)
    x = node[0]
    part = write in _OF_PARTS and x is not None and x.part is not None
    return write if part or any(v is not None and v.contents is None for v in map(node.__getitem__, places)) else None


def _numbers(node: OnnxNode, index: int, what: str, attribute: str | None = None) -> list[SizeLike]:
    """The sizes in operand ``index`` or the attribute of older opsets: numbers and lengths."""
    if attribute is not None and attribute in node.attributes:
        return [int(v) for v in node.attr(attribute)]
    value = node.need(index)
    numbers = value.numbers
    if numbers is None:
        raise unknown(what, value)
    return [v if isinstance(v, Dim) else int(v) for v in numbers.reshape(-1)]


def _lengths(x: OnnxValue, room: bool = False) -> list[SizeLike]:
    """The shape as it is at run time; only with ``room`` may that of what is there in part be open."""
    if is_open(x.shape if not room or x.part is None else [d for a, d in enumerate(x.shape) if a != x.part.axis]):
        raise Open(f"dimensions of {x} are open, and others depend on the data")
    return [length(x) if x.part is not None and x.part.axis == a else d for a, d in enumerate(x.shape)]


def _length(x: OnnxValue, axis: int) -> SizeLike:
    """The length of one axis as it is at run time, whatever other axes are."""
    if is_open([x.shape[axis]]) or x.part is not None:
        return _lengths(x)[axis]
    return x.shape[axis]


def _one(node: OnnxNode, shape: Sequence[SizeLike]) -> int | None:
    """The axis whose length is known at run time only, if there is one."""
    found = [a for a, d in enumerate(shape) if isinstance(d, Dim)]
    if len(found) > 1:
        raise Refusal(f"{len(found)} axes of its result, [{', '.join(map(str, shape))}], depend on the data")
    return found[0] if found else None


def _sized(node: OnnxNode, value: OnnxValue, axis: int, dim: SizeLike) -> OnnxValue:
    return with_part(value.with_part(None), axis, run_time(node, dim)) if isinstance(dim, Dim) else value


# ---------------------------------------------------------------------- rules


def _reshape(node: OnnxNode, write: Write) -> list[OnnxValue]:
    """What is there keeps its order: rows stay where they are, or all of it is read again."""
    x, target = node.need(0), _numbers(node, 1, "its shape", "shape")
    lengths = _lengths(x, room=True)
    if not node.attr("allowzero", 0):
        target = [lengths[i] if not isinstance(d, Dim) and d == 0 else d for i, d in enumerate(target)]
    total = math.prod(lengths)
    left = [i for i, d in enumerate(target) if not isinstance(d, Dim) and d == -1]
    if left:
        rest = math.prod(d for i, d in enumerate(target) if i != left[0])
        exact = quotient(total, rest) if rest != 0 else 0
        target[left[0]] = floor_div(total, rest) if exact is None else exact
    if math.prod(target) != total:
        raise Refusal(f"{x} of {total} elements may or may not fit the shape [{', '.join(map(str, target))}]")
    return _reshaped(node, x, target)


def _flatten(node: OnnxNode, write: Write) -> list[OnnxValue]:
    x = node.need(0)
    lengths, axis = _lengths(x), node.attr("axis", 1)
    axis = axis if axis == x.rank else normal_axis(axis, x.rank)
    return _reshaped(node, x, [math.prod(lengths[:axis]), math.prod(lengths[axis:])])


def _reshaped(node: OnnxNode, x: OnnxValue, target: list[SizeLike]) -> list[OnnxValue]:
    """``x`` in a shape of as many elements as are there."""
    lengths = _lengths(x, room=True)
    axis = _one(node, target)
    if axis is not None and x.part is not None and is_open(x.shape):
        return [_open_rows(node, x, target, axis)]
    if axis is None or x.part is None:
        return [node.reshape(x, target)]
    at = x.part.axis
    before, after = math.prod(target[:axis]), math.prod(target[axis + 1 :])
    block, room = x.shape[at] * math.prod(x.shape[at + 1 :]), most_of(target[axis])
    shape = [room if a == axis else d for a, d in enumerate(target)]
    whole = x.with_part(None)
    if before == math.prod(x.shape[:at]) and block == room * after:
        return [_sized(node, node.reshape(whole, shape), axis, target[axis])]
    # Element f of what is there lies in block f // (elements of a block that are there).
    there = math.prod(lengths[at:])
    rows = node.do(
        R.multiply, node.reshape(node.counting(before), (before, 1)), run_time(node, target[axis] * after)
    )
    place = node.do(R.add, rows, node.counting(room * after))
    inside = node.do(R.maximum, run_time(node, there), node.scalar(1, rows))
    row = node.do(R.floor_divide, place, inside)
    place = node.do(R.subtract, place, node.do(R.multiply, row, node.do(R.subtract, inside, node.scalar(block, rows))))
    place = node.do(R.minimum, place, node.scalar(x.size - 1, rows))
    flat = node.own("halotile.gather", node.reshape(whole, (x.size,)), place, axis=0)
    return [_sized(node, node.reshape(flat, shape), axis, target[axis])]


def _open_rows(node: OnnxNode, x: OnnxValue, target: list[SizeLike], axis: int) -> OnnxValue:
    """``x``, of which there is room for an open number of rows, in a shape that leaves them where they are."""
    at = part_of(x).axis
    room = quotient(x.shape[at] * math.prod(x.shape[at + 1 :]), math.prod(target[axis + 1 :]))
    if math.prod(target[:axis]) != math.prod(x.shape[:at]) or room is None:
        raise Open(f"dimensions of {x} are open, and others depend on the data")
    shape = [room if a == axis else d for a, d in enumerate(target)]
    return _sized(node, node.reshape(x.with_part(None), shape), axis, target[axis])


def _stretched(node: OnnxNode, x: OnnxValue, target: list[SizeLike]) -> list[OnnxValue]:
    """Broadcast to a shape in which one length is of run time."""
    rank = max(x.rank, len(target))
    own: list[SizeLike] = [1] * (rank - x.rank) + _lengths(x)
    target = [1] * (rank - len(target)) + target
    shape: list[SizeLike] = []
    for d, wanted in zip(own, target):
        if not (d == wanted or d == 1 or wanted == 1):
            raise Refusal(f"{x} may or may not be as long as the shape [{', '.join(map(str, target))}]")
        shape.append(wanted if d == 1 else d)
    axis = _one(node, shape)
    kept = None if x.part is None else x.part.axis + rank - x.rank
    room = [d if a != axis else (x.shape[kept - rank] if kept == axis else most_of(d)) for a, d in enumerate(shape)]
    y = node.broadcast(x.with_part(None), room)
    return [y if axis is None else _sized(node, y, axis, shape[axis])]


def _expand(node: OnnxNode, write: Write) -> list[OnnxValue]:
    return _stretched(node, node.need(0), _numbers(node, 1, "its shape"))


def _constant_of_shape(node: OnnxNode, write: Write) -> list[OnnxValue]:
    given = node.attr("value")
    value = np.zeros((), "float32") if given is None else given.array.reshape(())
    return _stretched(node, node.const(value), _numbers(node, 0, "its shape"))


def _tile(node: OnnxNode, write: Write) -> list[OnnxValue]:
    """Repeats of run time where the tensor is one long; known ones elsewhere."""
    x, times = node.need(0), _numbers(node, 1, "its repeats")
    known = [1 if isinstance(t, Dim) else t for t in times]
    lengths = _lengths(x)
    if any(t != 1 and (isinstance(t, Dim) and d != 1 or isinstance(d, Dim)) for t, d in zip(times, lengths)):
        raise Refusal(f"it repeats {x} along a length that depends on the data")
    (tiled,) = write([x.with_part(None), node.const(known, "int64")])
    assert tiled is not None
    y = tiled.with_part(x.part)
    return _stretched(node, y, [t if isinstance(t, Dim) else d for t, d in zip(times, _lengths(y))])


def _range(node: OnnxNode, write: Write) -> list[OnnxValue]:
    if not node.need(0).is_integer:
        bounds = [node.need(i) for i in range(3)]
        raise unknown("a bound", next((b for b in bounds if not b.is_constant), bounds[0]))
    start, limit, step = (_numbers(node, i, "a bound")[0] for i in range(3))
    if isinstance(step, Dim) or step < 1:
        raise Refusal(f"a bound is computed at run time, and its step is {step}; that must be a positive constant")
    count = maximum(floor_div(limit - start + (step - 1), step), 0)
    room = most_of(count)
    counted = node.counting(room)
    places = node.cast(node.do(R.multiply, counted, node.scalar(step, counted)), node.need(0).dtype)
    if isinstance(start, Dim):
        places = node.do(R.add, places, node.cast(run_time(node, start), places.dtype))
    elif start:
        places = node.do(R.add, places, node.scalar(start, places))
    return [_sized(node, places, 0, count)]


def _slice(node: OnnxNode, write: Write) -> list[OnnxValue]:
    x = node.need(0)
    first, last = (_bounds(node, i, name) for i, name in ((1, "starts"), (2, "ends")))
    axes = node.ints(3, "its axes", "axes") or list(range(first.size))
    if x.part is not None and x.part.axis not in normal_axes(axes, x.rank) and first.is_constant and last.is_constant:
        return [r.with_part(x.part) for r in write([x.with_part(None), *node.inputs[1:]]) if r is not None]
    steps = node.ints(4, "its steps") or [1] * len(axes)
    for index, (axis, step) in enumerate(zip(normal_axes(axes, x.rank), steps)):
        x = _cut(node, x, axis, _bound(node, first, index), _bound(node, last, index), step)
    return [x]


def _bounds(node: OnnxNode, index: int, attribute: str) -> OnnxValue:
    return node.const(node.attr(attribute), "int64") if attribute in node.attributes else node.need(index)


def _bound(node: OnnxNode, bounds_: OnnxValue, index: int) -> SizeLike:
    """A number, a length, or a tensor (int64 [1])."""
    if bounds_.numbers is not None:
        number = bounds_.numbers.reshape(-1)[index]
        return number if isinstance(number, Dim) else int(number)
    vector = node.cast(node.reshape(bounds_, (bounds_.size,)), "int64")
    return node.slice(vector, 0, index, index + 1)


def _cut(node: OnnxNode, x: OnnxValue, axis: int, begin: SizeLike, end: SizeLike, step: int) -> OnnxValue:
    """``x[begin:end]`` along an axis; in steps only where the bounds are known."""
    room, total = x.shape[axis], _length(x, axis)
    first, last = _within(begin, total), _within(end, total)
    other = None if x.part is None or x.part.axis == axis else x.part
    if all(isinstance(v, int) for v in (begin, end, total)):
        if not step:
            raise Refusal("a step is zero")
        chosen = range(room)[max(begin, -room) if step < 0 else begin : end : step]
        if not chosen:
            return node.empty([0 if a == axis else d for a, d in enumerate(x.shape)], x.dtype)
        node.require_room(len(chosen), "its positions")
        return take(node, x.with_part(None), np.array(chosen), axis).with_part(x.part)
    if step != 1:
        raise Refusal(f"its bounds are known at run time only, and it goes in steps of {step}")
    low: OnnxValue | None
    if first is None or last is None:
        low, high = (_clamped(node, b, total) for b in (begin, end))
        count = node.do(R.maximum, node.do(R.subtract, high, low), node.const([0], "int64"))
        known = None
    else:
        known = maximum(last - first, 0)
        room, low = min(room, most_of(known)), None if first == 0 else run_time(node, first)
        count = run_time(node, known)
    if other is not None and not isinstance(known, int):
        raise Refusal("two axes of its result depend on the data")
    whole = x.with_part(None)
    if not room:
        return node.empty([0 if a == axis else d for a, d in enumerate(x.shape)], x.dtype)
    if low is None:
        y = node.slice(whole, axis, 0, room)
    else:
        place = node.do(R.add, low, node.counting(room))
        place = node.do(R.minimum, place, node.scalar(x.shape[axis] - 1, place))
        y = node.own("halotile.gather", whole, place, axis=axis)
    return y.with_part(other) if isinstance(known, int) else with_part(y, axis, count)


def _within(bound: OnnxValue | SizeLike, total: SizeLike) -> int | None:
    """A bound as a number or a Dim from the front; None where its sign is open or it is any tensor."""
    if isinstance(bound, OnnxValue):
        return None
    if not isinstance(bound, Dim) and bound >= 2**31 - 1:
        return total
    low, high = bounds(bound)
    if high < 0:
        return maximum(total + bound, 0)
    return minimum(bound, total) if low >= 0 else None


def _clamped(node: OnnxNode, bound: OnnxValue | SizeLike, total: SizeLike) -> OnnxValue:
    """The same at run time."""
    end, zero = run_time(node, total), node.const([0], "int64")
    value = bound if isinstance(bound, OnnxValue) else run_time(node, bound)
    below = node.do(R.less, value, zero)
    # a number near the end of 64 bits plus the length would go round
    value = node.do(R.where, below, node.do(R.add, node.do(R.minimum, value, zero), end), value)
    return node.do(R.maximum, node.do(R.minimum, value, end), zero)


def _pad(node: OnnxNode, write: Write) -> list[OnnxValue]:
    """Zeros (or what is to fill) behind what is there; up to a known length, as exported models pad to a batch."""
    x, pads = node.need(0), _numbers(node, 1, "its pads", "pads" if node.opset < 11 else None)
    fill = node.constant(2, "its fill value")
    axes = node.ints(3, "its axes")
    chosen = list(range(x.rank)) if axes is None else normal_axes(axes, x.rank)
    if node.attr("mode", "constant") != "constant" or x.part is None:
        raise Refusal("its pads are computed at run time; they must be constants")
    front, back = dict(zip(chosen, pads)), dict(zip(chosen, pads[len(chosen) :]))
    at = x.part.axis
    front, back = {at: 0, **front}, {at: 0, **back}
    if any(isinstance(p, Dim) or p < 0 for p in [*front.values(), *(p for a, p in back.items() if a != at)]):
        raise Refusal("its pads are computed at run time; they must be constants")
    number = node.attr("value", 0.0) if fill is None or not fill.size else fill.reshape(-1)[0].item()
    total = length(x) + back[at]
    room = most_of(total)
    y = node.slice(filled(node, x, number), at, 0, min(room, x.shape[at]))
    back[at] = room - y.shape[at]
    begin, end = ([side.get(a, 0) for a in range(x.rank)] for side in (front, back))
    padded = constant_pad(node, y, begin, end, number) if any(begin + end) else y
    return [_sized(node, padded, at, total + front[at])]


def _top_k(node: OnnxNode, write: Write) -> list[OnnxValue | None]:
    """As many as there is room for, of which the first k are asked for."""
    x, wanted = node.need(0), node.need(1)
    axis = normal_axis(node.attr("axis", -1), x.rank)
    if wanted.numbers is None:
        zero, all_of_it = node.const([0], "int64"), run_time(node, _lengths(x)[axis])
        given = node.do(R.maximum, node.cast(node.reshape(wanted, (1,)), "int64"), zero)
        count = length_of(node.do(R.minimum, given, all_of_it), x.shape[axis])
    else:
        (count,) = _numbers(node, 1, "k")
    room = min(most_of(count), x.shape[axis])
    if x.part is not None and x.part.axis != axis:
        raise Refusal("two axes of its result depend on the data")
    if x.part is not None:
        worst = -math.inf if node.attr("largest", 1) else math.inf
        x = filled(node, x, worst)
    results = write([x, node.const([room], "int64")])
    return [None if r is None else _sized(node, r, axis, count) for r in results]


_OF_PARTS = (_expand, _flatten, _pad, _reshape, _slice, _tile)
_RULES: dict[str, tuple[tuple[int, ...], Any]] = {
    "ConstantOfShape": ((0,), _constant_of_shape),
    "Expand": ((1,), _expand),
    "Pad": ((1,), _pad),
    "Range": ((0, 1, 2), _range),
    "Flatten": ((), _flatten),
    "Reshape": ((1,), _reshape),
    "Slice": ((1, 2), _slice),
    "Tile": ((1,), _tile),
    "TopK": ((1,), _top_k),
}
