"""Values whose last bit decides: what a floor, a cast to integers or a test for equality is computed from.

    floor(x / 49)        where x * (1 / 49) is 0.99999994 for x = 49

A sum of many terms has no last bit to rely on: it depends on the order of adding, which nobody promises.
"""

from __future__ import annotations

from collections.abc import Sequence

from .anchors import ANCHORS
from .graph import GraphNode
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
_SUMS = ANCHORS | {
    *(f"relax.{n}" for n in "sum mean prod variance std nn.softmax nn.log_softmax nn.layer_norm nn.rms_norm".split()),
    *(f"relax.nn.{kind}{d}d" for kind in ("avg_pool", "adaptive_avg_pool") for d in (1, 2, 3)),
    *("halotile.standardise", "halotile.centre", "halotile.einsum", "halotile.resample"),
}


def is_step(node: GraphNode) -> bool:
    """Whether the operator jumps where its float operand changes in the last place."""
    if node.op == "relax.astype":
        return node.dtype in INTEGERS or node.dtype == "bool"
    return node.op in _STEPS


def before_steps(nodes: Sequence[GraphNode]) -> set[GraphNode]:
    """Those of ``nodes`` (in order, inputs first) that reach a step through elementwise operators and moves alone, and
    come from no sum."""
    summed: set[GraphNode] = set()
    for node in nodes:
        if node.op in _SUMS or not is_step(node) and not summed.isdisjoint(node.inputs):
            summed.add(node)
    found: set[GraphNode] = set()
    for node in reversed(nodes):
        if node.is_tensor and node not in summed and is_float(node) and any(
            is_step(u) or u in found and (u.op in ELEMENTWISE or u.op in _MOVES) for u in node.users
        ):
            found.add(node)
    return found
