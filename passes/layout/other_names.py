"""Views that give the dims of a value other names, and leave its elements where they are.

    lateral (n, c, (h + 15) // 16, ...)  +  upsampled (n, c, 2 * ((h + 31) // 32), ...)      the model can't run unless
                                                                                            these are the same
Broadcasting puts such a view between the two. What reads it reads the value: in channel blocks as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...schedules.words.group import Group, Value
from ...schedules.words.sizes import same_where_it_runs


def is_renamed(view: Value, base: Value) -> bool:
    """True if all dims are the same wherever the model runs."""
    return len(view.shape) == len(base.shape) and all(map(same_where_it_runs, view.shape, base.shape))


def readers_of(groups: Sequence[Group]) -> dict[Value, list[Group]]:
    """The groups that read each value."""
    found: dict[Value, list[Group]] = {}
    for group in groups:
        for value in group.inputs:
            found.setdefault(value, []).append(group)
    return found


def readers_by_any_name(groups: Sequence[Group], views: Mapping[Value, Value]) -> dict[Value, list[Group]]:
    """The same, and those that read a view by which the value has another name."""
    readers = readers_of(groups)
    for view, base in views.items():
        if is_renamed(view, base):
            readers.setdefault(base, []).extend(readers.get(view, []))
    return readers


def blocks_by_other_names(
    group: Group, views: Mapping[Value, Value], blocks: Mapping[Value, int]
) -> dict[Value, int]:
    """The channel blocks of views that the group reads, whose values have some and another name."""
    named = {v: views[v] for v in group.inputs if v in views and v not in blocks}
    return {v: blocks[base] for v, base in named.items() if base in blocks and is_renamed(v, base)}
