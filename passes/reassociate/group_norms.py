"""Norms over groups of an image's channels, by way of each channel's own means.

    reshape(standardise(reshape(x, [N, G, -1])))      ->      f = each group's first element
                                                              d = the group's mean of mean(x - f, rows and columns)
                                                              m = f + d, r = d - (m - f)
                                                              v = the group's mean of mean((x - m)^2, ...) - r^2
                                                              (x - m) * s - r * s,    s = 1 / sqrt(v + eps)

Exporters write group normalisation so (Wu and He, "Group Normalization", 2018). A group is a run of channels, which is
one row of plain memory: behind a convolution the image is copied out of its channel blocks and back, and all of a group
is one task. The means of channels are taken in blocks on all cores, and what is done to the image is a map; between are
N x C numbers. The sums are those of :mod:`...schedules.operators.standardised`, in another order.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from ...schedules.operators.registry import call
from ...schedules.words.tvm_types import Attribute, Expr
from ..simplify.graph import CONST, GraphNode
from ..simplify.identity import RESHAPES
from ..simplify.patterns import split_constant
from ..simplify.rule import RewriteBuilder
from .near_convolutions import of_convolution

op = relax.op

LEAST_ELEMENTS = 1 << 16  # of the images: copies of fewer take no longer than the starts of two more kernels


def moment(x: Expr, about: Expr, **attributes: Attribute) -> Expr:
    """A call of ``halotile.moment``: each channel's mean of ``x`` less ``about``, or of its square."""
    return call("halotile.moment", x, about, **attributes)


def groups_by_channels(node: GraphNode) -> Callable[[RewriteBuilder], GraphNode] | None:
    """What builds ``node``, the reshape behind a group norm of a convolution's image, by way of its channels' means;
    None if it is none."""
    if node.op not in RESHAPES or not node.static or node.rank != 4 or node.dtype != "float32":
        return None
    found = _norm(node.inputs[0])
    if found is None:
        return None
    norm, behind = found
    before = norm.inputs[0]
    if before.op not in RESHAPES or not before.static or before.shape is None or node.shape is None:
        return None
    x, grouped = before.inputs[0], before.shape
    n, channels = node.shape[:2]
    groups = grouped[1]
    if x.shape != node.shape or grouped[0] != n or groups == 0 or channels % groups or groups == channels:
        return None
    axes = sorted(int(a) % len(grouped) for a in norm.attr("axes"))
    if axes != list(range(2, len(grouped))) or math.prod(node.shape) < LEAST_ELEMENTS or not of_convolution(x):
        return None
    own = channels // groups
    if any(_per_group(c, groups) is None for _, c in behind):
        return None
    epsilon = float(norm.attr("epsilon"))

    def build(b: RewriteBuilder) -> GraphNode:
        def spread(value: GraphNode) -> GraphNode:
            return b.call(op.reshape, b.call(op.broadcast_to, value, [n, groups, own]), [n, channels, 1, 1])

        def mean(about: GraphNode, power: int) -> GraphNode:
            each = b.call(moment, x, spread(about), power=power)
            return b.call(op.mean, b.call(op.reshape, each, [n, groups, own]), [2], True)

        corner = b.call(op.strided_slice, x, [2, 3], [0, 0], [1, 1])
        first = b.call(op.strided_slice, b.call(op.reshape, corner, [n, groups, own]), [2], [0], [1])
        beyond = mean(first, 1)
        middle = b.call(op.add, first, beyond)
        rest = b.call(op.subtract, beyond, b.call(op.subtract, middle, first))
        variance = b.call(op.subtract, mean(middle, 2), b.call(op.multiply, rest, rest))
        root = b.call(op.sqrt, b.call(op.add, b.call(op.nn.relu, variance), b.const(np.float32(epsilon))))
        scale = b.call(op.divide, b.const(np.float32(1)), root)
        y = b.call(op.multiply, b.call(op.subtract, x, spread(middle)), spread(scale))
        y = b.call(op.subtract, y, spread(b.call(op.multiply, rest, scale)))
        for function, constant in behind:
            weights = np.repeat(_per_group(constant, groups), own).reshape(channels, 1, 1)  # type: ignore[arg-type]
            y = b.call(function, y, b.const(weights))
        return y

    return build


def _norm(node: GraphNode) -> tuple[GraphNode, list[tuple[Callable[..., GraphNode], np.ndarray]]] | None:
    """The norm without weights that ``node`` is, and the products and sums with constants behind it, in order."""
    behind: list[tuple[Callable[..., GraphNode], np.ndarray]] = []
    while node.uses == 1 and not node.outputs:
        if node.op == "halotile.standardise":
            return node, behind[::-1]
        if node.op == "relax.nn.layer_norm":
            gamma, beta = (_single(w) for w in node.inputs[1:3])
            if gamma is None or beta is None:
                return None
            own = [(op.multiply, gamma)] * bool(gamma != 1) + [(op.add, beta)] * bool(beta != 0)
            return node, [*own, *behind[::-1]]
        pair = split_constant(node) if node.op in ("relax.multiply", "relax.add") else None
        if pair is None:
            return None
        behind.append((op.multiply if node.op == "relax.multiply" else op.add, pair[1].array))
        node = pair[0]
    return None


def _single(weights: GraphNode) -> np.ndarray | None:
    """The number that all weights are, if they are one."""
    if weights.op != CONST or weights.array.size == 0:
        return None
    first = weights.array.reshape(-1)[0]
    return first if bool(np.all(weights.array == first)) else None


def _per_group(constant: np.ndarray, groups: int) -> np.ndarray | None:
    """A constant beside [N, G, ...] that differs between groups at most, as a vector of them."""
    if constant.size == 1:
        return np.full(groups, constant.reshape(()))
    sizes = [d for d in constant.shape if d != 1]
    along = constant.ndim > 1 and sizes == [groups] and constant.shape[1 if constant.ndim > 2 else 0] == groups
    return constant.reshape(-1) if along else None
