"""Cheaper operators that compute the same."""

from __future__ import annotations

import numpy as np
from tvm import relax

from .facts import no_negative_zero, nonnegative
from .graph import CONST, Graph, GraphNode
from .patterns import is_float, is_integer, is_value, split_constant
from .rule import EXACT, STRICT, Declined, Rewrite, Rule, filled
from .zero_sign import zero_sign_matters


class PowerOfTwo(Rule):
    """power(x, 2), square(x)    ->    x * x"""

    name = "power-2"
    family = "strength"
    modes = STRICT
    roots = frozenset(("relax.power", "relax.square"))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        x = node.inputs[0]
        if node.op == "relax.power" and not is_value(node.inputs[1], 2):
            return None
        if x.op == CONST or not graph.same_type(x, node):
            return None
        return Rewrite(lambda b: b.call(relax.op.multiply, x, x))


class PowerOfHalf(Rule):
    """power(x, 0.5)    ->    sqrt(x)

    Differs for -inf (inf against NaN) and for -0.0 (0.0 against -0.0), so in strict mode ``x`` must be nonnegative, and
    either hold no -0.0 or have no reader that tells.
    """

    name = "power-half"
    family = "strength"
    modes = STRICT
    roots = frozenset(("relax.power",))

    def __init__(self, float_mode: str = "strict") -> None:
        self._finite = float_mode == "finite"

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        x, exponent = node.inputs
        if not is_value(exponent, 0.5) or not graph.same_type(x, node):
            return None
        if not self._finite and not nonnegative(x):
            return Declined("a base of -inf has the power inf and no root")
        if not self._finite and not no_negative_zero(x) and zero_sign_matters(node):
            return Declined("a reader tells -0.0 from 0.0")
        return Rewrite(lambda b: b.call(relax.op.sqrt, x))


class PowerOfMinusHalf(Rule):
    """power(x, -0.5), 1 / sqrt(x)    ->    rsqrt(x), and power(x, -1) -> 1 / x

    The reciprocal of a root keeps every special value; the power needs a nonnegative base in strict mode.
    """

    name = "reciprocal-root"
    family = "strength"
    modes = STRICT
    roots = frozenset(("relax.power", "relax.divide"))

    def __init__(self, float_mode: str = "strict") -> None:
        self._finite = float_mode == "finite"

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        x, y = node.inputs
        if node.op == "relax.divide":
            if (
                not is_value(x, 1.0)
                or y.op != "relax.sqrt"
                or not is_float(node)
                or not graph.same_type(y, node)
            ):
                return None
            return Rewrite(lambda b: b.call(relax.op.rsqrt, y.inputs[0]))
        if not graph.same_type(x, node) or not is_float(node):
            return None
        if is_value(y, -1.0):
            one = np.ones((), x.dtype if x.dtype != "bfloat16" else "float32")
            return (
                None if x.dtype == "bfloat16" else Rewrite(lambda b: b.call(relax.op.divide, b.const(one), x))
            )
        if not is_value(y, -0.5):
            return None
        if not self._finite and not nonnegative(x):
            return Declined("a base of -inf has the power 0 and no root")
        if not self._finite and not no_negative_zero(x):
            return Declined("the power of -0.0 is inf, its reciprocal root -inf")
        return Rewrite(lambda b: b.call(relax.op.rsqrt, x))


class DivideByConstant(Rule):
    """x / c    ->    x * (1 / c)

    ``exact`` when every element of c is a power of two whose reciprocal is a normal number; otherwise the product may
    differ in the last place. Declined when a reciprocal is not a normal number, and for integers.
    """

    name = "divide-by-constant"
    family = "strength"
    modes = EXACT
    roots = frozenset(("relax.divide",))

    def __init__(self, float_mode: str = "strict") -> None:
        self._exact = float_mode == "exact"

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        x, c = node.inputs
        if c.op != CONST or x.op == CONST:
            return None
        if not is_float(node):
            return Declined("integer division truncates")
        array = c.array
        with np.errstate(all="ignore"):
            wide = 1.0 / array.astype(np.float64)
            narrow = wide.astype(array.dtype)
        import ml_dtypes

        size = np.abs(narrow.astype(np.float64))
        normal = np.isfinite(wide) & np.isfinite(size) & (size >= float(ml_dtypes.finfo(array.dtype).tiny))
        if not np.all(normal):
            return Declined("a reciprocal is zero, infinite or subnormal")
        powers = bool(np.all(np.frexp(array.astype(np.float64))[0] % 0.5 == 0))
        if self._exact and not powers:
            return Declined("a divisor is no power of two")
        return Rewrite(lambda b: b.call(relax.op.multiply, x, b.const(narrow)), rounds=not powers)


class SubtractConstant(Rule):
    """x - c    ->    x + (-c)

    Exact: IEEE defines the difference so, and integers wrap alike.
    """

    name = "subtract-constant"
    family = "strength"
    modes = EXACT
    roots = frozenset(("relax.subtract",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        x, c = node.inputs
        if c.op != CONST or x.op == CONST or not (is_float(node) or is_integer(node)):
            return None
        return Rewrite(lambda b: b.call(relax.op.add, x, b.const(np.negative(c.array))))


_IDEMPOTENT = frozenset(f"relax.{n}" for n in "abs ceil floor round trunc sign nn.relu nn.relu6".split())
_ALREADY_WHOLE = frozenset(f"relax.{n}" for n in "ceil floor round trunc sign".split())
_ROUNDING = frozenset(f"relax.{n}" for n in "ceil floor round trunc".split())
_ALREADY_NONNEGATIVE = frozenset(
    f"relax.{n}" for n in "abs exp square sigmoid nn.relu nn.relu6 nn.softmax".split()
)


class Repeated(Rule):
    """relu(relu(x)), abs(abs(x)), ceil(floor(x)), relu(sigmoid(x)) ...    ->    the inner one

    The outer operator changes nothing that the inner one can produce.
    """

    name = "repeated-operator"
    family = "strength"
    modes = EXACT
    roots = _IDEMPOTENT

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        inner = node.inputs[0]
        same = inner.op == node.op
        whole = node.op in _ROUNDING and inner.op in _ALREADY_WHOLE
        held = inner.op in _ALREADY_NONNEGATIVE and (is_float(node) or inner.op == "relax.nn.relu")
        positive = node.op in ("relax.abs", "relax.nn.relu") and held  # the least integer has no absolute value
        integer = node.op in _ROUNDING and is_integer(node)
        return Rewrite(lambda b: inner) if same or whole or positive or integer else None


class DoubleNegation(Rule):
    """negative(negative(x)), not(not(x)), bitwise_not(bitwise_not(x))    ->    x"""

    name = "double-negation"
    family = "logic"
    modes = EXACT
    roots = frozenset(("relax.negative", "relax.logical_not", "relax.bitwise_not"))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        inner = node.inputs[0]
        if inner.op != node.op or not graph.same_type(inner.inputs[0], node):
            return None
        return Rewrite(lambda b: inner.inputs[0])


class AbsorbNegation(Rule):
    """x + (-y) -> x - y;  x - (-y) -> x + y;  abs(-x) -> abs(x);  (-x) * (-y) -> x * y

    Exact by the rules of signs.
    """

    name = "absorb-negation"
    family = "algebra"
    modes = EXACT
    roots = frozenset(("relax.add", "relax.subtract", "relax.abs", "relax.multiply", "relax.divide"))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        negated = [i.op == "relax.negative" for i in node.inputs]
        bare = [i.inputs[0] if n else i for i, n in zip(node.inputs, negated)]
        if node.op == "relax.abs":
            return Rewrite(lambda b: b.call(relax.op.abs, bare[0])) if negated[0] and is_float(node) else None
        if node.op in ("relax.multiply", "relax.divide"):
            return Rewrite(lambda b: b.same(node, *bare)) if all(negated) and is_float(node) else None
        if node.op == "relax.add" and negated[0] and not negated[1]:
            return Rewrite(lambda b: b.call(relax.op.subtract, bare[1], bare[0]))
        if not negated[1]:
            return None
        function = relax.op.subtract if node.op == "relax.add" else relax.op.add
        return Rewrite(lambda b: b.call(function, node.inputs[0], bare[1]))


class MultiplyByZero(Rule):
    """x * 0    ->    0

    For integers always; for floats only in ``finite`` mode, because NaN * 0 and inf * 0 are NaN.
    """

    name = "multiply-by-zero"
    family = "strength"
    modes = EXACT
    roots = frozenset(("relax.multiply",))

    def __init__(self, float_mode: str = "strict") -> None:
        self._finite = float_mode == "finite"

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        pair = split_constant(node)
        if pair is None or not is_value(pair[1], 0, 0.0, -0.0) or node.shape is None:
            return None
        if is_float(node) and not self._finite:
            return Declined("NaN and infinity times zero are NaN")
        return Rewrite(lambda b: filled(b, node, 0))


class SameOperands(Rule):
    """max(x, x), min(x, x) -> x;  x - x -> 0 for integers, and for floats in ``finite`` mode (NaN - NaN is NaN)"""

    name = "same-operands"
    family = "algebra"
    modes = EXACT
    roots = frozenset(("relax.maximum", "relax.minimum", "relax.subtract"))

    def __init__(self, float_mode: str = "strict") -> None:
        self._finite = float_mode == "finite"

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        x, y = node.inputs
        if x is not y:
            return None
        if node.op != "relax.subtract":
            return Rewrite(lambda b: x)
        if is_float(node) and not self._finite:
            return Declined("NaN less NaN is NaN")
        return Rewrite(lambda b: filled(b, node, 0)) if node.shape is not None else None
