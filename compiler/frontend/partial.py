"""Tensors of which only the first few positions along one axis count, a number that is only known at run time.

    keep = NonMaxSuppression(boxes, scores)      int64 [300, 3], of which `count` rows are there
    best = Gather(boxes, keep)                   float32 [300, 4], of which the same rows are there

Memory and loops are those of the bound, so nothing behind the import knows of it. The axis is followed here from
operator to operator: each has a rule that says where it is in the results, and what must be done so that positions
behind the count touch nothing before it. An operator without a rule refuses such an operand. A model's output gets a
second one that holds the count, and zeros behind it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from ...schedules.words.refusal import Refusal
from . import quantised
from .converters.movement import concatenated
from .lengths import run_time
from .node import OnnxNode, normal_axes, normal_axis
from .parts import (
    Rule,
    Write,
    count_of,
    filled,
    in_one_room,
    length,
    only,
    part_of,
    partial_operands,
    positions_in,
    row_by_row,
    tagged,
    there,
    told,
    untagged,
    with_part,
    wrapped,
    zeroed,
)
from .value import OnnxValue

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

R = relax.op


def converted(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    """The results of a node with such operands by its rule; ``write`` converts it on operands that are whole."""
    rule = _RULES.get(node.operator) if node.domain in ("", "com.microsoft") else None
    if rule is None:
        raise Refusal(f"{told(node)}, which it does not take")
    return rule(node, write)


# ---------------------------------------------------------------------- rules


def _elementwise(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    """Operands that broadcast together: those with the axis have it in one place, the others are one long there."""
    count = count_of(node)
    places = {v.rank - part_of(v).axis for v in node.inputs if v is not None and v.part is not None}
    back = min(places)
    others = [v for v in node.inputs if v is not None and v.part is None and v.rank >= back]
    if len(places) > 1 or any(v.shape[v.rank - back] != 1 for v in others):
        raise Refusal("a length that depends on the data does not meet itself in its operands")
    rank = max(v.rank for v in node.inputs if v is not None)
    node = node.on(in_one_room(node, node.inputs))
    whole = untagged(node.inputs)
    if node.operator in ("Div", "Mod") and node.need(1).part is not None and node.need(1).is_integer:
        whole[1] = filled(node, node.need(1), 1)  # a division by zero would stop the process
    return tagged(write(whole), rank - back, count)


def _along(default: int) -> Rule:
    """What works along the axis that it names, of its first operand."""

    def rule(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
        only(node, 0)
        x, part = node.need(0), part_of(node[0])
        joined = node.opset < 13 and node.operator in ("Softmax", "LogSoftmax", "Hardmax")  # over all axes from it on
        axis = normal_axis(node.attr("axis", 1 if joined else default), x.rank)
        after = joined or node.operator in ("LayerNormalization", "RMSNormalization")
        if part.axis == axis and not joined and node.operator in ("Softmax", "LogSoftmax"):
            return tagged(write([filled(node, x, -math.inf)]), axis, part.count)
        if part.axis == axis or (after and part.axis > axis):
            raise Refusal(f"{told(node)}, and it works along it")
        return tagged(write(untagged(node.inputs)), part.axis, part.count)

    return rule


def _gemm(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    if node.attr("transA", 0):
        raise Refusal(f"{told(node)}, and it sums along it")
    return row_by_row(node, write)


def _matmul(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    """Rows of the left operand, columns of the right one, images of both, or what is summed over where both have it."""
    a, b = node.need(0), node.need(1)
    rank = max(a.rank, b.rank)
    at = [None if v.part is None else v.part.axis - v.rank for v in (a, b)]
    inner = [-1, -2 if b.rank > 1 else -1]
    if at == inner:
        count_of(node)
        a, b = (v for v in in_one_room(node, (a, b)) if v is not None)
        return write([zeroed(node, a), zeroed(node, b)])
    if any(p == i for p, i in zip(at, inner)) or min(a.rank, b.rank) < 2:
        raise Refusal(f"{told(node)}, and it sums along it")
    if at[1] == -1 and at[0] is None or at[0] == -2 and at[1] is None:
        place = at[0] if at[0] is not None else at[1]
    else:
        places = {p for p in at if p is not None}
        (place,) = places if len(places) == 1 else (0,)
        others = [v for v in (a, b) if v.part is None and v.rank >= -(place or 0)]
        if place is None or place > -3 or any(v.shape[place] != 1 for v in others):
            raise Refusal(f"{told(node)}, which it does not take there")
        count = count_of(node)
        return tagged(write(untagged(in_one_room(node, (a, b)))), rank + place, count)
    assert place is not None
    return tagged(write(untagged((a, b))), rank + place, count_of(node))


def _transpose(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    x, part = node.need(0), part_of(node[0])
    order = list(node.attr("perm", range(x.rank)[::-1]))
    return tagged(write(untagged(node.inputs)), order.index(part.axis), part.count)


def _unsqueeze(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    only(node, 0)
    x, part = node.need(0), part_of(node[0])
    axes = node.ints(1, "its axes", "axes") or []
    new = set(normal_axes(axes, x.rank + len(axes)))
    old = [a for a in range(x.rank + len(axes)) if a not in new]
    return tagged(write(untagged(node.inputs)), old[part.axis], part.count)


def _squeeze(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    only(node, 0)
    x, part = node.need(0), part_of(node[0])
    axes = node.ints(1, "its axes", "axes")
    gone = set(normal_axes(axes or [part.axis], x.rank))
    if part.axis in gone:
        raise Refusal(f"{told(node)}, and it may remove it; give it the axes")
    return tagged(write(untagged(node.inputs)), part.axis - sum(a < part.axis for a in gone), part.count)


def _split(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    return _along(0)(node, write)


def _concat(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    """Side by side; or end to end, when what is there of each moves to the front of the whole."""
    values = [v for v in node.inputs if v is not None]
    axis = normal_axis(node.attr("axis", 1), values[0].rank)
    if all(v.part is None or v.part.axis == axis for v in values):
        (y,) = write(untagged(values))
        ends = [
            node.reshape(there(node, v), (v.shape[axis],)) if v.part is not None
            else node.broadcast(node.const(True), (v.shape[axis],))
            for v in values
        ]  # fmt: skip
        positions, count = node.own_many("halotile.nonzero", concatenated(node, ends, 0))
        assert y is not None
        total = sum(length(v) if v.part is not None else v.shape[axis] for v in values)
        count.told = np.array([total], object)
        places = node.reshape(positions, (y.shape[axis],))
        return [with_part(node.own("halotile.gather", y, places, axis=axis), axis, count)]
    if any(v.part is None or v.part.axis == axis for v in values):
        raise Refusal("only some of its operands have a length that depends on the data")
    count = count_of(node)
    if len({part_of(v).axis for v in values}) > 1:
        raise Refusal("lengths that depend on the data lie along different axes of its operands")
    return tagged(write(untagged(values)), part_of(values[0]).axis, count)


def _gather(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    x, indices = node.need(0), node.need(1)
    axis = normal_axis(node.attr("axis", 0), x.rank)
    whole = untagged(node.inputs)
    if x.part is None:
        return tagged(write(whole), axis + part_of(indices).axis, part_of(indices).count)
    if x.part.axis != axis:
        if indices.part is not None:
            raise Refusal("both its operands have a length that depends on the data")
        at = x.part.axis + (indices.rank - 1 if x.part.axis > axis else 0)
        return tagged(write(whole), at, x.part.count)
    whole[1] = positions_in(node, x, indices, axis)
    results = write(whole)
    return results if indices.part is None else tagged(results, axis + indices.part.axis, indices.part.count)


def _gather_nd(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    x, indices = node.need(0), node.need(1)
    depth, part = indices.shape[-1], indices.part
    whole, batch = untagged(node.inputs), node.attr("batch_dims", 0)
    if batch and part is not None and x.part is not None and x.part.axis == part.axis < batch:  # row by row
        return tagged(write(whole), part.axis, count_of(node))
    if part is None or part.axis == indices.rank - 1 or batch:
        raise Refusal(f"{told(node)}, which it does not take there")
    if x.part is not None:
        if x.part.axis >= depth:
            raise Refusal("both its operands have a length that depends on the data")
        assert whole[1] is not None
        whole[1] = wrapped(node, whole[1], x.part, x.shape[x.part.axis], np.arange(depth) == x.part.axis)
    return tagged(write(whole), part.axis, part.count)


def _gather_elements(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    x, indices = node.need(0), node.need(1)
    axis = normal_axis(node.attr("axis", 0), x.rank)
    if indices.part is None:
        if part_of(x).axis != axis:
            raise Refusal(f"{told(node)}, and may be shorter than the positions that it reads")
        return write([x.with_part(None), positions_in(node, x, indices, axis)])
    count, part = count_of(node), indices.part
    if part.axis == axis and x.part is None:
        return tagged(write(untagged(node.inputs)), axis, count)
    if x.part is None or x.part.axis != part.axis or part.axis == axis:
        raise Refusal(f"{told(node)}, which it does not take there")
    return tagged(write(untagged(node.inputs)), part.axis, count)


_NEUTRAL = {
    "ReduceSum": 0.0, "ReduceL1": 0.0, "ReduceL2": 0.0, "ReduceSumSquare": 0.0, "ReduceProd": 1.0,
    "ReduceMax": -math.inf, "ReduceMin": math.inf, "ReduceLogSumExp": -math.inf,
    "ArgMax": -math.inf, "ArgMin": math.inf,
}  # fmt: skip


def _reduction(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    """Over other axes as ever; over the axis itself, what is not there changes nothing."""
    only(node, 0)
    x, part = node.need(0), part_of(node[0])
    if node.operator.startswith("Arg"):
        axes = [node.attr("axis", 0)]
    else:
        axes = node.ints(1, "its axes", "axes") or ([] if node.attr("noop_with_empty_axes", 0) else list(range(x.rank)))
    gone = set(normal_axes(axes, x.rank))
    if part.axis not in gone:
        kept = part.axis if node.attr("keepdims", 1) else part.axis - sum(a < part.axis for a in gone)
        return tagged(write(untagged(node.inputs)), kept, part.count)
    if node.operator == "ReduceMean":
        return _mean(node, sorted(gone), write)
    neutral = _NEUTRAL.get(node.operator)
    if neutral is None:
        raise Refusal(f"{told(node)}, and it works along it")
    return write([filled(node, x, neutral), *node.inputs[1:]])


def _mean(node: OnnxNode, axes: list[int], write: Write) -> Sequence[OnnxValue | None]:
    """The sum over what is there by its count; 0 of nothing, as in ONNX Runtime (and PyTorch's bags of embeddings)."""
    x, part = node.need(0), part_of(node[0])
    whole = filled(node, x, 0)
    if not x.is_float:
        raise Refusal(f"{told(node)}, and it takes the mean of whole numbers along it")

    def run(v: OnnxValue) -> OnnxValue:
        keep = bool(node.attr("keepdims", 1))
        total = node.do(R.sum, v, axis=axes, keepdims=keep)
        others = math.prod(x.shape[a] for a in axes if a != part.axis)
        rows = node.do(R.maximum, part.count, node.scalar(1, part.count))
        count = node.do(R.multiply, node.cast(node.reshape(rows, ()), v.dtype), node.scalar(others, v))
        return node.do(R.divide, total, count)

    return [node.in_float32(run, whole)]


def _cumulative(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    """From the end as well, once what is not there changes nothing."""
    only(node, 0)
    neutral = 0 if node.operator == "CumSum" else 1
    return tagged(write([filled(node, node.need(0), neutral), node[1]]), part_of(node[0]).axis, count_of(node))


def _one_hot(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    only(node, 0)
    indices, part = node.need(0), part_of(node[0])
    axis = normal_axis(node.attr("axis", -1), indices.rank + 1)
    return tagged(write(untagged(node.inputs)), part.axis + (axis <= part.axis), part.count)


def _in_place(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    """What depends on positions from the front alone."""
    only(node, 0)
    return tagged(write(untagged(node.inputs)), part_of(node[0]).axis, count_of(node))


def _size(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    x, part = node.need(0), part_of(node[0])
    dims = [length(x) if a == part.axis else d for a, d in enumerate(x.shape)]
    return [_scalar_of(node, math.prod(dims))]


def _scalar_of(node: OnnxNode, dim: SizeLike) -> OnnxValue:
    value = node.reshape(run_time(node, dim), ())
    value.told = np.array(dim, object)
    return value


def _top_k(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    """The first of what is there, since what is not comes last."""
    x, part = node.need(0), part_of(node[0])
    if part.axis != normal_axis(node.attr("axis", -1), x.rank):
        return _along(-1)(node, write)
    return write([filled(node, x, -math.inf if node.attr("largest", 1) else math.inf), *node.inputs[1:]])


def _non_zero(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    return write([zeroed(node, node.need(0))])


def _suppression(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    """The converter itself takes boxes and scores of which only some are there."""
    if partial_operands(node) != [0, 1] or part_of(node[0]).axis != 1 or part_of(node[1]).axis != 2:
        raise Refusal(f"{told(node)}, which it does not take there")
    count_of(node)
    return write(node.inputs)


def _compress(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    x, condition = node.need(0), node.need(1)
    axis = node.attr("axis")
    along = None if axis is None else normal_axis(axis, x.rank)
    if x.part is not None and (condition.part is None or x.part.axis != along and x.rank > 1):
        raise Refusal(f"{told(node)}, which it does not take there")
    return write([x.with_part(None), zeroed(node, condition)])


def _shape(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    """The lengths as a tensor of run time, unless those that are asked for are known."""
    x, part = node.need(0), part_of(node[0])
    places = list(range(x.rank))[slice(node.attr("start", 0), node.attr("end", x.rank))]
    if part.axis not in places:
        return [node.const([x.shape[a] for a in places], "int64")]
    parts = [part.count if a == part.axis else node.const([x.shape[a]], "int64") for a in places]
    if len(parts) == 1:
        return parts
    shape = node.do(R.concat, parts, axis=0)
    shape.told = np.array([length(x) if a == part.axis else x.shape[a] for a in places], object)
    return [shape]


def _roi_align(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    only(node, 1, 2)
    if any(part_of(node[i]).axis for i in partial_operands(node)):
        raise Refusal(f"{told(node)}, which it does not take there")
    return tagged(write(untagged(node.inputs)), 0, count_of(node))


def _scatter(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    """What is not there is written to a position outside of the tensor, which is nowhere."""
    x, indices, updates = (node.need(i) for i in range(3))
    if indices.part is None or updates.part is None or indices.part.axis != updates.part.axis:
        raise Refusal("only some of its operands have a length that depends on the data")
    if length(indices) != length(updates):
        raise Refusal("its operands have lengths that depend on the data in different ways")
    if x.part is not None:
        elements, depth = node.operator == "ScatterElements", indices.shape[-1]
        axis = x.part.axis
        if axis != normal_axis(node.attr("axis", 0), x.rank) if elements else axis >= depth:
            raise Refusal(f"{told(node)}, which it does not take there")
        columns = None if elements else np.arange(depth) == axis
        indices = with_part(wrapped(node, indices.with_part(None), x.part, x.shape[axis], columns),
                            indices.part.axis, indices.part.count)  # fmt: skip
    indices, updates = (v for v in in_one_room(node, (indices, updates)) if v is not None)
    places, values = filled(node, indices, max([1, *x.shape])), updates.with_part(None)
    results = write([x.with_part(None), places, values, *node.inputs[3:]])
    return results if x.part is None else tagged(results, x.part.axis, x.part.count)


def _resized(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    """Along other axes, by scales: sizes would have to know the length."""
    only(node, 0)
    part = part_of(node[0])
    scales = node.attr("scales") or node.constant(1 if node.opset < 11 else 2, "its scales")
    if node.has(3) or scales is None or len(scales) != node.need(0).rank or scales[part.axis] != 1:
        raise Refusal(f"{told(node)}, and it may change it")
    return tagged(write(untagged(node.inputs)), part.axis, part.count)


def _cast_like(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    """Of the second operand only the type counts."""
    return [None if r is None else r.with_part(node.need(0).part) for r in write(untagged(node.inputs))]


_RULES: dict[str, Rule] = {
    **dict.fromkeys(
        """
        Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast
        Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu FastGelu QuickGelu Greater GreaterOrEqual
        HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul
        Neg Not Or PRelu Pow QLinearAdd QLinearLeakyRelu QLinearMul QLinearSigmoid Reciprocal Relu Round Selu
        Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor
        """.split(),
        _elementwise,
    ),
    **dict.fromkeys(
        """
        AveragePool BatchNormalization Conv ConvInteger ConvTranspose DepthToSpace Dropout GlobalAveragePool
        GlobalMaxPool GroupNormalization InstanceNormalization LRN LpPool MaxPool QLinearAveragePool
        QLinearConv QLinearGlobalAveragePool SpaceToDepth
        """.split(),
        row_by_row,
    ),
    **dict.fromkeys(
        "Hardmax LayerNormalization LogSoftmax LpNormalization RMSNormalization Softmax".split(), _along(-1)
    ),
    **dict.fromkeys([*_NEUTRAL, "ReduceMean", "ReduceLogSum"], _reduction),
    **dict.fromkeys("CumProd CumSum".split(), _cumulative),
    **dict.fromkeys("MatMulInteger MatMulIntegerToFloat QLinearMatMul".split(), quantised.rows),
    "CastLike": _cast_like,
    "Compress": _compress,
    "Concat": _concat,
    "DequantizeLinear": quantised.elements,
    "DynamicQuantizeLinear": quantised.dynamic,
    "DynamicQuantizeMatMul": quantised.dynamic_product,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "NonMaxSuppression": _suppression,
    "NonZero": _non_zero,
    "OneHot": _one_hot,
    "QGemm": _gemm,
    "QuantizeLinear": quantised.elements,
    "Resize": _resized,
    "RoiAlign": _roi_align,
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
    "Shape": _shape,
    "Size": _size,
    "Split": _split,
    "Squeeze": _squeeze,
    "TopK": _top_k,
    "Transpose": _transpose,
    "Trilu": _in_place,
    "Unsqueeze": _unsqueeze,
    "Upsample": _resized,
}  # fmt: skip
