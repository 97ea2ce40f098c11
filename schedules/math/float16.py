"""Weights stored as float16: half the bytes in the library and from memory, widened where a kernel loads them.

    w[i]  ->  float32(w16[i])        an instruction a vector: fcvtl, vcvtph2ps, vcvt.f32.f16

Everything else, sums included, stays float32. Nothing is stored in a form that takes more bytes than the weights
themselves, and so no convolution is computed by Winograd's transforms: rounding errors of transformed weights grow
thirtyfold, and float32 would take up to eight times the bytes. Rounding moves a weight by at most 2**-11 of itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx

from ..words.tvm_types import Expr

LEAST = 1024  # elements; below, there is nothing to gain
ERROR = 2.0**-11  # of the largest element: more only where all of them are below the range's end


def narrowed(data: np.ndarray) -> np.ndarray | None:
    """``data`` as float16; None for what stays as it is: few elements, another type, or numbers out of range."""
    if data.dtype != np.float32 or data.size < LEAST:
        return None
    with np.errstate(over="ignore"):
        half = data.astype(np.float16)
    if not np.isfinite(half).all():
        return None
    top = float(np.abs(data).max())
    return half if float(np.abs(half - data).max()) <= ERROR * top else None


class Widened:
    """A buffer of float16 that reads as float32."""

    def __init__(self, stored: Any) -> None:
        self.stored = stored

    def __getitem__(self, index: Expr) -> Expr:
        return tirx.Cast("float32", self.stored[index])
