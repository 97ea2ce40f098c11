"""Matrices by their diagonals: triangles and ones on a diagonal, also of open sizes."""

from __future__ import annotations

import numpy as np
from tvm import relax

from ....schedules.words.dims import is_open
from ....schedules.words.refusal import Refusal
from ..functions import dtype_name
from ..node import OnnxNode
from ..registry import converts
from ..value import OnnxValue

R = relax.op

#: Which columns of a row are kept: (the upper triangle, without the diagonal).
_DIAGONAL = {
    (True, False): R.greater_equal,
    (True, True): R.greater,
    (False, False): R.less_equal,
    (False, True): R.less,
}


@converts("Trilu", since=14)
def trilu(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    rows, columns = x.shape[-2:]
    given = node[1]
    if given is not None and given.contents is None:
        return _trilu_at(node, x, given)
    k = node.ints(1, "its diagonal")
    offset = k[0] if k else 0
    if is_open((rows, columns)):
        upper = bool(node.attr("upper", 1))
        strictly = offset == (1 if upper else -1)  # column >= row + 1 is column > row, of one and the same counting
        first = 0 if strictly else offset
        row = node.reshape(node.do(R.arange, first, rows + first, 1, dtype="int64"), [rows, 1])
        column = node.do(R.arange, 0, columns, 1, dtype="int64")
        kept = node.do(_DIAGONAL[upper, strictly], column, row)
        return node.do(R.where, kept, x, node.scalar(0, x))
    row = node.const(np.arange(rows)[:, None] + min(max(offset, -rows), columns))
    keep = node.do(R.greater_equal if node.attr("upper", 1) else R.less_equal, node.counting(columns), row)
    return node.do(R.where, keep, x, node.scalar(0, x))


def _trilu_at(node: OnnxNode, x: OnnxValue, diagonal: OnnxValue) -> OnnxValue:
    """The same from a diagonal that is known at run time only."""
    rows, columns = x.shape[-2:]
    if is_open((rows, columns)):
        row = node.reshape(node.do(R.arange, 0, rows, 1, dtype="int64"), [rows, 1])
        distance = node.do(R.subtract, node.do(R.arange, 0, columns, 1, dtype="int64"), row)
    else:
        distance = node.do(R.subtract, node.counting(columns), node.reshape(node.counting(rows), (rows, 1)))
    compare = R.greater_equal if node.attr("upper", 1) else R.less_equal
    kept = node.do(compare, distance, node.reshape(node.cast(diagonal, "int64"), ()))
    return node.do(R.where, kept, x, node.scalar(0, x))


@converts("EyeLike", since=9)
def eye_like(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    dtype = dtype_name(node.attr("dtype")) if "dtype" in node.attributes else x.dtype
    if x.rank != 2 or dtype is None:
        raise Refusal(f"{x} is no matrix")
    (rows, columns), k = x.shape, node.attr("k", 0)
    if is_open(x.shape):
        row = node.reshape(node.do(R.arange, k, rows + k, 1, dtype="int64"), [rows, 1])
        return node.cast(node.do(R.equal, node.do(R.arange, 0, columns, 1, dtype="int64"), row), dtype)
    return node.cast(node.do(R.equal, node.counting(columns), node.const(np.arange(rows)[:, None] + k)), dtype)
