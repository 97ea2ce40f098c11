"""How far a member reaches along one axis, as two straight lines: for search, where exact regions would be too slow.

For outputs ``[low, high)`` it reads of a value, edges of the tensor aside,

    [ slope * low + before,  slope * (high - 1) + after )

A 3 x 3 convolution of stride 2 with pad 1 has slope 2, before -1, after 2. Read off the exact regions at some positions
far from the edges; where they are no straight line (resizing by odd factors), the lines enclose them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ....schedules.words.group import Group, Value
from ..plan.form import Needs

PROBES = 12  # a multiple of most strides and factors


@dataclass(frozen=True)
class LinearReach:
    """The rows of an input that rows [a, b) of a reader need: from ``slope * a + before`` to ``slope * (b - 1) +
    after``."""

    slope: float
    before: float
    after: float


def reach(needs: Needs, group: Group, value: Value, axis: int) -> LinearReach | None:
    """How far ``group`` reaches into ``value`` along ``axis`` (2: rows, 3: columns), by probes in the middle; None if
    it reads nothing of it there."""
    size = group.outputs[0].shape[axis]
    count = min(PROBES, max(1, size // 2))
    start = (size - count) // 2
    full = [(0, s) for s in group.outputs[0].shape[2:4]]
    spans = []
    for at in range(start, min(start + count + 1, size)):
        full[axis - 2] = (at, at + 1)
        need = needs(group, value, full[0], full[1])
        if need is not None:
            spans.append((at, need.rows if axis == 2 else need.columns))
    if not spans:
        return None
    if len(spans) > 1:
        (first, (low, _)), (last, (end, _)) = spans[0], spans[-1]
        slope = Fraction(end - low, last - first)
    else:
        slope = Fraction(value.shape[axis], size)
    before = min(low - slope * at for at, (low, _) in spans)
    after = max(high - slope * at for at, (_, high) in spans)
    return LinearReach(float(slope), float(before), float(after))
