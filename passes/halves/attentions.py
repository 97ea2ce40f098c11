"""Attentions whose two products may be in float16, with rows of scores in float32 between them.

    softmax(maps(q k)) v        ->        astype16(softmax(maps(astype32(q16 k16)))) v16

Scores go on in float32 at once, and the weights of values, which are at most 1, become float16 last. A kernel may
weigh values before it divides by the sum of a row, up to SPAN of them in float16: so many times the largest value have
to fit. Both sides of the scores are variables, which may both be larger than those that were seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...schedules.kernel.half_sums import SPAN
from ..simplify.graph import CONST, GraphNode
from ..simplify.patterns import ELEMENTWISE

BETWEEN = 24  # operators that are looked through
LEAST_RANK = 3  # of scores, which are a product of matrices otherwise


@dataclass(frozen=True)
class WeighedValues:
    """``scores``: the product whose rows a softmax makes weights of; ``mixed``: that of these and the values."""

    scores: GraphNode
    mixed: GraphNode

    def why_not(self, largest: Mapping[str, float], room: float, end: float) -> str:
        """Why its products stay in float32; empty if they need not. ``largest``: magnitudes by the nodes of the model;
        ``room`` times as much has to lie below ``end``."""
        scores, mixed = self.scores, self.mixed
        if {*scores.sources} & {*mixed.sources}:
            return "its scores are no value of the model"
        if not all(n in largest for node in (scores, mixed) for n in node.sources):
            return "nothing is known of the size of its numbers"
        found = [[largest[n] for n in node.sources] for node in (scores, mixed)]
        for what, seen, growth in zip(("scores", "values"), found, (room * room, room * SPAN)):
            if not growth * max(seen) <= end:
                return f"its {what} reach {max(seen):.3g}, of which {end / growth:.3g} is the most"
        return ""


def weighed_values(nodes: Iterable[GraphNode]) -> dict[GraphNode, WeighedValues]:
    """Every attention of static shape and float32, by the product that makes its scores."""
    found = {}
    for mixed in nodes:
        scores = _scores(mixed) if _of_variables(mixed) else None
        if scores is not None:
            found[scores] = WeighedValues(scores, mixed)
    return found


def _scores(mixed: GraphNode) -> GraphNode | None:
    """The product of two variables that elementwise maps and a softmax along rows, which nothing else reads, make the
    left operand of ``mixed`` of."""
    weights = mixed.inputs[0]
    if weights.op != "relax.nn.softmax" or weights.uses != 1 or weights.dtype != mixed.dtype:
        return None
    if int(weights.attrs.axis) not in (-1, weights.rank - 1) or (weights.shape or (1,))[-1] == 1:
        return None  # no kernel takes rows of one key for an attention
    stack, seen = [weights.inputs[0]], 0
    while stack and seen < BETWEEN:
        node = stack.pop()
        seen += 1
        if node.uses != 1 or node.shape != weights.shape or node.dtype != weights.dtype:
            continue
        if _of_variables(node):
            return node
        if node.op in ELEMENTWISE:
            stack.extend(node.inputs)
    return None


def _of_variables(node: GraphNode) -> bool:
    """True for a product of two float32 variables, matrix by matrix of the same batches or of one for all."""
    if node.op != "relax.matmul" or any(i.op == CONST for i in node.inputs) or node.rank < LEAST_RANK:
        return False
    return node.static and all(i.static and i.rank >= 2 and i.dtype == "float32" for i in (*node.inputs, node))
