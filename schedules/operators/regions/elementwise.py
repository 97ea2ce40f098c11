"""Elementwise operators with broadcasting: recognised by their expression, not by a list of names.

Every read of every input is at the output's own coordinates, right-aligned, or at 0 on an axis of length 1. An input
that is not read at all (the grid that samples a single pixel, whose coordinates are multiplied by zero) may have any
shape, and nothing of it is needed.
"""

from __future__ import annotations

from tvm.ir.prim import expr as prim

from ...words.group import Node, Value
from ...words.tvm_types import Expr
from ..kind import VIEWS, facts_of
from .attributes import once
from .box import Box, BoxRefusal, Needs, need


def elementwise(node: Node, output: int, box: Box) -> Needs | BoxRefusal:
    if not is_elementwise(node):
        return BoxRefusal(f"{node.operator} has no rule for regions")
    assert output == 0
    needs = []
    for value in values_read(node):
        own = box[len(box) - len(value.shape) :]
        needs.append(need(value, [(0, 1) if n == 1 else span for span, n in zip(own, value.shape)]))
    return tuple(needs)


@once
def is_elementwise(node: Node) -> bool:
    """True if the node's one output reads its inputs only where it is itself."""
    if len(node.results) != 1 or node.operator in VIEWS:
        return False
    shape = node.results[0].shape
    facts = facts_of(node)
    if facts.kind != "injective":
        return False
    values = values_read(node)
    if any(len(v.shape) > len(shape) for v in values):
        return False
    return all(_aligned(read, v.shape) for v in values for read in facts.reads(v))


@once
def values_read(node: Node) -> list[Value]:
    """The inputs that the node's expression reads."""
    facts = facts_of(node)
    return [v for v in dict.fromkeys(node.inputs) if facts.reads(v)]


def _aligned(read: tuple[list[Expr], tuple[Expr, ...]], shape: tuple[int, ...]) -> bool:
    axes, indices = read
    return all(
        (n == 1 and isinstance(i, (int, prim.IntImm)) and int(i) == 0) or n == 1 or _is(i, a)
        for a, i, n in zip(axes[len(axes) - len(shape) :], indices, shape)
    )


def _is(index: Expr, axis: Expr) -> bool:
    while isinstance(index, prim.Cast):
        index = index.value
    return hasattr(index, "same_as") and bool(index.same_as(axis))
