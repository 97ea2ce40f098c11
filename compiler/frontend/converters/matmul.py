"""Products of matrices: MatMul and Gemm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import relax

from ....schedules.words.dims import Dim, is_open
from ....schedules.words.refusal import Refusal
from ..implied import broadcast, require_equal
from ..node import OnnxNode
from ..registry import converts
from ..value import OnnxValue

if TYPE_CHECKING:
    from ....schedules.words.size_like import SizeLike

R = relax.op


@converts("MatMul")
def matmul(node: OnnxNode) -> OnnxValue:
    return node.in_float32(lambda a, b: product(node, a, b), node.need(0), node.need(1))


def product(node: OnnxNode, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    inner = b.shape[-2] if b.rank > 1 else b.shape[0]
    if a.rank and b.rank and is_open((a.shape[-1], inner)):
        require_equal(a.shape[-1], inner, f"the inner dimensions of {a} and {b}")
    if not a.rank or not b.rank or a.shape[-1] != inner:
        raise Refusal(f"its operands {a} and {b} do not fit together")
    if a.rank > 1 and b.rank > 1 and is_open([*a.shape, *b.shape]):
        batch = broadcast(a.shape[:-2], b.shape[:-2])
        a, b = (_in_batch(node, v, batch) for v in (a, b))
        return node.shaped([*batch, a.shape[-2], b.shape[-1]], R.matmul, a, b)
    return node.do(R.matmul, a, b)


def _in_batch(node: OnnxNode, x: OnnxValue, batch: Sequence[SizeLike]) -> OnnxValue:
    """A stack of matrices whose open dims are as long as the fixed ones of ``batch`` that they are, or one of."""
    own = batch[len(batch) - (x.rank - 2) :]
    stack = [t if isinstance(d, Dim) and isinstance(t, int) else d for d, t in zip(x.shape, own)]
    return node.broadcast(x, [*stack, *x.shape[-2:]])


@converts("Gemm")
def gemm(node: OnnxNode) -> OnnxValue:
    """alpha * A' B' + beta * C; C broadcasts one way to the product."""
    a, b, c = node.need(0), node.need(1), node[2]
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    if node.opset < 7 and a.rank > 2:
        a = node.reshape(a, (a.shape[0], math.prod(a.shape[1:])))
    if a.rank != 2 or b.rank != 2:
        raise Refusal(f"its operands {a} and {b} are not matrices")

    def multiply(a: OnnxValue, b: OnnxValue, c: OnnxValue | None) -> OnnxValue:
        a = node.transpose(a, [1, 0]) if node.attr("transA", 0) else a
        b = node.transpose(b, [1, 0]) if node.attr("transB", 0) else b
        result = product(node, a, b)
        if alpha != 1.0:
            result = node.do(R.multiply, result, node.scalar(alpha, result))
        if c is None or beta == 0.0:
            return result
        if c.array is not None and beta != 1.0:
            c = node.const((c.array * beta).astype(c.dtype))
        elif beta != 1.0:
            c = node.do(R.multiply, c, node.scalar(beta, c))
        return node.do(R.add, result, c)

    return node.in_float32(multiply, a, b, c)
