"""Sums divided by how many elements they add up, and running sums of one number: means and positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from ...schedules.words.dims import bounds
from ...schedules.words.sizes import product
from .graph import CONST, Graph, GraphNode
from .open_slices import dims
from .patterns import is_float, is_value, near, scalar, uniform
from .positions import is_one, lattice
from .rule import EXACT, STRICT, Declined, Rewrite, RewriteBuilder, Rule

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

#: The number of each type of floats from which on 1 more is rounded away.
MOST = {"float32": 1 << 24, "float64": 1 << 53}
_VIEWS = frozenset(f"relax.{n}" for n in "reshape expand_dims squeeze broadcast_to".split())


class MeanOfSum(Rule):
    """sum(x, axes) / count, sum(x, axes) * (1 / count)    ->    mean(x, axes)

    The count is a number, or arithmetic on lengths, that is how many elements are added up, at every size. Of no
    elements both are 0 / 0, NaN.
    """

    name = "mean-of-sum"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.divide", "relax.multiply"))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        operands = [node.inputs] if node.op == "relax.divide" else [node.inputs, node.inputs[::-1]]
        for total, share in operands:
            if total.op == "relax.sum" and total.uses == 1 and is_float(node) and graph.same_type(total, node):
                return _mean(node, total, share, graph)
        return None


def _mean(node: GraphNode, total: GraphNode, share: GraphNode, graph: Graph) -> Rewrite | Declined | None:
    x = total.inputs[0]
    shape, axes = dims(x.shape), total.attr("axis")
    if shape is None:
        return None
    axes = list(range(x.rank)) if axes is None else sorted(int(a) % x.rank for a in axes)
    count, keepdims = product(shape[a] for a in axes), bool(total.attr("keepdims"))
    if node.op == "relax.divide":
        same = _number(share, graph) == count
    elif share.op == CONST:
        same = isinstance(count, int) and count > 0 and near(share, 1 / count)
    else:
        share = _seen(share)
        inverse = share.op == "relax.divide" and is_value(share.inputs[0], 1.0)
        same = inverse and _number(share.inputs[1], graph) == count
    if not same or count == 0:
        return None
    return Rewrite(lambda b: b.call(relax.op.mean, x, axes, keepdims))


def _seen(node: GraphNode) -> GraphNode:
    while node.op in _VIEWS:
        node = node.inputs[0]
    return node


def _number(node: GraphNode, graph: Graph) -> SizeLike | None:
    """The whole number, or dim, that every element of a float tensor is; None where it is not known to be one."""
    node = _seen(node)
    if node.op == "relax.astype":
        found = lattice(node.inputs[0], graph)
        return None if found is None or any(found.steps) else found.start
    if node.op == "relax.multiply":
        a, b = (_number(i, graph) for i in node.inputs)
        return None if a is None or b is None else a * b
    value = scalar(node)
    return int(value) if value is not None and value == int(value) else None


class RunningSumOfOnes(Rule):
    """cumsum(ones)    ->    range(1, n + 1)

    Integers that are all one number: their running sum counts in steps of it. Floats that are all 1 count as well, up
    to the number to which their type adds no 1 any more (2^24 in float32), where a sum one by one stays.
    """

    name = "running-sum-of-ones"
    family = "recognition"
    modes = EXACT
    roots = frozenset(("halotile.cumsum",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        shape = dims(node.shape)
        if shape is None or node.inputs[0].op == CONST:
            return None
        run = _counts(node, shape) if is_float(node) else _steps(node, graph)
        if run is None or run[1] < 1:
            return None  # ranges count upwards
        start, stride = run
        axis = int(node.attr("axis")) % node.rank
        most = MOST.get(node.dtype)

        def build(b: RewriteBuilder) -> GraphNode:
            ends = (b.dim(start), b.dim(start + stride * shape[axis]))
            view = b.call(relax.op.arange, *ends, stride, "int64" if most else node.dtype)
            if most and bounds(shape[axis])[1] > most:
                view = b.call(relax.op.minimum, view, b.const(np.array(most, "int64")))
            view = b.call(relax.op.astype, view, node.dtype) if most else view
            if node.rank > 1:
                view = b.call(relax.op.reshape, view, [b.dim(d) if a == axis else 1 for a, d in enumerate(shape)])
            wide = any(not is_one(d) for a, d in enumerate(shape) if a != axis)
            return b.call(relax.op.broadcast_to, view, list(node.shape or ())) if wide else view

        return Rewrite(build)


def _steps(node: GraphNode, graph: Graph) -> tuple[SizeLike, int] | None:
    found = lattice(node, graph)
    return None if found is None else (found.start, found.steps[int(node.attr("axis")) % node.rank])


def _counts(node: GraphNode, shape: list[SizeLike]) -> tuple[SizeLike, int] | None:
    """Where running sums of floats that are all 1 begin, and their step."""
    if uniform(node.inputs[0]) != 1 or node.dtype not in MOST or node.attr("reverse"):
        return None
    return (0 if node.attr("exclusive") else 1), (1 if not is_one(shape[int(node.attr("axis")) % node.rank]) else 0)
