"""Arithmetic on a flag that was made a number: it can take two values only."""

from __future__ import annotations

import numpy as np
from tvm import relax

from .evaluate import evaluate
from .graph import Graph, Node
from .patterns import is_float, scalar
from .rule import EXACT, Builder, Declined, Rewrite, Rule, filled

op = relax.op

_COMPARISONS = frozenset(
    f"relax.{n}" for n in "equal not_equal less less_equal greater greater_equal".split()
)
_BINARY = frozenset(f"relax.{n}" for n in "add subtract multiply divide maximum minimum".split())
_UNARY = frozenset(f"relax.{n}" for n in "negative abs astype nn.relu".split())


class FunctionOfFlag(Rule):
    """(1 - cast(b)) * -1e9    ->    where(b, 0 * -1e9, 1 * -1e9);  cast(1 - cast(b)): bool -> not b

    One operator at a time, of a cast flag or of a choice between two numbers, with constant numbers. Exact: both values
    are computed as the operator would compute them.
    """

    name = "function-of-flag"
    family = "logic"
    modes = EXACT
    roots = _COMPARISONS | _BINARY | _UNARY

    def match(self, node: Node, graph: Graph) -> Rewrite | Declined | None:
        if node.op == "relax.divide" and not is_float(node):
            return None
        if node.op == "relax.astype" and node.dtype != "bool" and node.inputs[0].op == "relax.astype":
            return None  # two casts in a row are one cast
        choice = _operand(node)
        if choice is None:
            return None
        flag, dtype, on, off = choice
        if not graph.same_shape(flag.shape, node.shape):
            return None
        values = [evaluate(node, _arrays(node, np.asarray(v, dtype))) for v in (on, off)]
        if values[0] is None or values[1] is None:
            return None
        first, second = (np.asarray(v).reshape(()) for v in values if v is not None)
        if node.dtype != "bool":
            return Rewrite(lambda b: b.call(op.where, flag, b.const(first), b.const(second)))
        return Rewrite(lambda b: _flag(b, node, flag, bool(first), bool(second)))


def _flag(b: Builder, node: Node, flag: Node, on: bool, off: bool) -> Node:
    if on == off:
        return filled(b, node, on)
    return flag if on else b.call(op.logical_not, flag)


def _operand(node: Node) -> tuple[Node, np.dtype, float, float] | None:
    """(b, dtype, value where b holds, value elsewhere) of the one operand that is no constant number."""
    found = None
    for i in node.inputs:
        if scalar(i) is not None:
            continue
        choice = _choice(i)
        if choice is None or found is not None:
            return None
        found = choice
    return found


def _choice(node: Node) -> tuple[Node, np.dtype, float, float] | None:
    if node.op == "relax.astype" and node.inputs[0].dtype == "bool":
        return node.inputs[0], node.array_dtype, 1, 0
    if node.op == "relax.where":
        on, off = scalar(node.inputs[1]), scalar(node.inputs[2])
        if on is not None and off is not None:
            return node.inputs[0], node.array_dtype, on, off
    return None


def _arrays(node: Node, value: np.ndarray) -> list[np.ndarray]:
    return [value if scalar(i) is None else i.array.reshape(-1)[:1].reshape(()) for i in node.inputs]
