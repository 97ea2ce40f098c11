"""Operators that ONNX Runtime's own domain had before ONNX, or has beside it: ONNX's under another name.

com.microsoft.ExpandDims(x, axis)     becomes     Unsqueeze(x, [axis])
"""

from __future__ import annotations

from tvm import relax

from ....schedules.words.refusal import Refusal
from ..node import OnnxNode, normal_axis
from ..registry import converts
from ..value import OnnxValue
from .diagonals import trilu
from .fused import MICROSOFT
from .indexing import gather_nd
from .movement import pad
from .tensor import range_
from .unique import unique
from .vision import grid_sample

R = relax.op

converts("Trilu", domain=MICROSOFT)(trilu)
converts("GatherND", domain=MICROSOFT)(gather_nd)
converts("GridSample", domain=MICROSOFT)(grid_sample)


@converts("Pad", domain=MICROSOFT)
def padded(node: OnnxNode) -> OnnxValue:
    """ONNX's of opset 11: its pads are an operand."""
    return pad(OnnxNode(node.operator, "", 11, node.inputs, node.attributes, node.outputs, node.builder, node.used))


@converts("Range", domain=MICROSOFT)
def counted(node: OnnxNode) -> OnnxValue:
    """ONNX's, with a step of 1 where none is given."""
    step = node[2] or node.scalar(1, node.need(0))
    return range_(node.on([node.need(0), node.need(1), step]))


@converts("Unique", domain=MICROSOFT)
def first_found(node: OnnxNode) -> list[OnnxValue | None]:
    """(values, places in them, how often) in the order in which they are met; ONNX gives where they are met, too."""
    attributes = {**node.attributes, "sorted": 0}
    used = [*node.used, False, False, False][:3]
    outputs = ["y", "", "places", "counts"]
    inner = OnnxNode(node.operator, "", 11, node.inputs, attributes, outputs, node.builder, [used[0], False, *used[1:]])
    y, _, *others = unique(inner)
    return [y, *others][: len(node.outputs)]


@converts("ExpandDims", domain=MICROSOFT)
def expand_dims(node: OnnxNode) -> OnnxValue:
    x, axes = node.need(0), node.ints(1, "its axis")
    axis = normal_axis((axes or [0])[0], x.rank + 1)
    return node.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))


@converts("CDist", domain=MICROSOFT)
def distances(node: OnnxNode) -> OnnxValue:
    """From each row of A [M, K] to each of B [N, K]: [M, N]."""
    a, b = node.need(0), node.need(1)
    metric = node.attr("metric", "sqeuclidean")
    if a.rank != 2 or b.rank != 2 or a.shape[1] != b.shape[1]:
        raise Refusal(f"its operands {a} and {b} are not rows of the same length")
    if metric not in ("sqeuclidean", "euclidean"):
        raise Refusal(f"the metric '{metric}' is not supported")
    apart = node.do(R.subtract, node.reshape(a, (a.shape[0], 1, a.shape[1])), node.reshape(b, (1, *b.shape)))
    total = node.do(R.sum, node.do(R.multiply, apart, apart), axis=[2])
    return total if metric == "sqeuclidean" else node.do(R.sqrt, total)
