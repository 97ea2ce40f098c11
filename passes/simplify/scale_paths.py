"""The way of a scale from where it is applied up to the constants that can hold it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...schedules.operators.open_shapes import same_dim
from .anchors import ANCHORS, scale_output, weight_index
from .graph import CONST, GraphNode
from .identity import RESHAPES, permutation
from .patterns import is_float, rounded, shrunk
from .rule import RewriteBuilder
from .slices import SliceAxis, cuts

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

Rebuild = Callable[[RewriteBuilder], GraphNode]

CARRIERS = RESHAPES | {"relax.permute_dims", "relax.strided_slice", "relax.broadcast_to", "relax.negative"}
GATHERS = frozenset(("relax.take", "halotile.gather"))
#: Scales that vary are written out in full on the way through a reshape; tensors up to this size only.
_LARGEST = 1 << 22


class Path:
    """One attempt: follows a scale upwards and remembers the slices of other parts that must be read anew."""

    def __init__(self) -> None:
        self._others: list[GraphNode] = []
        self._shared: Rebuild | None = None
        self._built: GraphNode | None = None

    def rebuild_others(self, b: RewriteBuilder) -> dict[GraphNode, GraphNode]:
        return {o: b.same(o, self._shared_node(b)) for o in self._others}

    def _shared_node(self, b: RewriteBuilder) -> GraphNode:
        if self._built is None:
            assert self._shared is not None
            self._built = self._shared(b)
        return self._built

    def absorb(self, node: GraphNode, scale: np.ndarray, depth: int, shared: bool = False) -> Rebuild | None:
        """How to build ``scale * node`` without a multiplication; None when that can't be done.

        ``scale`` broadcasts against the node's shape.
        """
        if node.op == CONST:
            return _scaled_constant(node, scale)
        if depth == 0 or node.uses != 1 and not shared or not is_float(node) or node.shape is None:
            return None
        while scale.ndim > node.rank and scale.shape[0] == 1:
            scale = scale[0]
        own = node.shape[node.rank - scale.ndim :] if scale.ndim <= node.rank else ()
        if len(own) < scale.ndim or any(n not in (1, d) for n, d in zip(scale.shape, own) if isinstance(d, int)):
            return None  # the operand itself is broadcast where the scale varies
        if any(n != 1 and not isinstance(d, int) for n, d in zip(scale.shape, own)):
            return None
        if node.op in ANCHORS and weight_index(node) is not None:
            return _into_weights(node, scale)
        if node.op in GATHERS or node.op in ("relax.broadcast_to", "relax.matmul"):
            return self._uniform(node, scale, depth)
        if node.op in ("relax.add", "relax.subtract"):
            first, second = (self.absorb(i, scale, depth - 1) for i in node.inputs)
            if first is None or second is None or node.inputs[0] is node.inputs[1]:
                return None
            return _of_both(node, first, second)
        if node.op == "relax.strided_slice":
            return self._through_slice(node, scale, depth)
        if node.op in CARRIERS:
            above = _before(node, scale)
            inner = None if above is None else self.absorb(node.inputs[0], above, depth - 1)
            return None if inner is None else with_operand(node, 0, inner)
        return None

    def _uniform(self, node: GraphNode, scale: np.ndarray, depth: int) -> Rebuild | None:
        """Operators that one number passes: either operand of a product, the table of a gather. Of a product, what does
        not vary along the columns can enter the left operand, what does not vary along the rows the right one."""
        if node.op == "relax.matmul":
            if node.inputs[0] is node.inputs[1]:
                return None
            ways = [(i, s) for i in (0, 1) if (s := _of_operand(node, i, scale)) is not None]
        else:
            ways = [(0, scale)] if scale.size == 1 else []
        for index, part in ways:
            inner = self.absorb(node.inputs[index], part, depth - 1)
            if inner is not None:
                return with_operand(node, index, inner)
        return None

    def _through_slice(self, node: GraphNode, scale: np.ndarray, depth: int) -> Rebuild | None:
        parent = node.inputs[0]
        if parent.uses == 1 and scale.size == 1:
            inner = self.absorb(parent, scale, depth - 1)
            return None if inner is None else with_operand(node, 0, inner)
        mine = cuts(node)
        if mine is None or parent.shape is None or _size(parent) > _LARGEST or self._shared is not None:
            return None
        if any(not isinstance(parent.shape[a], int) for a in mine):
            return None
        others = [u for u in parent.users if u is not node]
        if parent.outputs or any(not _disjoint(mine, cuts(o)) for o in others):
            return None
        full = np.ones(_without_open(parent.shape))
        region = tuple(
            slice(mine[a].begin, mine[a].end, mine[a].stride) if a in mine else slice(None)
            for a in range(parent.rank)
        )
        full[region] = scale
        above = self.absorb(parent, shrunk(full), depth - 1, shared=True)
        if above is None:
            return None
        self._shared, self._others = above, others
        return with_operand(node, 0, self._shared_node)


def _of_operand(product: GraphNode, index: int, scale: np.ndarray) -> np.ndarray | None:
    """The scale of operand ``index`` that scales the product by ``scale``; None where there is none."""
    if scale.size == 1:
        return scale
    operand = product.inputs[index]
    shape = operand.shape
    if shape is None or len(shape) < 2 or product.inputs[1 - index].rank < 2:
        return None
    padded = scale.reshape((1,) * (product.rank - scale.ndim) + scale.shape)
    if padded.shape[-1 - index] != 1:  # the columns for the left operand, the rows for the right one
        return None
    own = padded.shape[product.rank - len(shape) :]
    fits = all(n == 1 or n == d for n, d in zip(own, shape))
    lost = any(n != 1 for n in padded.shape[: product.rank - len(shape)])
    return None if lost or not fits else padded.reshape(own)


def _without_open(shape: tuple[SizeLike, ...]) -> tuple[int, ...]:
    """The shape with ones for open dims, along which a scale does not vary."""
    return tuple(d if isinstance(d, int) else 1 for d in shape)


def _size(node: GraphNode) -> int:
    return int(np.prod(_without_open(node.shape or ()), dtype=np.int64))


def _segments(shape: tuple[SizeLike, ...]) -> list[int]:
    """The open dims in order, with the products of the numbers between them: what a reshape must keep to leave the
    places along every open dim alone."""
    result: list[int] = [1]
    for d in shape:
        if isinstance(d, int):
            result[-1] *= d
        else:
            result += [d, 1]
    return result


def _same_segments(a: tuple[SizeLike, ...], b: tuple[SizeLike, ...]) -> bool:
    first, second = _segments(a), _segments(b)
    return len(first) == len(second) and all(same_dim(x, y) for x, y in zip(first, second))


def _disjoint(a: dict[int, SliceAxis], b: dict[int, SliceAxis] | None) -> bool:
    """Whether two slices of one tensor have no element in common, because their ranges along an axis don't meet."""
    if b is None:
        return False
    return any(a[k].end <= b[k].begin or b[k].end <= a[k].begin for k in a if k in b)


def _before(node: GraphNode, scale: np.ndarray) -> np.ndarray | None:
    """The scale of the operand of a reshape, permutation or negation whose result is scaled by ``scale``."""
    if scale.size == 1:
        return scale.reshape(())
    if node.op == "relax.negative":
        return scale
    padded = scale.reshape((1,) * (node.rank - scale.ndim) + scale.shape)
    if node.op == "relax.permute_dims":
        axes = permutation(node)
        return np.transpose(padded, [axes.index(k) for k in range(len(axes))])
    shape, above = node.shape, node.inputs[0].shape
    if shape is None or above is None or not _same_segments(shape, above) or _size(node) > _LARGEST:
        return None
    if any(n != 1 and not isinstance(d, int) for n, d in zip(padded.shape, shape)):
        return None
    return shrunk(np.broadcast_to(padded, _without_open(shape)).reshape(_without_open(above)))


def _scaled_constant(node: GraphNode, scale: np.ndarray) -> Rebuild | None:
    wide = rounded(np.asarray(node.array.astype(np.float64) * scale), node.array.dtype)
    return None if wide is None else lambda b: b.const(wide)


def _of_both(node: GraphNode, first: Rebuild, second: Rebuild) -> Rebuild:
    return lambda b: b.same(node, first(b), second(b))


def with_operand(node: GraphNode, index: int, inner: Rebuild) -> Rebuild:
    """Builds the operator of ``node`` with operand ``index`` made by ``inner``."""

    def build(b: RewriteBuilder) -> GraphNode:
        inputs = list(node.inputs)
        inputs[index] = inner(b)
        return b.same(node, *inputs)

    return build


def _into_weights(anchor: GraphNode, scale: np.ndarray) -> Rebuild | None:
    index = weight_index(anchor) or 0
    folded = scale_output(anchor, scale)
    if isinstance(folded, str):
        return None
    weight = rounded(folded, anchor.inputs[index].array.dtype)
    return None if weight is None else with_operand(anchor, index, lambda b: b.const(weight))
