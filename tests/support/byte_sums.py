"""Sums of products of bytes in NumPy's integers, and numbers that are hard for whoever sums them in 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from halotile.schedules.instructions.int8_dot import PAIRS


def reference(
    x: np.ndarray, w: np.ndarray, strides: Any, dilations: Any, pads: Any, groups: int, fill: int
) -> np.ndarray:
    """Tap by tap in int64."""
    before, after = pads
    spatial = len(before)
    x = np.pad(x.astype(np.int64), [(0, 0), (0, 0), *zip(before, after)], constant_values=fill)
    size = [(n - d * (k - 1) - 1) // s + 1 for n, d, k, s in zip(x.shape[2:], dilations, w.shape[2:], strides)]
    batch, outputs, inner = x.shape[0], w.shape[0], w.shape[1]
    y = np.zeros((batch, outputs, *size), np.int64)
    for tap in np.ndindex(*w.shape[2:]):
        at = [slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, dilations, size, strides)]
        part = x[(slice(None), slice(None), *at)].reshape(batch, groups, inner, -1)
        own = w[(slice(None), slice(None), *tap)].astype(np.int64).reshape(groups, outputs // groups, inner)
        y += np.einsum("gmc,ngcp->ngmp", own, part).reshape(batch, outputs, *size)
    assert spatial == len(size)
    return y


def value_range(dtype: str) -> tuple[int, int]:
    """Of bytes; of what is left of them less their zero, where they are pairs of int16."""
    return (-255, 255) if dtype == PAIRS else (np.iinfo(dtype).min, np.iinfo(dtype).max)


def numbers(rng: np.random.Generator, dtype: str, shape: Any) -> np.ndarray:
    """The whole range, its ends often: products of neighbours leave 16 bits."""
    least, most = value_range(dtype)
    x = rng.integers(least, most + 1, shape)
    ends = rng.random(shape)
    x = np.where(ends < 0.3, most, np.where(ends > 0.85, least, x))
    return x.astype(dtype)
