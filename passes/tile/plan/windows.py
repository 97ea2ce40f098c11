"""Where each window lies in a task's scratch.

Members run in order within a stripe. A window that keeps rows between stripes owns its bytes for the whole task; any
other only from its producer's step to its last reader's, and shares them with those that are not alive then. Windows
are placed largest first at the lowest offset that is free while they live.

Where memory counts, rings that keep few of their rows save these behind their producer's step, in a window that is no
larger, and have them back before they take in others, so that rings share bytes as well:

    ring of 10 rows, 2 kept     10 rows all the time    ->    2 rows all the time, 10 while it is made and read

Residual layers may then write over what they add (overwrite_windows.py): chains of such values have one window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....schedules.words.alignment import aligned
from ....schedules.words.group import Value, dtype_bytes
from ....schedules.words.layout import Layout
from ....schedules.words.tile_plan import Span, Window
from .concat_windows import part_windows
from .form import Form
from .members import Members
from .overwrite_windows import Chains, Rows, chains_of, with_joint_bases

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
    place: Value | None = None  # the value whose window it is, if it is another's

    @property
    def bytes(self) -> int:
        return int(aligned(self.layout.elements * dtype_bytes(self.layout.held(self.value.dtype))))

    @property
    def saves(self) -> bool:
        return 0 < self.kept <= KEPT * self.layout.shape[2]


@dataclass(frozen=True)
class Placed:
    """Windows with their places in a task's scratch. ``windows`` by value; ``bytes`` of one task; ``rows`` of all
    members with the bases that windows have; ``saved``: ring value -> the value that stands for its saved rows;
    ``inplace``: output -> the input whose window it overwrites."""

    windows: dict[Value, Window]
    bytes: int
    rows: Rows
    saved: Mapping[Value, Value] = field(default_factory=dict)
    inplace: Mapping[Value, Value] = field(default_factory=dict)


def place_windows(
    members: Members,
    layouts: Mapping[Value, Layout],
    rows: Rows,
    columns: Sequence[Sequence[Span | None]],
    form: Form,
) -> Placed:
    """The windows of all inner values at offsets in the scratch of a task, of the fewest bytes that are found. Rows are
    saved only if ``form`` allows it and it takes at most WORTH of the bytes. Where cores share steps as well, members
    that only need a core's own part of what the members right before them made run on without waiting, and their
    windows live at the same time. Raises Untileable if the parts of a concatenation can't lie in its window."""
    joints = _joints(members)
    rows = with_joint_bases(rows, joints)
    wanted = _wanted(members, layouts, rows, columns, form)
    steps = len(members.groups)
    windows, total = _placed([replace(w, first=0, last=steps) if w.kept else w for w in wanted])
    best = Placed({**windows, **part_windows(windows, members.wholes)}, total, rows)
    if not form.saves or not any(w.saves for w in wanted):
        return best
    less = _saving(wanted, steps, rows)
    able = {w.value for w in wanted if w.saves or not w.kept}
    chains = chains_of(members, layouts, form, rows, columns)
    chains = [c for c in chains if able.issuperset(members.groups[m].outputs[0] for m in c)]
    if chains:
        joint = with_joint_bases(rows, chains)
        over = _saving(_joined(_wanted(members, layouts, joint, columns, form), members, chains), steps, joint)
        if over.bytes <= less.bytes:
            pairs = [(c[i + 1], c[i]) for c in chains for i in range(len(c) - 1)]
            outputs = [g.outputs[0] for g in members.groups]
            inplace = {outputs[a]: outputs[b] for a, b in pairs}
            less = replace(over, inplace=inplace)
    less = replace(less, windows={**less.windows, **part_windows(less.windows, members.wholes)})
    return less if less.bytes <= WORTH * total else best


def _joints(members: Members) -> Chains:
    """The members that make parts of a concatenation, and itself: their windows have one base."""
    found: dict[Value, list[int]] = {}
    for part, whole in members.wholes.items():
        found.setdefault(whole, [members.producer[whole]]).insert(0, members.producer[part])
    return list(found.values())


def _wanted(
    members: Members,
    layouts: Mapping[Value, Layout],
    rows: Rows,
    columns: Sequence[Sequence[Span | None]],
    form: Form,
) -> list[_Wanted]:
    """What each windowed value needs by itself."""
    wanted: list[_Wanted] = []
    runs = joint_runs(members) if form.saves and form.sharing > 1 else list(range(len(members.groups)))
    for member, group in enumerate(members.groups):
        if member in members.whole or group.outputs[0] in members.wholes:
            continue
        own = [members.producer[part] for part, whole in members.wholes.items() if whole in group.outputs]
        pieces = [p for m in (member, *own) for band in rows[m] for p in band]
        held = max((p.end - p.base for p in pieces), default=0)
        wide = max((c[1] - c[0] for c in columns[member] if c is not None), default=0)
        kept = max((p.keep[1] - p.keep[0] for p in pieces if p.keep is not None), default=0)
        for value in group.outputs:
            known = layouts.get(value)
            shape = (*value.shape[:2], max(1, held), max(1, wide))
            layout = known.alike(shape) if known is not None else Layout.blocked(shape, 0)
            last = max((r for r, v in members.readers[member] if v is value), default=member)
            first = min(runs[m] for m in (member, *own))
            wanted.append(_Wanted(value, layout, first, runs[last], kept))
    return wanted


def _joined(wanted: Sequence[_Wanted], members: Members, chains: Chains) -> list[_Wanted]:
    """``wanted`` with one window for each chain, for as long as any of its values lives."""
    found = list(wanted)
    for chain in chains:
        values = [members.groups[m].outputs[0] for m in chain]
        own = [w for w in found if w.value in values]
        layout = max((w.layout for w in own), key=lambda layout: layout.shape[2])
        first, last = min(w.first for w in own), max(w.last for w in own)
        joint = [replace(w, layout=layout, first=first, last=last, place=values[0]) for w in own]
        found = [next((j for j in joint if j.value is w.value), w) for w in found]
    return found


def _saving(wanted: Sequence[_Wanted], steps: int, rows: Rows) -> Placed:
    """Windows where all rings that can save rows do."""
    saved = {w.value: Value(f"{w.value.name}.kept", w.value.shape, w.value.dtype) for w in wanted if w.saves}
    parted = [w if w.value in saved or not w.kept else replace(w, first=0, last=steps) for w in wanted]
    for w in wanted:
        if w.value in saved:
            shape = (*w.layout.shape[:2], w.kept, w.layout.shape[3])
            parted.append(_Wanted(saved[w.value], w.layout.alike(shape), 0, steps))
    windows, total = _placed(parted)
    return Placed(windows, total, rows, saved)


def joint_runs(members: Members) -> list[int]:
    """The first member of each member's run. Cores compute the members of a run one after the other without waiting for
    each other."""
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
        if w.place is not None and w.place is not w.value:
            continue
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
    for w in wanted:
        if w.place is not None:
            windows[w.value] = replace(windows[w.place], value=w.value)
    return windows, total
