"""Activations written out in pieces become the operators they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax

from .graph import CONST, Graph, Node
from .patterns import is_float, is_value, near, other, scalar, split_constant
from .rule import STRICT, Declined, Rewrite, Rule

op = relax.op


def factors(node: Node, limit: int = 4) -> list[Node]:
    """The operands of a product, however it is bracketed; inner products must have one reader.

    A division by a constant scalar counts as a factor through :func:`constant_factor`.
    """
    result: list[Node] = []
    stack = [node]
    while stack:
        current = stack.pop()
        inside = current is node or current.uses == 1
        if current.op == "relax.multiply" and inside and len(result) + len(stack) < limit:
            stack.extend(reversed(current.inputs))
        else:
            result.append(current)
    return result


def scaled(node: Node) -> tuple[Node, float]:
    """``(x, c)`` where the node is ``c * x`` or ``x / (1/c)`` with one constant number, else ``(node, 1.0)``."""
    if node.op in ("relax.multiply", "relax.divide"):
        pair = split_constant(node)
        value = scalar(pair[1]) if pair else None
        if pair is not None and value is not None and node.rank == pair[0].rank:
            if node.op == "relax.multiply":
                return pair[0], float(value)
            if node.inputs[1] is pair[1] and value:
                return pair[0], 1.0 / float(value)
    return node, 1.0


def close(a: float, b: float) -> bool:
    return abs(a - b) <= 2e-6 * abs(b)


def product_form(node: Node, limit: int = 5) -> tuple[float, list[Node]]:
    """A product as one number and the factors that are not constant numbers."""
    constant, parts = 1.0, []
    for factor in factors(node, limit):
        value = scalar(factor)
        if value is not None and factor.op == CONST:
            constant *= float(value)
            continue
        base, c = scaled(factor) if factor.op == "relax.divide" and factor.uses == 1 else (factor, 1.0)
        constant *= c
        parts.append(base)
    return constant, parts


class RecogniseGelu(Rule):
    """0.5 * x * (1 + erf(x / sqrt 2))    ->    gelu(x)

    In any order and bracketing of the three factors, with x * 0.7071 or x / 1.4142 inside. The constants must agree
    within float32 rounding.
    """

    name = "recognise-gelu"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.multiply", "relax.divide"))

    def match(self, node: Node, graph: Graph) -> Rewrite | Declined | None:
        if not is_float(node):
            return None
        outer, body = (1.0, node) if node.op == "relax.multiply" else scaled(node)[::-1]
        if body.op != "relax.multiply":
            return None
        constant, parts = product_form(body)
        constant *= outer
        for gate in parts:
            rest = [p for p in parts if p is not gate]
            if len(rest) != 1 or gate.op != "relax.add":
                continue
            x = rest[0]
            inner = _one_plus(gate)
            if inner is None or not graph.same_type(x, node):
                continue
            if inner.op == "relax.erf":
                argument, c = scaled(inner.inputs[0])
                if argument is x and close(c, math.sqrt(0.5)) and close(constant, 0.5):
                    return _unary(op.nn.gelu, x)
            if inner.op == "relax.tanh" and close(constant, 0.5) and _gelu_polynomial(inner.inputs[0], x):
                return _unary(op.nn.gelu_tanh, x)
        return None


def _unary(function: Callable[..., Any], x: Node) -> Rewrite:
    return Rewrite(lambda b: b.call(function, x))


def _one_plus(node: Node) -> Node | None:
    pair = split_constant(node)
    return pair[0] if pair is not None and near(pair[1], 1.0) else None


def _gelu_polynomial(node: Node, x: Node) -> bool:
    """Whether ``node`` is sqrt(2/pi) * (x + 0.044715 x^3), or sqrt(2/pi) * x * (1 + 0.044715 x^2)."""
    constant, parts = product_form(node)
    if not close(constant, math.sqrt(2 / math.pi)):
        return False
    if len(parts) == 1 and parts[0].op == "relax.add":
        term = other(parts[0], x)
        return term is not None and _monomial(term, x) == (3, True)
    if len(parts) == 2:
        gates = [p for p in parts if p.op == "relax.add"]
        rest = [p for p in parts if p is x]
        square = _one_plus(gates[0]) if len(gates) == 1 and len(rest) == 1 else None
        return square is not None and _monomial(square, x) == (2, True)
    return False


def _monomial(node: Node, x: Node) -> tuple[int, bool]:
    """(degree in x, whether the coefficient is 0.044715) of a product of powers of x; degree 0 if it is none."""
    constant, parts = product_form(node, 6)
    degree = 0
    for part in parts:
        if part is x:
            degree += 1
        elif part.op == "relax.power" and part.inputs[0] is x and scalar(part.inputs[1]) in (2, 3):
            degree += int(scalar(part.inputs[1]) or 0)
        elif part.op == "relax.square" and part.inputs[0] is x:
            degree += 2
        elif part.op == "relax.multiply" and part.inputs[0] is x and part.inputs[1] is x:
            degree += 2
        else:
            return 0, False
    return degree, close(constant, 0.044715)


class RecogniseSilu(Rule):
    """x * sigmoid(x)    ->    silu(x)"""

    name = "recognise-silu"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.multiply",))

    def match(self, node: Node, graph: Graph) -> Rewrite | Declined | None:
        for gate, x in (node.inputs, node.inputs[::-1]):
            if gate.op == "relax.sigmoid" and gate.inputs[0] is x and is_float(node):
                return _unary(op.nn.silu, x)
        return None


class RecogniseSigmoid(Rule):
    """1 / (1 + exp(-x))    ->    sigmoid(x)

    Keeps the limits: exp overflows to inf and the quotient to 0, as the sigmoid does.
    """

    name = "recognise-sigmoid"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.divide",))

    def match(self, node: Node, graph: Graph) -> Rewrite | Declined | None:
        one, total = node.inputs
        if not is_value(one, 1.0) or total.op != "relax.add" or not graph.same_type(total, node):
            return None
        exp = _one_plus(total)
        if exp is None or exp.op != "relax.exp" or exp.inputs[0].op != "relax.negative":
            return None
        return Rewrite(lambda b: b.call(op.sigmoid, exp.inputs[0].inputs[0]))


class RecogniseSoftplus(Rule):
    """log(1 + exp(x))    ->    softplus(x)

    Only in ``finite`` mode: written out it overflows to inf from x = 89 on.
    """

    name = "recognise-softplus"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.log",))

    def __init__(self, float_mode: str = "strict") -> None:
        self._finite = float_mode == "finite"

    def match(self, node: Node, graph: Graph) -> Rewrite | Declined | None:
        total = node.inputs[0]
        exp = _one_plus(total) if total.op == "relax.add" else None
        if exp is None or exp.op != "relax.exp" or not graph.same_type(exp, node):
            return None
        if not self._finite:
            return Declined("the exponential overflows where softplus does not")
        return Rewrite(lambda b: b.call(op.nn.softplus, exp.inputs[0]))


class RecogniseClip(Rule):
    """minimum(maximum(x, a), b), either way round, or one of them and a relu or clip    ->    clip(x, a, b)

    float32, constant numbers a <= b. max and min, clip and relu all keep a NaN here.
    """

    name = "recognise-clip"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.minimum", "relax.maximum", "relax.nn.relu", "relax.clip"))

    def match(self, node: Node, graph: Graph) -> Rewrite | Declined | None:
        outer = _bounds(node, graph)
        inner = _bounds(outer[0], graph) if outer is not None else None
        if outer is None or inner is None or node.dtype != "float32":
            return None
        x, low, high = inner
        _, above, below = outer
        if low > below or above > high:
            return Declined("the bounds do not overlap")
        low, high = max(low, above), min(high, below)
        if math.isinf(low) or math.isinf(high):
            return None
        if (low, high) == (0.0, math.inf):
            return Rewrite(lambda b: b.call(op.nn.relu, x))
        return Rewrite(lambda b: b.call(op.clip, x, low, high))


def _bounds(node: Node, graph: Graph) -> tuple[Node, float, float] | None:
    """(x, low, high) of a node that limits x by constant numbers."""
    if node.op == "relax.nn.relu":
        return node.inputs[0], 0.0, math.inf
    if node.op == "relax.clip":
        low, high = node.raw(1), node.raw(2)
        known = isinstance(low, (int, float)) and isinstance(high, (int, float)) and low <= high
        return (node.inputs[0], float(low), float(high)) if known else None
    if node.op not in ("relax.minimum", "relax.maximum"):
        return None
    pair = split_constant(node)
    value = scalar(pair[1]) if pair else None
    if pair is None or value is None or math.isnan(value) or not graph.same_type(pair[0], node):
        return None
    return (
        (pair[0], float(value), math.inf)
        if node.op == "relax.maximum"
        else (pair[0], -math.inf, float(value))
    )


class MaximumWithZero(Rule):
    """maximum(x, 0)    ->    relu(x), for floats"""

    name = "maximum-with-zero"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.maximum",))

    def match(self, node: Node, graph: Graph) -> Rewrite | Declined | None:
        pair = split_constant(node)
        if (
            pair is None
            or not is_value(pair[1], 0.0)
            or not is_float(node)
            or not graph.same_type(pair[0], node)
        ):
            return None
        return Rewrite(lambda b: b.call(op.nn.relu, pair[0]))
