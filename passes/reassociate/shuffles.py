"""Transposed convolutions and pixel shuffles, with their channels in the order that vectors like.

    conv_transpose(x, w: [C, M, K, K], stride s)    ->    crop(shuffle(conv(x, w': [s s M, C, K / s, K / s])))

Position o + pad = s q + r of the result reads the taps r + s t at input q - t: for each of the s * s phases r a
convolution with the same windows, whose results lie side by side. A transposed convolution with M outputs fills M lanes
of a vector, this one s s M; where both fill theirs it is no gain. (K, s: as many as there are axes. Taps that s does
not divide into are zeros.)

    shuffle(conv(x, w)), channels (c, i, j)         ->    the same with channels (i, j, c)

Each place of the result then takes a block of neighbouring channels whole, where c fills vectors.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from ...schedules.operators.common import transposed_extents
from ...schedules.operators.open_shapes import same_dim
from ...schedules.words.dims import Open, floor_div, is_open
from ...schedules.words.sizes import dim_of, usual
from ...schedules.words.tvm_types import Expr
from ...targets.target import Target
from ..simplify.anchors import CONVOLUTIONS, per_channel, weight_index
from ..simplify.graph import CONST, GraphNode
from ..simplify.identity import permutation
from ..simplify.patterns import BINARY, UNARY, is_float
from ..simplify.rule import RewriteBuilder
from .resizes import ELEMENT_COST

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

op = relax.op
Build = Callable[[RewriteBuilder], GraphNode]
_BLOCKS = [0, 3, 4, 1, 5, 2]  # [n, i, j, c, h, w] -> [n, c, h, i, w, j]
_LANES = [0, 1, 4, 2, 5, 3]  # [n, c, i, j, h, w] -> the same


def phases_side_by_side(node: GraphNode, target: Target) -> Build | None:
    """What builds the transposed convolution ``node`` as a convolution of all phases and a pixel shuffle; None if that
    fills no more lanes of ``target``."""
    if node.op != "halotile.conv_transpose" or node.rank != 4 or not is_float(node) or weight_index(node) != 1:
        return None
    data, weight = node.inputs[0], node.inputs[1].array
    if data.shape is None or int(node.attr("groups")) != 1 or any(int(d) != 1 for d in node.attr("dilations")):
        return None
    steps, begin = ([int(n) for n in node.attr(name)] for name in ("strides", "begin"))
    channels, outputs, *kernel = weight.shape
    try:
        size = [dim_of(n) for n in data.shape[2:]]
    except Open:  # depends on data
        return None
    output = _output(node, size, kernel)
    taps = [-(-k // s) for k, s in zip(kernel, steps)]
    skipped = [b // s for b, s in zip(begin, steps)]  # places before the first that is wanted
    places = [floor_div(b + o + s - 1, s) - q for b, o, s, q in zip(begin, output, steps, skipped)]
    before = [t - 1 - q for t, q in zip(taps, skipped)]
    after = [p - n - b + t - 1 for p, n, b, t in zip(places, size, before, taps)]
    phases, lanes = prod(steps), target.lanes(node.dtype)
    if phases == 1 or is_open(after) or min(before + after) < 0 or 0 in (*size, *output, channels):
        return None
    first = [n - q * s for n, q, s in zip(begin, skipped, steps)]
    cropped = any(first) or any(p * s != o for p, s, o in zip(places, steps, output))
    if cropped and is_open(output):
        return None
    old = _in_lanes(outputs, lanes) * prod(kernel) * channels * prod(map(usual, size))
    new = _in_lanes(phases * outputs, lanes) * prod(taps) * channels + ELEMENT_COST * phases * outputs
    if new * prod(map(usual, places)) >= old:
        return None
    wide = np.zeros((*steps, outputs, channels, *taps), weight.dtype)
    for i, j in itertools.product(*map(range, steps)):
        part = weight[:, :, i :: steps[0], j :: steps[1]][:, :, ::-1, ::-1].swapaxes(0, 1)
        wide[i, j, ..., taps[0] - part.shape[2] :, taps[1] - part.shape[3] :] = part

    def build(b: RewriteBuilder) -> GraphNode:
        batch, *_ = data.shape or ()
        kernels = b.const(wide.reshape(phases * outputs, channels, *taps))
        value = b.call(op.nn.conv2d, data, kernels, padding=before + after)
        value = b.call(op.reshape, value, [batch, *steps, outputs, *(value.shape or ())[2:]])
        value = b.call(op.permute_dims, value, _BLOCKS)
        whole = [p * s for p, s in zip(places, steps)] if cropped else (node.shape or ())[2:]
        value = b.call(op.reshape, value, [batch, outputs, *whole])
        if cropped:
            last = [f + o for f, o in zip(first, output)]
            value = b.call(op.strided_slice, value, axes=[2, 3], begin=first, end=last)
        return value

    return build


def _output(node: GraphNode, size: Sequence[SizeLike], kernel: Sequence[int]) -> list[SizeLike]:
    """The rows and columns of a transposed convolution of ``size``."""
    if node.attr("output") is not None:
        return [int(n) for n in node.attr("output")]
    spans = ([int(n) for n in node.attr(name)] for name in ("strides", "dilations", "begin", "end"))
    return list(transposed_extents(size, kernel, *spans))


def _in_lanes(channels: int, lanes: int) -> int:
    return -(-channels // lanes) * lanes


def whole_blocks(node: GraphNode, target: Target) -> Build | None:
    """What builds the permutation ``node`` of a pixel shuffle for channels in an order that moves whole blocks, which
    the convolution before it then makes; None if it is no such permutation."""
    if node.op != "relax.permute_dims" or node.rank != 6 or list(permutation(node)) != _LANES or node.shape is None:
        return None
    split = node.inputs[0]
    if split.op != "relax.reshape" or split.uses != 1 or split.shape is None or split.inputs[0].rank != 4:
        return None
    batch, depth, *ways, height, width = split.shape  # of an open image the batch and the sizes may be expressions
    if not all(isinstance(n, int) for n in (depth, *ways)) or depth % target.lanes(node.dtype):
        return None
    image = split.inputs[0]
    if not _same_shape(image.shape, (batch, depth * prod(ways), height, width)):
        return None
    order = np.arange(depth * prod(ways)).reshape(depth, *ways).transpose(1, 2, 0).reshape(-1)
    ordered = _ordered(image, order)
    if ordered is None:
        return None

    def build(b: RewriteBuilder) -> GraphNode:
        return b.call(op.permute_dims, b.call(op.reshape, ordered(b), [batch, *ways, depth, height, width]), _BLOCKS)

    return build


def _same_shape(one: tuple[Expr, ...] | None, other: tuple[Expr, ...] | None) -> bool:
    """Whether both are known, and equal for all sizes."""
    if one is None or other is None or len(one) != len(other):
        return False
    return all(same_dim(a, b) for a, b in zip(one, other))


def _same_in_channels(value: GraphNode, image: GraphNode) -> bool:
    """Whether ``value``, stretched to ``image``, is the same in all of its channels: its axes are the image's last."""
    if value.shape is None:
        return False
    axis = 1 - (image.rank - len(value.shape))
    return axis < 0 or (isinstance(value.shape[axis], int) and value.shape[axis] == 1)


def _ordered(node: GraphNode, order: np.ndarray) -> Build | None:
    """Builds ``node`` with its channels in another order, by that of weights; None where it is no convolution with
    maps behind it that others do not read."""
    if node.uses != 1 or node.shape is None:
        return None
    if node.op in CONVOLUTIONS and weight_index(node) == 1 and int(node.attr("groups")) == 1:
        weight = np.ascontiguousarray(node.inputs[1].array[order])
        return lambda b: b.same(node, node.inputs[0], b.const(weight))
    if node.op == "relax.where" and _same_shape(node.inputs[1].shape, node.shape):  # rows that exist, or a number
        mask, value, other = node.inputs
        above = _ordered(value, order) if _same_in_channels(mask, node) and other.op == CONST else None
        if above is None or other.array.size != 1:
            return None
        masked = above
        return lambda b: b.same(node, mask, masked(b), other)
    if node.op not in UNARY and node.op not in BINARY:
        return None
    inputs: list[Build | np.ndarray] = []
    for value in node.inputs:
        if value.op != CONST:
            if not _same_shape(value.shape, node.shape) or (above := _ordered(value, order)) is None:
                return None
            inputs.append(above)
        elif value.array.size == 1:
            inputs.append(value.array)
        else:
            vector = per_channel(value.array, node.rank, len(order))
            if vector is None:
                return None
            inputs.append(vector[order].reshape(value.array.shape))
    if sum(callable(i) for i in inputs) != 1:
        return None
    return lambda b: b.same(node, *(i(b) if callable(i) else b.const(i) for i in inputs))
