"""Images as sequences of tokens, and back: turned while rows and columns are axes of their own.

    permute_dims(reshape(x, [N, C, H W]), [0, 2, 1])    ->    reshape(permute_dims(x, [0, 2, 3, 1]), [N, H W, C])
    reshape(permute_dims(t, [0, 2, 1]), [N, C, H, W])   ->    permute_dims(reshape(t, [N, H, W, C]), [0, 3, 1, 2])

    f(reshape(permute_dims(x, [0, 2, 3, 1]), ...))      ->    reshape(permute_dims(f(x), [0, 2, 3, 1]), ...)

Transformers with convolutions (ViT, SegFormer, PVT and the like) go there and back so. An image lies in channel blocks:
a reshape of it is a copy to plain memory, with channels apart, and the transpose another. Turned first, a vector of
channels is copied as it lies, once, and the reshape is none; what is computed of single elements belongs to the
convolution. Every element stays what it is.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax

from ...schedules.words.sizes import dim_of, surely
from ..simplify.graph import GraphNode
from ..simplify.identity import RESHAPES, permutation
from ..simplify.patterns import UNARY
from ..simplify.rule import RewriteBuilder
from .images import CHANNELS_FIRST, CHANNELS_LAST
from .near_convolutions import for_convolution, of_convolution

op = relax.op

TURNED = [0, 2, 1]


def tokens_of_image(node: GraphNode) -> Callable[[RewriteBuilder], GraphNode] | None:
    """What builds ``node``, the transposed pixels of a convolution's image, with the transpose first."""
    if not _turns(node):
        return None
    merged = node.inputs[0]
    if merged.op not in RESHAPES or not _alone(merged) or node.shape is None:
        return None
    image = merged.inputs[0]
    if image.rank != 4 or not _same(image, merged, [(0, 0), (1, 1)]) or not of_convolution(image):
        return None
    shape = list(node.shape)
    return lambda b: b.call(op.reshape, b.call(op.permute_dims, image, CHANNELS_LAST), shape)


def before_tokens(node: GraphNode) -> Callable[[RewriteBuilder], GraphNode] | None:
    """What builds ``node``, a function of single pixels of a convolution's image behind its transpose, before it."""
    if node.op not in UNARY or len(node.inputs) != 1 or node.shape is None:
        return None
    merged = node.inputs[0]
    if merged.op not in RESHAPES or not _alone(merged):
        return None
    turned = merged.inputs[0]
    if turned.op != "relax.permute_dims" or turned.rank != 4 or permutation(turned) != CHANNELS_LAST:
        return None
    image = turned.inputs[0]
    if not _alone(turned) or not of_convolution(image):
        return None
    shape = list(node.shape)
    return lambda b: b.call(op.reshape, b.call(op.permute_dims, b.same(node, image), CHANNELS_LAST), shape)


def image_of_tokens(node: GraphNode) -> Callable[[RewriteBuilder], GraphNode] | None:
    """What builds ``node``, an image for a convolution of transposed tokens, with the transpose last."""
    if node.op not in RESHAPES or node.rank != 4 or node.shape is None:
        return None
    turned = node.inputs[0]
    if not _turns(turned) or not _alone(turned):
        return None
    tokens = turned.inputs[0]
    if not _same(tokens, node, [(0, 0), (2, 1)]) or not for_convolution(node):
        return None
    shape = [node.shape[axis] for axis in CHANNELS_LAST]
    return lambda b: b.call(op.permute_dims, b.call(op.reshape, tokens, shape), CHANNELS_FIRST)


def _alone(node: GraphNode) -> bool:
    """True if one other node reads it, and nothing else."""
    return node.uses == 1 and not node.outputs


def _turns(node: GraphNode) -> bool:
    return node.op == "relax.permute_dims" and node.rank == 3 and permutation(node) == TURNED


def _same(one: GraphNode, other: GraphNode, axes: list[tuple[int, int]]) -> bool:
    """True if the first node's axis of each pair is surely as long as the second one's."""
    if one.shape is None or other.shape is None:
        return False
    pairs = [(one.shape[a], other.shape[b]) for a, b in axes]
    return surely(lambda: all(dim_of(own) == dim_of(its) for own, its in pairs))
