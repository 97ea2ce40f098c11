"""Normalisations and softmax written out become one operator each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from .graph import CONST, Graph, Node
from .patterns import is_float, scalar, split_constant
from .rule import STRICT, Builder, Declined, Rewrite, Rule

op = relax.op

#: A norm over more elements than this (instance normalisation of an image) stays in pieces: there, weights are not
#: one per element.
LONGEST = 1 << 14


def reduction(node: Node, name: str) -> tuple[Node, list[int]] | None:
    """(x, axes) of a reduction that keeps its dims; a reshape that puts them back counts too."""
    if node.op != name or not node.attr("keepdims"):
        return None
    axes = node.attr("axis")
    rank = node.inputs[0].rank
    return node.inputs[0], sorted(int(a) % rank for a in (range(rank) if axes is None else axes))


def square_of(node: Node) -> Node | None:
    """x of x * x, power(x, 2) or square(x)."""
    if node.op == "relax.multiply" and node.inputs[0] is node.inputs[1]:
        return node.inputs[0]
    if node.op == "relax.square" or node.op == "relax.power" and scalar(node.inputs[1]) == 2:
        return node.inputs[0]
    return None


def plus_epsilon(node: Node) -> tuple[Node, float] | None:
    pair = split_constant(node) if node.op == "relax.add" else None
    value = scalar(pair[1]) if pair else None
    return (pair[0], float(value)) if pair is not None and value is not None and value >= 0 else None


def over_root(node: Node) -> list[tuple[Node, Node]]:
    """Every (numerator, v) such that the node is numerator / sqrt(v), in any of its spellings."""
    found: list[tuple[Node, Node]] = []
    if node.op == "relax.divide" and node.inputs[1].op == "relax.sqrt":
        found.append((node.inputs[0], node.inputs[1].inputs[0]))
    if node.op == "relax.multiply":
        for a, b in (node.inputs, node.inputs[::-1]):
            root = reciprocal_root(b)
            if root is not None:
                found.append((a, root))
    return found


def reciprocal_root(node: Node) -> Node | None:
    if node.op == "relax.rsqrt":
        return node.inputs[0]
    if node.op == "relax.divide" and scalar(node.inputs[0]) == 1 and node.inputs[1].op == "relax.sqrt":
        return node.inputs[1].inputs[0]
    if node.op == "relax.power" and scalar(node.inputs[1]) == -0.5:
        return node.inputs[0]
    return None


def centred(node: Node) -> tuple[Node, list[int]] | None:
    """(x, axes) of x - mean(x)."""
    if node.op != "relax.subtract":
        return None
    found = reduction(node.inputs[1], "relax.mean")
    return found if found is not None and found[0] is node.inputs[0] else None


def static_dims(x: Node, axes: Sequence[int]) -> list[int] | None:
    shape = x.shape
    if shape is None:
        return None
    dims = [shape[a] for a in axes]
    return dims if all(isinstance(d, int) for d in dims) else None


class RecogniseLayerNorm(Rule):
    """(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps)    ->    layer_norm(x, 1, 0)

    The divisor may be a root, a reciprocal root or a power of -0.5; the square a product, a power or a square; the
    variance may also be ``relax.variance``. The axes are the trailing ones, of static length. The weights that follow
    are taken up by :class:`NormAffine`.
    """

    name = "recognise-layer-norm"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.divide", "relax.multiply"))

    def match(self, node: Node, graph: Graph) -> Rewrite | Declined | None:
        for numerator, radicand in over_root(node):
            shifted, inner = plus_epsilon(radicand), centred(numerator)
            if shifted is None or inner is None:
                continue
            spread, epsilon = shifted
            x, axes = inner
            if not _is_variance(spread, numerator, x, axes):
                continue
            dims = static_dims(x, axes)
            if axes != list(range(x.rank - len(axes), x.rank)):
                return Declined("it normalises over axes that are not the last ones")
            if dims is None:
                return Declined("a normalised dim is open")
            if np.prod(dims) > LONGEST:
                return Declined("weights of ones would be larger than what they replace")
            if x.dtype not in ("float32", "float64"):
                return Declined(f"{x.dtype} is normalised in float32 by the operator")

            def build(
                b: Builder,
                x: Node = x,
                axes: list[int] = axes,
                dims: list[int] = dims,
                epsilon: float = epsilon,
            ) -> Node:
                one, zero = b.const(np.ones(dims, x.dtype)), b.const(np.zeros(dims, x.dtype))
                return b.call(op.nn.layer_norm, x, one, zero, axes=axes, epsilon=epsilon)

            return Rewrite(build)
        return None


def _is_variance(node: Node, deviation: Node, x: Node, axes: list[int]) -> bool:
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


class RecogniseRmsNorm(Rule):
    """x / sqrt(mean(x^2) + eps)    ->    rms_norm(x, 1)

    The same spellings as for layer normalisation; the axes are the trailing ones, of static length.
    """

    name = "recognise-rms-norm"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.divide", "relax.multiply"))

    def match(self, node: Node, graph: Graph) -> Rewrite | Declined | None:
        for x, radicand in over_root(node):
            shifted = plus_epsilon(radicand)
            mean = reduction(shifted[0], "relax.mean") if shifted is not None else None
            if shifted is None or mean is None or square_of(mean[0]) is not x or not graph.same_type(x, node):
                continue
            if centred(x) is not None:
                return None
            axes, epsilon = mean[1], shifted[1]
            dims = static_dims(x, axes)
            if axes != list(range(x.rank - len(axes), x.rank)):
                return Declined("it normalises over axes that are not the last ones")
            if dims is None:
                return Declined("a normalised dim is open")
            if np.prod(dims) > LONGEST:
                return Declined("weights of ones would be larger than what they replace")
            if x.dtype not in ("float32", "float64"):
                return Declined(f"{x.dtype} is normalised in float32 by the operator")

            def build(
                b: Builder,
                x: Node = x,
                axes: list[int] = axes,
                dims: list[int] = dims,
                epsilon: float = epsilon,
            ) -> Node:
                return b.call(op.nn.rms_norm, x, b.const(np.ones(dims, x.dtype)), axes=axes, epsilon=epsilon)

            return Rewrite(build)
        return None


class NormAffine(Rule):
    """norm(x, gamma, beta) * c    ->    norm(x, gamma * c, beta * c), and norm(...) + c -> beta + c

    Layer normalisation takes both, RMS normalisation the scale. The constant varies along the normalised axes only and
    the norm has no other reader.
    """

    name = "norm-affine"
    family = "folds"
    modes = STRICT
    roots = frozenset(("relax.multiply", "relax.add", "relax.subtract"))

    def match(self, node: Node, graph: Graph) -> Rewrite | Declined | None:
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


class RecogniseSoftmax(Rule):
    """exp(x - max(x)) / sum(exp(x - max(x)))    ->    softmax(x)

    Without the maximum only in ``finite`` mode: exp may overflow, and inf / inf is NaN.
    """

    name = "recognise-softmax"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.divide",))

    def __init__(self, float_mode: str = "strict") -> None:
        self._finite = float_mode == "finite"

    def match(self, node: Node, graph: Graph) -> Rewrite | Declined | None:
        exp, total = node.inputs
        summed = reduction(total, "relax.sum")
        if exp.op != "relax.exp" or summed is None or summed[0] is not exp or len(summed[1]) != 1:
            return None
        axis = summed[1][0]
        x = exp.inputs[0]
        if x.op == "relax.subtract":
            largest = reduction(x.inputs[1], "relax.max")
            if largest is not None and largest == (x.inputs[0], [axis]):
                source = x.inputs[0]
                return Rewrite(lambda b: b.call(op.nn.softmax, source, axis))
        if not self._finite:
            return Declined("without the maximum the exponential overflows")
        return Rewrite(lambda b: b.call(op.nn.softmax, x, axis))


class LogOfSoftmax(Rule):
    """log(softmax(x))    ->    log_softmax(x)

    Only in ``finite`` mode: where the softmax vanishes its logarithm is -inf, the log-softmax is not.
    """

    name = "log-of-softmax"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.log",))

    def __init__(self, float_mode: str = "strict") -> None:
        self._finite = float_mode == "finite"

    def match(self, node: Node, graph: Graph) -> Rewrite | Declined | None:
        soft = node.inputs[0]
        if soft.op != "relax.nn.softmax":
            return None
        if not self._finite:
            return Declined("the logarithm of a vanished probability is -inf")
        return Rewrite(lambda b: b.call(op.nn.log_softmax, soft.inputs[0], int(soft.attrs.axis)))
