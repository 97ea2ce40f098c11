"""What is known of a value without computing it."""

from __future__ import annotations

import numpy as np

from .graph import CONST, Node
from .patterns import is_float

_NEVER_NEGATIVE = frozenset(
    f"relax.{n}" for n in "abs exp square sigmoid sqrt nn.relu nn.relu6 nn.softmax nn.softplus cosh".split()
)
#: Operators whose result is nonnegative when all operands are.
_KEEP = frozenset(
    f"relax.{n}"
    for n in (
        "add multiply divide maximum sum mean max min reshape expand_dims squeeze permute_dims broadcast_to tile concat"
        " strided_slice astype nn.max_pool2d nn.avg_pool2d minimum ceil floor round"
    ).split()
)


def nonnegative(node: Node, depth: int = 8) -> bool:
    """Whether no element is below zero or -0.0 where that matters to max (a NaN may be among them)."""
    if node.op == CONST:
        return bool(
            np.all(~(node.array < 0))
            and (node.array.dtype.kind in "biu" or not np.any(np.signbit(node.array)))
        )
    if node.op in _NEVER_NEGATIVE:
        return True
    if node.op == "relax.clip":
        low = node.raw(1)
        return isinstance(low, (int, float)) and low >= 0
    if depth == 0 or not node.inputs:
        return node.dtype.startswith("uint") or node.dtype == "bool"
    if node.op == "relax.multiply" and node.inputs[0] is node.inputs[1]:
        return is_float(node)
    if node.op == "relax.maximum":
        return any(nonnegative(i, depth - 1) for i in node.inputs)
    if node.op == "relax.power" and node.inputs[1].op == CONST:
        return bool(np.all(node.inputs[1].array % 2 == 0))
    if node.op in _KEEP and (is_float(node) or node.op not in ("relax.add", "relax.multiply", "relax.sum")):
        return all(nonnegative(i, depth - 1) for i in node.inputs)
    return False
