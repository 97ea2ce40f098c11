"""From a form to a plan: the steps of every task.

for band, column block:                     a task
    for stripe:
        for member:  Shift, Compute, Fill   kept rows move up, new ones appear, places outside become zero (once)
                     Copy                   or kept rows were saved, and return; those of the next stripe are saved
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ....schedules.words.group import Group, Value
from ....schedules.words.layout import Layout
from ....schedules.words.tile_plan import Compute, Copy, Fill, Shift, Span, Step, Task, TilePlan
from ....targets.target import Target
from .concat_parts import Parts, parts_of
from .concat_windows import check_parts
from .fills import without_repeats
from .form import MATERIALISE, RECOMPUTE, RING, Form, Needs, Untileable, clip
from .members import Members
from .overwrite_inputs import takes_of
from .rows_and_columns import Piece, clipped, column_spans, row_pieces
from .windows import place_windows
from .work import work_per_element


def plan_group(
    groups: Sequence[Group],
    layouts: Mapping[Value, Layout],
    target: Target,
    stripe_rows: int,
    column_width: int | None = None,
    bands: int | None = None,
    modes: Mapping[Value, str] | None = None,
    *,
    leaving: frozenset[Value] = frozenset(),
    quantum: int = 1,
    needs: Needs | None = None,
) -> TilePlan:
    """The plan of ``groups`` (in program order, the last one drives) in stripes of ``stripe_rows`` rows and blocks of
    ``column_width`` columns of its last output (None: all). ``leaving`` are values that others read as well. Raises
    Untileable."""
    last = groups[-1].outputs[-1]
    form = Form(
        stripe_rows, column_width or last.shape[3], target.cores if bands is None else bands, modes or {}, quantum
    )
    return lower(groups, layouts, form, leaving, needs)


def lower(
    groups: Sequence[Group],
    layouts: Mapping[Value, Layout],
    form: Form,
    leaving: frozenset[Value],
    needs: Needs | None = None,
    *,
    apart: bool = False,
) -> TilePlan:
    """The exact plan of ``groups`` in ``form``; arguments and errors as in :func:`plan_group`. Parts of concatenations
    are computed in the concatenation's window where they can be, and if they need not lie ``apart``; the plan then has
    members that copy the other parts there."""
    if needs is None:
        from .needs import group_needs_of

        needs = group_needs_of
    parts = Parts(tuple(groups)) if apart else parts_of(groups, layouts, leaving, form)
    if parts.wholes:
        try:
            return _lowered(parts, layouts, form, leaving, needs)
        except Untileable:
            pass
    return _lowered(Parts(tuple(groups)), layouts, form, leaving, needs)


def _lowered(
    parts: Parts, layouts: Mapping[Value, Layout], form: Form, leaving: frozenset[Value], needs: Needs
) -> TilePlan:
    members, groups = Members.of(parts, leaving, form, needs), parts.groups
    pieces = row_pieces(members, form)
    columns = column_spans(members, form)
    check_parts(members, pieces, columns)
    placed = place_windows(members, layouts, pieces, columns, form)
    windows, rows = placed.windows, placed.rows
    tasks = []
    for b in range(len(rows[-1])):
        for k in range(len(columns[-1])):
            task = _Task(members, rows, columns, placed.saved, b, k).task()
            tasks.append(replace(task, stripes=without_repeats(task.stripes, groups, windows, parts.wholes)))
    modes = {}
    for value in (v for g in groups for v in g.outputs if v in windows):
        modes[value] = RECOMPUTE if form.mode(value) == RECOMPUTE else RING
    for member in members.whole:
        for value in groups[member].outputs:
            if value not in leaving and members.readers[member]:
                modes[value] = MATERIALISE
    extra = extra_work(groups, tasks)
    plan = TilePlan(
        groups, windows, tuple(tasks), placed.bytes, modes, extra,
        sharing=form.sharing, room=form.room, inplace=placed.inplace, wholes=parts.wholes,
    )  # fmt: skip
    return replace(plan, takes=takes_of(groups, plan.outputs, tasks, layouts, form, needs))


def extra_work(groups: Sequence[Group], tasks: Sequence[Task]) -> float:
    """Multiply-adds of all computed boxes over those of the untiled groups: 1.0 if nothing is computed twice."""
    each = [work_per_element(g) for g in groups]
    once = sum(w * g.outputs[0].shape[2] * g.outputs[0].shape[3] for w, g in zip(each, groups))
    done = 0.0
    for task in tasks:
        for steps in task.stripes:
            for step in steps:
                if isinstance(step, Compute):
                    area = (step.rows[1] - step.rows[0]) * (step.columns[1] - step.columns[0])
                    done += each[step.member] * area
    return done / once if once else 1.0


@dataclass(frozen=True)
class _Task:
    members: Members
    rows: Sequence[Sequence[Sequence[Piece]]]
    columns: Sequence[Sequence[Span | None]]
    saved: Mapping[Value, Value]
    band: int
    block: int

    def task(self) -> Task:
        count = len(self.rows[-1][self.band])
        bases: dict[Value, int] = {}
        stripes = tuple(tuple(self._stripe(s, bases)) for s in range(count))
        last = len(self.members.groups) - 1
        fresh = [p.fresh for p in self.rows[last][self.band] if p.fresh is not None]
        columns = self.columns[last][self.block]
        assert columns is not None
        return Task((fresh[0][0], fresh[-1][1]), columns, stripes)

    def _stripe(self, stripe: int, bases: dict[Value, int]) -> list[Step]:
        steps: list[Step] = []
        kept: set[int] = set()
        for member, group in enumerate(self.members.groups):
            wholes = [self.members.producer[self.members.wholes[v]] for v in group.outputs if v in self.members.wholes]
            for owner in (*wholes, member):  # rows of a concatenation move up before its first part appears
                columns = self.columns[owner][self.block]
                if columns is not None and owner not in kept:
                    kept.add(owner)
                    steps += self._kept(owner, stripe, columns, bases)
            columns = self.columns[member][self.block]
            if columns is not None:
                steps += self._member(member, stripe, columns, bases)
                steps += self._saves(member, stripe, columns, bases)
        return steps

    def _kept(self, member: int, stripe: int, columns: Span, bases: dict[Value, int]) -> list[Step]:
        """What rings have already, at its new place."""
        group, piece = self.members.groups[member], self.rows[member][self.band][stripe]
        steps: list[Step] = []
        for value in group.outputs if member not in self.members.whole else ():
            old = bases.get(value)
            if piece.keep is not None and value in self.saved:
                first = piece.keep[0]
                saved = self.saved[value]
                steps.append(Copy(saved, value, piece.keep, (first, columns[0]), at=first - piece.base))
            elif piece.keep is not None and old is not None and old != piece.base:
                steps.append(Shift(value, piece.keep, (old, columns[0])))
            bases[value] = piece.base
        return steps

    def _member(self, member: int, stripe: int, columns: Span, bases: Mapping[Value, int]) -> list[Step]:
        group, piece = self.members.groups[member], self.rows[member][self.band][stripe]
        steps: list[Step] = []
        if piece.fresh is None:
            return steps
        height, width = (self.members.size(member, axis) for axis in (2, 3))
        inside = clipped(piece.fresh, height), clipped(columns, width)
        if inside[0] is not None and inside[1] is not None:
            steps.append(Compute(member, inside[0], inside[1], self._bases(member, bases)))
        for value in group.outputs if member not in self.members.whole else ():
            steps += _fills(value, piece, columns, (height, width))
        return steps

    def _saves(self, member: int, stripe: int, columns: Span, bases: Mapping[Value, int]) -> list[Step]:
        """What rings keep of what they have now: by the core that made it, which has it near."""
        after = self.rows[member][self.band][stripe + 1 : stripe + 2]
        keep = after[0].keep if after else None
        if keep is None:
            return []
        values = [v for v in self.members.groups[member].outputs if v in self.saved]
        return [Copy(v, self.saved[v], keep, (bases[v], columns[0])) for v in values]

    def _bases(self, member: int, bases: Mapping[Value, int]) -> dict[Value, tuple[int, int]]:
        group = self.members.groups[member]
        found = {}
        for value in dict.fromkeys((*group.inputs, *group.outputs)):
            if value in bases:
                owner = self.members.wholes.get(value, value)
                columns = self.columns[self.members.producer[owner]][self.block]
                assert columns is not None
                found[value] = bases[value], columns[0]
            elif self.members.producer.get(value, member) not in {member, *self.members.whole}:
                found[value] = 0, 0  # this block needs nothing of it, but the kernel has a base for it
        return found


def _fills(value: Value, piece: Piece, columns: Span, size: tuple[int, int]) -> list[Step]:
    """Fills for the part of the fresh rows that lies outside of the tensor."""
    assert piece.fresh is not None
    base = piece.base, columns[0]
    low, high = piece.fresh
    inner = clip(piece.fresh, size[0])
    left, right = clip(columns, size[1])
    parts: list[tuple[Span, Span]] = []
    if low < 0:
        parts.append(((low, min(high, 0)), columns))
    if high > size[0]:
        parts.append(((max(low, size[0]), high), columns))
    if inner[0] < inner[1]:
        if columns[0] < 0:
            parts.append((inner, (columns[0], min(columns[1], 0))))
        if columns[1] > size[1]:
            parts.append((inner, (max(columns[0], size[1]), columns[1])))
    return [Fill(value, rows, cols, base) for rows, cols in parts]
