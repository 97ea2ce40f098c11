"""Reading at computed positions, and the positions of largest and smallest elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from ....schedules.words.dims import Dim, Open, is_open
from ....schedules.words.refusal import Refusal
from ..everywhere import is_everywhere
from ..implied import require_at_least, require_equal, require_same
from ..node import OnnxNode, normal_axis
from ..parts import length, with_part
from ..positions import require_within
from ..registry import converts
from ..value import OnnxValue
from .movement import take
from .scatter import require_beside
from .walks import places

if TYPE_CHECKING:
    from ....schedules.words.size_like import SizeLike

R = relax.op


@converts("Gather")
def gather(node: OnnxNode) -> OnnxValue:
    """Negative indices count from the end; at run time an index outside the tensor reads the nearest element."""
    x, indices = node.need(0), node.need(1)
    axis = normal_axis(node.attr("axis", 0), x.rank)
    if indices.array is not None:
        known = indices.array.astype("int64")
        if isinstance(x.shape[axis], Dim):
            return _from_open_axis(node, x, known, axis)
        known = np.where(known < 0, known + x.shape[axis], known)
        if known.size and (known.min() < 0 or known.max() >= x.shape[axis]):
            raise Refusal(f"its indices reach outside axis {axis} of {x}")
        if known.ndim == 0:
            cut = node.slice(x, axis, int(known), int(known) + 1)
            return node.reshape(cut, x.shape[:axis] + x.shape[axis + 1 :])
        if known.ndim == 1:
            return take(node, x, known, axis)
        return node.do(R.take, x, node.const(known), axis=axis)
    if _is_last(indices, x.shape[axis]):
        return _from_open_axis(node, x, np.full(indices.shape, -1), axis)
    require_within(indices, x.shape[axis])
    return read(node, x, indices, axis)


def _is_last(indices: OnnxValue, length: SizeLike) -> bool:
    """Whether there is one index, which is the length less one. Of an axis of none it would be -1, outside as well."""
    known = indices.contents
    return known is not None and known.size == 1 and isinstance(length, Dim) and known.reshape(-1)[0] == length - 1


def read(node: OnnxNode, x: OnnxValue, indices: OnnxValue, axis: int) -> OnnxValue:
    return node.own("halotile.gather", x, indices, axis=axis)


def _from_open_axis(node: OnnxNode, x: OnnxValue, known: np.ndarray, axis: int) -> OnnxValue:
    """Known positions on an axis of open length, which must be long enough for them in every run."""
    length = x.shape[axis]
    least = max(int(known.max(initial=-1)) + 1, -int(known.min(initial=0)))
    require_at_least(length, least, f"axis {axis} of {x}")
    if known.size == 1:
        place = int(known.reshape(-1)[0])
        begin = place if place >= 0 else length + place
        cut = node.slice(x, axis, begin, begin + 1)
        return node.reshape(cut, x.shape[:axis] + known.shape + x.shape[axis + 1 :])
    if (known < 0).any():
        raise Open(f"positions from the end of axis {axis} of {x}")
    return node.do(R.take, x, node.const(known), axis=axis)


@converts("ArgMax", "ArgMin")
def arg_extreme(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    axis = normal_axis(node.attr("axis", 0), x.rank)
    require_at_least(x.shape[axis], 1, f"nothing of {x} along axis {axis} is there", "for one to be found")
    return node.own(
        f"halotile.{node.operator.lower()}",
        x,
        axis=axis,
        keepdims=bool(node.attr("keepdims", 1)),
        last=bool(node.attr("select_last_index", 0)),
    )


@converts("GatherElements", since=11)
def gather_elements(node: OnnxNode) -> OnnxValue:
    x, indices = node.need(0), node.need(1)
    axis = normal_axis(node.attr("axis", 0), x.rank)
    require_beside(indices, x, axis)
    return node.own("halotile.gather_elements", x, indices, axis=axis)


@converts("GatherND", since=11)
def gather_nd(node: OnnxNode) -> OnnxValue:
    x, indices, batch_dims = node.need(0), node.need(1), node.attr("batch_dims", 0)
    require_same(x.shape[:batch_dims], indices.shape[:batch_dims], f"the batch of {x} and of its positions {indices}")
    return node.own("halotile.gather_nd", x, indices, batch_dims=batch_dims)


@converts("Compress", since=9)
def compress(node: OnnxNode) -> OnnxValue:
    """What the condition is true for: as many as it has ones, or of run time, at most as many as there are."""
    x, condition = node.need(0), node.need(1)
    if "axis" not in node.attributes:
        x = node.reshape(x, (x.size,))
    axis = normal_axis(node.attr("axis", 0), x.rank)
    if condition.array is None:
        length = min(condition.size, x.shape[axis])
        positions = chosen(node, node.slice(node.reshape(condition, (condition.size,)), 0, 0, length))
        count = positions.part
        assert count is not None
        return with_part(read(node, x, node.reshape(positions.with_part(None), (length,)), axis), axis, count.count)
    index = np.flatnonzero(condition.array.reshape(-1)[: x.shape[axis]])
    if not index.size:
        return node.empty([0 if a == axis else d for a, d in enumerate(x.shape)], x.dtype)
    return take(node, x, index, axis)


@converts("TopK", since=1)
def top_k(node: OnnxNode) -> list[OnnxValue | None]:
    x = node.need(0)
    axis = normal_axis(node.attr("axis", -1), x.rank)
    counts = [node.attr("k")] if "k" in node.attributes else node.ints(1, "k")
    misfit = f"k {counts} does not fit axis {axis} of {x}"
    if not counts or (not is_open(counts) and counts[0] < 0):
        raise Refusal(misfit)
    if not is_open(counts):
        require_at_least(x.shape[axis], counts[0], misfit, why=f"TopK takes {counts[0]}")
    else:
        require_at_least(x.shape[axis] - counts[0], 0, misfit)
    largest = bool(node.attr("largest", 1))
    if counts[0] == 0:
        shape = [0 if a == axis else d for a, d in enumerate(x.shape)]
        return [node.empty(shape, x.dtype), node.empty(shape, "int64")]
    k = None if is_open(counts) else counts[0]
    results = node.own_many("halotile.topk", x, k=k, axis=axis, largest=largest)
    return [r if k is not None else node.slice(r, axis, 0, counts[0]) for r in results]


@converts("CumSum", "CumProd", since=11)
def cumulative(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    axes = node.ints(1, "its axis")
    axis = normal_axis(axes[0] if axes else 0, x.rank)

    def run(v: OnnxValue) -> OnnxValue:
        return node.own(
            f"halotile.{node.operator.lower()}",
            v,
            axis=axis,
            exclusive=bool(node.attr("exclusive", 0)),
            reverse=bool(node.attr("reverse", 0)),
        )

    return node.in_float32(run, x)


@converts("ReverseSequence", since=10)
def reverse_sequence(node: OnnxNode) -> OnnxValue:
    """The first sequence_lens[b] elements of every sequence b turned round, the rest left."""
    x, lengths = node.need(0), node.need(1)
    batch, time = node.attr("batch_axis", 1), node.attr("time_axis", 0)
    if lengths.rank == 1 and is_open((*lengths.shape, x.shape[batch])):
        require_equal(lengths.shape[0], x.shape[batch], f"its lengths {lengths} and the sequences of {x}")
    if batch == time or x.rank < 2 or lengths.shape != (x.shape[batch],):
        raise Refusal(f"its lengths {lengths} do not fit {x} with batch_axis {batch} and time_axis {time}")
    if lengths.array is not None and x.size <= 1 << 20:
        steps = np.arange(x.shape[time])
        known = lengths.array.reshape(-1, 1)
        at = np.where(steps < known, known - 1 - steps, steps)  # [batch, time]
        at = at.T if time < batch else at
        at = at.reshape([d if a in (batch, time) else 1 for a, d in enumerate(x.shape)])
        full = np.ascontiguousarray(np.broadcast_to(at, x.shape))
        return node.own("halotile.gather_elements", x, node.const(full), axis=time)
    return node.own("halotile.reverse_sequence", x, lengths, batch_axis=batch, time_axis=time)


@converts("NonZero", since=9)
def non_zero(node: OnnxNode) -> OnnxValue:
    """[rank, n]: of run time with room for all elements, of which the first n are there, or all if none is zero."""
    x = node.need(0)
    if x.array is None and is_everywhere(x):
        return places(node, x)
    return node.const(np.array(np.nonzero(x.array), "int64")) if x.array is not None else chosen(node, x)


def chosen(node: OnnxNode, x: OnnxValue) -> OnnxValue:
    """Where ``x`` is not zero; found once, so that all who ask have the same count. What repeats another tensor, as a
    mask that is expanded over channels does, has so many times its count."""
    if x.chosen is None:
        positions, count = node.own_many("halotile.nonzero", x)
        if x.repeats is not None:
            base, times = x.repeats
            count.told = np.array([length(chosen(node, base)) * times], object)
        x.chosen = with_part(positions, 1, count)
    return x.chosen


@converts("NonMaxSuppression", since=10)
def non_max_suppression(node: OnnxNode) -> OnnxValue:
    """Rows (batch, class, box) with room for as many as may be kept; boxes may be partly there (partial.py)."""
    boxes, scores = node.need(0), node.need(1)
    beside = (scores.shape[0], scores.shape[2], 4) if scores.rank == 3 else ()
    if boxes.rank != 3 or not beside or not is_open((*boxes.shape, *beside)) and boxes.shape != beside:
        raise Refusal(f"its boxes {boxes} do not fit its scores {scores}")
    require_same(boxes.shape, beside, f"its boxes {boxes} and its scores {scores}")
    known: list[float | None] = [0, 0.0, None]  # of what is not given
    operands = {} if boxes.part is None else {"n": boxes.part.count}
    for place, letter in enumerate("moa"):
        given = node[2 + place]
        if given is None or not given.size:
            continue
        if given.array is not None:
            known[place] = given.array.reshape(-1)[0].item()
        elif given.is_symbolic:
            raise Open("its limits depend on open dimensions")
        else:
            operands[letter] = node.reshape(given, (1,))
    most = None if "m" in operands else int(known[0] or 0)
    if boxes.shape[1] == 0 or (most is not None and most <= 0):
        return node.const(np.empty((0, 3), "int64"))
    selected, count, *_ = node.own_many(
        "halotile.non_max_suppression",
        boxes.with_part(None),
        scores.with_part(None),
        *operands.values(),
        names="".join(operands),
        most=most,
        overlap=float(known[1] or 0.0),
        above=known[2],
        centre=bool(node.attr("center_point_box", 0)),
    )
    return with_part(selected, 0, count)
