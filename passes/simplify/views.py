"""Reshapes around transposes and norms that only regroup axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import relax

from ...schedules.words.tvm_types import Expr
from .graph import Graph, GraphNode
from .identity import RESHAPES, permutation
from .patterns import UNARY
from .rule import EXACT, Declined, Rewrite, RewriteBuilder, Rule

op = relax.op


class PermuteOfMergedAxes(Rule):
    """reshape(permute(reshape(x, [B h, n, d]), 0 2 1), [B, h, d, n])    ->    permute(x: [B, h, n, d], 0 1 3 2)

    The inner reshape merges or splits axes that the permutation then moves together. Exact: every element keeps its
    neighbours; where the outer shape is another one, a reshape stays.
    """

    name = "permute-of-merged-axes"
    family = "data_movement"
    modes = EXACT
    roots = RESHAPES

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        moved = node.inputs[0]
        if moved.op != "relax.permute_dims" or moved.uses != 1 or moved.inputs[0].op not in RESHAPES:
            return None
        parts = moved.inputs[0]
        x = parts.inputs[0]
        if parts.uses != 1 or x.shape is None or parts.shape is None or node.shape is None:
            return None
        order = [a for a in permutation(moved) if not _one(parts.shape[a])]
        runs = _runs(order, [a for a in sorted(order)])
        sizes = [_product([parts.shape[a] for a in run]) for run in runs]
        natural = sorted(range(len(runs)), key=lambda k: runs[k][0])
        groups = _groups(x.shape, [sizes[k] for k in natural], graph)
        if groups is None:
            return None
        axes = [a for k in range(len(runs)) for a in groups[natural.index(k)]]
        shape = [x.shape[a] for a in axes]
        wanted = list(node.shape)

        def build(b: RewriteBuilder) -> GraphNode:
            y = x if axes == sorted(axes) else b.call(op.permute_dims, x, axes)
            return y if graph.same_shape(tuple(shape), tuple(wanted)) else b.call(op.reshape, y, wanted)

        return Rewrite(build)


def _runs(order: Sequence[int], natural: Sequence[int]) -> list[list[int]]:
    """The axes in ``order``, those in one list that also follow one another in ``natural``."""
    place = {a: k for k, a in enumerate(natural)}
    runs: list[list[int]] = []
    for a in order:
        if runs and place[a] == place[runs[-1][-1]] + 1:
            runs[-1].append(a)
        else:
            runs.append([a])
    return runs


def _groups(shape: Sequence[Expr], sizes: Sequence[Expr], graph: Graph) -> list[list[int]] | None:
    """The axes of ``shape`` in consecutive groups whose products are ``sizes``; axes of one go with what is before."""
    groups: list[list[int]] = []
    axis = 0
    for size in sizes:
        group: list[int] = []
        while axis < len(shape) and not (group and graph.same_dim(_product([shape[a] for a in group]), size)):
            group.append(axis)
            axis += 1
        if not group or not graph.same_dim(_product([shape[a] for a in group]), size):
            return None
        groups.append(group)
    rest = list(range(axis, len(shape)))
    if any(not _one(shape[a]) for a in rest) or rest and not groups:
        return None
    if rest:
        groups[-1].extend(rest)
    return groups


def _product(dims: Sequence[Expr]) -> Expr:
    return math.prod(d for d in dims if not _one(d))


def _one(dim: Expr) -> bool:
    return isinstance(dim, int) and dim == 1


_NORMS = {"relax.nn.layer_norm", "relax.nn.rms_norm"}


class ReshapePastNorm(Rule):
    """reshape(norm(reshape(x)))    ->    norm(reshape(x))

    A norm over the last axis, or an operator on each element, between two reshapes that leave that axis as it is.
    """

    name = "reshape-past-norm"
    family = "shape_slice"
    modes = EXACT
    roots = RESHAPES

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        inner = node.inputs[0]
        if inner.uses != 1 or not inner.inputs or inner.inputs[0].op not in RESHAPES or not inner.inputs[0].shape:
            return None
        before = inner.inputs[0]
        if before.uses != 1 or not node.shape or not before.shape:
            return None
        if inner.op in _NORMS:
            axes = [int(a) % inner.rank for a in inner.attr("axes")]
            if axes != [inner.rank - 1] or not graph.same_dim(node.shape[-1], before.shape[-1]):
                return None
            axes_kept = list(inner.attr("axes")) == [-1]
        elif inner.op in UNARY:
            axes_kept = True
        else:
            return None
        shape = list(node.shape)

        def build(b: RewriteBuilder) -> GraphNode:
            x = b.call(op.reshape, before.inputs[0], shape)
            if axes_kept:
                return b.same(inner, x, *inner.inputs[1:])
            function = op.nn.layer_norm if inner.op == "relax.nn.layer_norm" else op.nn.rms_norm
            return b.call(function, x, *inner.inputs[1:], axes=[-1], epsilon=float(inner.attr("epsilon")))

        return Rewrite(build)
