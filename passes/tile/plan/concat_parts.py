"""Concatenations of channels in tile groups whose parts are computed where they belong.

    a has a window, b has one, both are copied into that of concat(a, b)
        ->    a's window is the first channels of concat(a, b)'s, b's the others

The window then lives from the first part's step on, its parts have none of their own, and the concatenation computes
nothing. What is made elsewhere, or read by others as well, is copied there by a member of its own. In a window of one
image the blocks of a part's channels lie one after the other, so that kernels see a window like any other.

That needs parts that the concatenation alone reads, of whole channel blocks (but for the last), whose rows and columns
appear together, and no rows of theirs that are kept from stripe to stripe: the concatenation keeps its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....schedules.tiled.box_support import box_alignment
from ....schedules.words.group import Group, Value
from ....schedules.words.layout import Layout
from ...fuse.outputs import copy_group
from .form import MATERIALISE, Form
from .renamed import renamed

CONCAT = "relax.concat"


@dataclass(frozen=True)
class Parts:
    """The groups of a tile group with its concatenations taken apart. ``groups`` has new ones that copy inputs which
    are made elsewhere; ``wholes``: part -> the concatenation that it is a part of, in order."""

    groups: tuple[Group, ...]
    wholes: Mapping[Value, Value] = field(default_factory=dict)

    def alignments(self) -> list[tuple[int, int]]:
        """(rows, columns) for each group that its boxes begin and end at multiples of; the same for a concatenation and
        all its parts."""
        own = [box_alignment(g) for g in self.groups]
        places = [self.wholes.get(g.outputs[0], g.outputs[0]) for g in self.groups]
        found = []
        for place in places:
            rows, columns = zip(*(a for a, other in zip(own, places) if other is place))
            found.append((math.lcm(*rows), math.lcm(*columns)))
        return found


def parts_of(groups: Sequence[Group], layouts: Mapping[Value, Layout], leaving: frozenset[Value], form: Form) -> Parts:
    """``groups`` with those concatenations taken apart that can be computed part by part in their own window: of
    channel blocks, with at least one part that is made in the group and read by nobody else."""
    readers: dict[Value, list[Group]] = {}
    for group in groups:
        for value in dict.fromkeys(group.inputs):
            readers.setdefault(value, []).append(group)
    inner = {
        v
        for g in groups
        for v in g.outputs
        if len(g.outputs) == 1 and v in readers and v not in leaving and form.mode(v) != MATERIALISE
    }
    found: list[Group] = []
    wholes: dict[Value, Value] = {}
    for group in groups:
        whole = group.outputs[0]
        own = [v for v in group.inputs if v in inner and readers[v] == [group] and v not in wholes.values()]
        if not own or whole not in inner or not joins_blocks(group, layouts):
            found.append(group)
            continue
        copies: dict[Value, Value] = {}
        for value in group.inputs:
            if value not in own:
                copies[value] = replace(value, name=f"{value.name}_part")
                found.append(copy_group(f"{group.name}_part{len(copies)}", value, copies[value]))
            wholes[copies.get(value, value)] = whole
        found.append(renamed(group, copies, group.name) if copies else group)
    return Parts(tuple(found), wholes)


def joins_blocks(group: Group, layouts: Mapping[Value, Layout]) -> bool:
    """True for a concatenation of different values of whole channel blocks, of one image."""
    whole = group.outputs[0]
    if group.operators != (CONCAT,) or len(whole.shape) != 4 or whole.shape[0] != 1:
        return False
    parts, axis = group.nodes[0].inputs, group.nodes[0].call.attrs.axis
    if axis is None or int(axis) % 4 != 1 or len(set(parts)) != len(parts) or parts != group.inputs:
        return False
    if whole not in layouts or any(v.constant is not None or v not in layouts or v.dtype != whole.dtype for v in parts):
        return False
    block, stored = layouts[whole].block, layouts[whole].stored
    blocked = block > 0 and all((layouts[v].block, layouts[v].stored) == (block, stored) for v in parts)
    return blocked and all(v.shape[1] % block == 0 for v in parts[:-1])
