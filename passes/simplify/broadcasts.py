"""Expand and Tile: dropped before operators that broadcast anyway, sunk past elementwise ones, shrunk in constants."""

from __future__ import annotations

import numpy as np
from tvm import relax

from .graph import CONST, Graph, GraphNode
from .patterns import BINARY, ELEMENTWISE, shrunk
from .rule import EXACT, Declined, Rewrite, RewriteBuilder, Rule

op = relax.op
_LARGEST_REGION = 64
BROADCASTING = BINARY | {"relax.where"}


def stretched(node: GraphNode) -> GraphNode | None:
    """The operand of a node that only repeats it along dims of one (or new leading dims); None for real repeats."""
    if node.op == "relax.broadcast_to":
        return node.inputs[0]
    if node.op == "relax.tile":
        x = node.inputs[0]
        repeats = [int(r) for r in node.attr("repeats")]
        shape = x.shape
        if shape is None:
            return None
        padded = (1,) * (len(repeats) - len(shape)) + tuple(shape)
        repeats = [1] * (len(padded) - len(repeats)) + repeats
        return x if all(r == 1 or d == 1 for r, d in zip(repeats, padded) if not (r == 1)) else None
    return None


def broadcast_shape(graph: Graph, shapes: list[tuple]) -> tuple | None:
    """The shape that numpy broadcasting gives, None where dims can't be proved to agree."""
    rank = max(map(len, shapes), default=0)
    result = []
    for k in range(rank):
        dim: object = 1
        for shape in shapes:
            d = shape[k - rank + len(shape)] if k - rank + len(shape) >= 0 else 1
            if isinstance(d, int) and d == 1:
                continue
            if dim == 1 and isinstance(dim, int):
                dim = d
            elif not graph.same_dim(dim, d):
                return None
        result.append(dim)
    return tuple(result)


class DropBroadcast(Rule):
    """broadcast_to(x, shape(y)) + y    ->    x + y, for Expand and for Tile of dims of one

    So goes a reshape of positions or flags that only puts dims of one in front. Every reader must be a broadcasting
    operator whose other operands already give the full shape; for open dims that is proved, not assumed. A matrix
    product broadcasts its batch dims.
    """

    name = "drop-broadcast"
    family = "data_movement"
    modes = EXACT
    roots = frozenset(("relax.broadcast_to", "relax.tile", "relax.reshape", "relax.expand_dims"))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        x = _without_leading_ones(node, graph) or stretched(node)
        if x is None or x.shape is None or node.outputs or not node.users:
            return None
        for user in node.users:
            if not self._takes(user, node, x, graph):
                if user.op in BROADCASTING and node.op in ("relax.broadcast_to", "relax.tile"):
                    return Declined("no other operand has the full shape")
                return None

        def build(b: RewriteBuilder) -> dict[GraphNode, GraphNode]:
            return {
                user: b.same(user, *(x if i is node else i for i in user.inputs)) for user in list(node.users)
            }

        return Rewrite(build)

    @staticmethod
    def _takes(user: GraphNode, node: GraphNode, x: GraphNode, graph: Graph) -> bool:
        if user.op == "relax.matmul":
            index = user.inputs.index(node)
            if user.inputs[0] is user.inputs[1] or x.rank < 2 or node.rank < 2:
                return False
            other = user.inputs[1 - index]
            if not graph.same_shape((x.shape or ())[-2:], (node.shape or ())[-2:]) or other.shape is None:
                return False
            batch = broadcast_shape(graph, [(x.shape or ())[:-2], other.shape[:-2]])
            return graph.same_shape(batch, (user.shape or ())[:-2])
        if user.op not in BROADCASTING:
            return False
        shapes = [x.shape if i is node else i.shape for i in user.inputs]
        if any(s is None for s in shapes):
            return False
        return graph.same_shape(broadcast_shape(graph, [s for s in shapes if s is not None]), user.shape)


def _without_leading_ones(node: GraphNode, graph: Graph) -> GraphNode | None:
    """The operand of a reshape that only puts dims of one in front of it: of integers or flags, and of floats with open
    dims, such as masks and tables that are no constants then."""
    if node.op not in ("relax.reshape", "relax.expand_dims"):
        return None
    x, shape = node.inputs[0], node.shape or ()
    if node.dtype not in ("bool", "int32", "int64") and all(isinstance(d, int) for d in shape):
        return None
    more = len(shape) - x.rank
    if more < 1 or any(not _same(d, 1) for d in shape[:more]):
        return None
    return x if graph.same_shape(x.shape, shape[more:]) else None


class SinkBroadcast(Rule):
    """exp(broadcast_to(x)) -> broadcast_to(exp(x));  tile(x) * c + d -> tile(x * c + d)

    An elementwise operator all of whose operands are stretched in the same way, or are constants that do not vary where
    the others are repeated: it then works on fewer elements. True repeats (Tile of a dim above one) sink as well.
    """

    name = "sink-broadcast"
    family = "data_movement"
    modes = EXACT
    roots = ELEMENTWISE

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        movers = [i for i in node.inputs if i.op in ("relax.broadcast_to", "relax.tile")]
        if not movers:
            return None
        first = movers[0]
        if not graph.same_shape(first.shape, node.shape):
            return None
        for i in node.inputs:
            if i in movers:
                if (
                    i.op != first.op
                    or not graph.same_shape(i.shape, first.shape)
                    or not _alike(i, first, graph)
                ):
                    return Declined("the operands are repeated in different ways")
            elif not _constant_along(i, first):
                return None

        def build(b: RewriteBuilder) -> GraphNode:
            small = b.same(node, *(i.inputs[0] if i in movers else i for i in node.inputs))
            return _repeat(b, small, first)

        return Rewrite(build)


class SinkSharedBroadcast(Rule):
    """u = exp(tile(x)); v = tanh(tile(x)); u + v    ->    tile(exp(x) + tanh(x))

    A repeat with several readers sinks past the whole region of elementwise operators below it, where the ways join
    again: as many repeats come out of the region as went in, or fewer, and the region works on fewer elements.
    """

    name = "sink-shared-broadcast"
    family = "data_movement"
    modes = EXACT
    roots = frozenset(("relax.broadcast_to", "relax.tile"))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        if node.outputs or len(node.users) < 2 or node.shape is None:
            return None
        members: dict[GraphNode, None] = {}
        movers: dict[GraphNode, None] = {node: None}
        queue = list(node.users)
        while queue and len(members) < _LARGEST_REGION:
            user = queue.pop(0)
            if user in members or user.op not in ELEMENTWISE or not graph.same_shape(user.shape, node.shape):
                continue
            fed = [i for i in user.inputs if i not in members and not _constant_along(i, node)]
            if not all(
                i.op == node.op and graph.same_shape(i.shape, node.shape) and _alike(i, node, graph)
                for i in fed
            ):
                continue
            members[user] = None
            movers.update(dict.fromkeys(fed))
            queue.extend(user.users)
        exposed = [m for m in members if m.outputs or any(u not in members for u in m.users)]
        if not members or len(exposed) > len(movers):
            return None
        return Rewrite(lambda b: self._sunk(b, node, list(members), list(movers), exposed, graph))

    @staticmethod
    def _sunk(
        b: RewriteBuilder,
        node: GraphNode,
        members: list[GraphNode],
        movers: list[GraphNode],
        exposed: list[GraphNode],
        graph: Graph,
    ) -> dict[GraphNode, GraphNode]:
        small: dict[GraphNode, GraphNode] = {m: m.inputs[0] for m in movers}
        inside = set(members)
        for member in [n for n in graph.order() if n in inside]:
            small[member] = b.same(member, *(small.get(i, i) for i in member.inputs))
        return {m: _repeat(b, small[m], node) for m in exposed}


def _repeat(b: RewriteBuilder, x: GraphNode, mover: GraphNode) -> GraphNode:
    if mover.op == "relax.tile":
        return b.call(op.tile, x, [int(r) for r in mover.attr("repeats")])
    return b.call(op.broadcast_to, x, list(mover.shape or ()))


def _alike(a: GraphNode, b: GraphNode, graph: Graph) -> bool:
    return graph.same_shape(a.inputs[0].shape, b.inputs[0].shape) and (
        a.op != "relax.tile" or a.attr("repeats") == b.attr("repeats")
    )


def _constant_along(node: GraphNode, mover: GraphNode) -> bool:
    """Whether ``node`` does not vary along the axes that ``mover`` repeats, and has no axis that its operand lacks."""
    shape, source = node.shape, mover.inputs[0].shape
    if shape is None or source is None or mover.shape is None or len(shape) > len(source):
        return False
    for k in range(1, len(shape) + 1):
        repeated = mover.op == "relax.tile" and _repeats(mover)[-k] != 1
        grown = not (isinstance(source[-k], type(mover.shape[-k])) and _same(source[-k], mover.shape[-k]))
        if (repeated or grown) and not _same(shape[-k], 1):
            return False
        if not _same(shape[-k], 1) and not _same(shape[-k], source[-k]):
            return False
    return True


def _repeats(mover: GraphNode) -> list[int]:
    repeats = [int(r) for r in mover.attr("repeats")]
    return [1] * (mover.rank - len(repeats)) + repeats


def _same(a: object, b: object) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    import tvm_ffi

    return not isinstance(a, int) and not isinstance(b, int) and bool(tvm_ffi.structural_equal(a, b))


class BroadcastChain(Rule):
    """broadcast_to(broadcast_to(x, s), t)    ->    broadcast_to(x, t)"""

    name = "broadcast-chain"
    family = "data_movement"
    modes = EXACT
    roots = frozenset(("relax.broadcast_to",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        inner = node.inputs[0]
        if inner.op != "relax.broadcast_to" or node.shape is None:
            return None
        shape = list(node.shape)
        return Rewrite(lambda b: b.call(op.broadcast_to, inner.inputs[0], shape))


class TileAsBroadcast(Rule):
    """tile(x) of dims of one    ->    broadcast_to(x)"""

    name = "tile-as-broadcast"
    family = "data_movement"
    modes = EXACT
    roots = frozenset(("relax.tile",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        x = stretched(node)
        if x is None or node.shape is None:
            return None
        shape = list(node.shape)
        return Rewrite(lambda b: b.call(op.broadcast_to, x, shape))


class ShrinkConstant(Rule):
    """x + constant that repeats along an axis    ->    x + the constant with that axis of one

    Where the other operands still give the full shape: less to load, and more rules see a bias for what it is.
    Constants of up to 16 elements are not looked at unless they are one number.
    """

    name = "shrink-constant"
    family = "data_movement"
    modes = EXACT
    roots = BROADCASTING

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        if not node.is_tensor or all(i.op == CONST for i in node.inputs):
            return None
        for index, constant in enumerate(node.inputs):
            if constant.op != CONST or constant.array.size <= 1:
                continue
            small = shrunk(constant.array)
            if small.size == constant.array.size:
                continue
            shapes = [small.shape if k == index else i.shape for k, i in enumerate(node.inputs)]
            if any(s is None for s in shapes):
                continue
            full = broadcast_shape(graph, [s for s in shapes if s is not None])
            if not graph.same_shape(full, node.shape):
                continue
            return self._replace(node, index, small)
        return None

    @staticmethod
    def _replace(node: GraphNode, index: int, small: np.ndarray) -> Rewrite:
        def build(b: RewriteBuilder) -> GraphNode:
            inputs = list(node.inputs)
            inputs[index] = b.const(small)
            return b.same(node, *inputs)

        return Rewrite(build)
