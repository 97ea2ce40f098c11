"""When a map before a convolution is computed in its loads instead of being written first.

    x -> upsample -> conv      ->      conv, reading x[h // 2, w // 2]

The value then never exists, but a kernel computes each element as often as it loads it. Kernels that load vectors of
channels a few times (Winograd's transform of the data, depthwise rows, numbers that are split for a matrix unit) can
afford a cheap map; a direct convolution loads single elements for every vector of output channels and tap, and can't.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...schedules.conv import ConvFacts, supports_conv, times_loaded
from ...schedules.conv.family import TRANSPOSED
from ...schedules.general.channel_lanes import preserves_channels
from ...schedules.operators.kind import Facts
from ...schedules.words.group import Group, Node, Request, Value
from ...schedules.words.layout import Layout
from .drafts import Draft, Drafts

TIMES = 4  # how often an element may be computed: about what writing and reading it costs


def prologue_of(draft: Draft, fuser: Drafts) -> list[Node]:
    """The nodes of a convolution's group that compute its data, in program order; none for other groups."""
    if draft.anchor is None or not supports_conv(draft.anchor):
        return []
    found: dict[Node, None] = {}
    stack = [draft.anchor.operands[0]]
    while stack:
        node = fuser.produced_by.get(stack.pop())
        if node is not None and node not in found and node in draft.nodes:
            found[node] = None
            stack.extend(node.inputs)
    return sorted(found, key=lambda n: fuser.order[n])


def prologue_problem(anchor: Node, value: Value, nodes: Sequence[Node], fuser: Drafts) -> str:
    """The reason why ``value``, made by the maps ``nodes``, is better written to memory before ``anchor`` reads it;
    empty if it may be computed in the anchor's loads."""
    target = fuser.target
    if target is None or not supports_conv(anchor) or anchor.operator == TRANSPOSED:
        return "its kernel reads its operands from memory"
    facts, maps = ConvFacts.of(anchor), [fuser.facts[n] for n in nodes]
    if facts.data is not value:
        return "it is not the data"
    if all(f.node.operator == "relax.strided_slice" for f in maps):
        return "a slice may be read where it lies"
    if any(f.costly and not _moves_only(f) for f in maps):
        return "it costs too much to be computed more than once"
    if not _keeps_channels(nodes, value, target.lanes(value.dtype)):
        return "it mixes channels, and the kernel loads vectors of them"
    times = times_loaded(_alone(anchor, facts, fuser))
    if times is None:
        return "its kernel loads single elements, many times"
    return "" if times <= TIMES else f"each element would be computed {times:.0f} times"


def _alone(anchor: Node, facts: ConvFacts, fuser: Drafts) -> Request:
    """What asks for the kernel of ``anchor`` with nothing around it, in the layouts that it will most likely have."""
    group = Group(anchor.name, (anchor,), tuple(dict.fromkeys(anchor.inputs)), anchor.results, anchor)
    block = fuser.target.channel_block(facts.data.dtype)
    layouts = {v: Layout.blocked(v.shape, block) for v in (facts.data, facts.output)}
    if facts.is_plain:
        layouts[facts.data] = Layout.plain(facts.data.shape)
    return Request(group, layouts, fuser.target, fuser.policy.narrowed(anchor.sources))


def _keeps_channels(nodes: Sequence[Node], value: Value, lanes: int) -> bool:
    """True if a vector of channels of ``value`` is made of such vectors."""
    made = {r for n in nodes for r in n.results}
    inputs = tuple(dict.fromkeys(v for n in nodes for v in n.inputs if v not in made))
    blocked = {v: lanes for v in inputs if v.constant is None and len(v.shape) == len(value.shape)}
    return preserves_channels(Group("before", tuple(nodes), inputs, (value,)), blocked, lanes)


def _moves_only(facts: Facts) -> bool:
    """True for a pad: its choice between an element and a constant is a select here."""
    return facts.node.operator in ("relax.nn.pad", "halotile.pad")
