"""Moves from image to image by way of more axes are one group: pixel shuffle, space to depth, channel shuffle.

    conv -> reshape (6 axes) -> transpose -> reshape (4 axes)       ->      conv -> one map

A convolution's result lies in channel blocks, where the first reshape would be a copy of its own, and only a group
whose results are images can be computed in tiles.
"""

from __future__ import annotations

from ...schedules.conv import supports_conv
from ...schedules.words.group import Node, Value
from .drafts import Draft, Drafts


def merge_images(fuser: Drafts, drafts: list[Draft]) -> list[Draft]:
    """``drafts``, those of maps with the views before and behind them where both ends are images and the first one
    comes from a convolution."""
    for draft in drafts:
        if draft.kind != "injective" or draft.anchor is not None:
            continue
        before = _before(fuser, draft)
        after = _after(fuser, draft)
        if before is None or after is None:
            continue
        draft.nodes = [before, *draft.nodes, after]
        for node in (before, after):
            fuser.owner[node] = draft
    return drafts


def _before(fuser: Drafts, draft: Draft) -> Node | None:
    """The view that turns a convolution's image into what ``draft`` reads, and that nothing else reads."""
    made = {r for n in draft.nodes for r in n.results}
    read = {v for n in draft.nodes for v in n.inputs if v not in made and v.constant is None}
    if len(read) != 1:
        return None
    value = read.pop()
    node = fuser.produced_by.get(value)
    if node is None or fuser.facts[node].kind != "view" or len(node.inputs[0].shape) != 4:
        return None
    if value in fuser.leaves or any(c not in draft.nodes for c in fuser.consumers.get(value, [])):
        return None
    producer = fuser.produced_by.get(node.inputs[0])
    owner = fuser.owner.get(producer) if producer is not None else None
    if owner is None or owner.anchor is None or not supports_conv(owner.anchor):
        return None
    return node


def _after(fuser: Drafts, draft: Draft) -> Node | None:
    """The view that turns the result of ``draft`` into an image, if nothing else reads the result."""
    outputs: list[Value] = fuser.outputs_of(draft.nodes)
    if len(outputs) != 1 or outputs[0] in fuser.leaves:
        return None
    readers = fuser.consumers.get(outputs[0], [])
    if len(readers) != 1 or fuser.facts[readers[0]].kind != "view" or readers[0] in fuser.owner:
        return None
    return readers[0] if len(readers[0].results[0].shape) == 4 else None
