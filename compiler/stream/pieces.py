"""Work on two arrays of one shape, piece by piece: a piece stays in cache from one operation to the next, and threads
share the pieces."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

_PIECE = 1 << 16  # elements
_SHARED = 1 << 21  # elements from which on a second thread pays: it starts late where a library has just used all cores

PieceWork = Callable[[np.ndarray, np.ndarray], None]


class Pieces:
    """Does work on arrays with so many threads; they begin with the first work that is large enough for them."""

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def work(self, work: PieceWork, one: np.ndarray, other: np.ndarray) -> None:
        """Does ``work`` on all pieces of both arrays."""
        parts = pieces_of(one, other)
        count = min(self._threads, len(parts)) if one.size >= _SHARED else 1
        if count > 1 and self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads - 1)

        def share(first: int) -> None:
            for part in parts[first::count]:
                work(*part)

        others = [self._pool.submit(share, i) for i in range(1, count)] if self._pool is not None else []
        share(0)
        for each in others:
            each.result()

    def close(self) -> None:
        """Ends the threads. Harmless when repeated."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def pieces_of(one: np.ndarray, other: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Both arrays a few rows at a time, of one image, or of one channel where that is large. Where they have their axes
    in other orders it is always of one channel: inner loops run along rows, where those of NumPy would run along the
    few channels of a pixel."""
    apart = 0 if one.ndim <= 3 or _order(one) == _order(other) else 2
    while apart < one.ndim - 2 and math.prod(one.shape[apart + 1 :]) > _PIECE:
        apart += 1
    found = []
    for place in np.ndindex(one.shape[:apart]):
        here, there = one[place], other[place]
        if not here.ndim:
            return [(one, other)]
        rows = max(1, _PIECE * len(here) // max(1, here.size))
        found += [(here[i : i + rows], there[i : i + rows]) for i in range(0, len(here), rows)]
    return found


def _order(array: np.ndarray) -> list[int]:
    """Axes longer than one, from the largest step in memory to the smallest."""
    return sorted((a for a, n in enumerate(array.shape) if n > 1), key=lambda axis: -abs(array.strides[axis]))
