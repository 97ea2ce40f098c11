"""Reading at computed positions, and the positions of largest and smallest elements."""

from __future__ import annotations

import numpy as np
from tvm import relax

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
