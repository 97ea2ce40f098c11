"""Affine chains fold into the weights of the convolution or matrix product before them, or after them, or into one."""

from __future__ import annotations

import numpy as np
from tvm import relax

from .affine import CANCELLATION, Affine, extreme, read_affine
from .anchors import ANCHORS, scale_input, scale_output, shift_input, weight_index
from .graph import ITEM, Graph, GraphNode
from .patterns import is_float, rounded
from .rule import STRICT, Declined, Rewrite, RewriteBuilder, Rule

_LINKS = frozenset(("relax.add", "relax.subtract", "relax.multiply", "relax.divide", "relax.negative", ITEM))


def _compact(array: np.ndarray) -> np.ndarray:
    """The same constant without axes along which it does not vary, where that shows cheaply."""
    if array.size > 1 and np.all(array == array.reshape(-1)[0]):
        return array.reshape(-1)[0].reshape(())
    return array


def _fits(array: np.ndarray, node: GraphNode, graph: Graph) -> bool:
    """Whether ``array`` broadcasts against ``node`` without enlarging it."""
    shape = node.shape
    if shape is None or array.ndim > len(shape):
        return False
    tail = shape[len(shape) - array.ndim :]
    return all(a == 1 or graph.same_dim(a, d) for a, d in zip(array.shape, tail))


def emit_affine(b: RewriteBuilder, x: GraphNode, scale: np.ndarray | None, shift: np.ndarray | None) -> GraphNode:
    """``x * scale + shift`` with constants already in the dtype of ``x``; None leaves the step out."""
    y = x if scale is None else b.call(relax.op.multiply, x, b.const(scale))
    return y if shift is None else b.call(relax.op.add, y, b.const(shift))


class FoldAffineIntoWeights(Rule):
    """affine(anchor(x, W))    ->    anchor(x, scale * W) + shift

    The anchor is a convolution, transposed convolution or matrix product with constant weights that nobody else reads;
    the affine chain is any of add, subtract, multiply, divide by constants, negation, BatchNorm. The scale may vary
    along the output channels (columns of the product) only, or along what the weights have; folded weights must be
    finite and normal numbers of the dtype. Integers are left alone.
    """

    name = "fold-affine-into-weights"
    family = "folds"
    modes = STRICT
    roots = _LINKS

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        chain = read_affine(node, graph) if node.is_tensor else None
        if chain is None or not chain.links or not chain.has_scale:
            return None
        anchor = chain.base
        if anchor.op not in ANCHORS or weight_index(anchor) is None:
            return None
        if not is_float(anchor):
            return Declined("integer products wrap")
        objection = chain.objection or extreme(chain.scale)
        if objection:
            return Declined(objection)
        if anchor.uses != 1:
            return Declined("the product has other readers")
        if not _fits(chain.shift, anchor, graph):
            return None
        index = weight_index(anchor) or 0
        folded = scale_output(anchor, chain.scale)
        if isinstance(folded, str):
            return Declined(folded)
        dtype = anchor.array_dtype
        weight = rounded(folded, dtype)
        shift = rounded(chain.shift, dtype)
        if weight is None or shift is None:
            return Declined(f"a folded weight overflows or vanishes in {anchor.dtype}")

        def build(b: RewriteBuilder) -> GraphNode:
            inputs = list(anchor.inputs)
            inputs[index] = b.const(weight)
            return emit_affine(b, b.same(anchor, *inputs), None, shift if chain.has_shift else None)

        return Rewrite(build)


class MergeAffine(Rule):
    """mul and add by constants, two or more in a row    ->    at most one multiply and one add

        (x + a) * b - c          ->    x * b + (a * b - c)
        batch_norm(x)            ->    x * scale + shift
        (a @ W + b1) + b2        ->    a @ W + (b1 + b2)

    Declined where a factor is so extreme that an overflow could move, or where constants cancel. Integers wrap, so
    the same holds for them exactly, division excepted.
    """

    name = "merge-affine"
    family = "algebra"
    modes = STRICT
    roots = _LINKS

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        chain = read_affine(node, graph) if node.is_tensor else None
        if chain is None or len(chain.links) < 2:
            return None
        needed = int(chain.has_scale) + int(chain.has_shift)
        if needed >= len(chain.links) and ITEM not in {n.op for n in chain.links}:
            return None
        if chain.objection:
            return Declined(chain.objection)
        if not _fits(chain.scale, chain.base, graph) or not _fits(chain.shift, chain.base, graph):
            return None
        if not needed and not is_float(node):
            return Rewrite(lambda b: chain.base)
        dtype = node.array_dtype
        scale, shift = rounded(_compact(chain.scale), dtype), rounded(_compact(chain.shift), dtype)
        if scale is None or shift is None:
            return Declined(f"a merged constant overflows or vanishes in {node.dtype}")
        return Rewrite(
            lambda b: emit_affine(
                b, chain.base, scale if chain.has_scale else None, shift if chain.has_shift else None
            )
        )


class FoldInputAffine(Rule):
    """anchor(scale * x + shift, W) + b    ->    anchor(x, scale * W) + (b + bias of shift)

    ``scale`` varies along the input channels (rows of W) only. A shift needs an unpadded convolution, because the
    zeros of the padding are not shifted; then it becomes a bias. In front of a padded one, only the scale goes:
    anchor(x + shift / scale, scale * W). Tried at the anchor and at the add after it.
    """

    name = "fold-input-affine"
    family = "folds"
    modes = STRICT
    roots = ANCHORS | {"relax.add"}

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        if node.op == "relax.add":
            outer = read_affine(node, graph)
            anchor = outer.base
            if (
                not outer.links
                or outer.has_scale
                or anchor.op not in ANCHORS
                or anchor.uses != 1
                or outer.objection
            ):
                return None
            after: np.ndarray = outer.shift
        else:
            anchor, after = node, np.zeros(())
        index = weight_index(anchor)
        if index is None or not is_float(anchor):
            return None
        source = anchor.inputs[1 - index]
        if source.uses != 1:
            return None
        chain = read_affine(source, graph)
        if not chain.links:
            return None
        objection = chain.objection or extreme(chain.scale)
        if objection:
            return Declined(objection)
        bias = shift_input(anchor, chain.shift) if chain.has_shift else np.zeros(())
        if isinstance(bias, str):
            return self._scale_only(anchor, index, chain, bias, graph) if anchor is node else Declined(bias)
        return self._fold(anchor, index, chain.base, chain.scale, np.asarray(after + bias), graph)

    @staticmethod
    def _scale_only(anchor: GraphNode, index: int, chain: Affine, why: str, graph: Graph) -> Rewrite | Declined | None:
        """Leaves the shift in front, divided by the scale, so that zero padding is still zero."""
        if not chain.has_scale or not np.all(chain.scale):
            return Declined(why)
        weight, dtype = scale_input(anchor, chain.scale), anchor.array_dtype
        shift = chain.shift / chain.scale
        if isinstance(weight, str):
            return Declined(weight)
        largest = float(np.max(np.abs(chain.shift), initial=0))
        if float(np.max(np.abs(shift), initial=0)) > CANCELLATION * max(1.0, largest):
            return Declined("the shift would be so large that x is lost in it")
        narrow_weight, narrow_shift = rounded(weight, dtype), rounded(_compact(shift), dtype)
        if narrow_weight is None or narrow_shift is None or not _fits(shift, chain.base, graph):
            return Declined(why)

        def build(b: RewriteBuilder) -> GraphNode:
            inputs = list(anchor.inputs)
            inputs[index] = b.const(narrow_weight)
            inputs[1 - index] = emit_affine(b, chain.base, None, narrow_shift)
            return b.same(anchor, *inputs)

        return Rewrite(build)

    @staticmethod
    def _fold(
        anchor: GraphNode, index: int, base: GraphNode, scale: np.ndarray, shift: np.ndarray, graph: Graph
    ) -> Rewrite | Declined | None:
        weight = scale_input(anchor, scale)
        if isinstance(weight, str):
            return Declined(weight)
        if not _fits(shift, anchor, graph):
            return Declined("the shift would not broadcast against the result")
        dtype = anchor.array_dtype
        narrow_weight, narrow_shift = rounded(weight, dtype), rounded(shift, dtype)
        if narrow_weight is None or narrow_shift is None:
            return Declined(f"a folded weight overflows or vanishes in {anchor.dtype}")

        def build(b: RewriteBuilder) -> GraphNode:
            inputs = list(anchor.inputs)
            inputs[index], inputs[1 - index] = b.const(narrow_weight), base
            return emit_affine(b, b.same(anchor, *inputs), None, narrow_shift if np.any(shift != 0) else None)

        return Rewrite(build)
