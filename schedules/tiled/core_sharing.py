"""Steps that cores share: one task for all of them, whose windows lie in memory once.

    for stripe: for phase:                      parallel for core: its part of some members' steps

Bands would each compute the halo of a whole chain at their ends and have windows of their own. Here the cores wait for
each other: not after every member, but before one that needs what another core made since they last did, or writes over
it (a 1x1 layer needs no more than its own core's part of a 3x3 layer before).

    wide     each core has its columns, the same ones in all steps of a member
    narrow   rows: next to short parts of rows lie those of other cores, which a core asks for ahead and takes from them
             (columns, of steps that have fewer rows than there are cores)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..operators.regions import BoxRefusal, group_needs
from ..words.group import Group, Value, dtype_bytes
from ..words.tile_plan import Compute, Copy, Fill, Shift, Span, Step, TilePlan
from .box_support import box_alignment

if TYPE_CHECKING:
    import numpy as np

UNITS = (12, 4)  # columns that a core's share is a multiple of: tiles of transforms
WIDE = 64  # columns of a core, where they share columns
PARTS = 16  # of so many units at least
FEWEST = 8  # columns of a core, where rows are too few to be shared
Box = tuple[Span, Span]  # rows, columns
Part = tuple[int, Step]  # core


def by_rows(width: int, sharing: int | np.ndarray) -> bool | np.ndarray:
    """True if ``sharing`` cores (a number, or an array of them) share the rows of a tile group's steps, whose last
    output is ``width`` columns wide; False if they share columns."""
    return width < WIDE * sharing


@dataclass
class Sharing:
    """Deals the steps of ``plan`` to its cores, stripe by stripe. ``cuts`` has for each member the first column of
    every core but the first, ``needs`` the boxes that members read, by member and output box."""

    plan: TilePlan
    cuts: list[list[int]] = field(default_factory=list)
    needs: dict[tuple[Group, Box], dict[Value, Box]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cuts = column_cuts(self.plan)
        self.rows = by_rows(self.plan.members[-1].outputs[0].shape[3], self.plan.sharing)
        self.producer = {v: i for i, m in enumerate(self.plan.members) for v in m.outputs}
        self.taken = set(self.plan.takes.values())
        self.same = {**self.plan.takes, **self.plan.wholes, **self.plan.inplace}

    def stripe(self, steps: Sequence[Step]) -> list[tuple[int, int, Step]]:
        """The steps of a stripe as (phase, core, part of a step), phase by phase, each core's parts in their order.
        Cores wait for each other between phases: a new one begins before a part that reads or overwrites what another
        core wrote or read in this one."""
        phase, now, found = 0, _Phase(self.plan, self.same), []
        for step in steps:
            parts = self.parts(step)
            touched = [(core, self._reads(part), self._writes(part)) for core, part in parts]
            if any(now.forbids(*t) for t in touched):
                phase, now = phase + 1, _Phase(self.plan, self.same)
            for core, reads, writes in touched:
                now.add(core, reads, writes)
            found += [(phase, core, part) for core, part in parts]
        return found

    def parts(self, step: Step) -> list[Part]:
        """``step`` cut into one part for each core that has work in it, as (core, part)."""
        if self.rows:
            return self._by_rows(step)
        if isinstance(step, Compute):
            member, columns = step.member, step.columns
        else:
            member = self.producer[self._value(step)]
            columns = step.columns if isinstance(step, Fill) else self._columns(step)
        return [(core, replace(step, columns=own)) for core, own in shares(columns, self.cuts[member])]

    def _by_rows(self, step: Step) -> list[Part]:
        cores = self.plan.sharing
        if isinstance(step, Compute) and self._by_columns(step):
            return [(core, replace(step, columns=own)) for core, own in shares(step.columns, self.cuts[step.member])]
        if isinstance(step, Compute | Fill):
            member = step.member if isinstance(step, Compute) else self.producer[step.value]
            parts = row_shares(step.rows, cores, box_alignment(self.plan.members[member])[0])
            return [(core, replace(step, rows=own)) for core, own in parts]
        if isinstance(step, Shift):  # no core may write what another has yet to move
            cuts = self.cuts[self.producer[step.value]]
            return [(core, replace(step, columns=own)) for core, own in shares(self._columns(step), cuts)]
        return [(cores - 1, step)]  # the last rows are kept, which the last core makes

    def _by_columns(self, step: Compute) -> bool:
        """True if the cores share the columns of ``step`` although the group shares rows: some core would have no row
        (as windows are filled, before the first stripe), and columns are enough for all. Never for members that
        overwrite what they read, whose register tiles are chosen for whole rows."""
        cores, own = self.plan.sharing, self.plan.members[step.member].outputs
        few = step.rows[1] - step.rows[0] < cores and step.columns[1] - step.columns[0] >= FEWEST * cores
        return few and not any(v in self.plan.inplace or v in self.plan.takes for v in own)

    def _value(self, step: Fill | Shift | Copy) -> Value:
        """The value of the ring that ``step`` works on."""
        if isinstance(step, Copy):
            return step.source if step.source in self.producer else step.target
        return step.value

    def _columns(self, step: Shift | Copy) -> Span:
        return step.base[1], step.base[1] + self.plan.windows[self._value(step)].layout.shape[3]

    # -- what a part touches -----------------------------------------------------------------------

    def _reads(self, step: Step) -> list[tuple[Value, Box]]:
        if isinstance(step, Compute):
            needs = self._needs(self.plan.members[step.member], (step.rows, step.columns))
            return [(v, box) for v, box in needs.items() if v in self.producer or v in self.taken]
        if isinstance(step, Copy):
            return [(step.source, self._copied(step.source, step))]
        return [(step.value, (step.keep, step.columns or self._columns(step)))] if isinstance(step, Shift) else []

    def _writes(self, step: Step) -> list[tuple[Value, Box]]:
        if isinstance(step, Compute):
            return [(v, (step.rows, step.columns)) for v in self.plan.members[step.member].outputs]
        if isinstance(step, Fill):
            return [(step.value, (step.rows, step.columns))]
        if isinstance(step, Copy):
            return [(step.target, self._copied(step.target, step))]
        return [(step.value, (EVERY, step.columns or self._columns(step)))]  # what lay where rows come to lie

    def _copied(self, value: Value, step: Copy) -> Box:
        """The box of ``value`` that ``step`` reads or writes. Saved rows (a value that no member makes) count as all
        rows: their window holds other rows at the same bytes from stripe to stripe."""
        return step.rows if value in self.producer else EVERY, step.columns or self._columns(step)

    def _needs(self, group: Group, box: Box) -> dict[Value, Box]:
        if (group, box) not in self.needs:
            found: dict[Value, Box] = {}
            for output in group.outputs:
                needs = group_needs(group, output, ((0, output.shape[0]), (0, output.shape[1]), *box))
                assert not isinstance(needs, BoxRefusal)
                for need in (n for n in needs if len(n.value.shape) == 4):
                    rows, columns = need.box[2:4]
                    old = found.get(need.value, (rows, columns))
                    found[need.value] = _hull(old[0], rows), _hull(old[1], columns)
            self.needs[group, box] = found
        return self.needs[group, box]


EVERY = (-(1 << 30), 1 << 30)


@dataclass
class _Phase:
    """What cores have read and written since they last waited for each other."""

    plan: TilePlan
    same: Mapping[Value, Value]
    made: dict[Value, list[tuple[int, Box]]] = field(default_factory=dict)
    read: dict[Value, list[tuple[int, Box]]] = field(default_factory=dict)

    def _place(self, value: Value) -> Value:
        """The value that stands for all that have this one's window or memory: the same rows lie at the same bytes."""
        while value in self.same:
            value = self.same[value]
        return value

    def forbids(self, core: int, reads: Sequence[tuple[Value, Box]], writes: Sequence[tuple[Value, Box]]) -> bool:
        """True if this may not run beside what other cores did."""
        reads, writes = ([(self._place(v), box) for v, box in boxes] for boxes in (reads, writes))
        for value, box in reads:
            if self._meets(self.made.get(value, ()), core, box) or self._beside(value, self.made, core):
                return True
        for value, box in writes:
            for before in (self.made, self.read):
                if self._meets(before.get(value, ()), core, box) or self._beside(value, before, core):
                    return True
        return False

    def add(self, core: int, reads: Sequence[tuple[Value, Box]], writes: Sequence[tuple[Value, Box]]) -> None:
        for known, new in ((self.read, reads), (self.made, writes)):
            for value, box in new:
                known.setdefault(self._place(value), []).append((core, box))

    def _meets(self, before: Sequence[tuple[int, Box]], core: int, box: Box) -> bool:
        return any(c != core and _overlap(b[0], box[0]) and _overlap(b[1], box[1]) for c, b in before)

    def _beside(self, value: Value, before: dict[Value, list[tuple[int, Box]]], core: int) -> bool:
        """True if another core touched other values in the same bytes."""
        own = self._bytes(value)
        return own is not None and any(
            other is not value and (span := self._bytes(other)) is not None and _overlap(own, span)
            and any(c != core for c, _ in touched)
            for other, touched in before.items()
        )  # fmt: skip

    def _bytes(self, value: Value) -> Span | None:
        window = self.plan.windows.get(value)
        if window is None:
            return None
        return window.offset, window.offset + window.layout.elements * dtype_bytes(window.layout.held(value.dtype))


def _overlap(a: Span, b: Span) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _hull(a: Span, b: Span) -> Span:
    return min(a[0], b[0]), max(a[1], b[1])


def column_cuts(plan: TilePlan) -> list[list[int]]:
    """The first column of each core but the first, as ``[member][core - 1]``."""
    return [_cuts(member, plan.sharing) for member in plan.members]


def column_unit(member: Group, sharing: int) -> int:
    """The greatest common divisor of the columns that each of ``sharing`` cores computes of ``member``, where they
    share columns: register tiles that divide it compute no column twice."""
    own = shares((0, member.outputs[0].shape[3]), _cuts(member, sharing))
    return math.gcd(*(high - low for _, (low, high) in own))


def _cuts(member: Group, sharing: int) -> list[int]:
    width, alignment = member.outputs[0].shape[3], box_alignment(member)[1]
    unit = next((u for u in UNITS if width >= PARTS * u), 1)
    unit = math.lcm(unit, alignment)
    return [round(width * i / sharing / unit) * unit for i in range(1, sharing)]


def row_shares(rows: Span, sharing: int, alignment: int) -> list[tuple[int, Span]]:
    """The part of ``rows`` of each core that has any, as (core, rows). Cuts are at multiples of ``alignment``, and of
    four rows (a transform's tile) or two where there are enough."""
    count = rows[1] - rows[0]
    unit = next((u for u in (4, 2) if count >= sharing * u), 1)
    unit = math.lcm(unit, alignment)
    return shares(rows, [rows[0] + round(count * i / sharing / unit) * unit for i in range(1, sharing)])


def shares(span: Span, cuts: Sequence[int]) -> list[tuple[int, Span]]:
    """The part of ``span`` of each core that has any, as (core, part); ``cuts`` are the first positions of all cores
    but the first."""
    inner = [min(max(c, span[0]), span[1]) for c in cuts]
    parts = zip([span[0], *inner], [*inner, span[1]])
    return [(core, own) for core, own in enumerate(parts) if own[0] < own[1]]
