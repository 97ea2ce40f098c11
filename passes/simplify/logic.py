"""Boolean algebra and comparisons: what masks are made of."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from ...schedules.words.tvm_types import Expr
from .facts import never_nan
from .graph import CONST, Graph, GraphNode
from .patterns import is_value, scalar, uniform
from .rule import EXACT, Declined, Rewrite, RewriteBuilder, Rule, filled

op = relax.op

_OPPOSITE: dict[str, Callable[..., Expr]] = {
    "relax.less": op.greater_equal,
    "relax.less_equal": op.greater,
    "relax.greater": op.less_equal,
    "relax.greater_equal": op.less,
    "relax.equal": op.not_equal,
    "relax.not_equal": op.equal,
}


class NotOfComparison(Rule):
    """not(a < b)    ->    a >= b, and so on for all six

    Where NaN is excluded: for integers and booleans always, for floats made of those, for all floats in ``finite``
    mode. not(NaN < b) is true and NaN >= b is false; an inequality of floats would hold for NaN, but the compiler
    below lowers it to one that does not.
    """

    name = "not-of-comparison"
    family = "logic"
    modes = EXACT
    roots = frozenset(("relax.logical_not",))

    def __init__(self, float_mode: str = "strict") -> None:
        self._finite = float_mode == "finite"

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        compare = node.inputs[0]
        function = _OPPOSITE.get(compare.op)
        if function is None:
            return None
        if compare.op != "relax.not_equal" and not self._finite and not all(map(never_nan, compare.inputs)):
            return Declined("a comparison with NaN and its opposite can both be false")
        return Rewrite(lambda b: b.call(function, *compare.inputs))


class DeMorgan(Rule):
    """not(a) and not(b) -> not(a or b);  not(a or b) with a or b themselves negated -> and / or of the bare operands

    not(not(a) or not(b))    ->    a and b
    not(a) or not(b)         ->    not(a and b)
    not(not(a) or b)         ->    a and not(b)
    """

    name = "de-morgan"
    family = "logic"
    modes = EXACT
    roots = frozenset(("relax.logical_not", "relax.logical_and", "relax.logical_or"))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        if node.op == "relax.logical_not":
            inner = node.inputs[0]
            if inner.op not in ("relax.logical_and", "relax.logical_or"):
                return None
            return self._negated(inner)
        a, b = node.inputs
        if a.op != "relax.logical_not" or b.op != "relax.logical_not":
            return None
        flip = _dual(node.op)
        x, y = a.inputs[0], b.inputs[0]
        return Rewrite(lambda b: b.call(op.logical_not, b.call(flip, x, y)))

    def _negated(self, inner: GraphNode) -> Rewrite | None:
        """not(p op q): push the negation in where that removes at least one."""
        parts = inner.inputs
        if not any(_cheap_to_negate(p) for p in parts):
            return None
        flip = _dual(inner.op)
        return Rewrite(lambda b: b.call(flip, *(_negate(b, p) for p in parts)))


def _dual(name: str) -> Callable[..., Expr]:
    return op.logical_or if name == "relax.logical_and" else op.logical_and


def _cheap_to_negate(node: GraphNode) -> bool:
    return node.op in ("relax.logical_not", CONST)


def _negate(b: RewriteBuilder, node: GraphNode) -> GraphNode:
    if node.op == "relax.logical_not":
        return node.inputs[0]
    return b.const(~node.array) if node.op == CONST else b.call(op.logical_not, node)


class LogicIdentity(Rule):
    """x and true -> x;  x and false -> false;  x or false -> x;  x or true -> true;  x xor true -> not x

    Also x and x, x or x -> x; x and not x, x xor x -> false; x or not x -> true; x xor not x -> true. The constant must
    not broadcast ``x`` to a larger shape; where it is broadcast itself, that broadcast stays.
    """

    name = "logic-identity"
    family = "logic"
    modes = EXACT
    roots = frozenset(("relax.logical_and", "relax.logical_or", "relax.logical_xor"))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        known = _with_itself(node)
        if known is not None:
            return None if node.shape is None else Rewrite(lambda b: filled(b, node, known))
        if node.inputs[0] is node.inputs[1]:
            return Rewrite(lambda b: node.inputs[0]) if node.inputs[0].dtype == "bool" else None
        a, b = node.inputs
        x, value = (a, uniform(b)) if uniform(b) is not None else (b, uniform(a))
        if value is None or x.dtype != "bool":
            return None
        absorbing = {"relax.logical_and": False, "relax.logical_or": True}.get(node.op)
        if absorbing is not None and bool(value) == absorbing:
            return Rewrite(lambda b: filled(b, node, absorbing)) if node.shape is not None else None
        if not graph.same_type(x, node):
            shape = list(node.shape or ())
            spread = (a if x is b else b).op == "relax.broadcast_to"
            if not spread or node.shape is None or node.op == "relax.logical_xor" and value:
                return Declined("the neutral constant broadcasts the operand")
            return Rewrite(lambda b: b.call(op.broadcast_to, x, shape))
        if node.op == "relax.logical_xor" and value:
            return Rewrite(lambda b: b.call(op.logical_not, x))
        return Rewrite(lambda b: x)


def _with_itself(node: GraphNode) -> bool | None:
    """What a flag with its own opposite always gives, or with itself in an exclusive or; None for anything else."""
    a, b = node.inputs
    if a.dtype != "bool" or b.dtype != "bool":
        return None
    opposite = any(p.op == "relax.logical_not" and p.inputs[0] is q for p, q in ((a, b), (b, a)))
    if opposite:
        return node.op != "relax.logical_and"
    return False if a is b and node.op == "relax.logical_xor" else None


_MIRRORED = {
    "relax.less": "relax.greater",
    "relax.greater": "relax.less",
    "relax.less_equal": "relax.greater_equal",
    "relax.greater_equal": "relax.less_equal",
}


class CompareCastBool(Rule):
    """cast(b: bool -> number) == 0    ->    not b, and the other ways to ask the same

    == 0 and != 1 give not b; != 0, == 1 and > 0 give b; a cast straight back to bool gives b.
    """

    name = "compare-cast-bool"
    family = "logic"
    modes = EXACT
    roots = frozenset(
        (
            "relax.equal",
            "relax.not_equal",
            "relax.greater",
            "relax.less",
            "relax.greater_equal",
            "relax.less_equal",
            "relax.astype",
        )
    )

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        if node.op == "relax.astype":
            cast, answer = node.inputs[0], True if node.dtype == "bool" else None
        else:
            cast, constant = node.inputs
            name = node.op
            if cast.op == CONST:  # the constant first: the mirrored comparison
                cast, constant, name = constant, cast, _MIRRORED.get(name, name)
            answer = self._answer(name, constant)
        if answer is None or cast.op != "relax.astype" or cast.inputs[0].dtype != "bool":
            return None
        flag = cast.inputs[0]
        if not graph.same_type(flag, node):
            return Declined("the constant broadcasts the flag")
        return Rewrite(lambda b: flag if answer else b.call(op.logical_not, flag))

    @staticmethod
    def _answer(name: str, constant: GraphNode) -> bool | None:
        zero, one = is_value(constant, 0, 0.0, -0.0), is_value(constant, 1, 1.0)
        half = is_value(constant, 0.5)
        table = {
            "relax.equal": (False if zero else True if one else None),
            "relax.not_equal": (True if zero else False if one else None),
            "relax.greater": (True if zero or half else None),
            "relax.less": (False if one or half else None),
            "relax.greater_equal": (True if one or half else None),
            "relax.less_equal": (False if zero or half else None),
        }
        return table[name]


MOVES = frozenset(f"relax.{n}" for n in ("reshape", "permute_dims", "broadcast_to", "expand_dims", "squeeze"))


class WhereNot(Rule):
    """where(not(c), x, y)    ->    where(c, y, x), also where the flags are moved or broadcast in between"""

    name = "where-not"
    family = "logic"
    modes = EXACT
    roots = frozenset(("relax.where",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        condition, x, y = node.inputs
        moves: list[GraphNode] = []
        while condition.op in MOVES and condition.uses == 1:
            moves.append(condition)
            condition = condition.inputs[0]
        if condition.op != "relax.logical_not":
            return None

        def build(b: RewriteBuilder) -> GraphNode:
            flags = condition.inputs[0]
            for move in reversed(moves):
                flags = b.same(move, flags)
            return b.call(op.where, flags, y, x)

        return Rewrite(build)


class WhereConstant(Rule):
    """where(true, x, y) -> x;  where(false, x, y) -> y;  where(c, x, x) -> x

    The chosen operand must have the result's shape already.
    """

    name = "where-constant"
    family = "logic"
    modes = EXACT
    roots = frozenset(("relax.where",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        condition, x, y = node.inputs
        if x is y:
            chosen = x
        else:
            value = scalar(condition)
            if value is None:
                return None
            chosen = x if value else y
        if not graph.same_type(chosen, node):
            shape = list(node.shape or ())
            if chosen.dtype == node.dtype and node.shape is not None:
                return Rewrite(lambda b: b.call(op.broadcast_to, chosen, shape))
            return Declined("the chosen operand is broadcast")
        return Rewrite(lambda b: chosen)


class WhereOfFlags(Rule):
    """where(c, true, false) -> c;  where(c, false, true) -> not c, for one-valued constants"""

    name = "where-of-flags"
    family = "logic"
    modes = EXACT
    roots = frozenset(("relax.where",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        condition, x, y = node.inputs
        values = (scalar(x), scalar(y))
        if node.dtype != "bool" or None in values or values[0] == values[1] or condition.op == CONST:
            return None
        if not graph.same_type(condition, node):
            return None
        return Rewrite(lambda b: condition if values[0] else b.call(op.logical_not, condition))


class CompareWithItself(Rule):
    """x == x, x <= x, x >= x -> true;  x != x, x < x, x > x -> false

    For integers and booleans, and floats made of those; for others only in ``finite`` mode (NaN differs from itself),
    except that x < x and x > x are false even for NaN.
    """

    name = "compare-with-itself"
    family = "logic"
    modes = EXACT
    roots = frozenset(_OPPOSITE)

    def __init__(self, float_mode: str = "strict") -> None:
        self._finite = float_mode == "finite"

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        a, b = node.inputs
        if a is not b or node.shape is None:
            return None
        strictly = node.op in ("relax.less", "relax.greater")
        if not strictly and not self._finite and not never_nan(a):
            return Declined("NaN differs from itself")
        value = node.op in ("relax.equal", "relax.less_equal", "relax.greater_equal")
        return Rewrite(lambda b: filled(b, node, value))
