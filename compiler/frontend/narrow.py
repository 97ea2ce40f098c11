"""Numbers of types that no processor here computes in (int4, float8, ...): float32s that such a type can hold.

    QuantizeLinear(x, s) to float8_e4m3fn     becomes     x / s rounded to four bits, at most 448 in size
    DequantizeLinear(q, s)                    becomes     q * s

Only what goes back to wider types may read them: nothing of such a type is stored, or is an input or an output.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from tvm import relax

from .node import Node
from .registry import Refusal
from .value import Value

R = relax.op

INTEGERS = ("int2", "uint2", "int4", "uint4")
FLOATS = ("float4_e2m1fn", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
_EXPONENT = 0x7F800000  # of a float32


def narrowed(node: Node, x: Value, dtype: str) -> Value:
    """The nearest numbers of the type, ties to even, the largest for any beyond."""
    if not node.attr("saturate", 1):
        raise Refusal(f"what {dtype} can't hold is only supported to become the largest that it can (saturate)")
    x = node.cast(x, "float32")
    limits = ml_dtypes.iinfo(dtype) if dtype in INTEGERS else ml_dtypes.finfo(dtype)
    x = node.do(R.clip, x, min=float(limits.min), max=float(limits.max))
    step = node.scalar(1, x) if dtype in INTEGERS else _step(node, x, ml_dtypes.finfo(dtype))
    result = Value(x.shape, dtype)
    result.carried = node.do(R.multiply, node.do(R.round, node.do(R.divide, x, step)), step)
    return result


def _step(node: Node, x: Value, limits: ml_dtypes.finfo) -> Value:
    """How far the type's numbers lie apart around x: its power of two over those of the mantissa."""
    bits = node.own("halotile.bitcast", x, dtype="int32")
    power = node.do(R.bitwise_and, bits, node.const(np.array(_EXPONENT, "int32")))
    size = node.own("halotile.bitcast", power, dtype="float32")
    size = node.do(R.maximum, size, node.scalar(float(limits.smallest_normal), size))
    return node.do(R.multiply, size, node.scalar(2.0**-limits.nmant, size))
