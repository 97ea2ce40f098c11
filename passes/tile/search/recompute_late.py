"""Values that are cheap to compute twice: once for their early readers, and once more for those that come much later.

    x -> conv -> conv -> s -> ... the whole network ... -> concat(s, y)      s lies in memory all the time
    x -> conv -> conv -> s -> ...     x -> conv -> conv -> s' -> concat(s', y)

The second time s' is made inside the tile group that reads it, from what is in memory anyway (the model's inputs), so
that neither s nor s' need ever lie whole. A U-Net's first skip is half of its memory and a fifteenth of its work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ....schedules.words.group import Group, Value
from ..plan.renamed import renamed
from .member_cost import value_bytes
from .model import SearchModel
from .program import Program
from .search import Live

FAR = 8  # groups between a value and a reader that may have it computed again
WORTH = 0.15  # of all work: the most that computing a value again may take
LARGE = 0.1  # of the most bytes that are in use at a time: the least that it must save

Change = Callable[[Program], "Program"]


def changes(model: SearchModel) -> list[Change]:
    """Functions that change a program so that late readers of large, cheap values compute them again: one for the
    largest value alone, since every one costs time, and one for all."""
    program = model.program
    total = sum(model.whole(i).cycles for i in range(len(program.groups)))
    memory = Live(model)
    peak = max(memory.of(model.whole(i)) for i in range(len(program.groups)))
    chosen: dict[Value, list[int]] = {}
    for value, made in program.producer.items():
        late = [r for r in program.readers.get(value, ()) if r - made >= FAR]
        if not late or value in program.outputs or len(value.shape) != 4:
            continue
        needed = _needed(program, made)
        if needed is None or sum(model.whole(i).cycles for i in needed) > WORTH * total:
            continue
        if value_bytes(value, program.layouts) >= LARGE * peak:
            chosen[value] = needed
    largest = sorted(chosen, key=lambda v: -value_bytes(v, program.layouts))[:1]
    sets = [{v: chosen[v] for v in largest}] * (len(chosen) > 1) + [chosen] * bool(chosen)
    return [_change(program, values) for values in sets]


def _change(program: Program, chosen: dict[Value, list[int]]) -> Change:
    groups = {v: [program.groups[i] for i in needed] for v, needed in chosen.items()}
    return lambda p: _with_copies(p, groups)


def _needed(program: Program, made: int) -> list[int] | None:
    """The groups that compute a value from the model's inputs alone, in order; None if one can't be tiled."""
    found: set[int] = set()
    left = [made]
    while left:
        index = left.pop()
        if index in found:
            continue
        if program.refusal(index) is not None:
            return None
        found.add(index)
        left += [program.producer[v] for v in program.groups[index].inputs if v in program.producer]
    return sorted(found)


def _with_copies(program: Program, chosen: dict[Value, list[Group]]) -> Program:
    """``program`` in which late readers of the chosen values read copies, made just before the first of them."""
    groups: list[Group] = []
    again: dict[Value, Value] = {}
    layouts = dict(program.layouts)
    made: dict[Value, int] = {}
    for index, group in enumerate(program.groups):
        for value in group.inputs:
            if value not in chosen or value in again or value in program.shared or index - made[value] < FAR:
                continue
            for original in chosen[value]:
                if not all(v in again for v in original.outputs):
                    for output in original.outputs:
                        again[output] = replace(output, name=f"{output.name}_again")
                        if output in layouts:
                            layouts[again[output]] = layouts[output]
                    groups.append(renamed(original, again, f"{original.name}_again"))
        late = {v: again[v] for v in group.inputs if v in again and v in chosen and index - made[v] >= FAR}
        groups.append(renamed(group, late, group.name) if late else group)
        made.update(dict.fromkeys(group.outputs, index))
    return Program(groups, layouts, program.places, program.outputs, program.refusals)
