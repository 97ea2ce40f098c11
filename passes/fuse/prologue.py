"""When a map before a convolution is computed in its loads instead of being written first.

    x -> upsample -> conv      ->      conv, reading x[h // 2, w // 2]

The value then never exists, but a kernel computes each element as often as it loads it. Kernels that load vectors of
channels a few times (Winograd's transform of the data, depthwise rows) can afford a cheap map; a direct convolution
loads single elements for every vector of output channels and tap, and can't.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...schedules.classify import Facts
from ...schedules.conv import ConvFacts, supports_conv
from ...schedules.conv.build import TRANSPOSED
from ...schedules.conv.winograd_choose import choose_plan
from ...schedules.group import Node, Value

if TYPE_CHECKING:
    from .fuse import _Fuser

TIMES = 4  # how often an element may be computed: about what writing and reading it costs


def prologue_problem(anchor: Node, value: Value, maps: Sequence[Facts], fuser: _Fuser) -> str:
    """Why ``value``, made by ``maps``, is better written before ``anchor`` reads it; empty if it is not."""
    target = fuser.target
    if target is None or not supports_conv(anchor) or anchor.operator == TRANSPOSED:
        return "its kernel reads its operands from memory"
    facts = ConvFacts.of(anchor)
    if facts.data is not value:
        return "it is not the data"
    if all(f.node.operator == "relax.strided_slice" for f in maps):
        return "a slice may be read where it lies"
    if any(f.costly and not _moves_only(f) for f in maps):
        return "it costs too much to be computed more than once"
    if facts.is_depthwise:
        times = facts.taps * facts.output.elements / value.elements
        return "" if times <= TIMES else f"each element would be computed {times:.0f} times"
    plan = choose_plan(target, facts) if fuser.winograd else None
    if plan is None:
        return "a direct convolution loads single elements, many times"
    times = plan.groups * (plan.transform.extent / (plan.transform.m * plan.transform.stride)) ** 2
    return "" if times <= TIMES else f"each element would be computed {times:.0f} times"


def _moves_only(facts: Facts) -> bool:
    """True for a pad: its choice between an element and a constant is a select here."""
    return facts.node.operator in ("relax.nn.pad", "halotile.pad")
