"""Extremes of transposed tensors, read as the tensors lie.

    max(permute_dims(x, [0, 2, 1]), axis 2)                      ->    max(x, axis 1)
    argmax(strided_slice(permute_dims(x, [0, 2, 1])), axis 2)    ->    argmax(strided_slice(x), axis 1)

The heads of detectors end so: scores [1, 84, 8400] are turned, cut into boxes and classes, and reduced to the best of
each place. Across the axis the same is read in the order of memory, in vectors, and a slice of channels is no copy. An
extreme is the same in any order, and positions along the axis are what they were.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from ...schedules.operators.registry import call as own
from ...schedules.words.tvm_types import Expr
from ..simplify.graph import GraphNode
from ..simplify.identity import permutation
from ..simplify.patterns import ints
from ..simplify.rule import RewriteBuilder

op = relax.op

_EXTREMES: dict[str, Callable[..., Expr]] = {"relax.max": op.max, "relax.min": op.min}
_ALL = (*_EXTREMES, "halotile.argmax", "halotile.argmin")


def extreme_as_it_lies(node: GraphNode) -> Callable[[RewriteBuilder], GraphNode] | None:
    """What builds the maximum or minimum ``node`` on the tensor as it lies, before the transpose and slices that it is
    read through; None if there are none, or if the axes that are left would have to change places instead."""
    if node.op not in _ALL or node.attr("axis") is None:
        return None
    cuts: list[GraphNode] = []
    turn = node.inputs[0]
    while turn.op == "relax.strided_slice" and _only_for_extremes(turn):
        if any(ints(turn.raw(k)) is None for k in range(1, len(turn.operands))):
            return None
        cuts.append(turn)
        turn = turn.inputs[0]
    if turn.op != "relax.permute_dims" or turn.shape is None or node.shape is None:
        return None
    axes, given = permutation(turn), node.attr("axis")
    reduced = [int(a) % len(axes) for a in (given if isinstance(given, (list, tuple)) else [given])]
    left = [a for k, a in enumerate(axes) if k not in reduced and turn.shape[k] != 1]
    if left != sorted(left) or not all(isinstance(d, int) for d in node.shape):
        return None

    def build(b: RewriteBuilder) -> GraphNode:
        x = turn.inputs[0]
        for cut in reversed(cuts):
            along, begin, end = (ints(cut.raw(k)) or [] for k in (1, 2, 3))
            strides = (ints(cut.raw(4)) if len(cut.operands) > 4 else None) or [1] * len(along)
            x = b.call(op.strided_slice, x, [axes[a % len(axes)] for a in along], begin, end, strides)
        y = _extreme(b, node, x, sorted(axes[a] for a in reduced))
        return y if y.shape == node.shape else b.call(op.reshape, y, node.shape)

    return build


def _extreme(b: RewriteBuilder, node: GraphNode, x: GraphNode, axes: list[int]) -> GraphNode:
    if node.op in _EXTREMES:
        return b.call(_EXTREMES[node.op], x, axes)
    return b.call(lambda v: own(node.op, v, axis=axes[0], keepdims=False, last=bool(node.attr("last"))), x)


def _only_for_extremes(node: GraphNode) -> bool:
    return not node.outputs and all(u.op in (*_ALL, "relax.strided_slice") for u in node.users)
