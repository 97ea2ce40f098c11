"""A channel shuffle, the concatenation before it and the slices behind it are one group.

    concat(a, b) -> reshape -> transpose -> reshape -> slice (first half), slice (second half)      ->      one map

Each channel of its outputs is one of ``a`` or ``b``, so in channel blocks a vector is a permutation of a few: the whole
is never written, nor any part of it plain (schedules/general/channel_shuffle.py).
"""

from __future__ import annotations

from ...schedules.conv import supports_conv
from ...schedules.general.channel_shuffle import MOVES, channel_tables
from ...schedules.words.group import Group, Node
from .drafts import Draft, Drafts
from .moves import group_of, take

PARTS = {"relax.strided_slice", "relax.split"}


def merge_shuffles(fuser: Drafts, drafts: list[Draft]) -> list[Draft]:
    """``drafts``, those of transposes with the moves around them where all together only move channels of images that
    convolutions write."""
    gone: set[int] = set()
    for draft in drafts:
        if id(draft) in gone or draft.anchor is not None or not _moves(draft):
            continue
        if all(n.operator != "relax.permute_dims" for n in draft.nodes):
            continue
        group = group_of(fuser, draft, _parts(fuser, _sources(fuser, set(draft.nodes))))
        if channel_tables(group) is not None and _of_convolutions(fuser, group):
            gone |= take(fuser, draft, group)
    return [d for d in drafts if id(d) not in gone]


def _moves(draft: Draft) -> bool:
    return all(n.operator in MOVES for n in draft.nodes)


def _free(fuser: Drafts, node: Node) -> set[Node] | None:
    """The nodes that go where ``node`` goes: it alone if it is a view, or all of its group of moves."""
    owner = fuser.owner.get(node)
    if owner is None:
        return {node}
    return set(owner.nodes) if owner.anchor is None and _moves(owner) else None


def _sources(fuser: Drafts, nodes: set[Node]) -> set[Node]:
    """``nodes`` with the views and concatenations that only they read."""
    nodes = set(nodes)
    stack = [v for n in nodes for v in n.inputs]
    while stack:
        node = fuser.produced_by.get(stack.pop())
        if node is None or node in nodes or node.operator in PARTS:
            continue
        more = _free(fuser, node)
        if more is None or any(n.operator in PARTS for n in more):
            continue
        inside = nodes | more
        results = [r for n in more for r in n.results]
        if all(r not in fuser.leaves and all(c in inside for c in fuser.consumers.get(r, [])) for r in results):
            nodes = inside
            stack += [v for n in more for v in n.inputs]
    return nodes


def _parts(fuser: Drafts, nodes: set[Node]) -> set[Node]:
    """``nodes`` with the views behind them, and the slices behind these if nothing else reads the whole."""
    nodes = set(nodes)
    while True:
        ends = {r for n in nodes for r in n.results if any(c not in nodes for c in fuser.consumers.get(r, []))}
        more: set[Node] = set()
        for value in ends:
            readers = [c for c in fuser.consumers[value] if c not in nodes]
            free = [_free(fuser, c) for c in readers]
            fits = len(value.shape) != 4 and len(readers) == 1 and free[0] == {readers[0]}
            fits |= len(value.shape) == 4 and all(f == {c} and c.operator in PARTS for f, c in zip(free, readers))
            if fits and value not in fuser.leaves:
                more |= set(readers)
        if not more:
            return nodes
        nodes |= more


def _of_convolutions(fuser: Drafts, group: Group) -> bool:
    """True if a convolution writes one of the inputs, and maps, pools or shuffles the others: images in blocks."""
    found = False
    for value in group.inputs:
        node = fuser.produced_by.get(value)
        owner = fuser.owner.get(node) if node is not None else None
        if owner is None or owner.kind == "opaque":
            return False
        found |= owner.anchor is not None and supports_conv(owner.anchor)
    return found
