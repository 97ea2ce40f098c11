"""Movement of types that only files have (int4, float8 ...): known tensors are moved as bytes, one an element.

Transpose(int4 weights) -> DequantizeLinear     becomes     DequantizeLinear of weights that lie the other way
"""

from __future__ import annotations

import numpy as np

from . import precision
from .node import OnnxNode
from .registry import Converter
from .value import PLAIN, OnnxValue


def write(convert: Converter, node: OnnxNode) -> list[OnnxValue | None]:
    """The results of a node, written in the types that run where it only moves known elements of another type."""
    kinds = {v.dtype for v in node.inputs if v is not None and v.array is not None and v.dtype not in PLAIN}
    if node.operator not in precision.MOVING or len(kinds) != 1:
        return precision.write(convert, node)
    (kind,) = kinds
    moved = precision.write(
        convert, node.on([_viewed(v, "uint8") if _is(v, kind) else v for v in node.inputs])
    )
    return [r if r is None or r.array is None or r.dtype != "uint8" else _viewed(r, kind) for r in moved]


def _is(value: OnnxValue | None, dtype: str) -> bool:
    return value is not None and value.dtype == dtype and value.array is not None


def _viewed(value: OnnxValue | None, dtype: str) -> OnnxValue:
    assert value is not None and value.array is not None
    return OnnxValue.of_array(np.asarray(value.array, order="C").view(dtype))
