"""How far an output is from what else it may be: answers of the reference of equal right (:mod:`.ties`,
:mod:`.sensitivity`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

TIMES = 2.0  # our ties fall some one way and some the other: as far from each of two answers as these from one another

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Distance:
    """How far an output is from known answers: the largest difference and the mean one; of integers that count or
    point, which have no steps to measure, the share of places with a number that no answer has. Infinite where NaN,
    infinities or shapes are others."""

    largest: float
    mean: float

    def within(self, times: float, other: Distance) -> bool:
        return self.largest <= times * other.largest and self.mean <= times * other.mean


def distance(a: np.ndarray, known: Sequence[np.ndarray]) -> Distance:
    """The distance from ``a`` to the first of ``known``; of numbers without steps, to all of them."""
    b = known[0]
    if a.shape != b.shape or a.dtype != b.dtype:
        return Distance(np.inf, np.inf)
    if not a.size:
        return Distance(0.0, 0.0)
    if _has_no_steps(a):
        share = float(np.logical_and.reduce([a != k for k in known if k.shape == a.shape]).mean())
        return Distance(float(share > 0), share)
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(x)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True) or not np.isfinite(y[finite]).all():
        return Distance(np.inf, np.inf)
    apart = np.abs(x[finite] - y[finite])
    return Distance(float(apart.max(initial=0.0)), float(apart.sum()) / a.size)


def _has_no_steps(array: np.ndarray) -> bool:
    """True for flags, and for integers that are none that something was rounded to."""
    return array.dtype.kind == "b" or array.dtype.kind in "iu" and array.dtype.itemsize > 2


def apart(arrays: Sequence[np.ndarray]) -> Distance:
    """The largest distances between any two of an output's answers, where they can be compared."""
    return _largest([distance(a, [b]) for i, a in enumerate(arrays) for b in arrays[:i]])


def farthest(arrays: Sequence[np.ndarray]) -> Distance:
    """How far an answer may be from the others: as far as any is; of places with a number that no other has, as many as
    the others have of them on average, and one where there are any."""
    if arrays[0].dtype.kind not in "biu":
        return apart(arrays)
    alone = [distance(a, [*arrays[:i], *arrays[i + 1 :]]) for i, a in enumerate(arrays[1:], 1)]
    most = _largest(alone)
    if not _has_no_steps(arrays[0]) or not most.largest:
        return most
    share = float(np.mean([d.mean for d in alone if np.isfinite(d.mean)]))
    return Distance(1.0, share + 1 / TIMES / arrays[0].size)


def _largest(found: Sequence[Distance]) -> Distance:
    finite = [d for d in found if np.isfinite(d.largest)]
    return Distance(max((d.largest for d in finite), default=0.0), max((d.mean for d in finite), default=0.0))
