"""Activations built from an exponential or a clip become the operators they are."""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import relax

from ...schedules import operators as _operators  # noqa: F401  (registers them)
from ...schedules.operators.registry import call
from ...schedules.words.tvm_types import Attribute, Expr
from .activations import close, one_plus, product_form, scaled
from .clips import limits
from .graph import Graph, GraphNode
from .patterns import is_float, is_value, scalar, split_constant
from .rule import STRICT, Declined, Rewrite, Rule

op = relax.op


def applied(function: Callable[..., Expr], x: GraphNode) -> Rewrite:
    """A rewrite to ``function`` of ``x``."""
    return Rewrite(lambda b: b.call(function, x))


class RecogniseSilu(Rule):
    """x * sigmoid(x), x / (1 + exp(-x))    ->    silu(x)"""

    name = "recognise-silu"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.multiply", "relax.divide"))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        if node.op == "relax.divide":
            x = _logistic(node.inputs[1])
            return applied(op.nn.silu, x) if x is not None and x is node.inputs[0] else None
        for gate, x in (node.inputs, node.inputs[::-1]):
            if gate.op == "relax.sigmoid" and gate.inputs[0] is x and is_float(node):
                return applied(op.nn.silu, x)
        return None


class RecogniseSigmoid(Rule):
    """1 / (1 + exp(-x))    ->    sigmoid(x)

    Keeps the limits: exp overflows to inf and the quotient to 0, as the sigmoid does.
    """

    name = "recognise-sigmoid"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.divide",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        one, total = node.inputs
        x = _logistic(total)
        if x is None or not is_value(one, 1.0) or not graph.same_type(x, node):
            return None
        return applied(op.sigmoid, x)


def _logistic(node: GraphNode) -> GraphNode | None:
    """x of 1 + exp(-x)."""
    exp = one_plus(node) if node.op == "relax.add" else None
    if exp is None or exp.op != "relax.exp" or exp.inputs[0].op != "relax.negative":
        return None
    return exp.inputs[0].inputs[0]


def softplus_of(node: GraphNode, graph: Graph) -> tuple[GraphNode, bool] | None:
    """(x, whether it overflows) of log(1 + exp(x)) in any of its spellings."""
    if node.op in ("halotile.softplus", "relax.nn.softplus"):
        return node.inputs[0], False
    if node.op == "relax.log":
        total = node.inputs[0]
        exp = one_plus(total) if total.op == "relax.add" else None
        return (exp.inputs[0], True) if exp is not None and exp.op == "relax.exp" else None
    if _is_log1p(node) and node.inputs[0].op == "relax.exp":
        return node.inputs[0].inputs[0], True
    if node.op != "relax.add":
        return None
    for top, tail in (node.inputs, node.inputs[::-1]):
        positive = limits(top, graph)
        if positive is None or positive[1:] != (0.0, math.inf) or not _is_log1p(tail):
            continue
        chain = tail
        for name in ("relax.exp", "relax.negative", "relax.abs"):
            chain = chain.inputs[0]
            if chain.op != name:
                break
        else:
            if chain.inputs[0] is positive[0]:
                return positive[0], False
    return None


def _is_log1p(node: GraphNode) -> bool:
    return node.op == "halotile.libm" and node.attr("function") == "log1p"


def own(name: str, x: GraphNode, **attributes: Attribute) -> Rewrite:
    """A rewrite to our operator ``name`` of ``x``."""
    return Rewrite(lambda b: b.call(lambda v: call(name, v, **attributes), x))


class RecogniseSoftplus(Rule):
    """log(1 + exp(x)), max(x, 0) + log1p(exp(-|x|))    ->    softplus(x)

    The first form only in ``finite`` mode: written out it overflows to inf from x = 89 on.
    """

    name = "recognise-softplus"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.log", "relax.add", "halotile.libm"))

    def __init__(self, float_mode: str = "strict") -> None:
        self._finite = float_mode == "finite"

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        found = softplus_of(node, graph)
        if found is None or not graph.same_type(found[0], node):
            return None
        x, overflows = found
        if overflows and not self._finite:
            return Declined("the exponential overflows where softplus does not")
        return own("halotile.softplus", x)


class RecogniseMish(Rule):
    """x * tanh(softplus(x))    ->    mish(x)

    Also where the softplus overflows to inf: its tanh is 1 there, as it should be.
    """

    name = "recognise-mish"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.multiply",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        for gate, x in (node.inputs, node.inputs[::-1]):
            found = softplus_of(gate.inputs[0], graph) if gate.op == "relax.tanh" else None
            if found is not None and found[0] is x and is_float(node):
                return own("halotile.mish", x)
        return None


def line_of(node: GraphNode) -> tuple[GraphNode, float, float]:
    """(x, p, q) of a node that is p * x + q with constant numbers."""
    pair = split_constant(node) if node.op == "relax.add" else None
    value = scalar(pair[1]) if pair is not None and pair[0].rank == node.rank else None
    inner, q = (pair[0], float(value)) if pair is not None and value is not None else (node, 0.0)
    x, p = scaled(inner)
    return x, p, q


def gate_of(node: GraphNode, graph: Graph) -> tuple[GraphNode, float, float, float] | None:
    """(x, p, q, h) of min(h, max(0, p * x + q))."""
    if node.op == "halotile.hard_sigmoid":
        return node.inputs[0], float(node.attr("alpha")), float(node.attr("beta")), 1.0
    found = limits(node, graph) if node.op == "relax.clip" else None
    if found is None or found[1] != 0.0 or not 0.0 < found[2] < math.inf:
        return None
    return (*line_of(found[0]), found[2])


class RecogniseHardSigmoid(Rule):
    """clip(a x + b, 0, 1), clip(x + 3, 0, 6) / 6    ->    hard_sigmoid(x, a, b)

    Tried late, so that what can go into the weights of a convolution before it has gone.
    """

    name = "recognise-hard-sigmoid"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.clip", "relax.multiply", "relax.divide"))
    late = True

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        body, c = scaled(node)
        if body.op != "relax.clip" or not is_float(node):
            return None
        found = gate_of(body, graph)
        if found is None or not close(found[3] * c, 1.0) or found[0] is body.inputs[0]:
            return None
        x, p, q, _ = found
        if not graph.same_type(x, node) or p == 0:
            return None
        return own("halotile.hard_sigmoid", x, alpha=p * c, beta=q * c)


class RecogniseHardSwish(Rule):
    """x * clip(x + 3, 0, 6) / 6, x * hard_sigmoid(x, 1/6, 1/2)    ->    hard_swish(x)

    In any order and bracketing of the factors.
    """

    name = "recognise-hard-swish"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.multiply", "relax.divide"))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        if not is_float(node):
            return None
        body, outer = (node, 1.0) if node.op == "relax.multiply" else scaled(node)
        if body.op != "relax.multiply":
            return None
        constant, parts = product_form(body)
        constant *= outer
        if len(parts) != 2:
            return None
        for gate, x in (parts, parts[::-1]):
            found = gate_of(gate, graph)
            if found is None or found[0] is not x or not graph.same_type(x, node):
                continue
            _, p, q, h = found
            if close(constant * h, 1.0) and close(constant * p, 1 / 6) and close(constant * q, 0.5):
                return own("halotile.hard_swish", x)
        return None
