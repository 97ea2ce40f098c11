"""GELU written out becomes one operator; and products and sums as the recognition of activations reads them."""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import relax

from ...schedules.words.tvm_types import Expr
from .graph import CONST, Graph, GraphNode
from .patterns import is_float, near, other, scalar, split_constant
from .rule import STRICT, Declined, Rewrite, Rule

op = relax.op


def factors(node: GraphNode, limit: int = 4) -> list[GraphNode]:
    """The operands of a product, however it is bracketed; inner products must have one reader.

    A division by a constant scalar counts as a factor through :func:`constant_factor`.
    """
    result: list[GraphNode] = []
    stack = [node]
    while stack:
        current = stack.pop()
        inside = current is node or current.uses == 1
        if current.op == "relax.multiply" and inside and len(result) + len(stack) < limit:
            stack.extend(reversed(current.inputs))
        else:
            result.append(current)
    return result


def scaled(node: GraphNode) -> tuple[GraphNode, float]:
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
    """True if ``a`` is ``b`` within what constants of models are rounded to."""
    return abs(a - b) <= 2e-6 * abs(b)


def product_form(node: GraphNode, limit: int = 5) -> tuple[float, list[GraphNode]]:
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

    In any order and bracketing of the three factors, with x * 0.7071 or x / 1.4142 inside, and with the half inside
    the sum. The constants must agree within float32 rounding.
    """

    name = "recognise-gelu"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.multiply", "relax.divide"))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
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
            inner, half = one_plus(gate), 1.0
            if inner is None and close(constant, 1.0):
                inner, half = _half_plus_half(gate), 0.5
            if inner is None or not graph.same_type(x, node):
                continue
            if inner.op == "relax.erf":
                argument, c = scaled(inner.inputs[0])
                if argument is x and close(c, math.sqrt(0.5)) and close(constant * half, 0.5):
                    return _unary(op.nn.gelu, x)
            if inner.op == "relax.tanh" and close(constant * half, 0.5) and _gelu_polynomial(inner.inputs[0], x):
                return _unary(op.nn.gelu_tanh, x)
        return None


def _unary(function: Callable[..., Expr], x: GraphNode) -> Rewrite:
    return Rewrite(lambda b: b.call(function, x))


def one_plus(node: GraphNode) -> GraphNode | None:
    """x of a node that is 1 + x."""
    pair = split_constant(node)
    return pair[0] if pair is not None and near(pair[1], 1.0) else None


def _half_plus_half(node: GraphNode) -> GraphNode | None:
    """y of 0.5 + 0.5 * y."""
    pair = split_constant(node)
    if pair is None or not near(pair[1], 0.5):
        return None
    y, c = scaled(pair[0])
    return y if y is not pair[0] and close(c, 0.5) else None


def _gelu_polynomial(node: GraphNode, x: GraphNode) -> bool:
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
        square = one_plus(gates[0]) if len(gates) == 1 and len(rest) == 1 else None
        return square is not None and _monomial(square, x) == (2, True)
    return False


def _monomial(node: GraphNode, x: GraphNode) -> tuple[int, bool]:
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
