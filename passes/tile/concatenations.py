"""Concatenations that the layout pass made vanish, as members of tile groups.

    a, b in one place of memory, read as concat(a, b)      costs nothing, but both must lie whole
    a window of a, a window of b, copied into one window   costs a copy in cache, and neither need lie whole

So there are other versions of the program, in which some concatenations are groups again: those that end up inside of
a tile group, where the copy is cheap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...schedules.group import Group, Value
from ..memory.places import Places
from .again import Change, changes
from .candidates import Program
from .estimate import Model
from .search import Search


def with_concatenations(
    model: Model, vanished: Mapping[Value, Group], budget: int | None, speed: bool, again: bool = False
) -> list[Model]:
    """The versions of the program that are worth a look beside ``model``'s own: with the concatenations that the
    fastest choice tiles, and unless only ``speed`` counts the smallest, a middle, and the fastest ones that (just, or
    easily) keep the budget. ``again``: in all of them late readers have what is cheap computed again (again.py)."""
    able = [v for v in vanished if _separable(v, vanished[v], model.program)]
    every = model.of(reinstated(model.program, {v: vanished[v] for v in able}))
    if not again:
        return _versions(model, every, vanished, able, budget, speed, None) if able else []
    found = []
    for change in changes(every):
        changed = model.of(change(every.program))
        found += _versions(model, changed, vanished, able, budget, speed, change) if able else [changed]
    return found


def _versions(
    model: Model,
    every: Model,
    vanished: Mapping[Value, Group],
    able: Sequence[Value],
    budget: int | None,
    speed: bool,
    change: Change | None,
) -> list[Model]:
    """With some of the concatenations that ``every`` has all of, and ``change`` made."""
    program = model.program
    curve = Search(every).curve()
    versions = {}
    picks = [curve[-1]] if speed else [curve[0], curve[len(curve) // 2], curve[-1]]
    for limit in (budget, 0.85 * budget) if budget is not None else ():
        picks += [c for c in curve if c.bytes <= limit][-1:]
    for choice in dict.fromkeys(picks):
        inside = _inside_tiles(every.program, choice.tiled, able)
        if inside or change is not None:
            versions[frozenset(inside)] = inside
    found = []
    for chosen in versions.values():
        if len(chosen) == len(able):
            found.append(every)
            continue
        version = reinstated(program, {v: vanished[v] for v in chosen})
        found.append(model.of(change(version) if change is not None else version))
    return found


def _separable(whole: Value, group: Group, program: Program) -> bool:
    """True if the parts lie in ``whole`` and nowhere else, and nothing lies in the parts."""
    slices = program.places.slices
    bases = {base for base, _ in slices.values()}
    views = {*program.places.views, *program.places.views.values()}
    parts = [v for v in group.inputs if v.constant is None]
    if whole in slices or whole in views or len(parts) != len(group.inputs):
        return False
    return all(p in slices and slices[p][0] is whole and p not in bases and p not in views for p in parts)


def reinstated(program: Program, chosen: Mapping[Value, Group]) -> Program:
    """``program`` with these concatenations as groups, each before the first group that reads it."""
    parts = {p for g in chosen.values() for p in g.inputs}
    slices = {v: place for v, place in program.places.slices.items() if v not in parts}
    groups: list[Group] = []
    left = dict(chosen)
    for group in program.groups:
        for value in group.inputs:
            if value in left:
                groups.append(left.pop(value))
        groups.append(group)
    groups += left.values()
    places = Places(program.places.views, slices)
    return Program(groups, program.layouts, places, program.outputs, program.refusals)


def _inside_tiles(program: Program, tiled: Iterable[object], able: Iterable[Value]) -> list[Value]:
    """Those of ``able`` that a tile group makes and reads."""
    found = []
    for value in able:
        made = program.producer[value]
        readers = program.readers.get(value, [])
        for segment in tiled:
            first, last = segment.first, segment.last  # type: ignore[attr-defined]
            if first <= made and readers and max(readers) <= last:
                found.append(value)
    return found
