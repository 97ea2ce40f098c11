"""Pointwise linear maps: every place's channels times one constant matrix.

    conv2d(x, W [O, I, 1, 1]), stride 1, no padding, no groups        channels on axis 1
    matmul(x, W [I, O])                                               channels on the last axis
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from tvm import relax

from ..simplify.anchors import CONVOLUTIONS, weight_index
from ..simplify.graph import CONST, GraphNode
from ..simplify.patterns import is_float
from ..simplify.rule import RewriteBuilder


@dataclass(frozen=True)
class Pointwise:
    """A pointwise linear map: at every place, the channels times one constant ``matrix`` [inputs, outputs] in float64.
    ``axis`` is the channels' axis of data and result."""

    node: GraphNode
    data: GraphNode
    axis: int

    @property
    def inputs(self) -> int:
        return int(self.weight.array.shape[0 if self.node.op == "relax.matmul" else 1])

    @property
    def outputs(self) -> int:
        return int(self.weight.array.shape[1 if self.node.op == "relax.matmul" else 0])

    @property
    def weight(self) -> GraphNode:
        return self.node.inputs[1]

    @cached_property
    def matrix(self) -> np.ndarray:
        array = self.weight.array
        return (array if self.node.op == "relax.matmul" else array.reshape(array.shape[:2]).T).astype(np.float64)

    def on(self, b: RewriteBuilder, data: GraphNode, matrix: np.ndarray) -> GraphNode:
        """This product or 1 x 1 convolution of ``data`` by ``matrix`` (in the weights' dtype) instead of its own."""
        if self.node.op == "relax.matmul":
            return b.call(relax.op.matmul, data, b.const(np.ascontiguousarray(matrix)))
        kernel = np.ascontiguousarray(matrix.T).reshape(*matrix.T.shape, *(1,) * (self.node.rank - 2))
        return b.same(self.node, data, b.const(kernel))

    def biased(self, b: RewriteBuilder, value: GraphNode, bias: np.ndarray | None) -> GraphNode:
        """``value`` plus ``bias``, a number for each channel."""
        if bias is None:
            return value
        return b.call(relax.op.add, value, b.const(bias.reshape(-1, *(1,) * (value.rank - 1 - self.axis))))


def pointwise(node: GraphNode) -> Pointwise | None:
    """``node`` as a pointwise linear map on a value of known rank and channels, of any number of places; None if it is
    none."""
    if not node.is_tensor or node.shape is None or not is_float(node) or weight_index(node) != 1:
        return None
    data, weight = node.inputs
    if data.shape is None or weight.op != CONST or any(isinstance(d, int) and d == 0 for d in node.shape):
        return None
    array = weight.array
    if node.op == "relax.matmul":
        if array.ndim != 2 or data.rank < 2:
            return None
        return Pointwise(node, data, node.rank - 1)
    if node.op not in CONVOLUTIONS or not _at_one_place(node, array):
        return None
    return Pointwise(node, data, 1)


def _at_one_place(node: GraphNode, weight: np.ndarray) -> bool:
    strides, padding = node.attr("strides"), node.attr("padding")
    return (
        int(node.attrs.groups) == 1
        and all(k == 1 for k in weight.shape[2:])
        and all(int(s) == 1 for s in strides)
        and not any(int(p) for p in padding)
    )
