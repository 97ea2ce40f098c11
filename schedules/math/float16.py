"""Weights stored as float16: half the bytes in the library and from memory, widened where a kernel loads them.

    w[i]  ->  float32(w16[i])        an instruction a vector: fcvtl, vcvtph2ps, vcvt.f32.f16

Everything else, sums included, stays float32. Nothing is stored in a form that takes more bytes than the weights
themselves, and so no convolution is computed by Winograd's transforms: rounding errors of transformed weights grow
thirtyfold, and float32 would take up to eight times the bytes. Rounding moves a weight by at most 2**-11 of itself.
"""

from __future__ import annotations

import numpy as np
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.ir.prim import expr as prim

from ..words.tvm_types import Buffer, Expr

NAME = "float16"

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
    """A buffer of float16, or of bytes, that reads as float32; an element has ``itemsize`` bytes."""

    def __init__(self, stored: Buffer) -> None:
        self.stored = stored
        self.itemsize = np.dtype(str(stored.dtype)).itemsize

    def __getitem__(self, index: Expr) -> Expr:
        load = self.stored[index]
        lanes = load.ty.dtype.lanes
        return tirx.Cast("float32" if lanes == 1 else f"float32x{lanes}", load)


class Halved(Widened):
    """A buffer of float16 that reads as float32, and rounds what is written to it (KernelBuilder.store)."""


def halved(value: Expr) -> Expr:
    """The nearest float16 of a float32, one or a vector; the very number where it was one."""
    load = half_load(value)
    if load is not None:
        return load
    if isinstance(value, prim.FloatImm):
        return tirx.FloatImm(NAME, value.value)
    lanes = value.ty.dtype.lanes
    return tirx.Cast(NAME if lanes == 1 else f"{NAME}x{lanes}", value)


def half_load(value: Expr) -> Expr | None:
    """The load of float16 that ``value`` widens; None for any other value."""
    if not isinstance(value, prim.Cast) or not isinstance(value.value, TensorLoad):
        return None
    return value.value if str(value.value.ty.dtype).startswith(NAME) else None
