"""What is known of a value without computing it."""

from __future__ import annotations

import numpy as np

from .graph import CONST, GraphNode
from .patterns import holds, is_float, is_integer

#: Floats of these are never below zero. Integers wrap: the least one has no absolute value.
_NEVER_NEGATIVE = frozenset(
    f"relax.{n}" for n in "abs exp square sigmoid sqrt nn.relu nn.relu6 nn.softmax nn.softplus cosh".split()
)
#: Operators whose result is nonnegative when all operands are. (Not max_pool: -inf, where there is nothing but NaN.)
_KEEP = frozenset(
    f"relax.{n}"
    for n in (
        "add multiply divide maximum sum mean max min reshape expand_dims squeeze permute_dims broadcast_to tile concat"
        " strided_slice nn.avg_pool2d minimum ceil floor round"
    ).split()
)
_WRAPS = frozenset(f"relax.{n}" for n in "add multiply sum mean divide nn.avg_pool2d".split())


def nonnegative(node: GraphNode, depth: int = 8) -> bool:
    """Whether no element is below zero (a NaN may be among them, and a -0.0)."""
    if node.op == CONST:
        return bool(
            np.all(~(node.array < 0))
            and (node.array.dtype.kind in "biu" or not np.any(np.signbit(node.array)))
        )
    if node.dtype.startswith("uint") or node.dtype == "bool":
        return True
    if node.op in _NEVER_NEGATIVE and (is_float(node) or node.op == "relax.nn.relu"):
        return True
    if node.op == "relax.clip":
        low = node.raw(1)
        return isinstance(low, (int, float)) and low >= 0
    if depth == 0 or not node.inputs:
        return False
    if node.op == "relax.multiply" and node.inputs[0] is node.inputs[1]:
        return is_float(node)
    if node.op == "relax.maximum":
        return any(nonnegative(i, depth - 1) for i in node.inputs)
    if node.op == "relax.power" and is_float(node) and node.inputs[1].op == CONST:
        return bool(np.all(node.inputs[1].array % 2 == 0))
    if node.op == "relax.astype":
        source = node.inputs[0]
        wide = is_float(node) or holds(node.dtype, source.dtype)
        return wide and nonnegative(source, depth - 1)
    if node.op in _KEEP and (is_float(node) or node.op not in _WRAPS):
        return all(nonnegative(i, depth - 1) for i in node.inputs)
    return False


#: Operators that give no -0.0 from what is not negative.
_POSITIVE_ZERO = frozenset(f"relax.{n}" for n in "abs exp square sigmoid nn.softmax nn.softplus cosh".split())


def no_negative_zero(node: GraphNode, depth: int = 8) -> bool:
    """Whether a nonnegative value is known to hold no -0.0 either."""
    if node.op == CONST:
        return not np.any(np.signbit(node.array)) if is_float(node) else True
    if node.op in _POSITIVE_ZERO:
        return True
    if node.op == "relax.multiply" and node.inputs[0] is node.inputs[1]:
        return True
    if depth == 0 or not node.inputs:
        return False
    if node.op == "relax.add":  # -0.0 is the sum of two of its kind only
        return any(no_negative_zero(i, depth - 1) for i in node.inputs)
    if node.op == "relax.astype":
        return is_integer(node.inputs[0]) or no_negative_zero(node.inputs[0], depth - 1)
    return node.op in _KEEP - {"relax.maximum"} and all(no_negative_zero(i, depth - 1) for i in node.inputs)


_NEVER_NAN_IF_NOT_BEFORE = frozenset(
    f"relax.{n}"
    for n in (
        "abs negative ceil floor round trunc sign nn.relu clip maximum minimum where reshape expand_dims squeeze tile"
        " permute_dims broadcast_to concat strided_slice max min astype"
    ).split()
)


def never_nan(node: GraphNode, depth: int = 8) -> bool:
    """Whether no element can be NaN, whatever the inputs are: integers, flags, and what only moves or rounds them."""
    if not is_float(node):
        return True
    if node.op == CONST:
        return not np.any(np.isnan(node.array.astype(np.float64)))
    if depth == 0 or not node.inputs or node.op not in _NEVER_NAN_IF_NOT_BEFORE:
        return False
    values = node.inputs[1:] if node.op == "relax.where" else node.inputs
    return all(never_nan(i, depth - 1) for i in values)
