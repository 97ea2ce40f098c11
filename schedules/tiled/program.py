"""A plan's steps as a program for the driver: tasks of one form share code, and differ in a table of numbers.

    stripes 3, 4, 5 ... of a task call the same parts, and every number grows by the same amount
                                                        -> one loop: number + i * growth
    stripes 3 and 4, 5 and 6, 7 and 8 ... do            -> one loop over pairs
    tasks whose loops are the same                      -> one form; numbers that differ are a row of the table
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

PERIODS = (1, 2, 3, 4, 6, 8)  # numbers of stripes after which a task may repeat itself


@dataclass(frozen=True)
class Call:
    """A call of part number ``part`` with ``numbers``, by core ``core``. Cores that share steps wait for each other
    before calls of another ``phase``."""

    part: int
    numbers: tuple[int, ...]
    phase: int = 0
    core: int = 0


@dataclass(frozen=True)
class LoopedCall:
    """A call inside a loop: in iteration i its numbers are those in column ``columns[j]`` of the table (or the constant
    ``numbers[j]`` where that is None), plus ``i * growth[j]``. ``turn``: the stripe of an iteration that it belongs
    to."""

    part: int
    numbers: tuple[int, ...]
    growth: tuple[int, ...]
    columns: tuple[int | None, ...] = ()
    phase: int = 0
    core: int = 0
    turn: int = 0


@dataclass(frozen=True)
class Loop:
    """``calls``, repeated ``count`` times."""

    count: int
    calls: tuple[LoopedCall, ...]


@dataclass(frozen=True)
class DriverProgram:
    """What a driver runs: ``forms`` of tasks, each a list of loops, and a ``table`` with a row for each task: the index
    of its form, then its numbers."""

    forms: tuple[tuple[Loop, ...], ...]
    table: np.ndarray


def fold_stripes(stripes: Sequence[Sequence[Call]]) -> tuple[Loop, ...]:
    """``stripes`` as loops: runs of stripes whose numbers grow by a constant, also where they repeat every few stripes
    (rings that take in rows in every second one, say)."""
    loops: list[Loop] = []
    i = 0
    while i < len(stripes):
        runs = [(p, *_run(stripes, i, p)) for p in PERIODS]
        period, count, growth = max(runs, key=lambda r: (r[0] * (r[1] - 1), -r[0]))
        first = [(c, turn) for turn, stripe in enumerate(stripes[i : i + (period if count > 1 else 1)]) for c in stripe]
        calls = tuple(LoopedCall(c.part, c.numbers, g, (), c.phase, c.core, t) for (c, t), g in zip(first, growth))
        if calls:
            loops.append(Loop(count, calls))
        i += count * period if count > 1 else 1
    return tuple(loops)


def _run(stripes: Sequence[Sequence[Call]], start: int, period: int) -> tuple[int, list[tuple[int, ...]]]:
    """How often ``period`` stripes from ``start`` on repeat with a constant growth, and that growth."""
    before = _flat(stripes, start, period)
    count, growth = 1, [tuple(0 for _ in c.numbers) for c in before]
    while start + (count + 1) * period <= len(stripes):
        now = _flat(stripes, start + count * period, period)
        if not _same_parts(before, now):
            break
        grown = _growth(before, now)
        if count > 1 and grown != growth:
            break
        before, growth, count = now, grown, count + 1
    return count, growth


def _flat(stripes: Sequence[Sequence[Call]], start: int, period: int) -> list[Call]:
    return [call for stripe in stripes[start : start + period] for call in stripe]


def _same_parts(a: Sequence[Call], b: Sequence[Call]) -> bool:
    return [(c.part, len(c.numbers), c.phase, c.core) for c in a] == [
        (c.part, len(c.numbers), c.phase, c.core) for c in b
    ]


def _growth(a: Sequence[Call], b: Sequence[Call]) -> list[tuple[int, ...]]:
    return [tuple(y - x for x, y in zip(c.numbers, d.numbers)) for c, d in zip(a, b)]


def fold_tasks(tasks: Sequence[Sequence[Sequence[Call]]]) -> DriverProgram:
    """The program of ``tasks``, given as calls [task][stripe]: tasks of equal shape share a form, and differ in their
    rows of the table."""
    folded = [fold_stripes(stripes) for stripes in tasks]
    shapes: dict[tuple[object, ...], list[int]] = {}
    for t, loops in enumerate(folded):
        shape = tuple((loop.count, tuple((c.part, c.growth, c.phase, c.core) for c in loop.calls)) for loop in loops)
        shapes.setdefault(shape, []).append(t)
    forms: list[tuple[Loop, ...]] = []
    rows: dict[int, list[int]] = {}
    for form, members in enumerate(shapes.values()):
        numbers = np.array([_numbers(folded[t]) for t in members], np.int64).reshape(len(members), -1)
        columns: dict[bytes, int] = {}
        places: list[int | None] = []
        kept: list[np.ndarray] = []
        for j in range(numbers.shape[1]):
            column = np.ascontiguousarray(numbers[:, j])
            if (column == column[0]).all():
                places.append(None)
                continue
            if column.tobytes() not in columns:
                columns[column.tobytes()] = len(kept) + 1
                kept.append(column)
            places.append(columns[column.tobytes()])
        forms.append(_placed(folded[members[0]], places))
        for i, t in enumerate(members):
            rows[t] = [form, *(int(column[i]) for column in kept)]
    width = max(len(r) for r in rows.values())
    table = np.zeros((len(tasks), width), np.int32)
    for t, row in rows.items():
        table[t, : len(row)] = row
    return DriverProgram(tuple(forms), table)


def _numbers(loops: Sequence[Loop]) -> list[int]:
    return [n for loop in loops for call in loop.calls for n in call.numbers]


def _placed(loops: Sequence[Loop], places: Sequence[int | None]) -> tuple[Loop, ...]:
    result, at = [], 0
    for loop in loops:
        calls = []
        for call in loop.calls:
            columns = tuple(places[at : at + len(call.numbers)])
            at += len(call.numbers)
            calls.append(replace(call, columns=columns))
        result.append(Loop(loop.count, tuple(calls)))
    return tuple(result)
