"""Chains of additions and multiplications by constants, read as one affine map ``scale * x + shift``.

The links are add, subtract, multiply and divide by a constant, negation and batch normalisation at inference. Scale and
shift are kept as float64 arrays that broadcast against the result (for integers: in the dtype itself, where wrapping
arithmetic makes every such rearrangement exact).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .graph import ITEM, Graph, GraphNode
from .patterns import finite, is_float, is_integer, split_constant

#: Beyond these a reordered product or sum could overflow, vanish or lose what the original kept (strict mode).
LARGEST_SCALE = 2.0**24
CANCELLATION = 2.0**12


@dataclass(frozen=True)
class Affine:
    """``scale * base + shift``; ``links`` are the nodes that were read, the last one first."""

    base: GraphNode
    scale: np.ndarray
    shift: np.ndarray
    links: tuple[GraphNode, ...]
    objection: str = ""

    @property
    def has_scale(self) -> bool:
        return bool(np.any(self.scale != 1))

    @property
    def has_shift(self) -> bool:
        return bool(np.any(self.shift != 0))


def read_affine(node: GraphNode, graph: Graph) -> Affine:
    """The longest chain that ends in ``node`` and is read by nobody else on the way (``node`` itself may be).

    A chain of length 0 has ``base = node``. ``objection`` is set when the links can't be merged in strict mode.
    """
    wide = np.float64 if is_float(node) else np.dtype(node.dtype)
    links: list[GraphNode] = []
    scale, shift = np.ones((), wide), np.zeros((), wide)
    partial: list[tuple[np.ndarray, np.ndarray]] = []
    objection = ""
    current = node
    while True:
        if links and current.uses != 1:
            break
        link = _link(current, graph)
        if link is None:
            break
        base, s, t, problem = link
        objection = objection or problem
        with np.errstate(all="ignore"):
            shift = np.asarray(scale * t + shift)
            scale = scale * s
        partial.append((s, t))
        links.append(current)
        if current.op == ITEM:
            links.append(current.inputs[0])
        current = base
    if not objection and is_float(node) and len(partial) > 1:
        objection = _hazard(partial, scale, shift)
    return Affine(current, scale, shift, tuple(links), objection)


def _link(node: GraphNode, graph: Graph) -> tuple[GraphNode, np.ndarray, np.ndarray, str] | None:
    """``(x, scale, shift, objection)`` where ``node`` computes ``scale * x + shift`` of its same-shaped operand x."""
    if node.op == ITEM:
        return _batch_norm(node, graph)
    if not node.is_tensor or not (is_float(node) or is_integer(node)):
        return None
    wide = np.float64 if is_float(node) else np.dtype(node.dtype)
    one, zero = np.ones((), wide), np.zeros((), wide)
    if node.op == "relax.negative" and is_float(node):
        return node.inputs[0], -one, zero, ""
    if node.op not in ("relax.add", "relax.subtract", "relax.multiply", "relax.divide"):
        return None
    pair = split_constant(node)
    if pair is None:
        return None
    x, constant = pair
    if not graph.same_shape(x.shape, node.shape) or constant.array.size == 0:
        return None
    c = constant.array.astype(wide)
    problem = "" if finite(c) else "the constant is not finite"
    if node.op == "relax.add":
        return x, one, c, problem
    if node.op == "relax.subtract":
        return (x, one, -c, problem) if node.inputs[1] is constant else (x, -one, c, problem)
    if node.op == "relax.multiply":
        return x, c, zero, problem
    if node.inputs[1] is not constant:
        return None
    if is_integer(node):
        return x, one, zero, "integer division does not distribute over a sum or a product"
    if np.any(c == 0):
        return x, one, zero, "division by zero"
    return x, 1.0 / c, zero, problem


def _batch_norm(item: GraphNode, graph: Graph) -> tuple[GraphNode, np.ndarray, np.ndarray, str] | None:
    """gamma * (x - mean) / sqrt(variance + epsilon) + beta, as scale and shift along the axis."""
    norm = item.inputs[0]
    if item.attrs != 0 or norm.op != "relax.nn.batch_norm" or bool(norm.attrs.training) or norm.uses != 1:
        return None
    x, *parameters = norm.inputs
    if len(parameters) != 4 or not all(p.op == "const" for p in parameters) or not is_float(x):
        return None
    gamma, beta, mean, variance = (p.array.astype(np.float64) for p in parameters)
    if not bool(norm.attrs.scale):
        gamma = np.ones_like(gamma)
    if not bool(norm.attrs.center):
        beta = np.zeros_like(beta)
    axis = int(norm.attrs.axis) % x.rank
    with np.errstate(all="ignore"):
        scale = gamma / np.sqrt(variance + float(norm.attrs.epsilon))
        shift = beta - mean * scale
    shape = [-1] + [1] * (x.rank - axis - 1)
    problem = "" if finite(scale) and finite(shift) else "the normalisation's statistics are not finite"
    return x, scale.reshape(shape), shift.reshape(shape), problem


def _hazard(partial: list[tuple[np.ndarray, np.ndarray]], scale: np.ndarray, shift: np.ndarray) -> str:
    """Why merging these links (the last one first) could change more than rounding; empty when it can't."""
    with np.errstate(all="ignore"):
        target = np.abs(scale)
        inner = np.ones(())
        for s, _ in reversed(partial):
            inner = inner * s
            size = np.abs(inner)
            grows = size > LARGEST_SCALE * np.maximum(target, 1.0)
            vanishes = (size != 0) & (size < np.minimum(target, 1.0) / LARGEST_SCALE)
            if np.any(grows) or np.any(vanishes):
                return "factors so extreme cancel that merging could move an overflow"
        outer, largest = np.ones(()), 0.0
        for s, t in partial:
            largest = max(largest, float(np.max(np.abs(outer * t), initial=0.0)))
            outer = outer * s
        final = float(np.max(np.abs(shift), initial=0.0))
    if largest > CANCELLATION * max(final, 1.0):
        return "large constants cancel, which may be meant to round"
    return ""


def extreme(scale: np.ndarray) -> str:
    """Why a scale must not move to the other side of a sum of products; empty when it may."""
    grows = np.any(np.abs(scale) > LARGEST_SCALE)
    return "the scale is so large that moving it could move an overflow" if grows else ""
