"""Reading at computed positions, and the positions of largest and smallest elements."""

from __future__ import annotations

import numpy as np
from tvm import relax

from ..dims import Dim, Open
from ..implied import require_at_least
from ..node import Node, normal_axis
from ..registry import Refusal, converts
from ..value import Value
from .movement import take

R = relax.op


@converts("Gather")
def gather(node: Node) -> Value:
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
    return node.own("halotile.gather", x, indices, axis=axis)


def _from_open_axis(node: Node, x: Value, known: np.ndarray, axis: int) -> Value:
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
def arg_extreme(node: Node) -> Value:
    x = node.need(0)
    axis = normal_axis(node.attr("axis", 0), x.rank)
    return node.own(
        f"halotile.{node.operator.lower()}",
        x,
        axis=axis,
        keepdims=bool(node.attr("keepdims", 1)),
        last=bool(node.attr("select_last_index", 0)),
    )


@converts("GatherElements", since=11)
def gather_elements(node: Node) -> Value:
    x, indices = node.need(0), node.need(1)
    axis = normal_axis(node.attr("axis", 0), x.rank)
    return node.own("halotile.gather_elements", x, indices, axis=axis)


@converts("GatherND", since=11)
def gather_nd(node: Node) -> Value:
    return node.own("halotile.gather_nd", node.need(0), node.need(1), batch_dims=node.attr("batch_dims", 0))


@converts("Compress", since=9)
def compress(node: Node) -> Value:
    """Only with a known condition, since its result is as long as the condition has ones."""
    x = node.need(0)
    condition = node.constant(1, "its condition (and so the shape of its output)")
    if condition is None:
        raise Refusal("it has no condition")
    if "axis" not in node.attributes:
        x = node.reshape(x, (x.size,))
    axis = normal_axis(node.attr("axis", 0), x.rank)
    index = np.flatnonzero(condition.reshape(-1)[: x.shape[axis]])
    if not index.size:
        return node.const(np.empty([0 if a == axis else d for a, d in enumerate(x.shape)], x.dtype))
    return take(node, x, index, axis)


@converts("TopK", since=1)
def top_k(node: Node) -> list[Value | None]:
    x = node.need(0)
    axis = normal_axis(node.attr("axis", -1), x.rank)
    counts = [node.attr("k")] if "k" in node.attributes else node.ints(1, "k")
    if not counts or not 0 <= counts[0] <= x.shape[axis]:
        raise Refusal(f"k {counts} does not fit axis {axis} of {x}")
    largest = bool(node.attr("largest", 1))
    if counts[0] == 0:
        shape = [0 if a == axis else d for a, d in enumerate(x.shape)]
        return [node.const(np.empty(shape, x.dtype)), node.const(np.empty(shape, "int64"))]
    values, positions = node.own_many("halotile.topk", x, k=counts[0], axis=axis, largest=largest)
    return [values, positions]


@converts("CumSum", "CumProd", since=11)
def cumulative(node: Node) -> Value:
    x = node.need(0)
    axes = node.ints(1, "its axis")
    axis = normal_axis(axes[0] if axes else 0, x.rank)

    def run(v: Value) -> Value:
        return node.own(
            f"halotile.{node.operator.lower()}",
            v,
            axis=axis,
            exclusive=bool(node.attr("exclusive", 0)),
            reverse=bool(node.attr("reverse", 0)),
        )

    return node.in_float32(run, x)


@converts("ReverseSequence", since=10)
def reverse_sequence(node: Node) -> Value:
    """The first sequence_lens[b] elements of every sequence b turned round, the rest left."""
    x, lengths = node.need(0), node.need(1)
    batch, time = node.attr("batch_axis", 1), node.attr("time_axis", 0)
    if lengths.array is not None:
        steps = np.arange(x.shape[time])
        known = lengths.array.reshape(-1, 1)
        at = np.where(steps < known, known - 1 - steps, steps)  # [batch, time]
        at = at.T if time < batch else at
        at = at.reshape([d if a in (batch, time) else 1 for a, d in enumerate(x.shape)])
        full = np.broadcast_to(at, x.shape) if x.size <= 1 << 20 else None
        if full is not None:
            return node.own("halotile.gather_elements", x, node.const(np.ascontiguousarray(full)), axis=time)
    return node.own("halotile.reverse_sequence", x, lengths, batch_axis=batch, time_axis=time)


@converts("NonZero", since=9)
def non_zero(node: Node) -> Value:
    x = node.constant(0, "its operand (and so the shape of its output)")
    if x is None:
        raise Refusal("it has no operand")
    return node.const(np.array(np.nonzero(x), "int64"))
