"""Elementwise operators with broadcasting: recognised by their expression, not by a list of names.

Every read of every input is at the output's own coordinates, right-aligned, or at 0 on an axis of length 1.
"""

from __future__ import annotations

from typing import Any

from tvm.ir.prim import expr as prim

from ..classify import VIEWS, Facts
from ..group import Node
from .attributes import once
from .box import Box, Needs, Refusal, need


def elementwise(node: Node, output: int, box: Box) -> Needs | Refusal:
    if not is_elementwise(node):
        return Refusal(f"{node.operator} has no rule for regions")
    assert output == 0
    needs = []
    for value in dict.fromkeys(node.inputs):
        own = box[len(box) - len(value.shape) :]
        needs.append(need(value, [(0, 1) if n == 1 else span for span, n in zip(own, value.shape)]))
    return tuple(needs)


@once
def is_elementwise(node: Node) -> bool:
    """True if the node's one output reads its inputs only where it is itself."""
    if len(node.results) != 1 or node.operator in VIEWS:
        return False
    shape = node.results[0].shape
    if any(len(v.shape) > len(shape) for v in node.inputs):
        return False
    facts = Facts(node)
    if facts.kind != "injective":
        return False
    return all(_aligned(read, v.shape) for v in dict.fromkeys(node.inputs) for read in facts.reads(v))


def _aligned(read: tuple[list[Any], tuple[Any, ...]], shape: tuple[int, ...]) -> bool:
    axes, indices = read
    return all(
        (n == 1 and isinstance(i, (int, prim.IntImm)) and int(i) == 0) or n == 1 or _is(i, a)
        for a, i, n in zip(axes[len(axes) - len(shape) :], indices, shape)
    )


def _is(index: Any, axis: Any) -> bool:
    while isinstance(index, prim.Cast):
        index = index.value
    return hasattr(index, "same_as") and bool(index.same_as(axis))
