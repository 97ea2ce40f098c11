"""The last sums of products before the model's outputs: their rounding is what a user sees, or a softmax enlarges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...schedules.operators.kind import ANCHORS
from ...schedules.words.group import Group, Value
from .outputs import root_of


def closing_values(
    groups: Sequence[Group], outputs: Sequence[Value], views: Mapping[Value, Value]
) -> frozenset[Value]:
    """What convolutions and matrix products write that reaches ``outputs`` through no other such group."""
    known = dict(views)
    producers = {root_of(v, known): g for g in groups for v in g.outputs}
    found: set[Value] = set()
    seen: set[Value] = set()
    stack = list(outputs)
    while stack:
        value = root_of(stack.pop(), known)
        group = producers.get(value)
        if group is None or value in seen:
            continue
        seen.add(value)
        if group.anchor is not None and group.anchor.operator in ANCHORS:
            found.update(group.outputs)
        else:
            stack.extend(v for v in group.inputs if v.constant is None)
    return frozenset(found)
