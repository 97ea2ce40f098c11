"""Weights that are whole numbers times a scale, kept as these numbers and read as the floats that they are.

    w[row, m] = float32(number[row, m]) * scale[row]         bit for bit, |number| <= 255

So nothing is rounded otherwise, whatever said that the weights are quantised, and a quarter of the bytes lies in the
library and comes from memory. The price is what a kernel pays for a vector: a load that widens, a conversion and a
product. A scale is found by trying how often it fits into the largest weight; floats that were never numbers meet none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

LEAST = 1024  # elements; below, there is nothing to gain
MOST = 255  # of a number: a byte less another
SAMPLE = 64  # weights of a row that are tried first
NEAR = 4e-5  # of a number: what rounding the weight once leaves of 255
TIMES = np.array(
    [*range(127, 0, -1), *range(128, MOST + 1)], np.float64
)  # twice as many steps always fit as well


@dataclass(frozen=True)
class Numbers:
    """``numbers`` of the weights' shape, of the narrowest type; ``scales`` float32, one for each row or one for all.
    ``off`` is how far a weight was rounded at most, as a part of its row's largest."""

    numbers: np.ndarray
    scales: np.ndarray
    off: float = 0.0

    def spread(self, rows: int) -> np.ndarray:
        """A scale for each of ``rows``."""
        return np.ascontiguousarray(np.broadcast_to(self.scales, (rows,)))


def numbers_of(weights: np.ndarray, one: bool = False) -> Numbers | None:
    """What float32 ``weights`` [rows, ...] are multiples of, if every bit of them says so; ``one`` scale for all."""
    if weights.dtype != np.float32 or weights.size < LEAST:
        return None
    scale = _scale(weights.reshape(-1))
    if scale is not None:
        return _narrow(weights, np.array([scale], np.float32))
    if one:
        return None
    rows = weights.reshape(len(weights), -1)
    scales = np.ones(len(rows), np.float32)
    for i, row in enumerate(rows):
        scale = _scale(row)
        if scale is None:
            return None
        scales[i] = scale
    return _narrow(weights, scales)


def nearest_numbers(weights: np.ndarray) -> Numbers | None:
    """Whole numbers of a byte with a scale for each row, next to float32 ``weights`` [rows, ...]: off by at most half a
    scale, a 254th of the row's largest, and by nothing where they are such already. None for few elements, another
    type, rows that are not finite, or so small that a scale would lose digits."""
    if weights.dtype != np.float32 or weights.size < LEAST:
        return None
    exact = numbers_of(weights)
    if exact is not None and exact.numbers.dtype.itemsize == 1:
        return exact
    most = np.abs(weights.reshape(len(weights), -1)).max(axis=1)
    scales = np.where(most > 0, most.astype(np.float64) / 127, 1).astype(np.float32)
    if not np.isfinite(most).all() or float(scales.min()) < np.finfo(np.float32).tiny:
        return None
    found = _narrow(weights, scales)
    rounded = found.numbers.reshape(len(weights), -1) * scales[:, None].astype(np.float64)
    off = np.abs(rounded - weights.reshape(rounded.shape)).max(axis=1) / np.where(most > 0, most, 1)
    return replace(found, off=float(off.max()))


def _narrow(weights: np.ndarray, scales: np.ndarray) -> Numbers:
    spread = scales.reshape(-1, *(1 for _ in weights.shape[1:]))
    whole = np.rint(weights / spread.astype(np.float64)).astype(np.int16)
    low, high = int(whole.min()), int(whole.max())
    dtype = np.int8 if low >= -128 and high <= 127 else np.uint8 if low >= 0 else np.int16
    return Numbers(whole.astype(dtype), scales)


def _scale(row: np.ndarray) -> np.float32 | None:
    """The scale of one row, None if it has none; a row of zeros has any."""
    most = max(float(row.max()), -float(row.min()))
    if most == 0:
        return np.float32(1) if _is_multiple(row, np.float32(1)) else None
    if not np.isfinite(most):
        return None
    sample = row[:: max(1, row.size // SAMPLE)].astype(np.float64)
    numbers = sample / (most / TIMES)[:, None]
    for times in TIMES[(np.abs(numbers - np.rint(numbers)) <= NEAR).all(axis=1)]:
        step = np.float32(most / times)
        if step < np.finfo(np.float32).tiny:
            continue
        bits = int(step.view(np.int32))
        for scale in (np.int32(bits + d).view(np.float32) for d in (0, 1, -1, 2, -2)):
            if _is_multiple(sample.astype(np.float32), scale) and _is_multiple(row, scale):
                return np.float32(scale)
    return None


def _is_multiple(row: np.ndarray, scale: np.float32) -> bool:
    numbers = np.rint(row / np.float64(scale)).astype(np.float32) + np.float32(0)  # -0 is no number
    again = numbers * scale
    return bool((again.view(np.int32) == row.view(np.int32)).all()) and float(np.abs(numbers).max()) <= MOST
