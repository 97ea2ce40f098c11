"""Memory of large results that is used again once nobody holds them.

A fresh array of tens of megabytes is memory that the system has yet to give, page by page, each filled with zeros when
it is first written: 99 MB take 11 ms, for which the cores of a tile group wait one after the other, as they write the
same pages. What a caller has dropped serves the next call instead.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

LEAST = 1 << 20  # bytes; smaller arrays the allocator has at hand
ALIGNMENT = 64
_empty = np.empty  # of every call, which may take no longer than a small model


class _Lease:
    """Owns memory for as long as arrays of it live; numpy keeps it as their base."""

    def __init__(self, results: Results, memory: np.ndarray, start: int, size: int) -> None:
        self.results, self.memory = results, memory
        self.__array_interface__ = {"version": 3, "shape": (size,), "typestr": "|u1", "data": (start, False)}

    def __del__(self) -> None:
        self.results._take_back(self.memory)


class Results:
    """Arrays for a model's results. ``counts``: how many of so many bytes a call makes, which is how many are kept."""

    def __init__(self, counts: dict[int, int]) -> None:
        self._most = dict(counts)
        self._free: dict[int, list[np.ndarray]] = {size: [] for size in counts}

    def array(self, shape: tuple[int, ...], dtype: np.dtype, size: int) -> np.ndarray:
        """A contiguous array of ``size`` bytes, of any content, whose memory no other array has."""
        try:
            memory = self._free[size].pop()
        except IndexError:
            memory = np.empty(size + ALIGNMENT, np.uint8)
        start = -(-memory.__array_interface__["data"][0] // ALIGNMENT) * ALIGNMENT
        return np.asarray(_Lease(self, memory, start, size)).view(dtype).reshape(shape)

    def forget(self) -> None:
        """Keeps nothing from now on."""
        self._most = dict.fromkeys(self._most, 0)
        for free in self._free.values():
            free.clear()

    def _take_back(self, memory: np.ndarray) -> None:
        size = memory.size - ALIGNMENT
        if len(self._free[size]) < self._most[size]:
            self._free[size].append(memory)


class Outputs:
    """Fresh arrays for the outputs of a run, whose ``made`` are (shape, dtype) each."""

    def __init__(self, made: Sequence[tuple[tuple[int, ...], np.dtype]]) -> None:
        self.made = tuple(made)
        sizes = [dtype.itemsize * math.prod(shape) for shape, dtype in self.made]
        self._large = tuple((i, *self.made[i], size) for i, size in enumerate(sizes) if size >= LEAST)
        self.results = Results(Counter(size for *_, size in self._large))

    def arrays(self) -> list[np.ndarray]:
        """One array for each, of any content, whose memory no other array has."""
        if not self._large:
            return [_empty(shape, dtype) for shape, dtype in self.made]
        large = {i: self.results.array(shape, dtype, size) for i, shape, dtype, size in self._large}
        return [large[i] if i in large else _empty(*made) for i, made in enumerate(self.made)]

    def forget(self) -> None:
        """Keeps no memory from now on."""
        self.results.forget()
