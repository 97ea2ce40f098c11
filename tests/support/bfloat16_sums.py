"""What sums of products of numbers that are rounded to bfloat16 make, in float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np


def rounded(x: np.ndarray) -> np.ndarray:
    """The nearest numbers, ties to even."""
    return x.astype(ml_dtypes.bfloat16).astype("float64")


def convolved(x: np.ndarray, w: np.ndarray, stride: int, pad: int, dilation: int, groups: int = 1) -> np.ndarray:
    """A convolution with the same stride, padding and dilation along each axis."""
    if groups > 1:
        parts = zip(np.split(x, groups, axis=1), np.split(w, groups))
        return np.concatenate([convolved(a, b, stride, pad, dilation) for a, b in parts], axis=1)
    rank = x.ndim - 2
    padded = np.pad(x.astype("float64"), ((0, 0), (0, 0), *[(pad, pad)] * rank))
    size = [(k - 1) * dilation + 1 for k in w.shape[2:]]
    windows = np.lib.stride_tricks.sliding_window_view(padded, size, axis=tuple(range(2, x.ndim)))
    at = (slice(None), slice(None), *[slice(None, None, stride)] * rank, *[slice(None, None, dilation)] * rank)
    space, taps = "hw"[-rank:], "yx"[-rank:]
    return np.einsum(f"ni{space}{taps},oi{taps}->no{space}", windows[at], w.astype("float64"), optimize=True)
