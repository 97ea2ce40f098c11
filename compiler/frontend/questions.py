"""Questions about open dimensions that a model asks and no import can answer: whether a dim is this or that one.

    If(Equal(Shape(x)[2], 1)) { Squeeze(x, [2]) } else { x }

Exporters write this for x.squeeze(2). Where both branches have one form, the question is answered at run time. Else the
model can only mean one of them, and that is the one for which its author wrote the question: the dim is 1, which bounds
the sizes that it follows from.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...schedules.words.dims import Dim
from ...schedules.words.refusal import Refusal
from ...schedules.words.sizes import symbols_of
from .implied import require_equal, symbol_name
from .node import OnnxNode
from .value import Asked, Below, OnnxValue

#: Operators whose results say the same as their first operand.
_KEEP = frozenset("Identity Cast Reshape Squeeze Unsqueeze Flatten".split())


def follow(node: OnnxNode, inputs: Sequence[OnnxValue | None], results: Sequence[OnnxValue | None]) -> None:
    """Says of a node's result which question it answers, where it does."""
    if node.domain or not results or not isinstance(results[0], OnnxValue) or results[0].contents is not None:
        return
    first, *others = inputs
    results[0].below = _below(node.operator, inputs)
    if node.operator == "Equal" and first is not None and others[0] is not None:
        a, b = _one(first), _one(others[0])
        if a is not None and b is not None:
            results[0].asks = Asked(a, b)
    elif first is not None and first.asks is not None:
        if node.operator in _KEEP:
            results[0].asks = first.asks
        elif node.operator == "Not":
            results[0].asks = Asked(first.asks.left, first.asks.right, not first.asks.equal)


def _below(operator: str, inputs: Sequence[OnnxValue | None]) -> Below:
    """The comparisons of numbers and dims that a condition is, all of them."""
    if not inputs or any(v is None for v in inputs):
        return frozenset()
    values = [v for v in inputs if v is not None]
    if operator in _KEEP:
        return values[0].below
    if operator == "And":
        asked = [v.below for v in values if v.array is None or not v.array.all()]
        return frozenset().union(*asked) if all(asked) else frozenset()
    if operator not in ("Less", "Greater"):
        return frozenset()
    a, b = (_one(v) for v in (values if operator == "Less" else reversed(values)))
    return frozenset() if a is None or b is None else frozenset([(a, b)])


def _one(value: OnnxValue) -> float | None:
    """The number or dim that a tensor of one element is."""
    contents = value.contents
    return contents.reshape(-1)[0] if contents is not None and contents.size == 1 else None


def require_answer(asked: Asked) -> bool:
    """The answer with which the model's form is known: that the dims are equal. Refused where it would fix a dimension,
    which is for the user to do."""
    for a, b in ((asked.left, asked.right), (asked.right, asked.left)):
        if symbol_name(a) is not None and not isinstance(b, Dim):
            raise Refusal(
                f"its branches give results of different forms, and which is taken depends on whether '{a}' is {b}; "
                f"fix '{a}' with --shape {a}=..."
            )
    names = ", ".join(repr(n) for n in sorted(symbols_of(asked.left) | symbols_of(asked.right)))
    require_equal(asked.left, asked.right, f"which branch is taken follows from {names}, and each gives another form")
    return asked.equal
