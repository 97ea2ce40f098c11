"""Rows of files on their way to the network while the ones before are computed.

    reading     | step 1 | step 2 |      | step 3 |      | step 4 |
    computing            | step 1        | step 2        | step 3

One thread reads, whatever the number of sources, in the order in which rows are asked for. A source has two pieces of
memory: one with the rows of the step, one into which the next ones come.
"""

from __future__ import annotations

import math
import mmap
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from .files import PlainFile

if TYPE_CHECKING:
    from ..given import ArraysGiven


class RowReader:
    """The thread that reads, which begins with the first rows."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def start(self, array: ArraysGiven, slices: tuple[slice, ...], rows: np.ndarray) -> Future[None]:
        """Reads a part of ``array`` into ``rows``, behind all that was started before."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1)
        return self._pool.submit(_read, array, slices, rows)

    def close(self) -> None:
        """Waits until nothing is read, and ends the thread. Harmless when repeated."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


class RowsAhead:
    """An array of rows along ``axis`` that are asked for in steps of ``rows``, from any step on: those of a step are
    read once, by ``reader``, while the step before is computed. Parts of one step's rows may be asked for until the
    next step's are."""

    def __init__(self, array: ArraysGiven, axis: int, rows: int, reader: RowReader) -> None:
        self._array, self._axis, self._rows, self._reader = array, axis, rows, reader
        self.shape, self.dtype = tuple(array.shape), np.dtype(array.dtype)
        self._memory: list[np.ndarray] = []
        self._coming: dict[int, Future[None]] = {}
        self._step, self._own = -1, np.empty(0)

    def __getitem__(self, slices: tuple[slice, ...]) -> np.ndarray:
        first, end, _ = slices[self._axis].indices(self.shape[self._axis])
        step, begin = first // self._rows, first % self._rows
        assert begin + end - first <= self._rows, "rows of one step are asked for"
        if step != self._step:
            self._go_to(step)
        return self._own[self._cut(slices, begin, begin + end - first)]

    def _go_to(self, step: int) -> None:
        """Makes the rows of a step its own, and asks for the next ones."""
        for at in [at for at in self._coming if at != step]:
            self._coming.pop(at).result()
        self._ask(step)
        self._coming.pop(step).result()
        self._step, self._own = step, self._place(step)
        if (step + 1) * self._rows < self.shape[self._axis]:
            self._ask(step + 1)

    def _ask(self, step: int) -> None:
        if step not in self._coming:
            whole = self._cut((slice(None),) * len(self.shape), step * self._rows, (step + 1) * self._rows)
            self._coming[step] = self._reader.start(self._array, whole, self._place(step))

    def _place(self, step: int) -> np.ndarray:
        """The memory for the rows of a step."""
        count = min(self._rows, self.shape[self._axis] - step * self._rows)
        shape = [count if a == self._axis else n for a, n in enumerate(self.shape)]
        if not self._memory:
            most = math.prod(shape) // count * min(self._rows, self.shape[self._axis])
            self._memory = [np.empty(most, self.dtype) for _ in range(2)]
        return self._memory[step % 2][: math.prod(shape)].reshape(shape)

    def _cut(self, slices: tuple[slice, ...], first: int, end: int) -> tuple[slice, ...]:
        return *slices[: self._axis], slice(first, end), *slices[self._axis + 1 :]


def lies_in_file(array: object) -> bool:
    """True if the rows of an array are read from a file as plain bytes: of one that is mapped, or one of ours."""
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, (mmap.mmap, PlainFile))


def _read(array: ArraysGiven, slices: tuple[slice, ...], rows: np.ndarray) -> None:
    if isinstance(array, PlainFile):
        array.read_into(slices, rows)
    else:
        rows[...] = array[slices]
