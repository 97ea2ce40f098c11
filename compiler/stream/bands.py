"""Rows of arrays that are stored in chunks: every chunk is read once, and written once, however few rows a step takes.

Only one band of chunks, as many rows as a chunk has, is in memory. Where strips of columns take each step one behind
the other, it is the bands of a step's rows, each until all strips have read it, or written their columns of it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..given import ArraysGiven
    from .files import NpyFile


def chunk_sizes(array: NpyFile | np.ndarray) -> tuple[int, ...]:
    """The sizes of a chunk, as zarr, h5py and our own sources say it; empty of what is not chunked."""
    chunks = getattr(array, "chunks", None)
    known = isinstance(chunks, tuple) and len(chunks) == len(array.shape) and all(isinstance(n, int) for n in chunks)
    return chunks if known else ()  # type: ignore[return-value]


def chunk_rows(array: NpyFile | np.ndarray, axis: int) -> int:
    """Rows of a chunk along an axis; 1 of what is not chunked."""
    chunks = chunk_sizes(array)
    return max(1, chunks[axis]) if chunks else 1


def rows_held(rows: int, band: int) -> int:
    """The most rows of bands that ``rows`` which follow one another touch."""
    return (-(-(rows - 1) // band) + 1) * band


class ReadBands:
    """An array of which the last band of chunks that was read is kept, or with ``again`` all those of the last rows.
    ``rows``: of a band, in place of a chunk's."""

    def __init__(self, array: ArraysGiven, axis: int, rows: int = 0, *, again: bool = False) -> None:
        self._array, self._axis, self._rows, self._again = array, axis, rows or chunk_rows(array, axis), again
        self.shape, self.dtype = tuple(array.shape), array.dtype
        self._bands: dict[int, np.ndarray] = {}

    def __getitem__(self, slices: tuple[slice, ...]) -> np.ndarray:
        first, end, _ = slices[self._axis].indices(self.shape[self._axis])
        for past in [at for at in self._bands if at < first // self._rows]:
            del self._bands[past]
        parts = []
        while first < end:
            at, within = divmod(first, self._rows)
            count = min(end - first, self._rows - within)
            parts.append(self._band(at)[self._cut(slices, within, within + count)])
            first += count
        return parts[0] if len(parts) == 1 else np.concatenate(parts, self._axis)

    def _band(self, at: int) -> np.ndarray:
        """A band, of all columns."""
        if at not in self._bands:
            if not self._again:
                self._bands.clear()
            end = min((at + 1) * self._rows, self.shape[self._axis])
            whole = self._cut((slice(None),) * len(self.shape), at * self._rows, end)
            self._bands[at] = np.asarray(self._array[whole])
        return self._bands[at]

    def _cut(self, slices: tuple[slice, ...], first: int, end: int) -> tuple[slice, ...]:
        return *slices[: self._axis], slice(first, end), *slices[self._axis + 1 :]


class WriteBands:
    """An array into which rows, one behind the other, are written when a band of chunks is whole, or flushed. Several
    may write their columns in turns: a band is whole when all have."""

    def __init__(self, array: ArraysGiven, axis: int) -> None:
        self._array, self._axis, self._rows = array, axis, chunk_rows(array, axis)
        self.shape, self.dtype = tuple(array.shape), np.dtype(array.dtype)
        self._row = math.prod(n for a, n in enumerate(self.shape) if a != axis)  # elements
        self._bands: dict[int, np.ndarray] = {}
        self._first: dict[int, int] = {}  # the first row that a band holds, within it
        self._filled: dict[int, int] = {}  # elements
        self._spare: list[np.ndarray] = []

    def __setitem__(self, slices: tuple[slice, ...], rows: np.ndarray) -> None:
        first, end, _ = slices[self._axis].indices(self.shape[self._axis])
        whole = (slice(None),) * len(self.shape)
        while first < end:
            at, within = divmod(first, self._rows)
            count = min(end - first, self._rows - within)
            part = rows[self._cut(whole, 0, count)]
            band = self._band(at, within)
            band[self._cut(slices, within, within + count)] = part
            self._filled[at] += part.size
            rows, first = rows[self._cut(whole, count, rows.shape[self._axis])], first + count
            last = min(self._rows, self.shape[self._axis] - at * self._rows)
            if self._filled[at] == (last - self._first[at]) * self._row:
                self._write(at)

    def flush(self) -> None:
        """Writes what is held, and waits for the array's own flush if it has one."""
        for at in sorted(self._bands):
            self._write(at)
        self._spare.clear()
        flush = getattr(self._array, "flush", None)
        if callable(flush):
            flush()

    def _band(self, at: int, within: int) -> np.ndarray:
        if at not in self._bands:
            shape = [self._rows if a == self._axis else n for a, n in enumerate(self.shape)]
            self._bands[at] = self._spare.pop() if self._spare else np.empty(shape, self.dtype)
            self._first[at], self._filled[at] = within, 0
        return self._bands[at]

    def _write(self, at: int) -> None:
        """Writes the rows of a band that have come; all who write have come as far."""
        band, first = self._bands.pop(at), self._first.pop(at)
        count, apart = divmod(self._filled.pop(at), self._row)
        assert not apart, "a band is flushed between two steps"
        slices, begin = (slice(None),) * len(self.shape), at * self._rows + first
        self._array[self._cut(slices, begin, begin + count)] = band[self._cut(slices, first, first + count)]
        self._spare.append(band)

    def _cut(self, slices: tuple[slice, ...], first: int, end: int) -> tuple[slice, ...]:
        return *slices[: self._axis], slice(first, end), *slices[self._axis + 1 :]
