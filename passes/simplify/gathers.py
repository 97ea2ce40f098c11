"""Gathers whose positions are known to lie in order: slices and reshapes."""

from __future__ import annotations

import math

from tvm import relax

from ...schedules.words.dims import bounds, is_open
from .graph import CONST, Graph, Node
from .open_slices import Run, dims, taken
from .positions import Lattice, is_one, lattice
from .rule import EXACT, Builder, Declined, Rewrite, Rule

op = relax.op


def _run(node: Node, x: Node, axis: int, found: Lattice, along: int) -> Rewrite | Declined | None:
    """The slice of positions along one of their axes, which must lie within ``axis`` for every size; all other axes of
    theirs are of one."""
    shape, lengths, counts = list(node.shape or ()), dims(x.shape), dims(node.shape)
    length, count = lengths and lengths[axis], counts and counts[axis + along]
    step = 1 if is_one(count) else found.steps[along]
    if step < 1 or length is None or count is None:
        return None
    run = Run(found.start, count, step)
    if not run.within(0, length):
        return Declined("the positions may reach beyond the axis") if is_open((found.start, count, length)) else None
    cut = (*(x.shape or ())[:axis], shape[axis + along], *(x.shape or ())[axis + 1 :])

    def build(b: Builder) -> Node:
        part = taken(b, x, {axis: run}, cut)
        return part if part.rank == len(shape) else b.call(op.reshape, part, shape)

    return Rewrite(build)


class GatherInOrder(Rule):
    """take(x, [[0, 1, 2], [3, 4, 5]])    ->    reshape(x, [2, 3]);  take(x, [2, 4, 6]) -> x[2:7:2]

    Positions that are constants, or arithmetic on ranges, and count through the axis in equal steps. Into more axes
    than one they must take the whole of it, row by row. As many as an open length must lie within the axis for all of
    its sizes.
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
        if found is None or bounds(found.start)[0] < 0 or not positions.shape:
            return None
        axis, tail = int(axis) % x.rank, positions.shape[1:]
        real = [k for k, d in enumerate(positions.shape) if not is_one(d)] or [0]
        if len(real) == 1 and (found.start != 0 or found.steps[real[0]] != 1):
            return _run(node, x, axis, found, real[0])
        if not all(isinstance(d, int) for d in tail):
            return _run(node, x, axis, found, real[0]) if len(real) == 1 else None
        rows = [math.prod(tail[k:]) for k in range(len(tail) + 1)]
        if any(s != r for s, r, d in zip(found.steps, rows, positions.shape) if not is_one(d)):
            return None
        total = rows[0] * positions.shape[0]
        shape = list(node.shape or ())
        if found.start == 0 and graph.same_dim(total, x.shape[axis]):
            return Rewrite(lambda b: b.call(op.reshape, x, shape))
        return _run(node, x, axis, found, real[0]) if len(real) == 1 else None
