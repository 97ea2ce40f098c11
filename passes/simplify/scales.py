"""Scalar scales travel to the nearest constant weights: 1/sqrt(d) of an attention ends in the query projection."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from .affine import LARGEST_SCALE
from .anchors import ANCHORS, scale_output, weight_index
from .graph import CONST, Graph, Node
from .identity import RESHAPES
from .patterns import is_float, rounded, scalar, split_constant
from .rule import STRICT, Builder, Declined, Rewrite, Rule

op = relax.op
Rebuild = Callable[[Builder], Node]

_CARRIERS = RESHAPES | {"relax.permute_dims", "relax.strided_slice", "relax.broadcast_to", "relax.negative"}
_GATHERS = frozenset(("relax.take", "halotile.gather"))
_DEPTH = 12


class ScaleToWeights(Rule):
    """((x @ Wq + b) reshaped, transposed) @ k * c    ->    ((x @ cWq + cb) reshaped, transposed) @ k

    The scale is one number. It passes reshapes, transposes, slices, either operand of a matrix product, and sums all of
    whose terms can take it; everything on the way has one reader. It ends in constants: the weights of a matrix product
    or convolution, a bias, an embedding table.
    """

    name = "scale-to-weights"
    family = "algebra"
    modes = STRICT
    roots = frozenset(("relax.multiply", "relax.divide"))

    def match(self, node: Node, graph: Graph) -> Rewrite | Declined | None:
        pair = split_constant(node)
        value = scalar(pair[1]) if pair else None
        if pair is None or value is None or not is_float(node) or not graph.same_type(pair[0], node):
            return None
        if node.op == "relax.divide" and (node.inputs[1] is not pair[1] or value == 0):
            return None
        x, c = pair[0], float(value) if node.op == "relax.multiply" else 1.0 / float(value)
        if x.op in ANCHORS and weight_index(x) is not None or not _reaches_weights(x, _DEPTH):
            return None
        if not np.isfinite(c) or not 1 / LARGEST_SCALE <= abs(c) <= LARGEST_SCALE:
            return Declined("the scale is so extreme that moving it could move an overflow")
        rebuilt = absorb(x, c, _DEPTH)
        if rebuilt is None:
            return Declined(
                "something on the way to the weights has other readers, or a weight can't take the scale"
            )
        return Rewrite(rebuilt)


def _reaches_weights(node: Node, depth: int) -> bool:
    """A cheap first look: whether constant weights lie upstream on a way that a scale can take."""
    if depth == 0 or node.op == CONST:
        return False
    if node.op in ANCHORS and weight_index(node) is not None:
        return True
    if node.op in _GATHERS:
        return node.inputs[0].op == CONST
    if node.op in _CARRIERS or node.op in ("relax.add", "relax.subtract"):
        return any(_reaches_weights(i, depth - 1) for i in node.inputs)
    return node.op == "relax.matmul" and any(_reaches_weights(i, depth - 1) for i in node.inputs)


def absorb(node: Node, c: float, depth: int) -> Rebuild | None:
    """How to build ``c * node`` without a multiplication; None when that can't be done."""
    if node.op == CONST:
        wide = rounded(node.array.astype(np.float64) * c, node.array.dtype)
        return None if wide is None else lambda b: b.const(wide)
    if depth == 0 or node.uses != 1 or not is_float(node):
        return None
    if node.op in ANCHORS and weight_index(node) is not None:
        return _into_weights(node, c)
    if node.op in _CARRIERS or node.op in _GATHERS and node.inputs[0].op == CONST:
        inner = absorb(node.inputs[0], c, depth - 1)
        return None if inner is None else _with_operand(node, 0, inner)
    if node.op in ("relax.add", "relax.subtract"):
        first, second = (absorb(i, c, depth - 1) for i in node.inputs)
        if first is None or second is None or node.inputs[0] is node.inputs[1]:
            return None
        return _of_both(node, first, second)
    if node.op == "relax.matmul" and node.inputs[0] is not node.inputs[1]:
        for index, operand in enumerate(node.inputs):
            inner = absorb(operand, c, depth - 1)
            if inner is not None:
                return _with_operand(node, index, inner)
    return None


def _of_both(node: Node, first: Rebuild, second: Rebuild) -> Rebuild:
    return lambda b: b.same(node, first(b), second(b))


def _with_operand(node: Node, index: int, inner: Rebuild) -> Rebuild:
    def build(b: Builder) -> Node:
        inputs = list(node.inputs)
        inputs[index] = inner(b)
        return b.same(node, *inputs)

    return build


def _into_weights(anchor: Node, c: float) -> Rebuild | None:
    index = weight_index(anchor) or 0
    folded = scale_output(anchor, np.asarray(c, np.float64))
    if isinstance(folded, str):
        return None
    weight = rounded(folded, anchor.inputs[index].array.dtype)
    return None if weight is None else _with_operand(anchor, index, lambda b: b.const(weight))


class ShareBias(Rule):
    """t = x + B; y1 = t + C1; y2 = t + C2    ->    y1 = x + (B + C1); y2 = x + (B + C2)

    Where nobody reads ``t`` itself: one addition less. The constants must not cancel one another.
    """

    name = "share-bias"
    family = "algebra"
    modes = STRICT
    roots = frozenset(("relax.add",))

    def match(self, node: Node, graph: Graph) -> Rewrite | Declined | None:
        pair = split_constant(node)
        if pair is None or node.outputs or len(node.users) < 2 or not is_float(node):
            return None
        if not graph.same_type(pair[0], node):
            return None
        x, bias = pair
        sums: dict[Node, np.ndarray] = {}
        for user in node.users:
            mine = split_constant(user) if user.op == "relax.add" else None
            if mine is None or not graph.same_type(user, node):
                return None
            total = bias.array.astype(np.float64) + mine[1].array.astype(np.float64)
            narrow = rounded(np.asarray(total), bias.array.dtype)
            largest = max(np.max(np.abs(a.array), initial=0) for a in (bias, mine[1]))
            if (
                narrow is None
                or not np.isfinite(largest)
                or largest > 4096 * max(1.0, float(np.max(np.abs(total))))
            ):
                return Declined("the constants cancel or are not finite")
            sums[user] = narrow
        return Rewrite(lambda b: {user: b.call(op.add, x, b.const(total)) for user, total in sums.items()})


class PrecomputeGather(Rule):
    """take(E, ids) @ W    ->    take(E @ W, ids), for constants E and W

    When the product is not larger than the two factors together.
    """

    name = "precompute-gather"
    family = "precomputation"
    modes = STRICT
    roots = frozenset(("relax.matmul",))

    def match(self, node: Node, graph: Graph) -> Rewrite | Declined | None:
        rows, weight = node.inputs
        gathers = rows.op in _GATHERS and rows.attr("axis") == 0 or rows.op == "relax.strided_slice"
        if not gathers or rows.inputs[0].op != CONST or weight.op != CONST or rows.uses != 1:
            return None
        table = rows.inputs[0].array
        if table.ndim != 2 or weight.array.ndim != 2 or not is_float(node):
            return None
        if rows.op == "relax.strided_slice" and rows.raw(1) != [0]:
            return None
        if table.shape[0] * weight.array.shape[1] > table.size + weight.array.size:
            return Declined("the product is larger than its factors")
        product = rounded(table.astype(np.float64) @ weight.array.astype(np.float64), table.dtype)
        if product is None:
            return Declined(f"the product overflows {node.dtype}")
        return Rewrite(lambda b: b.same(rows, b.const(product), *rows.inputs[1:]))
