"""Which runs of groups may be one tile group, and which of their values must lie whole in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ....schedules.operators.regions import Box, BoxRefusal, group_needs
from ....schedules.tiled.box_support import box_refusal
from ....schedules.words.group import Group, Value
from ....schedules.words.layout import Layout
from ...memory.places import Places


@dataclass(eq=False)
class Program:
    """The groups of a model in execution order, with layouts and aliases (``places``), and what follows from them for
    tiling. ``outputs`` are values that leave the model, ``given`` its inputs, ``shared`` values that are aliases of
    others or have some."""

    groups: Sequence[Group]
    layouts: Mapping[Value, Layout]
    places: Places
    outputs: frozenset[Value]
    refusals: dict[Group, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.producer = {v: i for i, g in enumerate(self.groups) for v in g.outputs}
        self.readers: dict[Value, list[int]] = {}
        for i, group in enumerate(self.groups):
            for value in dict.fromkeys(group.inputs):
                self.readers.setdefault(value, []).append(i)
        self.given = {v for v in self.readers if v not in self.producer and v.constant is None}
        views, slices = self.places.views, self.places.slices
        self.shared = {*views, *views.values(), *slices, *(base for base, _ in slices.values())}

    def refusal(self, index: int) -> str | None:
        """Why group ``index`` can't be a member of a tile group, or None."""
        group = self.groups[index]
        if group not in self.refusals:
            self.refusals[group] = self._refusal(group)
        return self.refusals[group]

    def _refusal(self, group: Group) -> str | None:
        if any(len(v.shape) != 4 for v in group.outputs) or len({v.shape[2:] for v in group.outputs}) != 1:
            return "its outputs are not images of one size"
        if any(v.elements == 0 for v in group.outputs):
            return "it computes nothing"
        refused = box_refusal(group, self.layouts)
        return refused if refused is not None else separable(group)

    def reads(self, first: int, last: int) -> bool:
        """True if a group after ``first``, up to ``last``, reads what ``first`` makes (or they are the same)."""
        if first == last:
            return True
        return any(first < r <= last for v in self.groups[first].outputs for r in self.readers.get(v, ()))

    def leaving(self, first: int, last: int) -> frozenset[Value]:
        """Values made by groups ``first`` to ``last`` that must lie whole: others read them, or they share memory."""
        found = set()
        for i in range(first, last + 1):
            for value in self.groups[i].outputs:
                outside = any(not first <= r <= last for r in self.readers.get(value, ()))
                if outside or value in self.outputs or value in self.shared:
                    found.add(value)
        return frozenset(found)

    def dying(self, first: int, last: int) -> frozenset[Value]:
        """Values in the arena, alone in their memory, that groups ``first`` to ``last`` read and nobody afterwards."""
        found = set()
        for i in range(first, last + 1):
            for value in self.groups[i].inputs:
                own = value in self.producer and self.producer[value] < first
                own = own and value not in self.outputs and value not in self.shared
                if own and self.readers[value][-1] <= last:
                    found.add(value)
        return frozenset(found)

    def joined(self, first: int, last: int) -> str | None:
        """Why groups ``first`` to ``last`` can't be computed together, or None: what one of them reads must not lie in
        memory that another one writes, unless it is that very value."""
        made = {v for i in range(first, last + 1) for v in self.groups[i].outputs}
        written = {self.places.root(v) for v in made if v in self.shared}
        for i in range(first, last + 1):
            for value in self.groups[i].inputs:
                if value not in made and value in self.shared and self.places.root(value) in written:
                    return f"{self.groups[i].name} reads {value.name}, of which the group writes a part"
        return None


def separable(group: Group) -> str | None:
    """Why the rows that ``group`` needs depend on its columns (or the reverse), or why its regions are unknown."""
    for output in group.outputs:
        rows, columns = output.shape[2:4]
        probes = [((0, rows), (0, columns)), ((0, 1), (0, columns)), ((0, rows), (0, 1)), ((0, 1), (0, 1))]
        found = []
        for probe in probes:
            box: Box = ((0, output.shape[0]), (0, output.shape[1]), *probe)
            needs = group_needs(group, output, box)
            if isinstance(needs, BoxRefusal):
                return needs.reason
            found.append({n.value: n.box for n in needs if len(n.value.shape) == 4 and n.value.constant is None})
        whole, row, column, corner = found
        for value, box in whole.items():
            if value not in row or value not in column or value not in corner:
                return "what it needs depends on rows and columns together"
            same = row[value][3] == box[3] and column[value][2] == box[2]
            if not same or corner[value][2] != row[value][2] or corner[value][3] != column[value][3]:
                return "the rows that it needs depend on its columns"
    return None
