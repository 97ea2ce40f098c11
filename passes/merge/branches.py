"""Products of one value with constant weights whose results are read as parts of an attention.

Only there a slice of a wider product costs nothing: packing reads queries, keys and values through any map. What else
reads a product would read a copy, or lose its place in the product's epilogue.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..simplify.graph import CONST, Graph, GraphNode
from ..simplify.patterns import ELEMENTWISE, split_constant

MAPS = ELEMENTWISE | {
    f"relax.{n}"
    for n in "reshape permute_dims expand_dims squeeze broadcast_to repeat tile strided_slice split concat".split()
} | {"item"}
BETWEEN = 24  # operators that are looked through
DTYPES = ("float32", "float64")
WEIGHTS = "its weights are used elsewhere too"


@dataclass(frozen=True)
class Branch:
    """One product with constant weights that may be merged: ``result = product (+ bias)``, ``product = data x
    weights``, the weights being [K, N]."""

    product: GraphNode
    result: GraphNode
    bias: np.ndarray | None

    @property
    def data(self) -> GraphNode:
        """The left operand."""
        return self.product.inputs[0]

    @property
    def weights(self) -> GraphNode:
        """The constant right operand, [K, N]."""
        return self.product.inputs[1]

    @property
    def columns(self) -> int:
        """N, the columns of the result."""
        return int((self.weights.shape or (0,))[-1])


def bundles(graph: Graph) -> Iterable[tuple[list[Branch], list[str]]]:
    """The branches that may be merged, in program order, and notes why others may not, for each value that several
    products read."""
    nodes = graph.order()
    places = _attentions(nodes)
    by_data: dict[GraphNode, list[Branch]] = {}
    for node in nodes:
        branch = _branch(node)
        if branch is not None:
            by_data.setdefault(branch.data, []).append(branch)
    for found in by_data.values():
        if len(found) < 2:
            continue
        problems = [_problem(b, places) for b in found]
        if any(why in ("", WEIGHTS) for why in problems):
            kept = [b for b, why in zip(found, problems) if not why]
            yield kept, [f"{b.product.place} stays apart: {why}" for b, why in zip(found, problems) if why]


def _branch(node: GraphNode) -> Branch | None:
    if node.op != "relax.matmul" or node.shape is None or node.dtype not in DTYPES:
        return None
    data, weights = node.inputs if len(node.inputs) == 2 else (node, node)
    if weights.op != CONST or weights.rank != 2 or data.op == CONST or data.rank < 2 or data.dtype != node.dtype:
        return None
    if data.shape is None or not isinstance(data.shape[-1], int) or 0 in node.shape or weights.dtype != node.dtype:
        return None
    biased = _biased(node)
    return Branch(node, *biased) if biased is not None else Branch(node, node, None)


def _biased(product: GraphNode) -> tuple[GraphNode, np.ndarray] | None:
    """The addition of a number per column that alone reads ``product``."""
    if product.uses != 1 or not product.users:
        return None
    (user,) = product.users
    pair = split_constant(user) if user.op == "relax.add" else None
    if pair is None or user.shape != product.shape:
        return None
    array, columns = pair[1].array, (product.shape or ())[-1]
    along = array.size == 1 or (array.size == columns and array.shape[-1] == columns)
    if pair[1].dtype != product.dtype or not along:
        return None
    return user, np.broadcast_to(array.reshape(-1), (columns,))


def _problem(branch: Branch, places: dict[tuple[GraphNode, int], None]) -> str:
    ends = _ends(branch.result)
    if ends is None:
        return "its result would be copied"
    if not ends or not all(e in places for e in ends):
        return "no attention reads its result"
    return "" if branch.weights.uses == 1 else WEIGHTS


def _ends(result: GraphNode) -> list[tuple[GraphNode, int]] | None:
    """The products of two variables, and which operand, that maps of ``result`` and of constants lead to; None if
    anything else reads it."""
    inside: dict[GraphNode, None] = {result: None}
    found: dict[tuple[GraphNode, int], None] = {}
    stack = [result]
    while stack:
        node = stack.pop()
        if node.outputs or len(inside) > BETWEEN:
            return None
        for user in node.users:
            if user.op == "relax.matmul":
                found.update({(user, i): None for i, value in enumerate(user.inputs) if value is node})
            elif user.op not in MAPS:
                return None
            elif user not in inside:
                inside[user] = None
                stack.append(user)
    read = [i for n in inside if n is not result for i in n.inputs]
    return list(found) if all(i.op == CONST or i in inside for i in read) else None


def _attentions(nodes: Iterable[GraphNode]) -> dict[tuple[GraphNode, int], None]:
    """The operands that an attention reads Q, K and V as."""
    found: dict[tuple[GraphNode, int], None] = {}
    for second in nodes:
        if second.op != "relax.matmul" or any(i.op == CONST for i in second.inputs):
            continue
        first = _scores(second.inputs[0])
        if first is not None:
            found.update(dict.fromkeys(((first, 0), (first, 1), (second, 1))))
    return found


def _scores(weights: GraphNode) -> GraphNode | None:
    """The product whose rows a softmax, and maps before it, make ``weights`` of."""
    if weights.op != "relax.nn.softmax" or weights.uses != 1:
        return None
    stack, seen = [weights.inputs[0]], 0
    while stack and seen < BETWEEN:
        node = stack.pop()
        seen += 1
        if node.uses != 1:
            continue
        if node.op == "relax.matmul" and not any(i.op == CONST for i in node.inputs):
            return node
        if node.op in ELEMENTWISE:
            stack.extend(node.inputs)
    return None
