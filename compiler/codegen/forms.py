"""Weights of several levels of processors in one file: what one level stores, others make of it when they begin.

    Alike().make(operand, data, store, form) -> whether ``form`` has steps that make the data from the file

    nest     made[j] = file[first + sum of strides * indices of j]      another order: the same floats in other panels
    runs     made[r * length + i] = file[starts[r] + stride * i]        the same, where no few strides say it
    linear   made[x][i] = float32(sum over t of factors[x][t] * from[t][i])       a transform, of sums in double

A step is taken where it gives the very floats that the level's build made (of sums, the nearest float or the one beside
it), which is checked here, on all of them. It is found in the data: both sides hold the same numbers, most of which are
there once, and say how places belong together. The C side is compiler/runtime/levels/forms.c.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...schedules.kernel.context import SLACK
from ...schedules.words.alignment import aligned
from .steps import FILE, FIRST, MADE, SECOND, FillStep, LevelForm

LEAST = 4096  # bytes of an array that is worth a step
MOST_DIMS = 10
SHORTEST = 4  # elements of a run, of which each start takes one

Store = Callable[[np.ndarray], int]  # puts an array into the file, or finds it there, and says where


class Alike:
    """The chunks of floats in the file, by what no arrangement changes."""

    def __init__(self) -> None:
        self._alike: dict[tuple[int, int], tuple[int, np.ndarray]] = {}

    def add(self, at: int, data: np.ndarray) -> None:
        """Knows from now on that the array lies at byte ``at`` of the file."""
        if _fits(data):
            self._alike.setdefault(_key(_words(data)), (at, _words(data)))

    def make(self, operand: Any, data: np.ndarray, store: Store, form: LevelForm) -> int | None:
        """Where in the level's own memory ``form`` makes the data, from now on; None where it can't be made. The plain
        weights of a transform may be stored for it."""
        if not _fits(data) or data.nbytes < LEAST:
            return None
        words, at = _words(data), form.bytes
        steps = self._arranged(words, MADE, at // 4, store)
        first = second = 0
        if steps is None:
            linear = getattr(operand, "linear", None)
            if linear is None:
                return None
            factors, planes = linear()
            sums = transformed(factors, planes)
            nest = nest_of(_words(sums), words, SECOND, MADE, 0, at // 4, 1)
            if nest is None:
                return None
            of_planes = self._arranged(_words(planes), FIRST, 0, store)
            if of_planes is None and padded(planes.nbytes) < data.nbytes:
                self.add(store(planes), planes)
                of_planes = self._arranged(_words(planes), FIRST, 0, store)
            if of_planes is None:
                return None
            dims = (*factors.shape, planes.shape[1])
            flat = tuple(float(f) for f in factors.reshape(-1))
            steps = [*of_planes, FillStep(FIRST, SECOND, 0, 0, dims, factors=flat), nest]
            first, second = planes.nbytes, sums.nbytes
        form.steps += steps
        form.bytes += padded(data.nbytes)
        form.first, form.second = max(form.first, first), max(form.second, second)
        return at

    def _arranged(self, words: np.ndarray, to: int, target: int, store: Store) -> list[FillStep] | None:
        """The steps that bring a chunk of the file into the order of ``words``."""
        found = self._alike.get(_key(words))
        if found is None:
            return None
        at, source = found
        nest = nest_of(source, words, FILE, to, at // 4, target)
        return _in_runs(source, words, to, at // 4, target, store) if nest is None else [nest]


def padded(size: int) -> int:
    """Bytes that a chunk takes."""
    return int(aligned(size + SLACK))


def transformed(factors: np.ndarray, planes: np.ndarray) -> np.ndarray:
    """``factors`` [X, T] times ``planes`` [T, N], each sum in double in the order of its terms, rounded once."""
    sums = np.zeros((len(factors), planes.shape[1]))
    for t, plane in enumerate(planes.astype(np.float64)):
        for x in np.flatnonzero(factors[:, t]):
            sums[x] += factors[x, t] * plane
    return sums.astype(np.float32)


def nest_of(
    source: np.ndarray, words: np.ndarray, of: int, to: int, begin: int, target: int, off: int = 0
) -> FillStep | None:
    """The nest that makes ``words`` of ``source``, whose float bits may be ``off`` by so much; None without one."""
    places, sure = _places(source, words, off)
    if places is None:
        return None
    dims, strides, rest, _ = _dims(places, sure)
    if rest is None or len(rest) != 1 or len(dims) > MOST_DIMS:
        return None
    first = int(rest[0])
    low = first + sum(min(0, (d - 1) * s) for d, s in zip(dims, strides))
    high = first + sum(max(0, (d - 1) * s) for d, s in zip(dims, strides))
    if low < 0 or high >= source.size:
        return None
    made = np.lib.stride_tricks.as_strided(source[first:], dims[::-1], [4 * s for s in strides[::-1]]).reshape(-1)
    if np.abs(made.view(np.int32).astype(np.int64) - words.view(np.int32)).max() > off:
        return None
    return FillStep(of, to, begin + first, target, tuple(dims[::-1]), tuple(strides[::-1]))


def _in_runs(
    source: np.ndarray, words: np.ndarray, to: int, begin: int, target: int, store: Store
) -> list[FillStep] | None:
    """Runs of one length and stride, whose starts are a table in the file; runs of zeros have none."""
    places, sure = _places(source, words, 0)
    if places is None:
        return None
    dims, strides, _, first = _dims(places, sure)
    if not dims or dims[0] < SHORTEST or first is None:
        return None
    length, stride = dims[0], strides[0]
    rows = words.reshape(-1, length)
    empty: np.ndarray = np.logical_not(rows.any(1))
    last = first + (length - 1) * stride
    if ((np.minimum(first, last)[~empty] < 0) | (np.maximum(first, last)[~empty] >= source.size)).any():
        return None
    starts = np.where(empty, -1, first).astype(np.int32)
    reads = np.where(empty, 0, first)[:, None] + np.arange(length) * stride
    if not (np.where(empty[:, None], 0, source[np.clip(reads, 0, source.size - 1)]) == rows).all():
        return None
    return [FillStep(FILE, to, begin, target, (len(rows), length), (stride,), store(starts))]


def _places(source: np.ndarray, words: np.ndarray, off: int) -> tuple[np.ndarray | None, np.ndarray]:
    """For each of ``words`` where it stands in ``source``, and whether that is sure: zeros, and numbers that are there
    several times, are not. None where other numbers are in it."""
    orders = [np.flatnonzero(x) for x in (source, words)]
    orders = [order[np.argsort(x[order], kind="stable")] for order, x in zip(orders, (source, words))]
    values = [x[order] for order, x in zip(orders, (source, words))]
    none = np.zeros(0, bool)
    if values[0].size != values[1].size or values[0].size == 0:
        return None, none
    if np.abs(values[0].astype(np.int64) - values[1]).max() > off:
        return None, none
    apart = np.ones(values[0].size + 1, bool)
    for found in values:
        apart[1:-1] &= np.diff(found.astype(np.int64)) > 2 * off
    places, sure = np.zeros(words.size, np.int64), np.zeros(words.size, bool)
    places[orders[1]] = orders[0]
    sure[orders[1]] = apart[:-1] & apart[1:]
    return places, sure


def _dims(
    places: np.ndarray, sure: np.ndarray
) -> tuple[list[int], list[int], np.ndarray | None, np.ndarray | None]:
    """Extents and strides of the nest, innermost first, as far as there is one; what is left of ``places`` outside of
    it, and outside of the innermost loop."""
    dims: list[int] = []
    strides: list[int] = []
    inner = None
    while len(places) > 1:
        both = np.flatnonzero(sure[:-1] & sure[1:])
        if not both.size:
            return dims, strides, None, inner
        steps = places[both + 1] - places[both]
        found, counts = np.unique(steps[: 1 << 16], return_counts=True)
        stride = int(found[counts.argmax()])
        breaks = both[steps != stride] + 1
        extent = int(np.gcd(np.gcd.reduce(breaks), len(places))) if breaks.size else len(places)
        if extent == 1:
            return dims, strides, None, inner
        known = sure.reshape(-1, extent)
        column = known.argmax(1)
        rows = np.arange(len(known))
        places = places.reshape(-1, extent)[rows, column] - column * stride
        sure = known[rows, column]
        dims.append(extent)
        strides.append(stride)
        inner = places if inner is None else inner
    return dims, strides, places, inner


def _fits(data: np.ndarray) -> bool:
    return data.dtype == np.float32 and data.size > 0


def _words(data: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(data, np.float32).reshape(-1).view(np.uint32)


def _key(words: np.ndarray) -> tuple[int, int]:
    """What all arrangements have in common: how many numbers are not zero, and the sum of all bits."""
    return int(np.count_nonzero(words)), int(words.sum(dtype=np.uint64))
