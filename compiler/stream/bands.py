"""Rows of arrays that are stored in chunks: every chunk is read once, and written once, however few rows a step takes.

Only one band of chunks, as many rows as a chunk has, is in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..given import ArraysGiven
    from .files import NpyFile


def chunk_rows(array: NpyFile | np.ndarray, axis: int) -> int:
    """Rows of a chunk along an axis, as zarr, h5py and our own sources say it; 1 of what is not chunked."""
    chunks = getattr(array, "chunks", None)
    rows = chunks[axis] if isinstance(chunks, tuple) and len(chunks) == len(array.shape) else 1
    return rows if isinstance(rows, int) and rows > 1 else 1


class ReadBands:
    """An array of which the last band of chunks that was read is kept."""

    def __init__(self, array: ArraysGiven, axis: int) -> None:
        self._array, self._axis, self._rows = array, axis, chunk_rows(array, axis)
        self.shape, self.dtype = tuple(array.shape), array.dtype
        self._at, self._band = -1, np.empty(0)

    def __getitem__(self, slices: tuple[slice, ...]) -> np.ndarray:
        first, end, _ = slices[self._axis].indices(self.shape[self._axis])
        parts = []
        while first < end:
            at, within = divmod(first, self._rows)
            if at != self._at:
                whole = list(slices)
                whole[self._axis] = slice(at * self._rows, min((at + 1) * self._rows, self.shape[self._axis]))
                self._at, self._band = at, np.asarray(self._array[tuple(whole)])
            count = min(end - first, self._rows - within)
            parts.append(self._band[self._cut(within, within + count)])
            first += count
        return parts[0] if len(parts) == 1 else np.concatenate(parts, self._axis)

    def _cut(self, first: int, end: int) -> tuple[slice, ...]:
        return (slice(None),) * self._axis + (slice(first, end),)


class WriteBands:
    """An array into which rows, one behind the other, are written when a band of chunks is whole, or flushed."""

    def __init__(self, array: ArraysGiven, axis: int) -> None:
        self._array, self._axis, self._rows = array, axis, chunk_rows(array, axis)
        self.shape, self.dtype = tuple(array.shape), np.dtype(array.dtype)
        self._first, self._held = 0, np.empty(0)
        self._count = 0

    def __setitem__(self, slices: tuple[slice, ...], rows: np.ndarray) -> None:
        first, end, _ = slices[self._axis].indices(self.shape[self._axis])
        if self._count and first != self._first + self._count:
            self.flush()
        while first < end:
            if not self._count:
                self._first = first
            limit = (self._first // self._rows + 1) * self._rows
            if not self._held.size:
                shape = [self._rows if a == self._axis else n for a, n in enumerate(self.shape)]
                self._held = np.empty(shape, self.dtype)
            count = min(end, limit) - first
            self._held[self._cut(self._count, self._count + count)] = rows[self._cut(0, count)]
            rows = rows[self._cut(count, rows.shape[self._axis])]
            self._count, first = self._count + count, first + count
            if first == limit:
                self.flush()

    def flush(self) -> None:
        """Writes what is held, and waits for the array's own flush if it has one."""
        if self._count:
            end = self._first + self._count
            self._array[self._cut(self._first, end) + (slice(None),) * (len(self.shape) - self._axis - 1)] = self._held[
                self._cut(0, self._count)
            ]
            self._count = 0
        flush = getattr(self._array, "flush", None)
        if callable(flush):
            flush()

    def _cut(self, first: int, end: int) -> tuple[slice, ...]:
        return (slice(None),) * self._axis + (slice(first, end),)
