"""Products of bytes with constant weights.

    matmul(f (bytes - z), W)      ->      float32(matmul(bytes, q) - z sum(q)) * f s        where W[k, n] = q[k, n] s[n]

Sums are whole numbers, the zero point's share too, and every bit of them is right; f s rounds once, also where f is
known at run time only (data that was quantised by its own range). Where whole weights are bytes less a number c[n] for
each column, as unsigned ones are, q = W - c, and c times the sum of a row is added.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from ...schedules.instructions.int8_dot import data_dtype
from ...targets.target import Target
from ..simplify.graph import CONST, GraphNode
from ..simplify.rule import RewriteBuilder
from ..sweep import Build
from .operands import BYTES, LARGEST, RANGE, Data, byte_data, has_elements, whole_steps
from .turned import turned

op = relax.op
PRODUCT = "relax.matmul"
EXACT = 1 << 24  # float32 holds all whole numbers up to it


def product_of_bytes(target: Target, exact: bool, node: GraphNode) -> Build | None:
    """What builds ``node``, a product with constant weights, as one of bytes; None if it is none. ``exact``: only where
    no bit changes."""
    if node.op != PRODUCT or node.dtype not in ("float32", "int32") or not has_elements(node):
        return None
    left, right = node.inputs
    if right.op != CONST or left.op == CONST or left.dtype in BYTES or not 2 <= right.rank <= left.rank:
        return None
    if right.array[..., 0, 0].size != 1 or right.array.shape[-1] == 1:  # one column is summed along memory
        return None
    data = byte_data(left, through=True)
    if data is None or data.byte.shape is None:
        return None
    array = right.array.reshape(right.array.shape[-2:])
    found = whole_steps(array.T, exact or node.dtype == "int32")
    if found is not None:
        whole, steps = np.ascontiguousarray(found[0].T).astype(np.int64), found[1]
    elif _centred(array) is not None:  # unsigned weights less their zero points
        whole, steps = array.astype(np.int64), np.ones(right.array.shape[-1])
    else:
        return None
    scales = (data.scale * steps).astype(np.float32)
    inside = 0 <= data.zero - (-128 if data.byte.dtype == "int8" else 0) <= RANGE
    unscaled = bool((scales == 1).all()) and data.factor is None
    if node.dtype == "int32" and not unscaled or not np.isfinite(scales).all() or not scales.all():
        return None
    if len(whole) * RANGE * (abs(data.zero) + RANGE) > LARGEST:
        return None
    if exact and node.dtype == "float32" and not (unscaled and inside and RANGE * side_sums(whole).max() <= EXACT):
        return None

    def build(b: RewriteBuilder) -> GraphNode:
        total = _summed(b, data, whole, target)
        if node.dtype == "int32":
            return total
        total = b.call(op.astype, total, "float32")
        if data.factor is not None:
            by = b.call(op.reshape, data.factor, []) if data.factor.rank else data.factor
            return b.call(op.multiply, total, b.call(op.multiply, b.const(scales), by))
        return total if unscaled else b.call(op.multiply, total, b.const(scales))

    return build


def _centred(array: np.ndarray) -> np.ndarray | None:
    """What each column of whole numbers has to be less, so that it is of int8; None if nothing does it."""
    if not np.isfinite(array).all() or (array != np.rint(array)).any():
        return None
    low, high = array.min(0).astype(np.int64), array.max(0).astype(np.int64)
    centre = np.maximum(high - 127, 0) + np.minimum(low + 128, 0)
    return centre if ((high - low <= RANGE) & (np.abs(centre) <= RANGE)).all() else None


def side_sums(whole: np.ndarray) -> np.ndarray:
    """For each column of ``whole`` (int8 [K, N]) the larger of the sum of its positive weights and that of its negative
    ones, absolute."""
    wide = whole.astype(np.int64)
    return np.maximum(np.maximum(wide, 0).sum(0), -np.minimum(wide, 0).sum(0))


def _summed(b: RewriteBuilder, data: Data, whole: np.ndarray, target: Target) -> GraphNode:
    """The product in int32, less what the zero point adds to each column."""
    columns = whole.sum(0, dtype=np.int64)
    wanted, centre = data_dtype(target), _centred(whole)
    assert wanted is not None and centre is not None
    byte, zero = turned(b, data, wanted)
    byte = data.moved(b, byte)
    total = b.call(op.matmul, byte, b.const((whole - centre).astype(np.int8)), out_dtype="int32")
    if centre.any():
        rows = b.call(op.sum, b.call(op.astype, byte, "int32"), axis=[-1], keepdims=True)
        total = b.call(op.add, total, b.call(op.multiply, rows, b.const(centre.astype(np.int32))))
    correction = -zero * columns
    if correction.any():
        total = b.call(op.add, total, b.const(correction.astype(np.int32)))
    if data.offset is not None:
        total = without(b, total, data.offset, columns)
    return total


def without(b: RewriteBuilder, total: GraphNode, offset: GraphNode, columns: np.ndarray) -> GraphNode:
    """``total - offset * columns`` in int32: a product without the contribution of the data's offset."""
    if offset.op == "relax.astype" and offset.inputs[0].dtype in BYTES:
        offset = offset.inputs[0]
    if all(s == 1 for s in offset.shape or ()) and offset.rank:
        offset = b.call(op.reshape, offset, [])
    if offset.dtype != "int32":
        offset = b.call(op.astype, offset, "int32")
    return b.call(op.subtract, total, b.call(op.multiply, offset, b.const(columns.astype(np.int32))))
