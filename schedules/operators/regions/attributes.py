"""Attributes of operators as plain Python values, whether Relax's or our own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from ...words.group import Node
from ..registry import attributes, is_own

if TYPE_CHECKING:
    from ...words.tvm_types import Attribute, Expr

Result = TypeVar("Result")


def once(function: Callable[[Node], Result]) -> Callable[[Node], Result]:
    """``function``, called once for each node: planners ask for the same nodes thousands of times, and reading
    attributes takes longer than the arithmetic on them."""
    known: WeakKeyDictionary[Node, Result] = WeakKeyDictionary()

    @wraps(function)
    def remembered(node: Node) -> Result:
        if node not in known:
            known[node] = function(node)
        return known[node]

    return remembered


@once
def own(node: Node) -> dict[str, Attribute]:
    """The attributes of one of our own operators."""
    if not is_own(node.operator):
        raise ValueError(f"{node.operator} is not one of our operators")
    return attributes(node.call)


def ints(values: Sequence[Expr] | list[int] | tuple[Expr, ...]) -> list[int]:
    """A list of integers from integers, prim values or a tuple of them."""
    if hasattr(values, "fields"):
        values = values.fields
    if hasattr(values, "values") and not callable(values.values):
        values = values.values
    return [integer(v) for v in values]


def integer(value: Expr) -> int:
    return int(value.value) if hasattr(value, "value") else int(value)
