"""Limits by constant numbers, however written, become one relu or clip."""

from __future__ import annotations

import math

from tvm import relax

from .graph import Graph, GraphNode
from .patterns import is_float, is_value, scalar, split_constant
from .rule import STRICT, Declined, Rewrite, Rule

op = relax.op


class RecogniseClip(Rule):
    """minimum(maximum(x, a), b), either way round, or one of them and a relu or clip    ->    clip(x, a, b)

    float32, constant numbers a <= b. max and min, clip and relu all keep a NaN here.
    """

    name = "recognise-clip"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.minimum", "relax.maximum", "relax.nn.relu", "relax.clip"))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        outer = limits(node, graph)
        inner = limits(outer[0], graph) if outer is not None else None
        if outer is None or inner is None or node.dtype != "float32":
            return None
        x, low, high = inner
        _, above, below = outer
        if low > below or above > high:
            return Declined("the bounds do not overlap")
        low, high = max(low, above), min(high, below)
        if math.isinf(low) or math.isinf(high):
            return None
        if (low, high) == (0.0, math.inf):
            return Rewrite(lambda b: b.call(op.nn.relu, x), rounds=False)
        return Rewrite(lambda b: b.call(op.clip, x, low, high), rounds=False)


def limits(node: GraphNode, graph: Graph) -> tuple[GraphNode, float, float] | None:
    """(x, low, high) of a node that limits x by constant numbers."""
    if node.op == "relax.nn.relu":
        return node.inputs[0], 0.0, math.inf
    if node.op == "relax.clip":
        low, high = node.raw(1), node.raw(2)
        known = isinstance(low, (int, float)) and isinstance(high, (int, float)) and low <= high
        return (node.inputs[0], float(low), float(high)) if known else None
    if node.op not in ("relax.minimum", "relax.maximum"):
        return None
    pair = split_constant(node)
    value = scalar(pair[1]) if pair else None
    if pair is None or value is None or math.isnan(value) or not graph.same_type(pair[0], node):
        return None
    return (
        (pair[0], float(value), math.inf)
        if node.op == "relax.maximum"
        else (pair[0], -math.inf, float(value))
    )


class MaximumWithZero(Rule):
    """maximum(x, 0)    ->    relu(x), for floats"""

    name = "maximum-with-zero"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.maximum",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        pair = split_constant(node)
        if (
            pair is None
            or not is_value(pair[1], 0.0)
            or not is_float(node)
            or not graph.same_type(pair[0], node)
        ):
            return None
        return Rewrite(lambda b: b.call(op.nn.relu, pair[0]), rounds=False)
