"""Normalisations written out become one operator each, and take up the weights that follow."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from tvm import relax

from ...schedules import operators as _operators  # noqa: F401  (registers them)
from ...schedules.operators.registry import call
from ...schedules.words.tvm_types import Attribute, Expr
from .graph import CONST, Graph, GraphNode
from .patterns import is_float, scalar, split_constant
from .rule import STRICT, Declined, Rewrite, Rule

op = relax.op

#: A norm over more elements than this (instance normalisation of an image) stays in pieces: there, weights are not
#: one per element.
LONGEST = 1 << 14


def reduction(node: GraphNode, name: str) -> tuple[GraphNode, list[int]] | None:
    """(x, axes) of a reduction that keeps its dims; a reshape that puts them back counts too."""
    if node.op != name or not node.attr("keepdims"):
        return None
    axes = node.attr("axis")
    rank = node.inputs[0].rank
    return node.inputs[0], sorted(int(a) % rank for a in (range(rank) if axes is None else axes))


def square_of(node: GraphNode) -> GraphNode | None:
    """x of x * x, power(x, 2) or square(x)."""
    if node.op == "relax.multiply" and node.inputs[0] is node.inputs[1]:
        return node.inputs[0]
    if node.op == "relax.square" or node.op == "relax.power" and scalar(node.inputs[1]) == 2:
        return node.inputs[0]
    return None


def plus_epsilon(node: GraphNode) -> tuple[GraphNode, float] | None:
    pair = split_constant(node) if node.op == "relax.add" else None
    value = scalar(pair[1]) if pair else None
    return (pair[0], float(value)) if pair is not None and value is not None and value >= 0 else None


def over_root(node: GraphNode) -> list[tuple[GraphNode, GraphNode]]:
    """Every (numerator, v) such that the node is numerator / sqrt(v), in any of its spellings."""
    found: list[tuple[GraphNode, GraphNode]] = []
    if node.op == "relax.divide" and node.inputs[1].op == "relax.sqrt":
        found.append((node.inputs[0], node.inputs[1].inputs[0]))
    if node.op == "relax.multiply":
        for a, b in (node.inputs, node.inputs[::-1]):
            root = reciprocal_root(b)
            if root is not None:
                found.append((a, root))
    return found


def scaled_root(node: GraphNode) -> tuple[GraphNode, GraphNode, GraphNode] | None:
    """(numerator, v, c) of a node that is numerator * (c / sqrt(v)) with a constant c."""
    if node.op != "relax.multiply":
        return None
    for a, b in (node.inputs, node.inputs[::-1]):
        pair = split_constant(b) if b.op == "relax.multiply" else None
        root = reciprocal_root(pair[0]) if pair is not None else None
        if pair is not None and root is not None:
            return a, root, pair[1]
    return None


def reciprocal_root(node: GraphNode) -> GraphNode | None:
    """v of a node that is 1 / sqrt(v), in any of its spellings."""
    if node.op == "relax.rsqrt":
        return node.inputs[0]
    if node.op == "relax.divide" and scalar(node.inputs[0]) == 1 and node.inputs[1].op == "relax.sqrt":
        return node.inputs[1].inputs[0]
    if node.op == "relax.power" and scalar(node.inputs[1]) == -0.5:
        return node.inputs[0]
    return None


def centred(node: GraphNode) -> tuple[GraphNode, list[int]] | None:
    """(x, axes) of x - mean(x)."""
    if node.op == "halotile.centre":
        return node.inputs[0], sorted(int(a) for a in node.attr("axes"))
    if node.op != "relax.subtract":
        return None
    found = reduction(node.inputs[1], "relax.mean")
    return found if found is not None and found[0] is node.inputs[0] else None


def static_dims(x: GraphNode, axes: Sequence[int]) -> list[int] | None:
    """The dims of ``x`` along ``axes``; None if one of them is open."""
    shape = x.shape
    if shape is None:
        return None
    dims = [shape[a] for a in axes]
    return dims if all(isinstance(d, int) for d in dims) else None


class _Norm(Rule):
    """What layer and RMS normalisation have in common: a root with an epsilon."""

    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.divide", "relax.multiply"))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        spellings: list[tuple[GraphNode, GraphNode, GraphNode | None]] = [(a, v, None) for a, v in over_root(node)]
        scaled = scaled_root(node)
        for numerator, radicand, weight in [*spellings, *([scaled] if scaled else [])]:
            shifted = plus_epsilon(radicand)
            found = self.normalised(numerator, shifted[0]) if shifted is not None else None
            if shifted is None or found is None or not graph.same_type(found[0], node):
                continue
            x, axes = found
            dims = static_dims(x, axes)
            if x.dtype not in ("float32", "float64"):
                return Declined(f"{x.dtype} is normalised in float32 by the operator")
            last = axes == list(range(x.rank - len(axes), x.rank))
            weights = dims if dims is not None and last and np.prod(dims) <= LONGEST else None
            norm = self.written(x, axes, weights, shifted[1])
            return norm if weight is None or isinstance(norm, Declined) else _times(norm, weight)
        return None

    @abstractmethod
    def normalised(self, numerator: GraphNode, spread: GraphNode) -> tuple[GraphNode, list[int]] | None:
        """(x, axes) when ``numerator / sqrt(spread + eps)`` is this norm of x."""

    @abstractmethod
    def written(self, x: GraphNode, axes: list[int], weights: list[int] | None, epsilon: float) -> Rewrite | Declined:
        """The operator; ``weights`` is their shape, None where the axes are not the last ones, or too long for it."""


def _times(norm: Rewrite, weight: GraphNode) -> Rewrite:
    """The norm, then a product with the constant ``weight``, which :class:`NormAffine` takes up."""

    return Rewrite(lambda b: b.call(op.multiply, norm.build(b), weight))


class RecogniseLayerNorm(_Norm):
    """(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps)    ->    layer_norm(x, 1, 0), or standardise(x)

    The divisor may be a root, a reciprocal root or a power of -0.5; the square a product, a power or a square; the
    variance may also be ``relax.variance``. Trailing axes of up to 16,384 elements make a layer norm, which takes up
    the weights that follow (:class:`NormAffine`); any others (an instance norm, one over channels) one operator without
    weights.
    """

    name = "recognise-layer-norm"

    def normalised(self, numerator: GraphNode, spread: GraphNode) -> tuple[GraphNode, list[int]] | None:
        inner = centred(numerator)
        return inner if inner is not None and _is_variance(spread, numerator, *inner) else None

    def written(self, x: GraphNode, axes: list[int], weights: list[int] | None, epsilon: float) -> Rewrite | Declined:
        if weights is None:
            return Rewrite(lambda b: b.call(standardise, x, axes=axes, epsilon=epsilon))
        one, zero = np.ones(weights, x.dtype), np.zeros(weights, x.dtype)
        return Rewrite(
            lambda b: b.call(op.nn.layer_norm, x, b.const(one), b.const(zero), axes=axes, epsilon=epsilon)
        )


def standardise(x: Expr, **attributes: Attribute) -> Expr:
    """A call of ``halotile.standardise`` on ``x``."""
    return call("halotile.standardise", x, **attributes)


def _is_variance(node: GraphNode, deviation: GraphNode, x: GraphNode, axes: list[int]) -> bool:
    direct = reduction(node, "relax.variance")
    if direct is not None:
        return direct[0] is x and direct[1] == axes
    mean = reduction(node, "relax.mean")
    if mean is None or mean[1] != axes:
        return False
    base = square_of(mean[0])
    if base is deviation:
        return True
    return base is not None and centred(base) == (x, axes)


class RecogniseRmsNorm(_Norm):
    """x / sqrt(mean(x^2) + eps)    ->    rms_norm(x, 1)

    The same spellings as for layer normalisation; the axes are the trailing ones.
    """

    name = "recognise-rms-norm"

    def normalised(self, numerator: GraphNode, spread: GraphNode) -> tuple[GraphNode, list[int]] | None:
        mean = reduction(spread, "relax.mean")
        if mean is None or square_of(mean[0]) is not numerator or centred(numerator) is not None:
            return None
        return numerator, mean[1]

    def written(self, x: GraphNode, axes: list[int], weights: list[int] | None, epsilon: float) -> Rewrite | Declined:
        if weights is None:
            return Declined("it normalises over axes that are open, not the last ones, or too long for weights")
        one = np.ones(weights, x.dtype)
        return Rewrite(lambda b: b.call(op.nn.rms_norm, x, b.const(one), axes=axes, epsilon=epsilon))


class NormAffine(Rule):
    """norm(x, gamma, beta) * c    ->    norm(x, gamma * c, beta * c), and norm(...) + c -> beta + c

    Layer normalisation takes both, RMS normalisation the scale. The constant varies along the normalised axes only and
    the norm has no other reader.
    """

    name = "norm-affine"
    family = "folds"
    modes = STRICT
    roots = frozenset(("relax.multiply", "relax.add", "relax.subtract"))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        pair = split_constant(node)
        if pair is None or not is_float(node):
            return None
        norm, constant = pair
        layer = norm.op == "relax.nn.layer_norm"
        if not (layer or norm.op == "relax.nn.rms_norm") or norm.uses != 1:
            return None
        if not layer and node.op != "relax.multiply" or not graph.same_type(norm, node):
            return None
        if node.op == "relax.subtract" and node.inputs[1] is not constant:
            return None
        gamma = norm.inputs[1]
        if any(w.op != CONST for w in norm.inputs[1:]):
            return Declined("the norm's weights are computed at run time")
        c = constant.array.astype(np.float64)
        if node.op == "relax.subtract":
            c = -c
        while c.ndim > gamma.rank and c.shape[0] == 1:
            c = c[0]
        shape = gamma.array.shape
        if c.ndim > len(shape) or np.broadcast_shapes(c.shape, shape) != shape:
            return Declined("the constant varies along axes that are not normalised")
        weights = [w.array.astype(np.float64) for w in norm.inputs[1:]]
        weights = [w * c for w in weights] if node.op == "relax.multiply" else [weights[0], weights[1] + c]
        narrow = [w.astype(gamma.array.dtype) for w in weights]
        if not all(np.all(np.isfinite(w)) for w in narrow):
            return Declined("a folded weight would not be finite")
        return Rewrite(lambda b: b.same(norm, norm.inputs[0], *(b.const(w) for w in narrow)))
