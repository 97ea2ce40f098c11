"""The measure that every rewrite lowers, and so the reason why the pass ends.

It is a tuple of natural numbers, compared in order: the number of operators, the sum of their strengths, the number of
elements they compute, the number of elements in constants. A strength is a rough cost in multiply-adds per element; its
order alone matters, and only between operators that replace one another. An open dim counts as 8 elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from .graph import CONST, INPUT, Node

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
    "relax.where": 6,
    "relax.logical_not": 2,
    "relax.permute_dims": 9,
    "relax.expand_dims": 3,
    "relax.squeeze": 3,
    "relax.reshape": 2,
    "relax.broadcast_to": 7,
    "relax.tile": 8,
    "relax.concat": 8,
    "relax.strided_slice": 5,
    "relax.split": 8,
    "relax.mean": 8,
    "relax.take": 8,
    "item": 0,
}
_DEFAULT = 6
OPEN_DIM = 8


def strength(node: Node) -> int:
    return 0 if node.op in (INPUT, CONST) else _STRENGTH.get(node.op, _DEFAULT)


def is_operator(node: Node) -> bool:
    return node.op not in (INPUT, CONST)


def volume(node: Node) -> int:
    """How many elements the node has."""
    if not node.is_tensor:
        return 0
    return math.prod(d if isinstance(d, int) else OPEN_DIM for d in node.shape or ())


def measure(nodes: Iterable[Node]) -> tuple[int, int, int, int]:
    operators = total = computed = stored = 0
    for node in nodes:
        if is_operator(node):
            operators += 1
            total += strength(node)
            computed += volume(node)
        elif node.op == CONST:
            stored += volume(node)
    return operators, total, computed, stored
