"""Leaves out fills of places that hold the number already.

The columns left and right of an image lie at the same bytes of a window in every stripe, and members write between
them: zeros that one stripe has put there serve all that follow, and the windows of other values at the very same place.
They are a line in each row, a page or more apart, which nothing brings near: writing them anew in every stripe took 3%
of the time of twenty layers of 64 channels 640 wide.

Of every place of a window the number is followed that a fill has left there (NaN: anything). Tasks begin with nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ....schedules.words.group import Group, Value, dtype_bytes
from ....schedules.words.tile_plan import Compute, Copy, Fill, Shift, Span, Step, Window

Stripes = tuple[tuple[Step, ...], ...]
Part = tuple[slice, slice]


def without_repeats(
    stripes: Stripes, members: Sequence[Group], windows: Mapping[Value, Window], wholes: Mapping[Value, Value]
) -> Stripes:
    """``stripes`` of one task without the fills of places that hold the number already. ``wholes``: value -> the
    concatenation whose window its own is a part of."""
    known = _Known(members, windows, wholes)
    return tuple(tuple(step for step in stripe if known.changes(step)) for stripe in stripes)


@dataclass(frozen=True)
class _Place:
    """Bytes that windows of one form share: ``numbers`` by row and column."""

    numbers: np.ndarray
    start: int
    end: int


class _Known:
    def __init__(
        self, members: Sequence[Group], windows: Mapping[Value, Window], wholes: Mapping[Value, Value]
    ) -> None:
        self.members = members
        self.places: dict[Value, _Place] = {}
        same: dict[tuple[object, ...], _Place] = {}
        for value in windows:
            window = windows[wholes.get(value, value)]
            form = window.offset, window.layout, value.dtype
            if form not in same:
                end = window.offset + window.layout.elements * dtype_bytes(window.layout.held(value.dtype))
                numbers = np.full(window.layout.shape[2:4], np.nan)
                same[form] = _Place(numbers, window.offset, end)
            self.places[value] = same[form]
        every = list(same.values())
        self.others = {
            id(a): [b.numbers for b in every if b is not a and a.start < b.end and b.start < a.end] for a in every
        }

    def changes(self, step: Step) -> bool:
        """False if ``step`` is a fill without effect; otherwise it is done."""
        if isinstance(step, Fill):
            place, part = self.places[step.value], _part(step.rows, step.columns, step.base)
            if bool((place.numbers[part] == step.number).all()):
                return False
            self._write(place, part, step.number)
        elif isinstance(step, Shift):
            place, columns = self.places[step.value], _columns(step.columns, step.base[1])
            low, high = (row - step.base[0] for row in step.keep)
            self._write(place, (slice(0, high - low), columns), place.numbers[low:high, columns].copy())
        elif isinstance(step, Copy):
            place, columns = self.places[step.target], _columns(step.columns, step.base[1])
            low, high = (row - step.base[0] for row in step.rows)
            moved = self.places[step.source].numbers[low:high, columns].copy()
            self._write(place, (slice(step.at, step.at + high - low), columns), moved)
        else:
            self._computes(step)
        return True

    def _computes(self, step: Compute) -> None:
        for value in self.members[step.member].outputs:
            if value in self.places:
                self._write(self.places[value], _part(step.rows, step.columns, step.bases[value]), np.nan)

    def _write(self, place: _Place, part: Part, numbers: float | np.ndarray) -> None:
        place.numbers[part] = numbers
        for other in self.others[id(place)]:
            other[:] = np.nan


def _part(rows: Span, columns: Span, base: tuple[int, int]) -> Part:
    return slice(rows[0] - base[0], rows[1] - base[0]), slice(columns[0] - base[1], columns[1] - base[1])


def _columns(columns: Span | None, base: int) -> slice:
    return slice(None) if columns is None else slice(columns[0] - base, columns[1] - base)
