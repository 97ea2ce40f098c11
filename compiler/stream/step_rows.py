"""Rows of a step as wide as all strips together: each strip fills its columns, and a file gets them in one piece.

    computing  | strip 0 | strip 1 | strip 2 | strip 0 | strip 1 | ...
    filling              | 0       | 1       | 2       | 0       | 1   columns of the step's rows
    writing                                  | rows    |               all columns, before strip 0 has its next ones
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .behind import RowsBehind, RowWriter

if TYPE_CHECKING:
    from ..given import ArraysGiven


class StepRows:
    """The rows, along ``axis``, of an array that ``writer`` writes. A strip may be ahead of others: rows whose columns
    are not all filled have memory of their own."""

    def __init__(self, array: ArraysGiven, axis: int, writer: RowWriter) -> None:
        self._array, self._axis, self._writer = array, axis, writer
        self.shape, self.dtype = tuple(array.shape), np.dtype(array.dtype)
        self._spare: list[RowsBehind] = []
        self._begun: dict[tuple[int, int], _Begun] = {}

    def part(self, axis: int, first: int, end: int) -> StepPart:
        """Columns ``first`` to ``end`` of ``axis``."""
        return StepPart(self, axis, first, end)

    def rows(self, first: int, end: int) -> np.ndarray:
        """The memory of these rows, of all columns."""
        if (first, end) not in self._begun:
            behind = self._spare.pop() if self._spare else self._writer.behind()
            rows = behind.rows([end - first if a == self._axis else n for a, n in enumerate(self.shape)], self.dtype)
            self._begun[first, end] = _Begun(behind, rows, rows.size)
        return self._begun[first, end].rows

    def filled(self, first: int, end: int, count: int) -> None:
        """Tells of so many elements more of these rows that are filled; they are written when all are."""
        own = self._begun[first, end]
        own.left -= count
        if not own.left:
            slices = tuple(slice(first, end) if a == self._axis else slice(None) for a in range(len(self.shape)))
            own.behind.write(self._array, slices, own.rows)
            self._spare.append(self._begun.pop((first, end)).behind)


@dataclass
class _Begun:
    """Rows in the memory of ``behind``, of which ``left`` elements are not filled."""

    behind: RowsBehind
    rows: np.ndarray
    left: int


class StepPart:
    """Columns of rows that wait for others, as an array of which a slice is filled in place."""

    def __init__(self, whole: StepRows, axis: int, first: int, end: int) -> None:
        self._whole, self._axis, self._first, self._end = whole, axis, first, end
        self.shape = tuple(end - first if a == axis else n for a, n in enumerate(whole.shape))
        self.dtype, self.row_axis = whole.dtype, whole._axis

    def __getitem__(self, slices: tuple[slice, ...]) -> np.ndarray:
        rows = slices[self.row_axis]
        own = self._whole.rows(rows.start, rows.stop)
        return own[(slice(None),) * self._axis + (slice(self._first, self._end),)]

    def filled(self, slices: tuple[slice, ...], count: int) -> None:
        """Tells that a slice is filled, of so many elements."""
        rows = slices[self.row_axis]
        self._whole.filled(rows.start, rows.stop, count)
