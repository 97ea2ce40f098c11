"""The measure that every rewrite lowers, and so the reason why the pass ends.

It is a tuple of natural numbers, compared in order:

1. the number of operators (a general einsum or a scan counts as several),
2. the sum of their strengths, a rough cost per element of which only the order matters, and only between
   operators that replace one another,
3. the number of elements that they read and write, an open dim counting as 8,
4. the number of elements in constants,
5. the sum of their levels, so that a chain whose inner part has other readers is still shortened.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from .anchors import ANCHORS
from .graph import CONST, INPUT, GraphNode

_STRENGTH = {
    "relax.power": 40,
    "relax.divide": 12,
    "relax.floor_divide": 14,
    "relax.nn.batch_norm": 30,
    "relax.sqrt": 10,
    "relax.rsqrt": 10,
    "relax.subtract": 5,
    "relax.add": 4,
    "relax.multiply": 4,
    "relax.nn.relu": 3,
    "relax.maximum": 4,
    "relax.where": 10,
    "relax.logical_not": 2,
    "relax.permute_dims": 9,
    "relax.expand_dims": 3,
    "relax.squeeze": 3,
    "relax.reshape": 2,
    "relax.broadcast_to": 2,
    "relax.tile": 8,
    "relax.concat": 8,
    "relax.strided_slice": 5,
    "relax.split": 8,
    "relax.mean": 8,
    "relax.take": 8,
    "item": 0,
    **{f"relax.nn.{kind}{d}d": 20 for kind in ("adaptive_avg_pool", "avg_pool") for d in (1, 2, 3)},
}
_DEFAULT = 6
#: Operators that stand for several: a general einsum is worth this many plain ones; a scan is a kernel of its own.
_SIZE = {"halotile.einsum": 8, "halotile.cumsum": 8}
OPEN_DIM = 8


def strength(node: GraphNode) -> int:
    """The cost of a node's operator, in units in which most operators are 6 and free ones 0."""
    if node.op in (INPUT, CONST):
        return 0
    if node.op == "relax.add" and _is_bias(node):
        return 3
    return _STRENGTH.get(node.op, _DEFAULT)


def _is_bias(node: GraphNode) -> bool:
    """Whether a constant is added to the result of a convolution or matrix product, which costs its kernel nothing."""
    a, b = node.inputs
    return (a.op in ANCHORS and b.op == CONST) or (b.op in ANCHORS and a.op == CONST)


def is_operator(node: GraphNode) -> bool:
    """True for what is computed: no input and no constant."""
    return node.op not in (INPUT, CONST)


def volume(node: GraphNode) -> int:
    """How many elements the node has."""
    if not node.is_tensor:
        return 0
    return math.prod(d if isinstance(d, int) else OPEN_DIM for d in node.shape or ())


def measure(nodes: Iterable[GraphNode]) -> tuple[int, int, int, int, int]:
    """What every rewrite must lower, compared from left to right: operators, their strengths, elements moved, elements
    of constants, and levels."""
    operators = total = moved = stored = levels = 0
    for node in nodes:
        if is_operator(node):
            operators += _SIZE.get(node.op, 1)
            total += strength(node)
            moved += volume(node) + sum(map(volume, node.inputs))
            levels += node.level
        elif node.op == CONST:
            stored += volume(node)
    return operators, total, moved, stored, levels
