"""Transposes cancelled around regions of operators that don't care about the order of axes.

permute -> relu -> add(c) -> inverse permute        ->    relu -> add(c permuted)
permute -> concat, softmax, mean, slice -> inverse  ->    the same operator on other axes
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from tvm import relax

from ...schedules.words.tvm_types import Expr
from .graph import CONST, Graph, GraphNode
from .identity import permutation
from .patterns import ELEMENTWISE, ints
from .rule import EXACT, Declined, Rewrite, RewriteBuilder, Rule

op = relax.op

_REDUCTIONS: dict[str, Callable[..., Expr]] = {
    f"relax.{n}": getattr(op, n) for n in ("sum", "mean", "max", "min")
}
_SOFTMAXES: dict[str, Callable[..., Expr]] = {
    "relax.nn.softmax": op.nn.softmax,
    "relax.nn.log_softmax": op.nn.log_softmax,
}
_LARGEST_REGION = 64


def carries(node: GraphNode, rank: int, sums: bool = True) -> bool:
    """Whether the operator can work on permuted axes instead, all its inputs having ``rank`` or being constants.

    Without ``sums``, not those whose last bit depends on the order in which they add.
    """
    if not sums and (node.op in _SOFTMAXES or node.op in ("relax.sum", "relax.mean")):
        return False
    if not node.is_tensor or node.rank != rank:
        return False
    if node.op in ELEMENTWISE:
        return all(i.rank == rank or i.op == CONST or i.rank == 0 for i in node.inputs)
    if node.op in _REDUCTIONS:
        return bool(node.attr("keepdims")) and node.attr("axis") is not None
    if node.op == "relax.strided_slice":
        return node.shape is not None and all(isinstance(node.raw(k), list) for k in range(1, len(node.operands)))
    return node.op in _SOFTMAXES or node.op == "relax.concat"


@dataclass
class MovedRegion:
    """Nodes that move to the other side of a permutation, and what that costs at the region's edges."""

    axes: list[int]
    nodes: list[GraphNode] = field(default_factory=list)
    sources: list[GraphNode] = field(default_factory=list)
    foreign: list[GraphNode] = field(default_factory=list)

    def is_source(self, node: GraphNode) -> bool:
        return node.op == "relax.permute_dims" and permutation(node) == self.axes

    def edges(self) -> tuple[list[GraphNode], list[GraphNode]]:
        """(members that someone outside reads as they are, permutations outside that read a member)."""
        inside = set(self.nodes)
        exposed, leaving = [], []
        for node in self.nodes:
            outside = [u for u in node.users if u not in inside]
            permutes = [u for u in outside if u.op == "relax.permute_dims"]
            leaving.extend(permutes)
            if node.outputs or len(permutes) != len(outside):
                exposed.append(node)
        return exposed, leaving

    def gain(self) -> int:
        """Permutations removed less permutations added."""
        inside = set(self.nodes)
        exposed, leaving = self.edges()
        removed = sum(not s.outputs and inside.issuperset(s.users) for s in self.sources)
        inverse = [self.axes.index(k) for k in range(len(self.axes))]
        removed += sum(permutation(p) == inverse for p in leaving)
        return removed - len(exposed) - len(self.foreign)


def grow(
    root: GraphNode, upwards: bool, sums: bool = True, also: Callable[[GraphNode], bool] = lambda _: False
) -> MovedRegion:
    """The region below the permutation ``root``; with ``upwards`` also operators that only feed it. ``also`` has more
    operators that can work on permuted axes."""
    region = MovedRegion(permutation(root))
    rank = root.rank

    def carried(node: GraphNode) -> bool:
        return carries(node, rank, sums) or also(node)

    seen: set[GraphNode] = set()
    queue = list(root.users)
    while queue and len(region.nodes) < _LARGEST_REGION:
        node = queue.pop(0)
        if node in seen or not carried(node):
            continue
        if not upwards and any(_is_foreign(i, region, seen) for i in node.inputs):
            continue
        seen.add(node)
        region.nodes.append(node)
        queue.extend(node.users)
        if upwards:
            queue.extend(i for i in node.inputs if carried(i))
    for node in region.nodes:
        for i in node.inputs:
            if region.is_source(i):
                if i not in region.sources:
                    region.sources.append(i)
            elif _is_foreign(i, region, seen) and i not in region.foreign:
                region.foreign.append(i)
    return region


def _is_foreign(node: GraphNode, region: MovedRegion, members: set[GraphNode]) -> bool:
    if node in members or node.op == CONST or node.rank == 0 or region.is_source(node):
        return False
    return not (node.shape is not None and all(isinstance(d, int) and d == 1 for d in node.shape))


class CancelTransposes(Rule):
    """Moves the region below a transpose to its other side where that removes more transposes than it adds

    Every operator of the region is elementwise, or a concat, slice, softmax or dim-keeping reduction, which only has
    its axes renamed. Exact: the same numbers meet in the same operations; only the order of storage changes. In
    ``exact`` mode a sum stays where it is, because another order of storage may be another order of adding.
    """

    name = "cancel-transposes"
    family = "data_movement"
    modes = EXACT
    roots = frozenset(("relax.permute_dims",))
    late = True

    def __init__(self, float_mode: str = "strict") -> None:
        self._sums = float_mode != "exact"

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        if node.outputs or not any(carries(u, node.rank, self._sums) for u in node.users):
            return None
        for upwards in (False, True):
            region = grow(node, upwards, self._sums)
            if region.nodes and region.gain() > 0:
                return Rewrite(lambda b, region=region: _move(b, region, graph))  # type: ignore[misc]
        return None


def _move(b: RewriteBuilder, region: MovedRegion, graph: Graph) -> dict[GraphNode, GraphNode]:
    axes = region.axes
    inverse = [axes.index(k) for k in range(len(axes))]
    moved: dict[GraphNode, GraphNode] = {s: s.inputs[0] for s in region.sources}
    for node in region.foreign:
        moved[node] = b.call(op.permute_dims, node, inverse)
    members = set(region.nodes)
    pending = [n for n in graph.order() if n in members]
    for node in pending:
        moved[node] = _renamed(b, node, [_other_side(b, i, moved, inverse) for i in node.inputs], axes)
    exposed, leaving = region.edges()
    result: dict[GraphNode, GraphNode] = {n: b.call(op.permute_dims, moved[n], axes) for n in exposed}
    for user in leaving:
        source = moved[user.inputs[0]]
        composed = [axes[a] for a in permutation(user)]
        result[user] = source if composed == sorted(composed) else b.call(op.permute_dims, source, composed)
    return result


def _other_side(b: RewriteBuilder, node: GraphNode, moved: dict[GraphNode, GraphNode], inverse: list[int]) -> GraphNode:
    if node in moved:
        return moved[node]
    if node.op == CONST and node.array.size > 1:
        array = node.array.reshape((1,) * (len(inverse) - node.array.ndim) + node.array.shape)
        return b.const(np.ascontiguousarray(np.transpose(array, inverse)))
    return node


def _renamed(b: RewriteBuilder, node: GraphNode, inputs: list[GraphNode], axes: list[int]) -> GraphNode:
    """The operator of ``node`` on inputs whose axis ``axes[a]`` is what was axis ``a``."""
    rank = len(axes)
    if node.op == "relax.concat":
        return b.call(op.concat, inputs, axis=axes[int(node.attr("axis") or 0) % rank])
    if node.op in _SOFTMAXES:
        return b.call(_SOFTMAXES[node.op], inputs[0], axis=axes[int(node.attr("axis")) % rank])
    if node.op in _REDUCTIONS:
        wanted = sorted(axes[int(a) % rank] for a in node.attr("axis"))
        return b.call(_REDUCTIONS[node.op], inputs[0], axis=wanted, keepdims=True)
    if node.op == "relax.strided_slice":
        own, begin, end = (node.raw(k) or [] for k in (1, 2, 3))
        strides = (ints(node.raw(4)) if len(node.operands) > 4 else None) or [1] * len(own)
        shape = [(node.shape or ())[axes.index(a)] for a in range(rank)]
        wanted = [axes[a % rank] for a in own]
        return b.shaped(tuple(shape), op.strided_slice, inputs[0], wanted, begin, end, strides)
    return b.same(node, *inputs)
