"""Space and depth: Focus slices, space-to-depth before a convolution, means over whole images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from ...schedules.words.dims import Open
from ...schedules.words.sizes import dim_of
from .anchors import weight_index
from .graph import CONST, Graph, GraphNode
from .identity import permutation
from .open_slices import dims
from .rule import EXACT, STRICT, Declined, Rewrite, RewriteBuilder, Rule
from .slices import cuts

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

op = relax.op


class FocusAsSpaceToDepth(Rule):
    """concat(x[..., 0::2, 0::2], x[..., 1::2, 0::2], ...)    ->    reshape, permute, reshape of x

    All r * r phases of an NCHW tensor (Focus) or of an NHWC tensor (patch merging) whose height and width r divides,
    rows or columns first: one permuted store instead of r * r strided reads.
    """

    name = "focus-as-space-to-depth"
    family = "data_movement"
    modes = EXACT
    roots = frozenset(("relax.concat",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        found = [cuts(i) for i in node.inputs]
        x = node.inputs[0].inputs[0] if found[0] is not None else None
        if (
            x is None
            or node.rank != 4
            or any(f is None or i.inputs[0] is not x for f, i in zip(found, node.inputs))
        ):
            return None
        r = round(len(node.inputs) ** 0.5)
        channel = int(node.attr("axis") or 0) % 4
        if r < 2 or r * r != len(node.inputs) or channel not in (1, 3) or x.shape is None:
            return None
        row, column = (2, 3) if channel == 1 else (1, 2)
        phases = []
        for f in found:
            if f is None or set(f) != {row, column} or any(cut.stride != r for cut in f.values()):
                return None
            phases.append((f[row].begin, f[column].begin))
        shape = list(x.shape or ())
        small = list(shape)
        for axis in (row, column):
            divided = _divided(shape[axis], r)
            if divided is None:
                return Declined(f"{shape[row]} x {shape[column]} is not divided by {r}")
            small[axis] = divided
        by_rows = [(a, b) for a in range(r) for b in range(r)]
        by_columns = [(a, b) for b in range(r) for a in range(r)]
        if phases not in (by_rows, by_columns) or any(dims(i.shape) != dims(tuple(small)) for i in node.inputs):
            return Declined("the phases are not in the order of rows or columns")
        split = [s for k, s in enumerate(shape) for s in ([small[k], r] if k in (row, column) else [s])]
        # In the split shape the phase of a row stands at row + 1, that of a column at column + 2.
        phase = [row + 1, column + 2] if phases == by_rows else [column + 2, row + 1]
        order = [0, *phase, 1, 2, 4] if channel == 1 else [0, 1, 3, *phase, 5]

        def build(b: RewriteBuilder) -> GraphNode:
            parts = b.call(op.permute_dims, b.call(op.reshape, x, list(map(b.dim, split))), order)
            return b.call(op.reshape, parts, list(node.shape or ()))

        return Rewrite(build)


def _divided(length: SizeLike, r: int) -> SizeLike:
    """A length divided by r, as a number or a dim; None where not all of its sizes are multiples of r."""
    try:
        quotient, rest = divmod(dim_of(length), r)
    except Open:
        return None
    return quotient if rest == 0 else None


class SpaceToDepthIntoConvolution(Rule):
    """conv(space_to_depth(x, r), W: k x k, stride s)    ->    conv(x, W': rk x rk, stride rs)

    The same products, read in place: W'[o, c, r i + a, r j + b] = W[o, phase(a, b) C + c, i, j], pads times r. The
    weights are constant, one group, no dilation.
    """

    name = "space-to-depth-into-convolution"
    family = "folds"
    modes = STRICT
    roots = frozenset(("relax.nn.conv2d",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        weight = node.inputs[1]
        found = space_to_depth(node.inputs[0], graph)
        if found is None or weight.op != CONST:
            return None
        x, r, columns_first = found
        if node.inputs[0].uses != 1:
            return Declined("the rearranged tensor has other readers")
        if int(node.attr("groups")) != 1 or any(d != 1 for d in node.attr("dilation")):
            return Declined("groups or dilation")
        if not str(node.attr("kernel_layout")).startswith("OI") or not str(
            node.attr("data_layout")
        ).startswith("NC"):
            return None
        w = weight.array
        o, i, kh, kw = w.shape
        split = w.reshape(o, r, r, i // (r * r), kh, kw)
        order = (0, 3, 4, 2, 5, 1) if columns_first else (0, 3, 4, 1, 5, 2)
        wide = np.ascontiguousarray(split.transpose(order)).reshape(o, i // (r * r), kh * r, kw * r)
        return Rewrite(
            lambda b: b.call(
                op.nn.conv2d,
                x,
                b.const(wide),
                strides=[int(s) * r for s in node.attr("strides")],
                padding=[int(p) * r for p in node.attr("padding")],
            )
        )


class ChannelOrderIntoConvolution(Rule):
    """conv(x[:, [2, 1, 0]], W)    ->    conv(x, W[:, [2, 1, 0]])

    A permutation of the channels (BGR for RGB) in front of constant weights of one group.
    """

    name = "channel-order-into-convolution"
    family = "folds"
    modes = STRICT
    roots = frozenset(f"relax.nn.conv{d}d" for d in (1, 2, 3))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        moved, weight = node.inputs
        order = _channel_order(moved)
        if order is None or weight.op != CONST or moved.uses != 1 or weight_index(node) != 1:
            return None
        if int(node.attr("groups")) != 1:
            return Declined("groups of channels")
        if sorted(order) != list(range(weight.array.shape[1])):
            return Declined("it is no permutation of the channels")
        wide = np.empty_like(weight.array)
        wide[:, order] = weight.array
        return Rewrite(lambda b: b.same(node, moved.inputs[0], b.const(wide)))


def _channel_order(node: GraphNode) -> list[int] | None:
    """The channel of x that is at each place of ``node``, where that is all that it changes."""
    if node.op == "relax.take" and node.attr("axis") == 1 and node.inputs[1].op == CONST:
        places = node.inputs[1].array
        return [int(p) for p in places] if places.ndim == 1 and np.all(places >= 0) else None
    if node.op != "halotile.slice" or node.shape is None or node.rank < 3:
        return None
    begin, step = ([int(v) for v in node.attr(k)] for k in ("begin", "step"))
    if any(begin[a] or step[a] != 1 for a in range(node.rank) if a != 1):
        return None
    if any(a != 1 and d != s for a, (d, s) in enumerate(zip(node.shape, node.inputs[0].shape or ()))):
        return None
    return [begin[1] + step[1] * k for k in range(node.shape[1])]


def space_to_depth(node: GraphNode, graph: Graph) -> tuple[GraphNode, int, bool] | None:
    """(x, r, whether columns are the slower phase) of a reshape, permute, reshape that moves blocks to channels."""
    if node.op != "relax.reshape" or node.inputs[0].op != "relax.permute_dims":
        return None
    moved = node.inputs[0]
    parts = moved.inputs[0]
    if parts.op != "relax.reshape" or parts.rank != 6 or node.rank != 4:
        return None
    x, axes = parts.inputs[0], permutation(moved)
    if (
        axes not in ([0, 3, 5, 1, 2, 4], [0, 5, 3, 1, 2, 4])
        or x.rank != 4
        or moved.uses != 1
        or parts.uses != 1
    ):
        return None
    shape = parts.shape or ()
    n, c, h, r, w, q = shape
    if not all(isinstance(d, int) for d in (c, r, q)) or r != q:
        return None
    of = x.shape or ()
    if not graph.same_shape(of[:2], (n, c)) or not (blocks(of[2], h, r, graph) and blocks(of[3], w, r, graph)):
        return None
    if not graph.same_shape(node.shape, (n, c * r * r, h, w)):
        return None
    return x, r, axes[1] == 5


def blocks(length: SizeLike, count: SizeLike, r: int, graph: Graph) -> bool:
    """Whether ``count`` blocks of r make up the length: of r (h // r) r (w // r) elements, which are h w, both do."""
    return graph.same_dim(length, count * r) or not isinstance(length, int) and graph.same_dim(length // r, count)


class PoolAsMean(Rule):
    """adaptive_avg_pool(x, 1), avg_pool over the whole image    ->    mean over space

    A mean keeps the same sum; only its order may differ.
    """

    name = "pool-as-mean"
    family = "recognition"
    modes = STRICT
    roots = frozenset(f"relax.nn.{kind}{d}d" for kind in ("adaptive_avg_pool", "avg_pool") for d in (1, 2, 3))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        x = node.inputs[0]
        if not str(node.attr("layout")).startswith("NC") or x.shape is None:
            return None
        space = x.shape[2:]
        if "adaptive" in node.op:
            if node.attr("output_size") is None or any(s != 1 for s in node.attr("output_size")):
                return None
        else:
            whole = list(space) == list(node.attr("pool_size"))
            if not whole or any(node.attr("padding")) or any(d != 1 for d in node.attr("dilation")):
                return None
        axes = list(range(2, x.rank))
        return Rewrite(lambda b: b.call(op.mean, x, axes, True))


_KEEPING = {f"relax.{n}": getattr(op, n) for n in ("mean", "sum", "max", "min", "prod")}


class ReshapeOfReduction(Rule):
    """reshape(mean(x, axes, keepdims), without those dims)    ->    mean(x, axes), and the other way round"""

    name = "reshape-of-reduction"
    family = "shape_slice"
    modes = EXACT
    roots = frozenset(("relax.reshape", "relax.squeeze", "relax.flatten", "relax.expand_dims"))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        inner = node.inputs[0]
        function = _KEEPING.get(inner.op)
        x = inner.inputs[0] if function is not None else None
        if function is None or x is None or x.shape is None or inner.attr("axis") is None or inner.uses != 1:
            return None
        axes = sorted(int(a) % x.rank for a in inner.attr("axis"))
        kept = tuple(d for k, d in enumerate(x.shape) if k not in axes)
        full = tuple(1 if k in axes else d for k, d in enumerate(x.shape))
        keepdims = bool(inner.attr("keepdims"))
        if not graph.same_shape(node.shape, kept if keepdims else full):
            return None
        return Rewrite(lambda b: b.call(function, x, axes, not keepdims))
