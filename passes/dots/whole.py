"""Whole numbers on their way through float32, and in parts, become what they are: one sum in int32.

    int32(float32(sums) + c)                              ->      sums + c
    matmul(x[:, a:b], p) + matmul(x[:, b:c], q)           ->      matmul(x[:, a:c], [p; q])

Both are the importer's (compiler/frontend/converters/whole.py): float32 holds sums below 2**24.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax

from ...schedules.instructions.int8_dot import PAIRS
from ...targets.target import Target
from ..simplify.graph import CONST, GraphNode
from ..simplify.patterns import ints, split_constant
from ..simplify.rule import RewriteBuilder
from ..sweep import Build
from .operands import BYTES, alike
from .products import EXACT, PRODUCT, RANGE, side_sums, without
from .turned import data_range

op = relax.op


@dataclass(frozen=True)
class _Sums:
    """``matmul(data, weights) + constant - offset * (sums of the weights' columns)``."""

    product: GraphNode
    constant: np.ndarray
    offset: GraphNode | None

    @property
    def weights(self) -> np.ndarray:
        return self.product.inputs[1].array

    def bounded(self, more: np.ndarray) -> bool:
        """True if float32 holds all that the sums can be, and all that they are with ``more``."""
        low, high = data_range(self.product.inputs[0])
        wide = self.weights.astype(np.int64)
        above, below = np.maximum(wide, 0).sum(0), np.minimum(wide, 0).sum(0)
        if self.offset is not None:
            return not self.constant.any() and not more.any() and bool((RANGE * side_sums(wide)).max() <= EXACT)
        ends = (self.constant + high * above + low * below, self.constant + low * above + high * below)
        return all(bool((np.abs(end + m) <= EXACT).all()) for end in ends for m in (0, more))


def _sums(node: GraphNode) -> _Sums | None:
    """What :mod:`.products` made, in its order."""
    offset, constant = None, np.zeros((), np.int64)
    columns = None
    if node.op == "relax.subtract" and node.inputs[1].op == "relax.multiply":
        factors = split_constant(node.inputs[1])
        if factors is None:
            return None
        node, offset, columns = node.inputs[0], factors[0], factors[1].array
    pair = split_constant(node) if node.op == "relax.add" else None
    if pair is not None and alike(pair[0], node):
        node, constant = pair[0], pair[1].array.astype(np.int64)
    if node.op != PRODUCT or node.dtype != "int32" or node.inputs[0].dtype not in (*BYTES, PAIRS):
        return None
    if node.inputs[1].op != CONST:
        return None
    if columns is not None and not np.array_equal(columns, node.inputs[1].array.sum(0, dtype=np.int64)):
        return None
    return _Sums(node, constant, offset)


def whole_again(target: Target, exact: bool, node: GraphNode) -> Build | None:
    """What builds ``node``, whole numbers that pass through float32 on their way, as a sum in int32; None if it is
    nothing of the kind."""
    if node.op != "relax.astype" or node.dtype != "int32":
        return None
    value, more = node.inputs[0], np.zeros((), np.int64)
    pair = split_constant(value) if value.op == "relax.add" else None
    if pair is not None and alike(pair[0], value):
        constant = pair[1].array
        if not (np.isfinite(constant).all() and (constant == np.rint(constant)).all()):
            return None
        if np.abs(constant).max(initial=0) > EXACT:
            return None
        value, more = pair[0], constant.astype(np.int64)
    if value.op != "relax.astype" or value.dtype != "float32":
        return None
    total = value.inputs[0]
    sums = _sums(total)
    if sums is None or exact and not sums.bounded(more):
        return None
    if not more.any():
        return lambda b: total
    if sums.offset is not None:
        return lambda b: b.call(op.add, total, b.const(more.astype(np.int32)))
    return lambda b: b.call(op.add, sums.product, b.const(np.asarray(sums.constant + more).astype(np.int32)))


def parts_together(target: Target, exact: bool, node: GraphNode) -> Build | None:
    """What builds ``node``, two sums over neighbouring parts of one value, as one sum; None if it adds no such two."""
    if node.op != "relax.add" or node.dtype != "int32" or CONST in (i.op for i in node.inputs):
        return None
    both = [_sums(i) for i in node.inputs]
    first, second = both
    if first is None or second is None or first.offset is not second.offset:
        return None
    parts = [_part(s.product.inputs[0]) for s in (first, second)]
    if parts[0] is None or parts[1] is None or parts[0][0] is not parts[1][0]:
        return None
    (source, begin, middle), (_, other, end) = parts[0], parts[1]
    if middle != other or not (alike(first.product, node) and alike(second.product, node)):
        return None
    weights = np.concatenate([first.weights, second.weights])
    constant = np.asarray(first.constant + second.constant)

    def build(b: RewriteBuilder) -> GraphNode:
        data = source
        if (begin, end) != (0, (source.shape or ())[-1]):
            data = b.call(op.strided_slice, source, [source.rank - 1], [begin], [end])
        total = b.call(op.matmul, data, b.const(weights), out_dtype="int32")
        if constant.any():
            total = b.call(op.add, total, b.const(constant.astype(np.int32)))
        return total if first.offset is None else without(b, total, first.offset, weights.sum(0, dtype=np.int64))

    return build


def _part(data: GraphNode) -> tuple[GraphNode, int, int] | None:
    """Whose elements along the last axis ``data`` are, from where to where."""
    if data.op != "relax.strided_slice" or len(data.inputs) != 1 or not data.inputs[0].static:
        return None
    axes, begin, end = (ints(data.raw(i)) for i in (1, 2, 3))
    strides = ints(data.raw(4)) if len(data.operands) > 4 else [1]
    source = data.inputs[0]
    if axes != [source.rank - 1] or begin is None or end is None or strides != [1] or min(begin[0], end[0]) < 0:
        return None
    return source, begin[0], min(end[0], (source.shape or ())[-1])
