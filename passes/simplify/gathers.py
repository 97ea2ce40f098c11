"""Gathers whose positions are known to lie in order: slices and reshapes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tvm import relax

from ...schedules.words.dims import bounds, is_open
from .graph import CONST, Graph, GraphNode
from .open_slices import OpenRun, at_least, dims, if_any, taken
from .positions import Lattice, is_one, lattice
from .rule import EXACT, Declined, Rewrite, RewriteBuilder, Rule

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

op = relax.op


def _run(of: tuple[SizeLike, ...], x: GraphNode, axis: int, found: Lattice, along: int) -> Rewrite | Declined | None:
    """The slice of positions along one of their axes, which must lie within ``axis`` for every size; all other axes of
    theirs are of one."""
    shape, lengths, counts = list(of), dims(x.shape), dims(of)
    length, count = lengths and lengths[axis], counts and counts[axis + along]
    step = 1 if is_one(count) else found.steps[along]
    if step < 1 or length is None or count is None or bounds(found.start)[0] < 0:
        return None
    run = OpenRun(found.start, count, step)
    if not run.within(0, length):
        return Declined("the positions may reach beyond the axis") if is_open((found.start, count, length)) else None
    cut = (*(x.shape or ())[:axis], shape[axis + along], *(x.shape or ())[axis + 1 :])

    def build(b: RewriteBuilder) -> GraphNode:
        part = taken(b, x, {axis: run}, cut)
        return part if part.rank == len(shape) else b.call(op.reshape, part, shape)

    return Rewrite(build)


def _single(node: GraphNode, x: GraphNode, axis: int, position: SizeLike) -> Rewrite | Declined | None:
    """The slice of one position, whose axis is dropped."""
    lengths = dims(x.shape)
    if lengths is None or not is_open((position,)):
        return None
    run = OpenRun(position, 1)
    if not run.within(0, lengths[axis]):
        return Declined("the position may lie beyond the axis")
    cut = (*(x.shape or ())[:axis], 1, *(x.shape or ())[axis + 1 :])
    return Rewrite(lambda b: b.call(op.reshape, taken(b, x, {axis: run}, cut), list(node.shape or ())))


class GatherOfGather(Rule):
    """take(take(x, [2, 0, 1]), [1, 1]) -> take(x, [0, 0]);  x[::-1][::-1] -> x, of an axis of open length

    Positions along one axis that are constants, or walks of equal steps which together go forward; the outer ones must
    lie within the inner ones for every size. Gathers along other axes may stand in between.
    """

    name = "gather-of-gather"
    family = "data_movement"
    modes = EXACT
    roots = frozenset(("relax.take", "halotile.gather"))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        axis, inner, between = _along(node), node.inputs[0], list[GraphNode]()
        while axis is not None and _along(inner) not in (None, axis) and inner.uses == 1:
            between.append(inner)
            inner = inner.inputs[0]
        first, second = inner.arg(1), node.arg(1)
        if axis is None or _along(inner) != axis or first is None or second is None or inner.inputs[0].shape is None:
            return None
        x = inner.inputs[0]

        def again(b: RewriteBuilder, value: GraphNode) -> GraphNode:
            for other in reversed(between):
                value = b.same(other, value, *other.inputs[1:])
            return value

        if first.op == second.op == CONST:
            places, among = first.array, second.array
            if not among.size or min(places.min(initial=0), among.min()) < 0 or among.max() >= places.size:
                return None
            both = places[among].astype(among.dtype)
            return Rewrite(lambda b: again(b, b.same(node, x, b.const(both))))
        one, two, counts = lattice(first, graph), lattice(second, graph), [dims(first.shape), dims(second.shape)]
        if one is None or two is None or counts[0] is None or counts[1] is None:
            return None
        count = if_any(counts[1][0])
        ends = (two.start, two.start + two.steps[0] * (count - 1))
        if not all(at_least(e, 0, count) and at_least(counts[0][0] - e, 1, count) for e in ends):
            return Declined("the outer positions may lie outside of the inner ones")
        both = Lattice(one.start + two.start * one.steps[0], (one.steps[0] * two.steps[0],))
        before, after = x.shape or (), node.shape or ()
        part = _run((*before[:axis], after[axis], *before[axis + 1 :]), x, axis, both, 0)
        return part if not isinstance(part, Rewrite) else Rewrite(lambda b: again(b, _one(part.build(b))))


def _one(built: GraphNode | dict[GraphNode, GraphNode]) -> GraphNode:
    assert isinstance(built, GraphNode)
    return built


def _along(node: GraphNode) -> int | None:
    """The axis along which a node takes a row of positions; None for any other node."""
    positions = node.arg(1) if node.op in GatherOfGather.roots else None
    if positions is None or positions.rank != 1 or node.attr("axis") is None or node.inputs[0] is positions:
        return None
    return int(node.attr("axis")) % node.rank


class GatherInOrder(Rule):
    """take(x, [[0, 1, 2], [3, 4, 5]])    ->    reshape(x, [2, 3]);  take(x, [2, 4, 6]) -> x[2:7:2]

    Positions that are constants, or arithmetic on ranges, and count through the axis in equal steps. Into more axes
    than one they must take the whole of it, row by row. As many as an open length must lie within the axis for all of
    its sizes. A single position that depends on a length, x[n - 1], is a slice of one.
    """

    name = "gather-in-order"
    family = "data_movement"
    modes = EXACT
    roots = frozenset(("relax.take", "halotile.gather"))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        x, positions = node.inputs[0], node.arg(1)
        axis = node.attr("axis")
        if axis is None or positions is None or x.shape is None or positions.shape is None:
            return None
        if x.op == CONST and node.static:
            return None
        found = lattice(positions, graph)
        if found is None or bounds(found.start)[0] < 0:
            return None
        if not positions.shape:
            return _single(node, x, int(axis) % x.rank, found.start)
        axis, tail = int(axis) % x.rank, positions.shape[1:]
        real = [k for k, d in enumerate(positions.shape) if not is_one(d)] or [0]
        if len(real) == 1 and (found.start != 0 or found.steps[real[0]] != 1):
            return _run(node.shape or (), x, axis, found, real[0])
        if not all(isinstance(d, int) for d in tail):
            return _run(node.shape or (), x, axis, found, real[0]) if len(real) == 1 else None
        rows = [math.prod(tail[k:]) for k in range(len(tail) + 1)]
        if any(s != r for s, r, d in zip(found.steps, rows, positions.shape) if not is_one(d)):
            return None
        total = rows[0] * positions.shape[0]
        shape = list(node.shape or ())
        if found.start == 0 and graph.same_dim(total, x.shape[axis]):
            return Rewrite(lambda b: b.call(op.reshape, x, shape))
        return _run(node.shape or (), x, axis, found, real[0]) if len(real) == 1 else None
