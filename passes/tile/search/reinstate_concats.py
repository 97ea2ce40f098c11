"""Concatenations and slices that the layout pass made vanish, as members of tile groups.

    a, b in one place of memory, read as concat(a, b)      costs nothing, but both must lie whole
    a window of a, a window of b, copied into one window   costs a copy in cache, and neither need lie whole

So there are other versions of the program, in which some concatenations are groups again: those that end up inside of
a tile group, where the copy is cheap. The same is true of slices of a whole; those of a concatenation's part come back
with it (the halves of which blocks of YOLO keep one and go on with the other).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ....schedules.words.group import Group, Value
from ...memory.places import Places
from ..plan.concat_parts import CONCAT
from .model import SearchModel
from .program import Program
from .recompute_late import Change, changes
from .search import Search


def with_concatenations(
    model: SearchModel, vanished: Mapping[Value, Group], budget: int | None, speed: bool, again: bool = False
) -> list[SearchModel]:
    """Variants of ``model``'s program that are worth a search beside its own, with concatenations that had vanished as
    groups again: those that the fastest choice tiles; unless only ``speed`` counts, also those of the smallest, a
    middle, and the fastest choices that keep ``budget`` bytes, just and easily. ``again``: late readers compute cheap
    values again in all of them (recompute_late.py)."""
    able = _separable(model.program, vanished)
    every = model.of(reinstated(model.program, _together(able.values())))
    if not again:
        return _versions(model, every, able, budget, speed, None) if able else []
    found = []
    for change in changes(every):
        changed = model.of(change(every.program))
        found += _versions(model, changed, able, budget, speed, change) if able else [changed]
    return found


def _versions(
    model: SearchModel,
    every: SearchModel,
    able: Mapping[Value, Mapping[Value, Group]],
    budget: int | None,
    speed: bool,
    change: Change | None,
) -> list[SearchModel]:
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
        version = reinstated(program, _together(able[v] for v in chosen))
        found.append(model.of(change(version) if change is not None else version))
    return found


def _separable(program: Program, vanished: Mapping[Value, Group]) -> dict[Value, dict[Value, Group]]:
    """By (first) result, the concatenations and cuts that can be groups again, each with all that must be with it."""
    cuts = {v: g for v, g in vanished.items() if g.operators != (CONCAT,)}
    found = {}
    for value, group in vanished.items():
        own = {value: group}
        if value not in cuts:
            own |= {v: cut for v, cut in cuts.items() if cut.inputs[0] in group.inputs}
        if all(_is_free(v, g, own, program) for v, g in own.items()):
            found[value] = own
    return found


def _is_free(value: Value, group: Group, together: Mapping[Value, Group], program: Program) -> bool:
    """True if the parts lie in their whole and nowhere else, and nothing lies in them but what comes back, too."""
    freed = {p for g in together.values() for p in _parts(g)}
    slices, whole = program.places.slices, value if group.operators == (CONCAT,) else group.inputs[0]
    bases = {base for v, (base, _) in slices.items() if v not in freed}
    views = {*program.places.views, *program.places.views.values()}
    if whole in views or (whole in slices and whole not in freed) or any(v.constant is not None for v in group.inputs):
        return False
    return all(p in slices and slices[p][0] is whole and p not in bases and p not in views for p in _parts(group))


def _parts(group: Group) -> tuple[Value, ...]:
    """What lies in the whole that ``group`` makes or cuts."""
    return group.inputs if group.operators == (CONCAT,) else group.outputs


def _together(chosen: Iterable[Mapping[Value, Group]]) -> dict[Value, Group]:
    return {v: g for groups in chosen for v, g in groups.items()}


def reinstated(program: Program, chosen: Mapping[Value, Group]) -> Program:
    """``program`` with the concatenations and cuts in ``chosen`` as groups, each before the first group that reads
    it."""
    parts = {p for g in chosen.values() for p in _parts(g)}
    slices = {v: place for v, place in program.places.slices.items() if v not in parts}
    groups: list[Group] = []
    left = {v: g for g in chosen.values() for v in g.outputs}

    def put(group: Group) -> None:
        for value in group.outputs:
            left.pop(value, None)
        for value in group.inputs:
            if value in left:
                put(left[value])
        groups.append(group)

    for group in program.groups:
        put(group)
    while left:
        put(next(iter(left.values())))
    places = Places(program.places.views, slices)
    return Program(groups, program.layouts, places, program.outputs, program.refusals)


def _inside_tiles(program: Program, tiled: Iterable[object], able: Iterable[Value]) -> list[Value]:
    """Those of ``able`` that a tile group makes and reads; of cuts, whose whole it makes as well."""
    found = []
    for value in able:
        made = program.producer[value]
        group = program.groups[made]
        readers = [r for v in group.outputs for r in program.readers.get(v, [])]
        begin = made if group.operators == (CONCAT,) else program.producer.get(group.inputs[0], -1)
        for segment in tiled:
            first, last = segment.first, segment.last  # type: ignore[attr-defined]
            if first <= begin and readers and max(readers) <= last:
                found.append(value)
    return found
