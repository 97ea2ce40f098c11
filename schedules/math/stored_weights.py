"""Weights in the fewer bytes that a build asks for, where float32 holds them again without loss.

    float16   rounded here (:mod:`.float16`)
    int8      whole numbers of a byte: the pass that found them has rounded, and multiplies results by their scales

    w[i]  ->  float32(q[i])          two instructions a vector: vpmovsxbd and vcvtdq2ps; sshll twice and scvtf
"""

from __future__ import annotations

import numpy as np

from .float16 import LEAST, narrowed

BYTES = {"float16": 2, "int8": 1}


def stored_bytes(elements: int, kind: str) -> int:
    """Bytes of one of so many weights where a build stores them as ``kind``; 0 for those of their own type."""
    return BYTES.get(kind, 0) if elements >= LEAST else 0


def stored(data: np.ndarray, kind: str) -> np.ndarray | None:
    """``data`` in the type that ``kind`` asks for; None for what stays as it is."""
    if kind == "float16":
        return narrowed(data)
    return in_bytes(data) if kind == "int8" else None


def in_bytes(data: np.ndarray) -> np.ndarray | None:
    """``data`` as int8 or uint8; None for few elements, another type, or other numbers than those of a byte."""
    if data.dtype != np.float32 or data.size < LEAST or not np.isfinite(data).all():
        return None
    low, high = float(data.min()), float(data.max())
    if low < -128 or high > (255 if low >= 0 else 127) or not (data == np.rint(data)).all():
        return None
    return data.astype(np.uint8 if high > 127 else np.int8)
