"""Positions: what integer arithmetic on ranges and lengths comes to, exactly or within bounds, at every size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...schedules.words.dims import Dim, Open, is_whole, maximum, minimum
from ...schedules.words.size_like import SizeLike
from ...schedules.words.sizes import dim_of, surely
from .graph import CONST, Graph, GraphNode
from .patterns import scalar
from .rule import EXACT, Declined, Rewrite, Rule, filled

if TYPE_CHECKING:
    from ...schedules.words.tvm_types import Expr

_DEPTH = 16
COUNTED = ("int32", "int64")  # fewer bits wrap


@dataclass(frozen=True)
class Lattice:
    """Positions ``start + sum of step[k] * i[k]``; a step along an axis of one element is 0. The start may be a dim."""

    start: SizeLike
    steps: tuple[int, ...]

    def plus(self, other: Lattice) -> Lattice:
        rank = max(len(self.steps), len(other.steps))
        a, b = ((0,) * (rank - len(s)) + s for s in (self.steps, other.steps))
        return Lattice(self.start + other.start, tuple(p + q for p, q in zip(a, b)))

    def times(self, factor: int) -> Lattice:
        return Lattice(self.start * factor, tuple(s * factor for s in self.steps))


def lattice(node: GraphNode, graph: Graph, depth: int = _DEPTH) -> Lattice | None:
    """The positions that integer arithmetic on ranges gives; None for any others."""
    read = _READERS.get(node.op)
    if depth == 0 or read is None or node.shape is None or node.dtype not in COUNTED:
        return None
    return read(node, graph, depth - 1)


def _constant(node: GraphNode, graph: Graph, depth: int) -> Lattice | None:
    array = node.array.astype(np.int64)
    if not array.size:
        return None
    start = int(array.reshape(-1)[0])
    steps = tuple(
        int(np.take(array, 1, axis=k).reshape(-1)[0]) - start if d > 1 else 0 for k, d in enumerate(array.shape)
    )
    full = start + sum(
        (s * np.arange(d).reshape([-1 if j == k else 1 for j in range(array.ndim)]))
        for k, (s, d) in enumerate(zip(steps, array.shape))
    )
    return Lattice(start, steps) if np.array_equal(np.broadcast_to(full, array.shape), array) else None


def _range(node: GraphNode, graph: Graph, depth: int) -> Lattice | None:
    start, step = _dim(node.raw(0)), node.raw(2)
    if start is None or not isinstance(step, int) or node.shape is None:
        return None
    return Lattice(start, (0 if graph.same_dim(node.shape[0], 1) else step,))


def _length(node: GraphNode, graph: Graph, depth: int) -> Lattice | None:
    """A shape of one dim, as a tensor."""
    shape = node.raw(0)
    value = _dim(shape[0]) if isinstance(shape, list) and len(shape) == 1 else None
    return None if value is None else Lattice(value, (0,))


def _dim(value: Expr) -> SizeLike:
    """A whole number or dim; None for whatever else an expression is."""
    try:
        found = dim_of(value)
    except Open:
        return None
    return found if is_whole(found) else None


def _sum(node: GraphNode, graph: Graph, depth: int) -> Lattice | None:
    a, b = (lattice(i, graph, depth) for i in node.inputs)
    if a is None or b is None:
        return None
    return a.plus(b.times(-1) if node.op == "relax.subtract" else b)


def _product(node: GraphNode, graph: Graph, depth: int) -> Lattice | None:
    for x, c in (node.inputs, node.inputs[::-1]):
        factor = scalar(c)
        if factor is not None:
            inner = lattice(x, graph, depth)
            return None if inner is None or len(inner.steps) != node.rank else inner.times(int(factor))
    return None


def _reshaped(node: GraphNode, graph: Graph, depth: int) -> Lattice | None:
    """Dims of one come and go."""
    inner, before = lattice(node.inputs[0], graph, depth), node.inputs[0].shape
    if inner is None or before is None or node.shape is None:
        return None
    real = [(d, s) for d, s in zip(before, inner.steps) if not is_one(d)]
    kept = [d for d in node.shape if not is_one(d)]
    if len(real) != len(kept) or not all(graph.same_dim(a, d) for (a, _), d in zip(real, kept)):
        return None
    steps = iter(s for _, s in real)
    return Lattice(inner.start, tuple(0 if is_one(d) else next(steps) for d in node.shape))


def _repeated(node: GraphNode, graph: Graph, depth: int) -> Lattice | None:
    inner, before = lattice(node.inputs[0], graph, depth), node.inputs[0].shape
    if inner is None or before is None:
        return None
    steps = tuple(0 if is_one(d) else s for d, s in zip(before, inner.steps))
    return Lattice(inner.start, (0,) * (node.rank - len(steps)) + steps)


def _running_sum(node: GraphNode, graph: Graph, depth: int) -> Lattice | None:
    """Of one number, which is counted in steps of it."""
    inner = lattice(node.inputs[0], graph, depth)
    if inner is None or any(inner.steps) or not isinstance(inner.start, int) or node.shape is None:
        return None
    axis, step = int(node.attr("axis")) % node.rank, inner.start
    count = _dim(node.shape[axis])
    if count is None:
        return None
    first = (0 if node.attr("exclusive") else step) + (step * (count - 1) if node.attr("reverse") else 0)
    stride = 0 if is_one(count) else -step if node.attr("reverse") else step
    return Lattice(first, tuple(stride if a == axis else 0 for a in range(node.rank)))


def is_one(dim: SizeLike) -> bool:
    return isinstance(dim, int) and dim == 1


_READERS: dict[str, Callable[[GraphNode, Graph, int], Lattice | None]] = {
    CONST: _constant,
    "relax.arange": _range,
    "relax.shape_to_tensor": _length,
    "relax.add": _sum,
    "relax.subtract": _sum,
    "relax.multiply": _product,
    "relax.broadcast_to": _repeated,
    "halotile.cumsum": _running_sum,
    **dict.fromkeys(("relax.reshape", "relax.expand_dims", "relax.squeeze"), _reshaped),
}


# ---------------------------------------------------------------------- bounds

Span = tuple[SizeLike, SizeLike]  # the least and the greatest element of a tensor; None where that is not known
_ANY: Span = (None, None)
_MOVES = frozenset(
    f"relax.{n}" for n in "reshape expand_dims squeeze broadcast_to permute_dims strided_slice tile flatten".split()
)


def span(node: GraphNode, graph: Graph, depth: int = _DEPTH) -> Span:
    """Bounds of an integer tensor's elements, as numbers and dims."""
    if depth == 0 or node.shape is None or node.dtype not in COUNTED:
        return _ANY
    if node.op == CONST:
        return (int(node.array.min()), int(node.array.max())) if node.array.size else _ANY
    found = lattice(node, graph, depth)
    shape = [_dim(d) for d in node.shape]
    if found is not None and None not in shape:
        reach = [(s, s * (d - 1)) for s, d in zip(found.steps, shape)]
        low = sum((r for s, r in reach if s < 0), found.start)
        return low, sum((r for s, r in reach if s > 0), found.start)
    if node.op in _MOVES:
        return span(node.inputs[0], graph, depth - 1)
    read = _BOUNDS.get(node.op)
    return _ANY if read is None else read(*(span(i, graph, depth - 1) for i in node.inputs))


def _added(a: Span, b: Span) -> Span:
    return _each(lambda p, q: p + q, a[0], b[0]), _each(lambda p, q: p + q, a[1], b[1])


def _subtracted(a: Span, b: Span) -> Span:
    return _each(lambda p, q: p - q, a[0], b[1]), _each(lambda p, q: p - q, a[1], b[0])


def _each(function: Callable[[Dim, int], Dim], p: Dim | None, q: int) -> Dim | None:
    return None if p is None or q is None else function(p, q)


def _least(a: Span, b: Span) -> Span:
    return _each(minimum, a[0], b[0]), _one_of(minimum, a[1], b[1])


def _most(a: Span, b: Span) -> Span:
    return _one_of(maximum, a[0], b[0]), _each(maximum, a[1], b[1])


def _one_of(function: Callable[[int, int], int], p: int, q: int) -> int:
    """What the other bound gives, where one is not known."""
    return q if p is None else p if q is None else function(p, q)


def _remainder(a: Span, b: Span) -> Span:
    return (0, b[1] - 1) if b[1] is not None and _never_less(b[0], 1) else _ANY


def _quotient(a: Span, b: Span) -> Span:
    """Of numbers that are not negative, by one that is known: division rounds down, towards zero or not."""
    if not isinstance(b[0], int) or b[0] != b[1] or b[0] < 1 or not _never_less(a[0], 0):
        return _ANY
    return a[0] // b[0], None if a[1] is None else a[1] // b[0]


def _chosen(_: Span, a: Span, b: Span) -> Span:
    return _each(minimum, a[0], b[0]), _each(maximum, a[1], b[1])


_BOUNDS: dict[str, Callable[..., Span]] = {
    "relax.add": _added,
    "relax.subtract": _subtracted,
    "relax.minimum": _least,
    "relax.maximum": _most,
    "relax.where": _chosen,
    "halotile.modulo": _remainder,
    "relax.floor_mod": _remainder,
    "relax.floor_divide": _quotient,
    "halotile.integer_divide": _quotient,
}


def _never_less(a: SizeLike | None, b: SizeLike | None) -> bool:
    """Whether a >= b at every size."""
    return a is not None and b is not None and surely(lambda: a >= b)


def _always_more(a: SizeLike | None, b: SizeLike | None) -> bool:
    return a is not None and b is not None and surely(lambda: a > b)


_COMPARISONS: dict[str, Callable[[Span, Span], bool]] = {
    "relax.less": lambda a, b: _always_more(b[0], a[1]),
    "relax.less_equal": lambda a, b: _never_less(b[0], a[1]),
    "relax.greater": lambda a, b: _always_more(a[0], b[1]),
    "relax.greater_equal": lambda a, b: _never_less(a[0], b[1]),
    "relax.equal": lambda a, b: all(v is not None for v in a) and a[0] == a[1] == b[0] == b[1],
    "relax.not_equal": lambda a, b: _always_more(a[0], b[1]) or _always_more(b[0], a[1]),
}
_OPPOSITES = {
    "relax.less": "relax.greater_equal",
    "relax.less_equal": "relax.greater",
    "relax.greater": "relax.less_equal",
    "relax.greater_equal": "relax.less",
    "relax.equal": "relax.not_equal",
    "relax.not_equal": "relax.equal",
}


class CompareWithinBounds(Rule):
    """range(n) < n, range(n) >= 0, n % 4 < 4    ->    true;  range(n) == -1 -> false

    Comparisons of integers whose bounds, numbers or dims, decide them for every size.
    """

    name = "compare-within-bounds"
    family = "logic"
    modes = EXACT
    roots = frozenset(_COMPARISONS)

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        if node.shape is None or any(i.dtype not in COUNTED for i in node.inputs):
            return None
        a, b = (span(i, graph) for i in node.inputs)
        for value, name in ((True, node.op), (False, _OPPOSITES[node.op])):
            if _COMPARISONS[name](a, b):
                return Rewrite(lambda b, value=value: filled(b, node, value))  # type: ignore[misc]
        return None


class LimitWithinBounds(Rule):
    """min(range(n), n - 1), max(range(n), 0), range(n) % n    ->    range(n)

    Integers that lie within the limit at every size; the limit must not broadcast them.
    """

    name = "limit-within-bounds"
    family = "algebra"
    modes = EXACT
    roots = frozenset(("relax.minimum", "relax.maximum", "halotile.modulo", "relax.floor_mod"))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        if node.dtype not in COUNTED or node.shape is None:
            return None
        x, y = node.inputs
        pairs = [(x, y), (y, x)] if node.op in ("relax.minimum", "relax.maximum") else [(x, y)]
        for kept, limit in pairs:
            if _within(node.op, span(kept, graph), span(limit, graph)):
                if graph.same_type(kept, node):
                    return Rewrite(lambda b, kept=kept: kept)  # type: ignore[misc]
                return Declined("the limit broadcasts the operand")
        return None


def _within(operator: str, a: Span, b: Span) -> bool:
    if operator == "relax.minimum":
        return _never_less(b[0], a[1])
    if operator == "relax.maximum":
        return _never_less(a[0], b[1])
    return _never_less(a[0], 0) and _always_more(b[0], a[1])
