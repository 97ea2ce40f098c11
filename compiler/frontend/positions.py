"""Integers of run time that lie between two dims, as positions that a model counts do.

    Range(past, past + n)        from past to past + n - 1
    Gather(table of 512, that)   reads within the table: past + n is at most 512
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...schedules.words.dims import Dim, Open
from .implied import require_all, require_at_most
from .node import OnnxNode
from .value import OnnxValue

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

LEAST, MOST = -(1 << 63), (1 << 63) - 1  # of an integer of which nothing is known

#: Operators whose results have elements of their first operand alone.
_KEEP = frozenset("Identity Cast Reshape Squeeze Unsqueeze Flatten Expand Slice Transpose Tile".split())


def follow(node: OnnxNode, inputs: Sequence[OnnxValue | None], results: Sequence[OnnxValue | None]) -> None:
    """Says of a node's result between what it lies, where that follows from its operands."""
    first = inputs[0] if inputs else None
    if node.domain or not results or not isinstance(results[0], OnnxValue) or first is None:
        return
    if not results[0].is_integer:
        return
    if node.operator in _KEEP and first.is_integer:
        results[0].between = results[0].between or first.between
    elif node.operator in ("Min", "Max", "Clip"):
        results[0].between = results[0].between or _held(node.operator, inputs)
    elif node.operator in ("Add", "Sub") and len(inputs) == 2:
        results[0].between = _moved(node.operator, first, inputs[1])
    elif node.operator == "CumSum" and first.between is not None and len(inputs) == 2:
        results[0].between = _counted(node, first, inputs[1])


def _moved(operator: str, a: OnnxValue, b: OnnxValue | None) -> tuple[SizeLike, SizeLike] | None:
    if b is None:
        return None
    if operator == "Add" and a.between is None:
        a, b = b, a
    offset = _one(b)
    if a.between is None or offset is None:
        return None
    low, high = a.between
    return (low + offset, high + offset) if operator == "Add" else (low - offset, high - offset)


def _counted(node: OnnxNode, x: OnnxValue, axis: OnnxValue | None) -> tuple[SizeLike, SizeLike] | None:
    """Of running sums of what is one number, as CumSum(ones) counts positions from 1."""
    known = axis.array if axis is not None else None
    low, high = x.between or (LEAST, MOST)
    if known is None or known.size != 1 or isinstance(low, Dim) or low < 0 or low != high:
        return None
    return 0 if node.attr("exclusive", 0) else low, high * x.shape[int(known.reshape(-1)[0]) % x.rank]


def _held(operator: str, inputs: Sequence[OnnxValue | None]) -> tuple[SizeLike, SizeLike] | None:
    """Between what the elements lie that a model holds within bounds: Min(n, 448), Clip(n, 1, 448)."""
    ends = [(i, v) for i, v in enumerate(inputs) if v is not None]
    known = [(i, int(v.array.reshape(-1)[0])) for i, v in ends if v.array is not None and v.size == 1]
    spans = [v.between for _, v in ends if v.array is None and v.between is not None]
    low, high = spans[0] if len(spans) == len(ends) - len(known) == 1 else (LEAST, MOST)
    if not known or isinstance(low, Dim) or isinstance(high, Dim):
        return None
    for at, bound in known:
        if operator == "Min" or operator == "Clip" and at == 2:
            low, high = min(low, bound), min(high, bound)
        elif operator == "Max" or at == 1:
            low, high = max(low, bound), max(high, bound)
    return low, high


def _one(value: OnnxValue) -> SizeLike | None:
    """The number or dim that all elements of a value are."""
    contents = value.contents
    if contents is None or not contents.size or len({str(c) for c in contents.reshape(-1)}) > 1:
        return None
    found = contents.reshape(-1)[0]
    return found if isinstance(found, Dim) else int(found)


def require_within(positions: OnnxValue, length: SizeLike) -> None:
    """That positions which lie between dims are below ``length``: learned, or a condition."""
    if positions.between is None:
        return
    low, high = positions.between
    try:
        if low < 0:
            return
    except Open:
        return
    if isinstance(length, Dim):  # as many rows as a table has, or as are wanted
        require_all(high + 1, length)
    else:
        require_at_most(high + 1, length)
