"""Groups with values exchanged for others: what they write, what their anchor reads, or all that they read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...schedules.words.group import Group, Node, Value

if TYPE_CHECKING:
    from ...schedules.words.tvm_types import Attribute, Expr


def result_renamed(group: Group, old: Value, new: Value) -> Group:
    """``group`` with its result ``old`` called ``new``."""
    nodes, anchor = [], group.anchor
    for node in group.nodes:
        fresh = replace(
            node,
            results=tuple(new if r is old else r for r in node.results),
            operands=tuple(_operand(o, old, new) for o in node.operands),
        )
        anchor = fresh if node is group.anchor else anchor
        nodes.append(fresh)
    outputs = tuple(new if v is old else v for v in group.outputs)
    return replace(group, nodes=tuple(nodes), outputs=outputs, anchor=anchor)


def anchor_reading(group: Group, old: Value, new: Value) -> Group:
    """``group`` with the anchor reading ``new`` instead of ``old`` (other operators keep reading ``old``)."""
    nodes: list[Node] = []
    anchor = group.anchor
    for node in group.nodes:
        if node is group.anchor:
            node = replace(node, operands=(new, *node.operands[1:]))
            anchor = node
        nodes.append(node)
    still = any(old in n.inputs for n in nodes)
    inputs = dict.fromkeys(v for v in group.inputs if v is not old or still)
    inputs[new] = None
    return replace(group, nodes=tuple(nodes), inputs=tuple(inputs), anchor=anchor)


def reading(group: Group, old: Value, new: Value) -> Group:
    """``group`` reading ``new`` wherever it read ``old``."""
    nodes, anchor = [], group.anchor
    for node in group.nodes:
        fresh = replace(node, operands=tuple(_operand(o, old, new) for o in node.operands))
        anchor = fresh if node is group.anchor else anchor
        nodes.append(fresh)
    inputs = tuple(new if v is old else v for v in group.inputs)
    return replace(group, nodes=tuple(nodes), inputs=inputs, anchor=anchor)


def _operand(operand: Expr | Value | tuple[Value, Value], old: Value, new: Value) -> Attribute:
    if isinstance(operand, tuple):
        return tuple(_operand(o, old, new) for o in operand)
    return new if operand is old else operand
