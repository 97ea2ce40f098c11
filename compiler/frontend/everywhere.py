"""Tensors of which no element is zero: NonZero of ones counts positions, as exporters did before they had Range.

    NonZero(ConstantOfShape([n], 1))       range(n), as one row: no count of run time
"""

from __future__ import annotations

from collections.abc import Sequence

from ...schedules.words.dims import is_open
from .node import OnnxNode
from .value import OnnxValue

#: Operators whose results have elements of their first operand alone.
_KEEP = frozenset("Identity Reshape Squeeze Unsqueeze Flatten Expand Slice Transpose Tile".split())


def follow(node: OnnxNode, inputs: Sequence[OnnxValue | None], results: Sequence[OnnxValue | None]) -> None:
    """Says of a node's result that it is nowhere zero, where its operand is not. Casts to fewer values make zeros."""
    first = inputs[0] if inputs else None
    if node.domain or first is None or not first.everywhere or len(results) != 1 or results[0] is None:
        return
    to_truth = node.operator == "Cast" and "bool" in (first.dtype, results[0].dtype)
    if node.operator in _KEEP or to_truth:
        results[0].everywhere = True


def is_everywhere(x: OnnxValue) -> bool:
    """Whether ``x`` is as long as it says, at sizes that are open, and nowhere zero."""
    return x.everywhere and x.part is None and x.rank > 0 and is_open(x.shape)
