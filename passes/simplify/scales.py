"""Scales travel to the nearest constant weights: 1/sqrt(d) of an attention ends in the query projection."""

from __future__ import annotations

import numpy as np
from tvm import relax

from .activations import scaled
from .affine import LARGEST_SCALE
from .anchors import ANCHORS, weight_index
from .graph import CONST, Graph, GraphNode
from .patterns import is_float, rounded, shrunk, split_constant
from .rule import STRICT, Declined, Rewrite, RewriteBuilder, Rule
from .scale_paths import CARRIERS, GATHERS, Path

op = relax.op
_DEPTH = 12


class ScaleToWeights(Rule):
    """((x @ Wq + b) reshaped, transposed) @ k * c    ->    ((x @ cWq + cb) reshaped, transposed) @ k

    The scale is one number, or varies along axes that can be followed up to the weights (one per head or channel). It
    passes reshapes, transposes, either operand of a matrix product, and sums all of whose terms can take it;
    everything on the way has one reader, except that a tensor whose other readers are slices of other parts (the query
    of a joint projection) is scaled in that part only. It ends in constants: the weights of a matrix product or
    convolution, a bias, an embedding table.
    """

    name = "scale-to-weights"
    family = "algebra"
    modes = STRICT
    roots = frozenset(("relax.multiply", "relax.divide"))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        pair = split_constant(node)
        if pair is None or not is_float(node) or not graph.same_type(pair[0], node):
            return None
        x, constant = pair
        if node.op == "relax.divide" and node.inputs[1] is not constant:
            return None
        if x.op in ANCHORS and weight_index(x) is not None or not _reaches_weights(x, _DEPTH):
            return None
        c = shrunk(constant.array).astype(np.float64)
        with np.errstate(all="ignore"):
            c = np.asarray(c.reshape(()) if c.size == 1 else c)
            c = c if node.op == "relax.multiply" else np.asarray(1.0 / c)
        size = np.abs(c)
        if not np.all(np.isfinite(c) & (size >= 1 / LARGEST_SCALE) & (size <= LARGEST_SCALE)):
            return Declined("the scale is so extreme that moving it could move an overflow")
        path = Path()
        rebuilt = path.absorb(x, c, _DEPTH)
        if rebuilt is None:
            return Declined(
                "something on the way to the weights has other readers, or a weight can't take the scale"
            )

        def build(b: RewriteBuilder) -> dict[GraphNode, GraphNode]:
            return {node: rebuilt(b), **path.rebuild_others(b)}

        return Rewrite(build)


def _reaches_weights(node: GraphNode, depth: int) -> bool:
    """A cheap first look: whether constant weights lie upstream on a way that a scale can take."""
    if depth == 0 or node.op == CONST:
        return False
    if node.op in ANCHORS and weight_index(node) is not None:
        return True
    if node.op in GATHERS:
        return node.inputs[0].op == CONST
    if node.op in CARRIERS or node.op in ("relax.add", "relax.subtract", "relax.matmul"):
        return any(_reaches_weights(i, depth - 1) for i in node.inputs)
    return False


class ShareBias(Rule):
    """t = x + B; y1 = t + C1; y2 = t + C2    ->    y1 = x + (B + C1); y2 = x + (B + C2)

    Where nobody reads ``t`` itself: one addition less. The constants must not cancel one another.
    """

    name = "share-bias"
    family = "algebra"
    modes = STRICT
    roots = frozenset(("relax.add",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        pair = split_constant(node)
        if pair is None or node.outputs or len(node.users) < 2 or not is_float(node):
            return None
        if not graph.same_type(pair[0], node):
            return None
        x, bias = pair
        sums: dict[GraphNode, np.ndarray] = {}
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

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        rows, weight = node.inputs
        gathers = rows.op in GATHERS and rows.attr("axis") == 0 or rows.op == "relax.strided_slice"
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
        shape = node.shape or ()
        if rows.op == "relax.strided_slice" and rows.shape is not None:
            return Rewrite(lambda b: b.typed(rows, shape, b.const(product)))
        return Rewrite(lambda b: b.same(rows, b.const(product), *rows.inputs[1:]))


class ScalesOfProduct(Rule):
    """(q * c) @ (k * d)    ->    (q @ k) * (c d), for numbers c and d

    How a scaled dot-product attention is exported that scales both sides by the root of its scale.
    """

    name = "scales-of-product"
    family = "algebra"
    modes = STRICT
    roots = frozenset(("relax.matmul",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        if not is_float(node) or node.inputs[0] is node.inputs[1]:
            return None
        sides = [scaled(i) for i in node.inputs]
        if any(x is i or i.uses != 1 for (x, _), i in zip(sides, node.inputs)):
            return None
        factors = [c for _, c in sides]
        product = factors[0] * factors[1]
        if not all(1 / LARGEST_SCALE <= abs(c) <= LARGEST_SCALE for c in [*factors, product]):
            return Declined("the scales are so extreme that moving them could move an overflow")
        constant = np.asarray(product).astype(node.array_dtype)
        return Rewrite(
            lambda b: b.call(op.multiply, b.same(node, *(x for x, _ in sides)), b.const(constant))
        )
