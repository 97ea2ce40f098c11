"""Comparisons of sums and differences of positions, with less arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import relax

from ...schedules.words.dims import Dim, bounds, terms_of
from .broadcasts import broadcast_shape
from .graph import Graph, GraphNode
from .identity import RESHAPES
from .patterns import scalar
from .positions import COUNTED, Span, span
from .rule import EXACT, Declined, Rewrite, RewriteBuilder, Rule

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

#: No tensor has more elements, so that no length is longer.
LONGEST = 1 << 31
#: a op b + shift, of integers, as a comparison without the shift.
_SHIFTED = {
    ("relax.less", 1): relax.op.less_equal,
    ("relax.less_equal", -1): relax.op.less,
    ("relax.greater", -1): relax.op.greater_equal,
    ("relax.greater_equal", 1): relax.op.greater,
}
_SAME = {f"relax.{n}": getattr(relax.op, n) for n in "less less_equal greater greater_equal equal not_equal".split()}
_TURNED = {"relax.less": "relax.greater", "relax.less_equal": "relax.greater_equal"}
_TURNED |= {b: a for a, b in _TURNED.items()} | {n: n for n in ("relax.equal", "relax.not_equal")}


class CompareDifference(Rule):
    """i - j >= 0 -> i >= j;  j < i + 1 -> j <= i;  i + 2 == j + 2 -> i == j

    Integers whose sums are known to stay within their type, at every size.
    """

    name = "compare-difference"
    family = "logic"
    modes = EXACT
    roots = frozenset(_SAME)

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        if node.shape is None or any(i.dtype not in COUNTED for i in node.inputs):
            return None
        op, (left, right) = node.op, node.inputs
        if scalar(left) is not None:
            op, left, right = _TURNED[op], right, left
        a, b, known = Moved.of(left, graph), Moved.of(right, graph), scalar(right)
        shift, sums = b.by - a.by, [s for s in (a.sum, b.sum) if s is not None]
        if known is not None:
            if a.positions.op != "relax.subtract" or a.view is not None:
                return None
            sums.append(a.positions)
            first, second = a.positions.inputs
            a, b, shift = Moved(first), Moved(second), int(known) - a.by
        function = _SAME[op] if shift == 0 else _SHIFTED.get((op, shift))
        if function is None or not sums:
            return None
        if not graph.same_shape(broadcast_shape(graph, [a.shape, b.shape]), node.shape):
            return Declined("a number broadcasts the positions")
        if not all(_fits(span(s, graph), s.dtype) for s in sums):
            return Declined("a sum may leave the range of its type")
        return Rewrite(lambda build: build.call(function, a.bare(build), b.bare(build)))


@dataclass(frozen=True)
class Moved:
    """An operand of a comparison: positions, a number that is added to them, and a view of the sum."""

    positions: GraphNode
    by: int = 0
    sum: GraphNode | None = None
    view: GraphNode | None = None

    @staticmethod
    def of(node: GraphNode, graph: Graph) -> Moved:
        view = node if node.op in RESHAPES and node.uses == 1 else None
        total = node if view is None else node.inputs[0]
        if total.op == "relax.add":
            for x, c in (total.inputs, total.inputs[::-1]):
                value = scalar(c)
                if value is not None and graph.same_type(x, total):
                    return Moved(x, int(value), total, view)
        return Moved(node)

    @property
    def shape(self) -> tuple[SizeLike, ...]:
        return (self.positions if self.view is None else self.view).shape or ()

    def bare(self, b: RewriteBuilder) -> GraphNode:
        """The operand without the number."""
        return self.positions if self.view is None else b.same(self.view, self.positions)


def _fits(found: Span, dtype: str) -> bool:
    """Whether numbers within these bounds are no larger than the type holds, with room for the shift."""
    most = 1 << (30 if dtype == "int32" else 62)
    return all(end is not None and _size(end) < most for end in found)


def _size(value: SizeLike) -> float:
    """At most how large a number or dim is."""
    if not isinstance(value, Dim):
        return abs(value)
    known = max(map(abs, bounds(value)))
    total = 0.0
    for monomial, factor in terms_of(value).items():
        ends = (max(abs(max(a.low, -LONGEST)), abs(min(a.high, LONGEST))) for a in monomial)
        total += abs(factor) * math.prod(ends)
    return min(known, total)
