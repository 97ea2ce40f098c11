"""How far rounding errors spread through a model in float16, by which its Winograd transforms are chosen, and whether
1x1 layers are seven products of halves.

    conv -> relu -> conv -> add -> global mean -> product        each layer adds its own, a mean takes them away

Errors of layers are independent: their squares add up along the longest way to an output. So a deep network of images
has transforms that are as exact as sums without any, and a classifier, whose last image is averaged, larger ones. In
units of a value's size, as the root of the mean square; the largest error of an output, over its largest value, is
about as large.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from ...schedules.conv.facts import OPERATORS
from ...schedules.conv.strassen_steps import GROWTH
from ...schedules.conv.winograd.choose import LEAST_CHANNELS, applies
from ...schedules.conv.winograd.transform import HALF4, HALF42
from ..simplify.graph import GraphNode
from .pays import facts_of

# Of a layer: without a transform, with F(4x4, 3x3). F(4x2, 3x3) makes 0.0023, and F(2x2, 3x3) 0.0014. Measured on six
# layers of 64 channels in a row, with ReLU between.
PLAIN, LARGE = 2.0e-3, 5.0e-3
SEVEN = 4.2e-3  # by seven products of halves (schedules/conv/strassen_steps.py)
LEAST_OF_SEVEN = 128  # channels of the layers that may take these
MOST = 6e-3  # of an output: comparisons allow 1e-2
MEANS = frozenset(("relax.mean", "relax.sum", *(f"relax.nn.adaptive_avg_pool{d}d" for d in (1, 2, 3))))


def most_growth(
    order: Sequence[GraphNode], outputs: Sequence[GraphNode], half: Collection[GraphNode], seven: bool = True
) -> float:
    """The growth of errors that layers may have: that of seven products, if these are allowed, or else of large
    transforms, where outputs stay within MOST. ``order``: all nodes, inputs first; ``half``: the products in
    float16."""
    for growth in (GROWTH, HALF4.growth) if seven else (HALF4.growth,):
        if _spread(order, outputs, set(half), growth) <= MOST:
            return growth
    return HALF42.growth


def _spread(
    order: Sequence[GraphNode], outputs: Sequence[GraphNode], half: Collection[GraphNode], growth: float
) -> float:
    """The largest error of an output, where all layers have the forms of the largest errors that they may have."""
    squares: dict[GraphNode, float] = {}
    for node in order:
        found = max((squares.get(i, 0.0) for i in node.inputs), default=0.0)
        if node.op in MEANS:
            found /= _averaged(node)
        if node in half:
            found += (LARGE if _transformed(node) else SEVEN if growth >= GROWTH and _seven(node) else PLAIN) ** 2
        squares[node] = found
    return math.sqrt(max((squares.get(o, 0.0) for o in outputs), default=0.0))


def _transformed(node: GraphNode) -> bool:
    if node.op not in OPERATORS or (node.inputs[1].shape or (0, 0))[1] < LEAST_CHANNELS:
        return False
    return applies(facts_of(node, "float16"))


def _seven(node: GraphNode) -> bool:
    """True for a 1x1 layer that may be seven products of halves."""
    if node.op not in OPERATORS or (node.inputs[1].shape or (0, 0))[1] < LEAST_OF_SEVEN:
        return False
    facts = facts_of(node, "float16")
    return facts.taps == 1 and facts.groups == 1


def _averaged(node: GraphNode) -> float:
    """Elements of which one is made; 1 where sizes are open."""
    if not node.static or not node.inputs or not node.inputs[0].static:
        return 1.0
    return max(1.0, math.prod(node.inputs[0].shape or (1,)) / max(1, math.prod(node.shape or (1,))))
