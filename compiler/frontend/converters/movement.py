"""Moving data without changing it: reshape, transpose, slice, join, pad, tile."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from ....schedules.operators.movement import MOST_PARTS
from ....schedules.words.cases import settled
from ....schedules.words.dims import Dim, Open, Size, bounds, floor_div, is_open, maximum, minimum, quotient
from ....schedules.words.refusal import Refusal
from ..implied import broadcast, equal, learn_at_least, learn_at_most, require_at_least, require_equal
from ..node import OnnxNode, normal_axes, normal_axis
from ..registry import converts
from ..value import OnnxValue
from .walks import walked_back

if TYPE_CHECKING:
    from ....schedules.words.size_like import SizeLike

R = relax.op
GROUP = 16  # tensors joined first where there are too many for one kernel


@converts("Identity")
def identity(node: OnnxNode) -> OnnxValue:
    return node.need(0)


@converts("Reshape")
def reshape(node: OnnxNode) -> OnnxValue:
    """0 copies the dimension (unless allowzero), -1 takes what is left."""
    x = node.need(0)
    target = node.ints(1, "its shape", "shape")
    if target is None:
        raise Refusal("it has no shape")
    if not node.attr("allowzero", 0):
        if any(d == 0 and i >= x.rank for i, d in enumerate(target)):
            raise Refusal(f"shape {target} copies a dimension that {x} does not have")
        target = [x.shape[i] if d == 0 else d for i, d in enumerate(target)]
    if target.count(-1) == 1:
        rest = math.prod(d for d in target if d != -1)
        shares = quotient(x.size, rest) if isinstance(rest, Dim) else None
        if isinstance(rest, Dim) and shares is None:
            require_at_least(rest, 1, "what is left", "by which is divided")
        if shares is not None:  # without the dims that both have, one of which may be zero
            target[target.index(-1)] = floor_div(shares, 1)
        else:
            target[target.index(-1)] = 0 if rest == 0 else x.size // rest
    if is_open([*target, *x.shape]):
        if x.size == 0 or 0 in target:
            raise Open(f"{x} has no elements to be reshaped to {target}")
        for d in target:
            require_at_least(d, 0, f"a length of {x} reshaped to [{', '.join(map(str, target))}]")
        require_equal(math.prod(target), x.size, f"the elements of {x} reshaped to [{', '.join(map(str, target))}]")
    elif any(d < 0 for d in target) or math.prod(target) != x.size:
        raise Refusal(f"{x} can't be reshaped to {target}")
    return node.reshape(x, target)


@converts("Flatten")
def flatten(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    axis = node.attr("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    if not 0 <= axis <= x.rank:
        raise Refusal(f"axis {node.attr('axis')} is outside a tensor of rank {x.rank}")
    return node.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@converts("Transpose")
def transpose(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    order = node.attr("perm", list(range(x.rank))[::-1])
    if sorted(order) != list(range(x.rank)):
        raise Refusal(f"its perm {list(order)} is no order of the axes of {x}")
    return node.transpose(x, order)


@converts("Concat")
def concat(node: OnnxNode) -> OnnxValue:
    values = [node.need(i) for i in range(len(node.inputs))]
    axis = normal_axis(node.attr("axis", 1), values[0].rank)
    return concatenated(node, values, axis)


def concatenated(node: OnnxNode, values: list[OnnxValue], axis: int) -> OnnxValue:
    first = values[0].shape
    for v in values:
        if v.rank == len(first) and is_open([*first, *v.shape]):
            for i in range(v.rank):
                if i != axis:
                    require_equal(first[i], v.shape[i], f"axis {i} of {values[0]} and {v}")
        if v.rank != len(first) or any(not equal(d, e) for i, (d, e) in enumerate(zip(v.shape, first)) if i != axis):
            raise Refusal(f"{v} can't be joined to {values[0]} along axis {axis}")
    full = [v for v in values if v.size != 0]
    if not full:
        shape = [sum(v.shape[axis] for v in values) if i == axis else d for i, d in enumerate(first)]
        return node.empty(shape, values[0].dtype)
    if len(full) == 1:
        return full[0]
    if is_open(d for v in full for d in v.shape):
        shape = [sum(v.shape[axis] for v in full) if i == axis else d for i, d in enumerate(full[0].shape)]
        return node.shaped(shape, partial(R.concat, axis=axis), full)
    while len(full) > MOST_PARTS:  # in groups, which lie in place where they can
        groups = [full[i : i + GROUP] for i in range(0, len(full), GROUP)]
        full = [g[0] if len(g) == 1 else node.do(R.concat, g, axis=axis) for g in groups]
    return node.do(R.concat, full, axis=axis)


@converts("Split")
def split(node: OnnxNode) -> list[OnnxValue | None]:
    """One strided slice for each piece; the sizes are given, or num_outputs (the last may be shorter), or equal."""
    x = node.need(0)
    axis = normal_axis(node.attr("axis", 0), x.rank)
    length, count = x.shape[axis], len(node.outputs)
    sizes = node.ints(1, "its split", "split")
    if sizes is None:
        pieces = node.attr("num_outputs", count)
        chunk = -(-length // pieces)
        sizes = [maximum(minimum(chunk, length - i * chunk), 0) for i in range(pieces)]
    total = settled(sum(sizes))
    if is_open([*sizes, length]):
        require_equal(total, length, f"axis {axis} of {x} and its pieces")
    if total != length or len(sizes) < count:
        raise Refusal(f"pieces {sizes} do not make up axis {axis} of {x} in {count} outputs")
    results: list[OnnxValue | None] = []
    start = 0
    for index in range(count):
        end = start + sizes[index]
        if not node.wants(index):
            results.append(None)
        elif start == end:
            results.append(
                node.empty([0 if a == axis else d for a, d in enumerate(x.shape)], x.dtype)
            )
        else:
            results.append(node.slice(x, axis, start, end))
        start = end
    return results


@converts("Slice")
def slice_(node: OnnxNode) -> OnnxValue:
    """Bounds are clamped as ONNX says; negative steps walk backwards."""
    x = node.need(0)
    starts, ends = node.ints(1, "its starts", "starts"), node.ints(2, "its ends", "ends")
    if starts is None or ends is None or len(starts) != len(ends):
        raise Refusal(f"its starts {starts} and ends {ends} do not belong together")
    axes = node.ints(3, "its axes", "axes")
    steps = node.ints(4, "its steps") or [1] * len(starts)
    axes = normal_axes(axes, x.rank) if axes is not None else list(range(len(starts)))
    if any(isinstance(x.shape[a], Dim) for a in axes) or is_open([*starts, *ends]):
        return _open_slice(node, x, starts, ends, axes, steps)
    begin, step = [0] * x.rank, [1] * x.rank
    shape = list(x.shape)
    for axis, start, end, stride in zip(axes, starts, ends, steps):
        if stride == 0:
            raise Refusal("a step is zero")
        first = max(start, -x.shape[axis]) if stride < 0 else start  # walks back from an element, where Python has none
        chosen = range(*slice(first, end, stride).indices(x.shape[axis]))
        begin[axis], step[axis], shape[axis] = (chosen[0] if len(chosen) else 0), stride, len(chosen)
    if 0 in shape:
        return node.empty(shape, x.dtype)
    if tuple(shape) == x.shape and all(s == 1 for s in step):
        return x
    if all(s > 0 for s in step):
        moved = [a for a in range(x.rank) if begin[a] or step[a] != 1 or shape[a] != x.shape[a]]
        stop = [begin[a] + (shape[a] - 1) * step[a] + 1 for a in moved]
        return node.do(R.strided_slice, x, moved, [begin[a] for a in moved], stop, [step[a] for a in moved])
    if is_open(shape):
        for axis in [a for a in range(x.rank) if begin[a] or step[a] != 1]:
            x = take(node, x, begin[axis] + step[axis] * np.arange(shape[axis]), axis)
        return x
    return node.own("halotile.slice", x, begin=begin, step=step, shape=shape)


def _open_slice(
    node: OnnxNode, x: OnnxValue, starts: list[SizeLike], ends: list[SizeLike], axes: list[int], steps: list[int]
) -> OnnxValue:
    """The same where a length or a bound is open: it must be clear where bounds lie."""
    for axis, start, end, stride in zip(axes, starts, ends, steps):
        if isinstance(stride, Dim) or stride == 0:
            raise Open(f"its step along axis {axis} is {stride}; it must be known, and not zero")
        if stride < 0:
            x = walked_back(node, x, axis, start, end, stride)
    starts, ends, axes, steps = ([v[k] for k, s in enumerate(steps) if s > 0] for v in (starts, ends, axes, steps))
    shape = list(x.shape)
    first, last = [], []
    for axis, start, end, stride in zip(axes, starts, ends, steps):
        length = x.shape[axis]
        begin, stop = _within(start, length), _within(end, length)
        front = start if bounds(start)[0] >= 0 else begin  # one behind the end leaves nothing either
        shape[axis] = maximum(stop - front + (stride - 1), 0) // stride
        if (begin, stop) != (0, length) and isinstance(length, Dim):
            last_one = 2**31 - 1 if stop == length else end
            begin, stop = _simple(start, last_one, begin, begin + stride * shape[axis])
        first.append(begin)
        last.append(stop)
    moved = [k for k, a in enumerate(axes) if (first[k], last[k], steps[k]) != (0, x.shape[a], 1)]
    if not moved:
        return x
    axes, first, last, steps = ([v[k] for k in moved] for v in (axes, first, last, steps))
    return node.cut(x, shape, axes, first, last, steps)


def _simple(start: SizeLike, end: SizeLike, begin: SizeLike, stop: Dim) -> tuple[Size, Size]:
    """Bounds on an open axis as the model's own numbers, where the end does not lie before the beginning of a short
    one; else what they come to."""
    if not isinstance(start, Dim) and start >= 0:
        begin = start
    ordered = not isinstance(begin, Dim) and not isinstance(end, Dim) and (begin == 0 or end >= begin)
    return begin, min(end, 2**31 - 1) if ordered else stop


def _within(bound: SizeLike, length: SizeLike) -> SizeLike:
    """A bound as ONNX reads it: from the end when negative, and never outside of the axis."""
    if not isinstance(bound, Dim) and bound >= 2**31 - 1:
        return length
    if not isinstance(bound, Dim) and bound < 0 or isinstance(bound, Dim) and bounds(bound)[1] < 0:
        if bound == -1 and isinstance(length, Dim):  # more than one from the end may well mean: as many as there are
            require_at_least(length, 1, "a slice up to the last element", "to have a last element")
        return maximum(length + bound, 0)
    if isinstance(bound, Dim) and bounds(bound)[0] < 0:
        if bounds(bound)[1] <= 0:
            learn_at_least(-bound, 1, "since the bound of a slice counts from the end, which zero would not")
        learn_at_least(bound, 0, "below which the bound of a slice would count from the end")
        learn_at_most(-bound, 0, "beyond which the bound of a slice would count from the end")
        raise Open(f"a bound is {bound}, which may or may not be negative")
    return minimum(bound, length)


@converts("Pad")
def pad(node: OnnxNode) -> OnnxValue:
    """Negative pads cut; reflect leaves the border out, edge repeats it, wrap goes round."""
    x = node.need(0)
    pads = node.ints(1, "its pads", "pads" if node.opset < 11 else None)
    if pads is None and "paddings" in node.attributes:
        pads = [int(p) for p in node.attr("paddings")]
    if pads is None:
        raise Refusal("it has no pads")
    axes = node.ints(3, "its axes")
    chosen = list(range(x.rank)) if axes is None else normal_axes(axes, x.rank)
    if len(pads) != 2 * len(chosen):
        raise Refusal(f"pads {pads} do not fit {len(chosen)} axes")
    begin, end = [0] * x.rank, [0] * x.rank
    for i, axis in enumerate(chosen):
        begin[axis], end[axis] = pads[i], pads[i + len(chosen)]
    mode = node.attr("mode", "constant")
    for axis in range(x.rank):
        low, high = maximum(-begin[axis], 0), x.shape[axis] - maximum(-end[axis], 0)
        if low != 0 or high != x.shape[axis]:
            require_at_least(high - low, 1, f"pads {pads} leave nothing of {x}", "for its pads to leave something")
            x = node.slice(x, axis, low, high)
    return _padded(node, x, [maximum(b, 0) for b in begin], [maximum(e, 0) for e in end], mode)


def _padded(node: OnnxNode, x: OnnxValue, begin: list[SizeLike], end: list[SizeLike], mode: str) -> OnnxValue:
    if all(p == 0 for p in begin + end):
        return x
    if mode == "constant":
        value = node[2]
        if value is not None and value.array is None:
            return filled_round(node, x, begin, end, node.reshape(value, ()))
        fill = node.attr("value", 0.0) if value is None or value.array is None else value.array.reshape(-1)[0].item()
        if is_open(begin + end):
            return filled_round(node, x, begin, end, node.scalar(fill, x))
        return constant_pad(node, x, begin, end, fill)
    if mode not in ("edge", "reflect", "wrap"):
        raise Refusal(f"mode '{mode}' does not exist")
    for length, before, behind in zip(x.shape, begin, end):
        _require_source(x, length, [n for n in (before, behind) if n != 0], mode)
    open_ = [is_open([d]) and not is_open([b, e]) and b + e != 0 for d, b, e in zip(x.shape, begin, end)]
    if any(open_):
        sides = ([int(n) if o else 0 for n, o in zip(side, open_)] for side in (begin, end))
        x = node.own("halotile.mirror", x, **dict(zip(("begin", "end"), sides)), mode=mode)
    for axis in range(x.rank):
        around = (begin[axis], end[axis])
        if open_[axis]:
            continue
        if is_open([x.shape[axis], *around]) and around != (0, 0):
            x = _mirrored(node, x, axis, *around, mode)
        elif any(around):
            node.require_room(x.shape[axis] + sum(around), f"where its mode {mode} reads")
            index = np.pad(np.arange(x.shape[axis]), around, mode)  # type: ignore[call-overload]
            x = take(node, x, index, axis)
    return x


def _require_source(x: OnnxValue, length: SizeLike, around: list[SizeLike], mode: str) -> None:
    """The least that an axis must be where pads read it: one element, or, if it is open and mirrored, one more than a
    pad has; of fixed ones the mirrored rows are mirrored again."""
    if not around:
        return
    empty = f"nothing of {x} is there for mode '{mode}' to repeat"
    require_at_least(length, 1, empty, "of which its pads repeat elements")
    if mode == "reflect" and is_open([length, *around]):
        for n in around:
            longer = f"pads of {n} in mode '{mode}' need more than {n} of {length}"
            require_at_least(length - n, 1, longer, f"since pads of {n} mirror more elements than that")


def constant_pad(node: OnnxNode, x: OnnxValue, begin: list[int], end: list[int], fill: float | int | bool) -> OnnxValue:
    if x.is_float and abs(float(fill)) != math.inf and float(fill) == float(fill):
        width = [p for pair in zip(begin, end) for p in pair]
        return node.do(R.nn.pad, x, pad_width=width, pad_mode="constant", pad_value=float(fill))
    return node.own("halotile.pad", x, node.scalar(fill, x), begin=begin, end=end)


def _mirrored(node: OnnxNode, x: OnnxValue, axis: int, begin: SizeLike, end: SizeLike, mode: str) -> OnnxValue:
    """Pads by open widths: positions i of n become n - 1 - |n - 1 - |i||, or are clamped for ``edge``."""
    length = x.shape[axis]
    if mode == "wrap":
        raise Open(f"mode '{mode}' along an open dimension of {x}")

    def count(first: SizeLike, stop: Dim) -> OnnxValue:
        return node.do(R.arange, first, stop, 1, dtype="int64")

    place, last = count(-begin, length + end), count(length - 1, length)
    if mode == "edge":
        place = node.do(R.minimum, node.do(R.maximum, place, node.scalar(0, place)), last)
    else:
        place = node.do(R.subtract, last, node.do(R.abs, node.do(R.subtract, last, node.do(R.abs, place))))
    return node.do(R.take, x, place, axis=axis)


def filled_round(
    node: OnnxNode, x: OnnxValue, begin: list[SizeLike], end: list[SizeLike], fill: OnnxValue
) -> OnnxValue:
    """Pads whose widths follow from open dimensions (a map as large as the one beside it), or whose ``fill`` (rank 0)
    is known at run time only: joined with filled parts."""
    for axis in range(x.rank):
        parts = [x]
        for first, width in ((True, begin[axis]), (False, end[axis])):
            if width != 0:
                shape = [width if a == axis else d for a, d in enumerate(x.shape)]
                part = node.broadcast(fill, shape)
                parts = [part, *parts] if first else [*parts, part]
        if len(parts) > 1:
            length = begin[axis] + x.shape[axis] + end[axis]
            x = node.shaped([length if a == axis else d for a, d in enumerate(x.shape)], R.concat, parts, axis)
    return x


def take(node: OnnxNode, x: OnnxValue, index: np.ndarray, axis: int) -> OnnxValue:
    """x at known positions along one axis; runs of them become slices, which need no table."""
    index = np.asarray(index, "int64")
    if isinstance(x.shape[axis], Dim):
        if index.size != 1:
            return node.do(R.take, x, node.const(index), axis=axis)
        require_at_least(x.shape[axis], int(index[0]) + 1, f"axis {axis} of {x}")
    steps = np.diff(index)
    if index.size and index.min() >= 0 and (index.size == 1 or (steps == steps[0]).all() and steps[0] != 0):
        step = int(steps[0]) if index.size > 1 else 1
        if step > 0:
            if index.size == x.shape[axis] and step == 1:
                return x
            return node.do(R.strided_slice, x, [axis], [int(index[0])], [int(index[-1]) + 1], [step])
        if is_open(x.shape):
            return node.do(R.take, x, node.const(index), axis=axis)
        begin = [int(index[0]) if a == axis else 0 for a in range(x.rank)]
        shape = [index.size if a == axis else d for a, d in enumerate(x.shape)]
        return node.own(
            "halotile.slice",
            x,
            begin=begin,
            step=[step if a == axis else 1 for a in range(x.rank)],
            shape=shape,
        )
    return node.do(R.take, x, node.const(index), axis=axis)


@converts("Tile", since=6)
def tile(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    repeats = node.ints(1, "its repeats")
    if repeats is None or len(repeats) != x.rank:
        raise Refusal(f"repeats {repeats} do not fit {x}")
    if not is_open(repeats) and any(r < 0 for r in repeats):
        raise Refusal(f"repeats {repeats} are negative")
    if all(r == 1 for r in repeats):
        return x
    if 0 in repeats:
        return node.empty([d * r for d, r in zip(x.shape, repeats)], x.dtype)
    if is_open(repeats) and not all(r == 1 or d == 1 for r, d in zip(repeats, x.shape)):
        pairs = list(zip(repeats, x.shape))
        column = node.reshape(x, [d for _, length in pairs for d in (1, length)])
        return node.reshape(node.broadcast(column, [d for p in pairs for d in p]), [r * d for r, d in pairs])
    if all(r == 1 or d == 1 for r, d in zip(repeats, x.shape)):
        return node.broadcast(x, [r * d for r, d in zip(repeats, x.shape)])
    return node.do(R.tile, x, repeats=repeats)


@converts("Expand", since=8)
def expand(node: OnnxNode) -> OnnxValue:
    """Two-way broadcasting: a one in the shape keeps the tensor's own dimension."""
    x = node.need(0)
    shape = node.ints(1, "its shape") or []
    try:
        target = broadcast(x.shape, tuple(shape))
    except Open:
        raise
    except Refusal:
        raise Refusal(f"{x} can't be expanded to {shape}") from None
    return node.broadcast(x, target)


@converts("DepthToSpace")
def depth_to_space(node: OnnxNode) -> OnnxValue:
    """DCR takes the block from the outer part of the channels, CRD from the inner."""
    x, b = node.need(0), node.attr("blocksize")
    n, c, h, w = x.shape
    if not is_open([c]) and c % (b * b):
        raise Refusal(f"{x} does not have a multiple of {b * b} channels")
    require_equal(c, c // (b * b) * (b * b), f"the {b * b} parts of the channels of {x}")
    if node.attr("mode", "DCR") == "DCR":
        split_, order = (n, b, b, c // (b * b), h, w), [0, 3, 4, 1, 5, 2]
    else:
        split_, order = (n, c // (b * b), b, b, h, w), [0, 1, 4, 2, 5, 3]
    x = node.transpose(node.reshape(x, split_), order)
    return node.reshape(x, (n, c // (b * b), h * b, w * b))


@converts("SpaceToDepth")
def space_to_depth(node: OnnxNode) -> OnnxValue:
    """The inverse of DepthToSpace, in the same two orders (CRD since opset 28)."""
    x, b = node.need(0), node.attr("blocksize")
    n, c, h, w = x.shape
    if any(d % b for d in (h, w) if not is_open([d])):
        raise Refusal(f"the blocks of {b} do not divide {x}")
    for d in (h, w):
        require_equal(d, d // b * b, f"the blocks of {b} that divide {x}")
    order = [0, 3, 5, 1, 2, 4] if node.attr("mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
    x = node.transpose(node.reshape(x, (n, c, h // b, b, w // b, b)), order)
    return node.reshape(x, (n, c * b * b, h // b, w // b))
