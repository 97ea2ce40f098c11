"""Arithmetic on a flag that was made a number: it can take two values only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax

from .evaluate import evaluate
from .graph import Graph, GraphNode
from .logic import MOVES
from .patterns import is_float, scalar
from .rule import EXACT, Declined, Rewrite, RewriteBuilder, Rule, filled

op = relax.op

_COMPARISONS = frozenset(
    f"relax.{n}" for n in "equal not_equal less less_equal greater greater_equal".split()
)
_BINARY = frozenset(f"relax.{n}" for n in "add subtract multiply divide maximum minimum".split())
_UNARY = frozenset(f"relax.{n}" for n in "negative abs astype nn.relu".split())


class FunctionOfFlag(Rule):
    """(1 - cast(b)) * -1e9    ->    where(b, 0 * -1e9, 1 * -1e9);  cast(1 - cast(b)): bool -> not b

    One operator at a time, of a cast flag or of a choice between two numbers, which may be moved in between, with
    constant numbers or another function of the same flag. Exact: both values are computed as the operator would compute
    them.
    """

    name = "function-of-flag"
    family = "logic"
    modes = EXACT
    roots = _COMPARISONS | _BINARY | _UNARY

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        if node.op == "relax.divide" and not is_float(node):
            return None
        if node.op == "relax.astype" and node.dtype != "bool" and node.inputs[0].op == "relax.astype":
            return None  # two casts in a row are one cast
        choice = _operand(node, graph)
        if choice is None:
            return None
        moves, values = choice.moves, [evaluate(node, _arrays(node, on)) for on in (True, False)]
        if not graph.same_shape((moves[0] if moves else choice.made).shape, node.shape):
            return None
        if values[0] is None or values[1] is None:
            return None
        first, second = (np.asarray(v).reshape(()) for v in values if v is not None)

        def build(b: RewriteBuilder) -> GraphNode:
            flag = choice.flag
            for move in reversed(moves):
                flag = b.same(move, flag)
            if node.dtype != "bool":
                return b.call(op.where, flag, b.const(first), b.const(second))
            return _flag(b, node, flag, bool(first), bool(second))

        return Rewrite(build)


def _flag(b: RewriteBuilder, node: GraphNode, flag: GraphNode, on: bool, off: bool) -> GraphNode:
    if on == off:
        return filled(b, node, on)
    return flag if on else b.call(op.logical_not, flag)


@dataclass(frozen=True)
class _Choice:
    """``on`` where the flag holds, ``off`` elsewhere, behind ``moves``, the last one first."""

    flag: GraphNode
    made: GraphNode
    dtype: np.dtype
    on: float
    off: float
    moves: tuple[GraphNode, ...] = ()


def _operand(node: GraphNode, graph: Graph) -> _Choice | None:
    """The choice that the operands are which are no constant numbers, of one flag."""
    choices = [_choice(i) for i in node.inputs if scalar(i) is None]
    found = choices[0] if choices else None
    for choice in choices:
        if found is None or choice is None or choice.flag is not found.flag or choice.moves != found.moves:
            return None
        if not graph.same_shape(choice.flag.shape, choice.made.shape):
            return None
    return found


def _choice(node: GraphNode) -> _Choice | None:
    moves: list[GraphNode] = []
    while node.op in MOVES and node.uses == 1:
        moves.append(node)
        node = node.inputs[0]
    if node.op == "relax.astype" and node.inputs[0].dtype == "bool":
        return _Choice(node.inputs[0], node, node.array_dtype, 1, 0, tuple(moves))
    if node.op == "relax.where":
        on, off = scalar(node.inputs[1]), scalar(node.inputs[2])
        if on is not None and off is not None:
            return _Choice(node.inputs[0], node, node.array_dtype, on, off, tuple(moves))
    return None


def _arrays(node: GraphNode, holds: bool) -> list[np.ndarray]:
    """What the operands are where the flag holds, or where it does not."""
    values = []
    for i in node.inputs:
        choice = _choice(i) if scalar(i) is None else None
        if choice is None:
            values.append(i.array.reshape(-1)[:1].reshape(()))
        else:
            values.append(np.asarray(choice.on if holds else choice.off, choice.dtype))
    return values
