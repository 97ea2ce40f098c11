"""Rows on their way to a target while the next ones are computed.

    computing   | step 1 |      | step 2 |      | step 3 |
    converting           | rows |        | rows |        | rows |
    writing                     | rows |        | rows |        | rows |

One thread writes, whatever the number of targets, in the order in which rows come. Each output has one piece of memory
for rows that are being written: its next rows are converted once that is free. Of strips side by side it is the rows of
all of them (:mod:`.step_rows`), where there is room for so many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from weakref import WeakSet

import numpy as np

from ..given import ArraysGiven


class RowWriter:
    """The thread that writes, which begins with the first rows."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._behind: WeakSet[RowsBehind] = WeakSet()

    def behind(self) -> RowsBehind:
        """Room for the rows of one more output."""
        self._behind.add(made := RowsBehind(self))
        return made

    def start(self, array: ArraysGiven, slices: tuple[slice, ...], rows: np.ndarray) -> Future[None]:
        """Writes ``rows`` to their place in ``array``, behind all that was started before."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1)
        return self._pool.submit(array.__setitem__, slices, rows)

    def done(self) -> None:
        """Waits for all that was started, and raises the first error that came of it."""
        for each in list(self._behind):
            each.done()

    def close(self) -> None:
        """Waits as :meth:`done` does, without its errors, and ends the thread. Harmless when repeated."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


class RowsBehind:
    """The rows of an output that are being written."""

    def __init__(self, writer: RowWriter) -> None:
        self._writer, self._memory = writer, np.empty(0, np.uint8)
        self._started: Future[None] | None = None

    def rows(self, shape: Sequence[int], kind: np.dtype) -> np.ndarray:
        """Memory for the next rows: that of the last ones, which are written then. Raises the error of writing them."""
        self.done()
        size = math.prod(shape) * kind.itemsize
        if size > self._memory.size:
            self._memory = np.empty(size, np.uint8)
        return self._memory[:size].view(kind).reshape(shape)

    def write(self, array: ArraysGiven, slices: tuple[slice, ...], rows: np.ndarray) -> None:
        """Begins to write what :meth:`rows` gave to its place in ``array``."""
        self._started = self._writer.start(array, slices, rows)

    def done(self) -> None:
        """Waits until the rows are written. Raises the error of that once."""
        started, self._started = self._started, None
        if started is not None:
            started.result()
