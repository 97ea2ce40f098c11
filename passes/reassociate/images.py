"""Products and norms along the last axis of channels-last images, as convolutions and norms of images.

    matmul(permute_dims(x, [0, 2, 3, 1]), w)        ->    permute_dims(conv2d(x, w as 1x1), [0, 2, 3, 1])
    layer_norm(permute_dims(x, [0, 2, 3, 1]))       ->    permute_dims(standardise(x, axis 1) * w + b, [0, 2, 3, 1])

Networks of convolutions with linear layers and norms over channels between them (ConvNeXt and the like) turn each
image there and back. As images they stay in channel blocks: the transposes around them cancel each other, and tile
groups, all of whose members have rows and columns, run through them. Only the order of sums is another.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from ..simplify.graph import CONST, GraphNode
from ..simplify.identity import permutation
from ..simplify.norms import standardise
from ..simplify.rule import RewriteBuilder
from ..simplify.transposes import carries, grow

op = relax.op

CHANNELS_LAST, CHANNELS_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
FARTHEST = 64  # operators to look through for the transpose before


def as_image(node: GraphNode) -> Callable[[RewriteBuilder], GraphNode] | None:
    """What builds ``node``, a product with constants or a norm along the last axis of a channels-last image, on the
    image with channels first; None if it is neither, or if that adds as many transposes as it removes."""
    if not _along_channels(node):
        return None
    root = _turned(node)
    if root is None:
        return None
    region = grow(root, upwards=True, also=_along_channels)
    if node not in region.nodes or region.gain() <= 0:
        return None
    build = _product if node.op == "relax.matmul" else _norm

    def turned(b: RewriteBuilder) -> GraphNode:
        image = b.call(op.permute_dims, node.inputs[0], CHANNELS_FIRST)
        return b.call(op.permute_dims, build(b, node, image), CHANNELS_LAST)

    return turned


def _product(b: RewriteBuilder, node: GraphNode, image: GraphNode) -> GraphNode:
    weight = np.ascontiguousarray(node.inputs[1].array.T)[:, :, None, None]
    return b.call(op.nn.conv2d, image, b.const(weight))


def _norm(b: RewriteBuilder, node: GraphNode, image: GraphNode) -> GraphNode:
    y = b.call(standardise, image, axes=[1], epsilon=float(node.attr("epsilon")))
    gamma, beta = (w.array.reshape(-1, 1, 1) for w in node.inputs[1:3])
    if not np.all(gamma == 1):
        y = b.call(op.multiply, y, b.const(gamma))
    return b.call(op.add, y, b.const(beta)) if np.any(beta) else y


def _along_channels(node: GraphNode) -> bool:
    """True for a product of the last of four axes with constant weights, and a layer norm over it."""
    if not node.is_tensor or not node.static or node.rank != 4 or node.dtype != "float32":
        return False
    if any(i.shape is None or 0 in i.shape for i in (node, *node.inputs)):
        return False
    if node.op == "relax.matmul":
        x, weight = node.inputs
        return x.rank == 4 and weight.op == CONST and weight.rank == 2
    if node.op != "relax.nn.layer_norm" or [int(a) % 4 for a in node.attr("axes")] != [3]:
        return False
    return all(w.op == CONST and w.rank == 1 for w in node.inputs[1:3])


def _turned(node: GraphNode) -> GraphNode | None:
    """The transpose to channels last that ``node`` is computed behind."""
    seen, queue = {node}, [node.inputs[0]]
    while queue and len(seen) <= FARTHEST:
        current = queue.pop(0)
        if current.op == "relax.permute_dims":
            if permutation(current) == CHANNELS_LAST:
                return current
        elif current not in seen and (carries(current, 4) or _along_channels(current)):
            seen.add(current)
            queue += [i for i in current.inputs if i.op != CONST]
    return None
