"""The work of a group, per position (row and column) of its output."""

from __future__ import annotations

import math

from ....schedules.words.group import Group, Node

POOLS = ("relax.nn.max_pool2d", "relax.nn.avg_pool2d")


def work_per_element(group: Group) -> float:
    """Multiply-adds of the anchor and one operation for every element that another node writes, per position."""
    total = 0.0
    positions = math.prod(group.outputs[0].shape[2:])
    for node in group.nodes:
        elements = sum(r.elements for r in node.results)
        total += macs(node) if node is group.anchor else elements
    return total / positions if positions else 0.0


def macs(node: Node) -> float:
    """Multiply-adds of a convolution, transposed or not; the elements of a pool's windows; one an element otherwise."""
    operator, inputs, results = node.operator, node.inputs, node.results
    if len(inputs) > 1 and operator.startswith("relax.nn.conv"):
        return float(results[0].elements * math.prod(inputs[1].shape[1:]))
    if len(inputs) > 1 and operator == "halotile.conv_transpose":
        return float(inputs[0].elements * math.prod(inputs[1].shape[1:]))
    taps = math.prod(int(k) for k in node.call.attrs.pool_size) if operator in POOLS else 1
    return float(sum(r.elements for r in results) * taps)
