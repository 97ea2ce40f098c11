"""Where each window lies in a task's scratch.

Members run in order within a stripe. A window that keeps rows between stripes owns its bytes for the whole task; any
other only from its producer's step to its last reader's, and shares them with those that are not alive then. Windows
are placed largest first at the lowest offset that is free while they live.

Where memory counts, rings that keep few of their rows save these behind their producer's step, in a window that is no
larger, and have them back before they take in others, so that rings share bytes as well:

    ring of 10 rows, 2 kept     10 rows all the time    ->    2 rows all the time, 10 while it is made and read
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...schedules.group import Value, dtype_bytes
from ...schedules.layout import Layout
from ...schedules.tileplan import Span, Window
from .form import Form
from .members import Members
from .spans import Piece

ALIGNMENT = 64
KEPT = 0.5  # of a ring's rows, and no more: it would be copied rather than computed
JOINT = 2  # members at most that run on without waiting, since their windows live at the same time
WORTH = 0.9  # of the bytes, and no more, for which rows are copied twice instead of once


@dataclass(frozen=True)
class _Wanted:
    """A window that lives from step ``first`` to ``last`` of a stripe, and ``kept`` rows of it from one to the next."""

    value: Value
    layout: Layout
    first: int
    last: int
    kept: int = 0

    @property
    def bytes(self) -> int:
        return -(-self.layout.elements * dtype_bytes(self.value.dtype) // ALIGNMENT) * ALIGNMENT

    @property
    def saves(self) -> bool:
        return 0 < self.kept <= KEPT * self.layout.shape[2]


def place_windows(
    members: Members,
    layouts: Mapping[Value, Layout],
    rows: Sequence[Sequence[Sequence[Piece]]],
    columns: Sequence[Sequence[Span | None]],
    form: Form,
) -> tuple[dict[Value, Window], int, dict[Value, Value]]:
    """The windows by value, the bytes of one task, and the values that stand for saved rows, by their ring's. These are
    none unless rings may save rows and it is worth it. Where cores share steps as well, members that need no more than
    a core's own part of what those right before made run on without waiting: their windows live at the same time."""
    wanted: list[_Wanted] = []
    runs = joint_runs(members) if form.saves and form.sharing > 1 else list(range(len(members.groups)))
    steps = len(members.groups)
    for member, group in enumerate(members.groups):
        if member in members.whole:
            continue
        pieces = [p for band in rows[member] for p in band]
        held = max((p.end - p.base for p in pieces), default=0)
        wide = max((c[1] - c[0] for c in columns[member] if c is not None), default=0)
        kept = max((p.keep[1] - p.keep[0] for p in pieces if p.keep is not None), default=0)
        for value in group.outputs:
            known = layouts.get(value)
            shape = (*value.shape[:2], max(1, held), max(1, wide))
            layout = Layout.blocked(shape, known.block if known is not None else 0)
            last = max((r for r, v in members.readers[member] if v is value), default=member)
            wanted.append(_Wanted(value, layout, runs[member], runs[last], kept))
    windows, total = _placed([replace(w, first=0, last=steps) if w.kept else w for w in wanted])
    able = [w.value for w in wanted if form.saves and w.saves]
    saved = {v: Value(f"{v.name}.kept", v.shape, v.dtype) for v in able}
    if saved:
        parted = [w if w.value in saved or not w.kept else replace(w, first=0, last=steps) for w in wanted]
        for w in wanted:
            if w.value in saved:
                shape = (*w.layout.shape[:2], w.kept, w.layout.shape[3])
                parted.append(_Wanted(saved[w.value], Layout.blocked(shape, w.layout.block), 0, steps))
        less, least = _placed(parted)
        if least <= WORTH * total:
            return less, least, saved
    return windows, total, {}


def joint_runs(members: Members) -> list[int]:
    """By member, the first of those that run on without waiting for other cores."""
    runs: list[int] = []
    for member, group in enumerate(members.groups):
        made = [v for v in dict.fromkeys(group.inputs) if v in members.producer]
        alone = member > 0 and all(_in_place(members, member, v) for v in made)
        runs.append(runs[-1] if alone and member - runs[-1] < JOINT else member)
    return runs


def _in_place(members: Members, reader: int, value: Value) -> bool:
    """True if ``reader`` reads ``value`` at the place that it computes alone."""
    size = value.shape[2:4]
    middle = [(s // 2, s // 2 + 1) for s in size]
    same = members.groups[reader].outputs[0].shape[2:4] == size
    return same and all(members.span(reader, value, axis, middle[axis - 2])[0] == middle[axis - 2] for axis in (2, 3))


def _placed(wanted: Sequence[_Wanted]) -> tuple[dict[Value, Window], int]:
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last
    windows: dict[Value, Window] = {}
    total = 0
    for w in sorted(wanted, key=lambda w: (-w.bytes, w.first)):
        offset = 0
        for start, end, f, la in sorted(placed):
            if la < w.first or f > w.last:
                continue
            if start - offset >= w.bytes:
                break
            offset = max(offset, end)
        placed.append((offset, offset + w.bytes, w.first, w.last))
        total = max(total, offset + w.bytes)
        windows[w.value] = Window(w.value, w.layout, offset)
    return windows, total
