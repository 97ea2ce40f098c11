"""Two linear maps with nothing but moves and biases between them are one.

    matmul(matmul(x, V) + c, W)                      ->    matmul(x, V @ W) + c @ W
    conv1x1(image(matmul(tokens, V) + c), W)         ->    conv1x1(image(tokens), V @ W) + c @ W
    conv1x1(conv3x3(x, V), W)                        ->    conv3x3(x, W V)

Only where the one costs less than the two: a bottleneck between them (few channels) stays. Moves that keep the
channels' axis whole may lie between; they stay where there are fewer channels to move.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
from tvm import relax

from ...schedules.words.sizes import dim_of, product, surely
from ...schedules.words.tvm_types import Expr
from ..simplify.anchors import CONVOLUTIONS, weight_index
from ..simplify.graph import CONST, GraphNode
from ..simplify.identity import RESHAPES, permutation
from ..simplify.patterns import is_float, rounded, split_constant
from ..simplify.rule import RewriteBuilder
from .pointwise import Pointwise, pointwise


@dataclass(frozen=True)
class _ProductWay:
    """From a product up to another: ``moves`` with the channels' axis of their results, the last first."""

    first: GraphNode
    moves: tuple[tuple[GraphNode, int], ...]
    bias: np.ndarray | None


@dataclass
class WeightProducts:
    """Products of pairs of constant weights, each computed once, with its node in the graph: an unrolled loop has the
    same pair in every round."""

    arrays: dict[tuple[GraphNode, GraphNode], np.ndarray | None] = field(default_factory=dict)
    nodes: dict[tuple[GraphNode, GraphNode], GraphNode] = field(default_factory=dict)

    def array(self, first: GraphNode, second: Pointwise) -> np.ndarray | None:
        """The product of two pairs of weights, in the weights' dtype; None where a number would leave its range."""
        key = first.inputs[1], second.weight
        if key not in self.arrays:
            self.arrays[key] = rounded(_product(first, second.matrix), key[0].array.dtype)
        return self.arrays[key]

    def node(self, b: RewriteBuilder, first: GraphNode, second: Pointwise) -> GraphNode:
        """The constant node of a product that :meth:`array` gave."""
        key = first.inputs[1], second.weight
        known = self.nodes.get(key)
        if known is None or known.op == "removed":
            known = self.nodes[key] = b.const(self.arrays[key])
        return known


def compose(node: GraphNode, products: WeightProducts) -> Callable[[RewriteBuilder], GraphNode] | None:
    """What builds ``node``, two linear maps in a row, by one product; None if that is not possible, or not less
    work."""
    second = pointwise(node)
    way = _way(second) if second is not None else None
    if second is None or way is None:
        return None
    kernel = way.first.inputs[1].array
    terms = kernel.shape[0] if way.first.op == "relax.matmul" else prod(kernel.shape[1:])
    between, outputs = second.inputs, second.outputs
    if terms * outputs >= terms * between + between * outputs:
        return None
    weights = products.array(way.first, second)
    bias = None if way.bias is None else rounded(way.bias @ second.matrix, kernel.dtype)
    if weights is None or (bias is None) != (way.bias is None):
        return None
    before = pointwise(way.first)
    early = before is None or before.inputs > outputs or not way.moves

    def build(b: RewriteBuilder) -> GraphNode:
        if early:
            product = products.node(b, way.first, second)
            value = _replayed(b, b.same(way.first, way.first.inputs[0], product), way, outputs)
        else:
            assert before is not None
            matrix = weights if way.first.op == "relax.matmul" else weights.reshape(weights.shape[:2]).T
            value = second.on(b, _replayed(b, before.data, way, before.inputs), matrix)
        return second.biased(b, value, bias)

    return build


def _product(first: GraphNode, matrix: np.ndarray) -> np.ndarray:
    """Weights of ``first`` whose outputs are combined by ``matrix`` [outputs, new outputs]."""
    kernel = first.inputs[1].array.astype(np.float64)
    if first.op == "relax.matmul":
        return kernel @ matrix
    return np.ascontiguousarray(np.tensordot(matrix.T, kernel, axes=1))


def _replayed(b: RewriteBuilder, value: GraphNode, way: _ProductWay, channels: int) -> GraphNode:
    for move, axis in reversed(way.moves):
        if move.op == "relax.permute_dims":
            value = b.same(move, value)
        else:
            shape = list(move.shape or ())
            shape[axis] = channels
            value = b.call(relax.op.reshape, value, shape)
    return value


def _way(second: Pointwise) -> _ProductWay | None:
    """The way from ``second`` up to the product before it, each step of it read by the next one only."""
    node, axis = second.data, second.axis
    moves: list[tuple[GraphNode, int]] = []
    bias: np.ndarray | None = None
    while node.uses == 1 and node.shape is not None:
        if _is_linear(node, axis):
            return _ProductWay(node, tuple(moves), bias)
        if node.op == "relax.permute_dims":
            moves.append((node, axis))
            axis = permutation(node)[axis]
        elif node.op in RESHAPES:
            above = _axis_before(node, axis)
            if above is None:
                return None
            moves.append((node, axis))
            axis = above
        else:
            shift = _shift(node, axis)
            if shift is None:
                return None
            bias = shift[1] if bias is None else bias + shift[1]
            node = shift[0]
            continue
        node = node.inputs[0]
    return None


def _is_linear(node: GraphNode, axis: int) -> bool:
    """A product with constant weights whose outputs' channels lie on ``axis``."""
    if not is_float(node) or weight_index(node) != 1 or node.inputs[0].shape is None:
        return False
    if node.op == "relax.matmul":
        return node.inputs[1].rank == 2 and node.inputs[0].rank >= 2 and axis == node.rank - 1
    return node.op in CONVOLUTIONS and int(node.attrs.groups) == 1 and axis == 1


def _axis_before(node: GraphNode, axis: int) -> int | None:
    """The axis of a reshape's operand that is ``axis`` of its result, with the same elements on either side."""
    shape, source = node.shape or (), node.inputs[0].shape
    for candidate, extent in enumerate(source or ()):
        whole = isinstance(extent, int) and isinstance(shape[axis], int) and extent == shape[axis]
        if whole and source is not None and _as_many(source[:candidate], shape[:axis]):
            return candidate
    return None


def _shift(node: GraphNode, axis: int) -> tuple[GraphNode, np.ndarray] | None:
    """``(x, c)`` where the node computes x + c with a number per channel."""
    if node.op not in ("relax.add", "relax.subtract") or not is_float(node):
        return None
    pair = split_constant(node)
    if pair is None or (node.op == "relax.subtract" and node.inputs[1] is not pair[1]):
        return None
    value, constant = pair
    if value.shape is None or node.shape is None or not _same(value.shape, node.shape):
        return None
    array = constant.array.astype(np.float64)
    if constant.op != CONST or not np.all(np.isfinite(array)):
        return None
    full = array.reshape((1,) * (node.rank - array.ndim) + array.shape)
    if any(d != 1 for k, d in enumerate(full.shape) if k != axis):
        return None
    channels = int(node.shape[axis])
    vector = np.broadcast_to(full.reshape(-1), (channels,))
    return value, vector if node.op == "relax.add" else -vector


def _as_many(one: Sequence[Expr], other: Sequence[Expr]) -> bool:
    """True if the products of both are surely equal."""
    return surely(lambda: product(map(dim_of, one)) == product(map(dim_of, other)))


def _same(one: Sequence[Expr], other: Sequence[Expr]) -> bool:
    """True if the dims of both are surely equal."""
    return len(one) == len(other) and surely(lambda: all(dim_of(a) == dim_of(b) for a, b in zip(one, other)))
