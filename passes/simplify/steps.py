"""Values whose last bit decides: what a floor, a cast to integers or a test for equality is computed from.

    floor(x / 49)        where x * (1 / 49) is 0.99999994 for x = 49
"""

from __future__ import annotations

from collections.abc import Sequence

from .graph import Node
from .patterns import ELEMENTWISE, INTEGERS, is_float

_STEPS = frozenset(
    f"relax.{n}" for n in "floor ceil round trunc floor_divide mod floor_mod equal not_equal".split()
) | {"halotile.modulo", "halotile.round"}
_MOVES = frozenset(
    f"relax.{n}"
    for n in (
        "reshape expand_dims squeeze flatten permute_dims broadcast_to tile concat strided_slice max min take"
        " gather_elements"
    ).split()
)


def is_step(node: Node) -> bool:
    """Whether the operator jumps where its float operand changes in the last place."""
    if node.op == "relax.astype":
        return node.dtype in INTEGERS or node.dtype == "bool"
    return node.op in _STEPS


def before_steps(nodes: Sequence[Node]) -> set[Node]:
    """Those of ``nodes`` (in order, inputs first) that reach a step through elementwise operators and moves alone."""
    found: set[Node] = set()
    for node in reversed(nodes):
        if node.is_tensor and is_float(node) and any(
            is_step(u) or u in found and (u.op in ELEMENTWISE or u.op in _MOVES) for u in node.users
        ):
            found.add(node)
    return found
