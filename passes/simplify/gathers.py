"""Gathers whose positions are known to lie in order: slices and reshapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from ...schedules.words.dims import Dim, bounds
from .graph import CONST, Graph, Node
from .open_slices import Run, dims, taken
from .patterns import scalar
from .rule import EXACT, Declined, Rewrite, Rule

op = relax.op
_DEPTH = 16


@dataclass(frozen=True)
class Lattice:
    """Positions ``start + sum of step[k] * i[k]``; a step along an axis of one element is 0."""

    start: int
    steps: tuple[int, ...]

    def plus(self, other: Lattice) -> Lattice:
        rank = max(len(self.steps), len(other.steps))
        a, b = ((0,) * (rank - len(s)) + s for s in (self.steps, other.steps))
        return Lattice(self.start + other.start, tuple(p + q for p, q in zip(a, b)))

    def times(self, factor: int) -> Lattice:
        return Lattice(self.start * factor, tuple(s * factor for s in self.steps))


def lattice(node: Node, graph: Graph, depth: int = _DEPTH) -> Lattice | None:
    """The positions that integer arithmetic on ranges gives; None for any others."""
    read = _READERS.get(node.op)
    if depth == 0 or read is None or node.shape is None or node.dtype not in ("int32", "int64"):  # fewer bits wrap
        return None
    return read(node, graph, depth - 1)


def _constant(node: Node, graph: Graph, depth: int) -> Lattice | None:
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


def _range(node: Node, graph: Graph, depth: int) -> Lattice | None:
    start, step = node.raw(0), node.raw(2)
    return Lattice(start, (step,)) if isinstance(start, int) and isinstance(step, int) else None


def _sum(node: Node, graph: Graph, depth: int) -> Lattice | None:
    a, b = (lattice(i, graph, depth) for i in node.inputs)
    return None if a is None or b is None else a.plus(b)


def _product(node: Node, graph: Graph, depth: int) -> Lattice | None:
    for x, c in (node.inputs, node.inputs[::-1]):
        factor = scalar(c)
        if factor is not None:
            inner = lattice(x, graph, depth)
            return None if inner is None or len(inner.steps) != node.rank else inner.times(int(factor))
    return None


def _reshaped(node: Node, graph: Graph, depth: int) -> Lattice | None:
    """Dims of one come and go."""
    inner, before = lattice(node.inputs[0], graph, depth), node.inputs[0].shape
    if inner is None or before is None or node.shape is None:
        return None
    real = [(d, s) for d, s in zip(before, inner.steps) if not _one(d)]
    kept = [d for d in node.shape if not _one(d)]
    if len(real) != len(kept) or not all(graph.same_dim(a, d) for (a, _), d in zip(real, kept)):
        return None
    steps = iter(s for _, s in real)
    return Lattice(inner.start, tuple(0 if _one(d) else next(steps) for d in node.shape))


def _repeated(node: Node, graph: Graph, depth: int) -> Lattice | None:
    inner, before = lattice(node.inputs[0], graph, depth), node.inputs[0].shape
    if inner is None or before is None:
        return None
    steps = tuple(0 if _one(d) else s for d, s in zip(before, inner.steps))
    return Lattice(inner.start, (0,) * (node.rank - len(steps)) + steps)


def _one(dim: Any) -> bool:
    return isinstance(dim, int) and dim == 1


_READERS: dict[str, Callable[[Node, Graph, int], Lattice | None]] = {
    CONST: _constant,
    "relax.arange": _range,
    "relax.add": _sum,
    "relax.multiply": _product,
    "relax.broadcast_to": _repeated,
    **dict.fromkeys(("relax.reshape", "relax.expand_dims", "relax.squeeze"), _reshaped),
}


def _open(node: Node, x: Node, axis: int, start: int) -> Rewrite | Declined | None:
    """The slice of an open number of positions, which must lie within the axis for every size."""
    shape, length = node.shape or (), (x.shape or ())[axis]
    count = (dims(shape) or {axis: None})[axis]
    if not isinstance(count, Dim):
        return None
    if bounds(count)[1] > length - start:
        return Declined("the positions may reach beyond the axis")
    return Rewrite(lambda b: taken(b, x, {axis: Run(start, count)}, shape))


class GatherInOrder(Rule):
    """take(x, [[0, 1, 2], [3, 4, 5]])    ->    reshape(x, [2, 3]);  take(x, [2, 3, 4]) -> x[2:5]

    Positions that are constants, or arithmetic on ranges, and count through the axis in steps of one, row by row. Into
    more axes than one they must take the whole of it. As many as an open length must lie within the axis for all of its
    sizes.
    """

    name = "gather-in-order"
    family = "data_movement"
    modes = EXACT
    roots = frozenset(("relax.take", "halotile.gather"))

    def match(self, node: Node, graph: Graph) -> Rewrite | Declined | None:
        x, positions = node.inputs[0], node.arg(1)
        axis = node.attr("axis")
        if axis is None or positions is None or x.shape is None or positions.shape is None:
            return None
        if x.op == CONST and node.static:
            return None
        found = lattice(positions, graph)
        if found is None or found.start < 0 or not positions.shape:
            return None
        axis = int(axis) % x.rank
        tail = positions.shape[1:]
        if not all(isinstance(d, int) for d in tail):
            return None
        rows = [math.prod(tail[k:]) for k in range(len(tail) + 1)]
        if any(s != r for s, r, d in zip(found.steps, rows, positions.shape) if not _one(d)):
            return None
        total = rows[0] * positions.shape[0]
        shape = list(node.shape or ())
        if found.start == 0 and graph.same_dim(total, x.shape[axis]):
            return Rewrite(lambda b: b.call(op.reshape, x, shape))
        end = found.start + total
        if len(positions.shape) != 1 or not isinstance(x.shape[axis], int):
            return None
        if not isinstance(end, int):
            return _open(node, x, axis, found.start)
        if end > x.shape[axis]:
            return None
        return Rewrite(lambda b: b.call(op.strided_slice, x, [axis], [found.start], [end]))
