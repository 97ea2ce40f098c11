"""Expand sunk past what only moves, joins, reads or multiplies along the axes that it does not repeat.

    matmul(broadcast_to(rates, [batch, 2, 1]), places)    ->    broadcast_to(matmul(rates, places), [batch, 2, 5])

A table that depends on the batch only by being repeated is so computed once, and at compile time if it is constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from .broadcasts import BROADCASTING, broadcast_shape
from .graph import CONST, Graph, GraphNode
from .patterns import UNARY
from .rule import EXACT, Rewrite, RewriteBuilder, Rule
from .transposes import permutation

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

op = relax.op


def one(dim: SizeLike) -> bool:
    return isinstance(dim, int) and dim == 1


def source(node: GraphNode, graph: Graph) -> tuple[GraphNode, tuple[SizeLike, ...], frozenset[int]] | None:
    """(x, its shape with leading ones, the axes that grow) of a broadcast_to; x of lower rank must be constant."""
    if node.op != "relax.broadcast_to" or node.shape is None or node.inputs[0].shape is None:
        return None
    x = node.inputs[0]
    if x.rank < node.rank and x.op != CONST:
        return None
    shape = (1,) * (node.rank - x.rank) + tuple(x.shape or ())
    grown = frozenset(k for k, (a, b) in enumerate(zip(shape, node.shape)) if one(a) and not one(b))
    if any(k not in grown and not graph.same_dim(a, b) for k, (a, b) in enumerate(zip(shape, node.shape))):
        return None
    return x, shape, grown


def small(b: RewriteBuilder, x: GraphNode, rank: int) -> GraphNode:
    """``x`` with leading dims of one up to ``rank``."""
    return x if x.rank == rank else b.const(x.array.reshape((1,) * (rank - x.rank) + x.array.shape))


class SinkBroadcastPastMoves(Rule):
    """permute_dims(broadcast_to(x)) -> broadcast_to(permute_dims(x)); the same for reshapes that only add or drop dims
    of one, for concat of operands repeated alike, for a matrix product repeated along batch dims, and for a gather with
    repeated positions.

    Where every reader broadcasts to the full shape anyway, the repeat goes: y + cos(broadcast_to(x)) -> y + cos(x).
    """

    name = "sink-broadcast-past-moves"
    family = "data_movement"
    modes = EXACT
    roots = UNARY | {
        *("relax.permute_dims", "relax.reshape", "relax.concat", "relax.matmul", "relax.take", "halotile.gather")
    }

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | None:
        if node.shape is None or not any(i.op == "relax.broadcast_to" for i in node.inputs):
            return None
        found = _WAYS.get(node.op, _applied)(node, graph)
        if found is None:
            return None
        make, grown = found
        shape = tuple(1 if k in grown else d for k, d in enumerate(node.shape))
        if not node.outputs and all(takes_smaller(user, node, shape, graph) for user in node.users):
            return Rewrite(lambda b: self._dropped(b, node, make(b)))
        if node.op in UNARY:  # sink-broadcast has its own say
            return None
        return Rewrite(lambda b: b.call(op.broadcast_to, make(b), list(node.shape or ())))

    @staticmethod
    def _dropped(b: RewriteBuilder, node: GraphNode, less: GraphNode) -> dict[GraphNode, GraphNode]:
        users = list(node.users)
        return {user: b.same(user, *(less if i is node else i for i in user.inputs)) for user in users}


#: How to make the smaller result, and the axes along which it is to be repeated.
Make = tuple[Callable[[RewriteBuilder], GraphNode], frozenset[int]]


def takes_smaller(user: GraphNode, node: GraphNode, shape: tuple[SizeLike, ...], graph: Graph) -> bool:
    """Whether ``user`` gives the same when ``node`` has ``shape``, being broadcast by the operator itself."""
    if user.op not in BROADCASTING:
        return False
    shapes = [shape if i is node else i.shape for i in user.inputs]
    known = [s for s in shapes if s is not None]
    return len(known) == len(shapes) and graph.same_shape(broadcast_shape(graph, known), user.shape)


def _applied(node: GraphNode, graph: Graph) -> Make | None:
    found = source(node.inputs[0], graph)
    return None if found is None else (lambda b: b.same(node, small(b, found[0], node.rank)), found[2])


def _permuted(node: GraphNode, graph: Graph) -> Make | None:
    found = source(node.inputs[0], graph)
    axes = permutation(node)
    if found is None or axes is None:
        return None
    grown = frozenset(k for k, a in enumerate(axes) if a in found[2])
    return lambda b: b.same(node, small(b, found[0], node.rank)), grown


def _reshaped(node: GraphNode, graph: Graph) -> Make | None:
    found = source(node.inputs[0], graph)
    if found is None:
        return None
    x, shape, _ = found
    before, after = node.inputs[0].shape or (), node.shape or ()
    real = [k for k, d in enumerate(before) if not one(d)]
    kept = [d for d in after if not one(d)]
    if len(real) != len(kept) or not all(graph.same_dim(before[k], d) for k, d in zip(real, kept)):
        return None
    axes = iter(real)
    target = [1 if one(d) else shape[next(axes)] for d in after]
    grown = frozenset(k for k, d in enumerate(after) if not one(d) and one(target[k]))
    if x.op == CONST:
        return lambda b: b.const(x.array.reshape(target)), grown
    return lambda b: b.call(op.reshape, x, target), grown


def _joined(node: GraphNode, graph: Graph) -> Make | None:
    axis = int(node.attr("axis") or 0) % node.rank
    found = [source(i, graph) for i in node.inputs]
    good = [f for f in found if f is not None]
    if len(good) < len(found) or any(f[2] != good[0][2] for f in good) or axis in good[0][2]:
        return None
    return lambda b: b.same(node, *(small(b, f[0], node.rank) for f in good)), good[0][2]


def _multiplied(node: GraphNode, graph: Graph) -> Make | None:
    """Each operand that is repeated along batch dims only is taken before; the other must not need those dims."""
    if any(i.rank < 2 for i in node.inputs):
        return None
    taken: list[tuple[GraphNode, tuple[SizeLike, ...]]] = []
    for i in node.inputs:
        found = source(i, graph)
        if found is not None and found[2] and max(found[2]) < i.rank - 2:
            taken.append((found[0], found[1]))
        else:
            taken.append((i, i.shape or ()))
    if all(x is i for (x, _), i in zip(taken, node.inputs)):
        return None
    batch = [s[: len(s) - 2] for _, s in taken]
    full = (node.shape or ())[:-2]
    padded = [(1,) * (len(full) - len(s)) + tuple(s) for s in batch]
    grown = frozenset(k for k in range(len(full)) if not one(full[k]) and all(one(s[k]) for s in padded))
    if not grown:
        return None  # the other operand has the full batch: nothing is saved, and drop-broadcast sees to it
    return lambda b: b.same(node, *(small(b, x, i.rank) for (x, _), i in zip(taken, node.inputs))), grown


def _read(node: GraphNode, graph: Graph) -> Make | None:
    positions = node.arg(1)
    found = source(positions, graph) if positions is not None else None
    if found is None or not found[2] or node.inputs[0] is positions:
        return None
    x, shape, grown = found
    axis = node.attr("axis")
    if axis is None:
        return None
    first = int(axis) % node.inputs[0].rank
    after = frozenset(first + k for k in grown)
    if x.op == CONST:
        return lambda b: b.same(node, node.inputs[0], b.const(np.ascontiguousarray(x.array.reshape(shape)))), after
    return lambda b: b.same(node, node.inputs[0], x), after


_WAYS: dict[str, Callable[[GraphNode, Graph], Make | None]] = {
    "relax.permute_dims": _permuted,
    "relax.reshape": _reshaped,
    "relax.concat": _joined,
    "relax.matmul": _multiplied,
    "relax.take": _read,
    "halotile.gather": _read,
}
