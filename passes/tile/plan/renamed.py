"""Groups on other values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ....schedules.words.group import Group, Node, Value


def renamed(group: Group, names: Mapping[Value, Value], name: str) -> Group:
    """``group`` on other values."""
    inner = dict(names)
    nodes = []
    for node in group.nodes:
        results = []
        for result in node.results:
            if result not in inner and names.keys() & set(group.outputs):  # a copy has results of its own
                inner[result] = replace(result, name=f"{result.name}_again")
            results.append(inner.get(result, result))
        nodes.append(replace(node, operands=_operands(node, inner), results=tuple(results)))
    anchor = None if group.anchor is None else nodes[group.nodes.index(group.anchor)]
    inputs, outputs = (tuple(inner.get(v, v) for v in values) for values in (group.inputs, group.outputs))
    return Group(name, tuple(nodes), inputs, outputs, anchor, group.notes)


def _operands(node: Node, names: Mapping[Value, Value]) -> tuple[object, ...]:
    def other(operand: object) -> object:
        if isinstance(operand, Value):
            return names.get(operand, operand)
        if isinstance(operand, tuple):
            return tuple(other(o) for o in operand)
        return operand

    return tuple(other(o) for o in node.operands)
