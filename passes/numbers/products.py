"""The pass: weights of convolutions and products as whole numbers of a byte, times a scale of each output channel.

    conv(x, w)      ->  conv(x, q) * s          s [O, 1, ..., 1] = largest |w| of the channel / 127,  q = round(w / s)
    matmul(x, w)    ->  matmul(x, q) * s        s [N]

Kernels store q in bytes, since the policy asks for it (schedules/math/stored_weights.py), and compute in float32; the
product by s is one of a result, which fuses behind the sum. A weight is off by at most s / 2, that is 1/254 of its
channel's largest, and by nothing where it was a whole number times a scale before. Weights of fewer elements than pay,
and channels with infinities or NaN, stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from tvm import relax
from tvm.ir import IRModule

from ...schedules.math.scaled_integers import Numbers, nearest_numbers
from ...schedules.operators.registry import attributes
from ...targets.target import Target
from ..result import Result
from ..simplify.anchors import CONVOLUTIONS
from ..simplify.graph import CONST, GraphNode
from ..simplify.rule import RewriteBuilder
from ..sweep import Build, closed, opened, sweep

op = relax.op


@dataclass(frozen=True)
class ProductsOfBytes:
    """The pass that rounds constant weights of products to bytes."""

    name: str = "numbers"

    def apply(self, module: IRModule, target: Target | None = None) -> Result:
        """``module`` with products by whole numbers, and products of their results by scales."""
        if target is None or (found := opened(module)) is None:
            return Result(module, False)
        function, graph = found
        done: Counter[str] = Counter()
        rounding = _Rounding()
        rules = {
            "convolutions": rounding.convolution,
            "transposed convolutions": rounding.transposed,
            "products": rounding.product,
        }
        sweep(graph, rules, done)
        result = closed(module, function, graph, self.name, done)
        return replace(result, details={**result.details, "largest_rounding": rounding.off})


@dataclass
class _Rounding:
    """The rules, and what they rounded: the constants by node, so that those that several read stay one."""

    made: dict[GraphNode, Numbers | None] = field(default_factory=dict)
    shared: dict[GraphNode, GraphNode] = field(default_factory=dict)

    @property
    def off(self) -> float:
        """How far a weight is off at most, as a part of its channel's largest."""
        return max((found.off for found in self.made.values() if found is not None), default=0.0)

    def _numbers(self, weight: GraphNode, rows: Callable[[np.ndarray], np.ndarray]) -> Numbers | None:
        """The numbers of a constant, which ``rows`` turns into a row for each scale."""
        if weight.op != CONST or weight.dtype != "float32":
            return None
        if weight not in self.made:
            self.made[weight] = nearest_numbers(rows(weight.array))
        return self.made[weight]

    def _constant(self, b: RewriteBuilder, weight: GraphNode, numbers: np.ndarray) -> GraphNode:
        if weight not in self.shared or self.shared[weight].op != CONST:  # taken back with what read it
            self.shared[weight] = b.const(np.ascontiguousarray(numbers, np.float32))
        return self.shared[weight]

    def convolution(self, node: GraphNode) -> Build | None:
        """conv(x, w[O, ...]) of floats."""
        if node.op not in CONVOLUTIONS or node.dtype != "float32":
            return None
        weight = node.inputs[1]
        found = self._numbers(weight, np.asarray)
        if found is None:
            return None
        scales = found.spread(len(weight.array)).reshape(-1, *(1 for _ in weight.array.shape[2:]))
        return self._scaled(node, weight, found.numbers, scales)

    def transposed(self, node: GraphNode) -> Build | None:
        """conv_transpose(x, w[C, M / groups, ...]): a scale for each group's output channels."""
        if node.op != "halotile.conv_transpose" or node.dtype != "float32" or len(node.inputs) != 2:
            return None
        weight = node.inputs[1]
        groups = int(attributes(node)["groups"])  # type: ignore[arg-type]  # in the same place as a call's

        def rows(w: np.ndarray) -> np.ndarray:
            apart = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
            return np.ascontiguousarray(np.moveaxis(apart, 1, 2).reshape(groups * w.shape[1], -1))

        found = self._numbers(weight, rows)
        if found is None:
            return None
        array = weight.array
        scales = found.spread(groups * array.shape[1]).reshape(-1, *(1 for _ in array.shape[2:]))
        back = found.numbers.reshape(groups, array.shape[1], array.shape[0] // groups, *array.shape[2:])
        return self._scaled(node, weight, np.moveaxis(back, 2, 1).reshape(array.shape), scales)

    def product(self, node: GraphNode) -> Build | None:
        """matmul(x, w[K, N]) of floats."""
        if node.op != "relax.matmul" or node.dtype != "float32" or len(node.inputs) != 2:
            return None
        data, weight = node.inputs
        if weight.op != CONST or weight.rank != 2 or data.op == CONST or data.rank < 2:
            return None
        found = self._numbers(weight, np.transpose)
        if found is None:
            return None
        return self._scaled(node, weight, found.numbers.T, found.spread(weight.array.shape[1]))

    def _scaled(self, node: GraphNode, weight: GraphNode, numbers: np.ndarray, scales: np.ndarray) -> Build:
        def build(b: RewriteBuilder) -> GraphNode:
            data = node.inputs[0]
            product = b.same(node, data, self._constant(b, weight, numbers))
            return b.call(op.multiply, product, b.const(scales))

        return build
