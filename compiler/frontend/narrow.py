"""Numbers of types that no processor here computes in (int4, float8, ...): float32s that such a type can hold.

    QuantizeLinear(x, s) to float8_e4m3fn     becomes     x / s rounded to four bits, at most 448 in size
    DequantizeLinear(q, s)                    becomes     q * s

Only what goes back to wider types may read them: nothing of such a type is stored, or is an input or an output.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from tvm import relax

from ...schedules.words.refusal import Refusal
from .node import OnnxNode
from .value import PLAIN, OnnxValue

R = relax.op

INTEGERS = ("int2", "uint2", "int4", "uint4")
FLOATS = ("float4_e2m1fn", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
_EXPONENT = 0x7F800000  # of a float32


def narrowed(node: OnnxNode, x: OnnxValue, dtype: str) -> OnnxValue:
    """The nearest numbers of the type, ties to even, the largest for any beyond."""
    if not node.attr("saturate", 1):
        raise Refusal(f"what {dtype} can't hold is only supported to become the largest that it can (saturate)")
    x = node.cast(x, "float32")
    if dtype in INTEGERS:
        x = saturated(node, x, dtype, "float32")
    else:
        limits = ml_dtypes.finfo(dtype)
        x = node.do(R.clip, x, min=float(limits.min), max=float(limits.max))
    step = node.scalar(1, x) if dtype in INTEGERS else _step(node, x, ml_dtypes.finfo(dtype))
    result = OnnxValue(x.shape, dtype)
    result.carried = node.do(R.multiply, node.do(R.round, node.do(R.divide, x, step)), step)
    return result


def saturated(node: OnnxNode, x: OnnxValue, limits: str, dtype: str) -> OnnxValue:
    """``x`` within what the integer type ``limits`` holds, NaN at its low end, as ``dtype``."""
    ends = ml_dtypes.iinfo(limits)
    return node.own("halotile.saturated", x, low=float(ends.min), high=float(ends.max), dtype=dtype)


def known(node: OnnxNode, x: OnnxValue, array: np.ndarray, dtype: str) -> OnnxValue:
    """A constant cast to or from such a type. Integers keep their low bits, as between those that run."""
    if x.dtype == dtype:
        return x
    if x.dtype in (*INTEGERS, *FLOATS):
        wide = node.const(array.astype("float32" if x.dtype in FLOATS else "int32"))
        return (
            known(node, wide, np.asarray(wide.array), dtype) if dtype not in PLAIN else node.cast(wide, dtype)
        )
    if dtype in INTEGERS and x.dtype in PLAIN:
        bits = int(dtype.removeprefix("u").removeprefix("int"))
        low = np.trunc(array.astype("float64")).astype("int64") if x.is_float else array.astype("int64")
        half = 0 if dtype.startswith("u") else 1 << bits - 1
        return node.const(((low + half) & (1 << bits) - 1) - half, dtype)
    if dtype in FLOATS and x.dtype in PLAIN:
        limits, wide32 = ml_dtypes.finfo(dtype), array.astype("float32")
        if node.attr("saturate", 1):
            wide32 = np.clip(wide32, float(limits.min), float(limits.max))
        with np.errstate(all="ignore"):
            return node.const(wide32, dtype)
    raise Refusal(f"a cast from {x.dtype} to {dtype} is not supported")


def _step(node: OnnxNode, x: OnnxValue, limits: ml_dtypes.finfo) -> OnnxValue:
    """How far the type's numbers lie apart around x: its power of two over those of the mantissa."""
    bits = node.own("halotile.bitcast", x, dtype="int32")
    power = node.do(R.bitwise_and, bits, node.const(np.array(_EXPONENT, "int32")))
    size = node.own("halotile.bitcast", power, dtype="float32")
    size = node.do(R.maximum, size, node.scalar(float(limits.smallest_normal), size))
    return node.do(R.multiply, size, node.scalar(2.0**-limits.nmant, size))
