"""Fused operators of ONNX Runtime's transformer optimiser, written as what they were fused from.

FusedMatMul(a, b, transB=1, alpha=0.5)     becomes     0.5 * (a b')
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from ....schedules.words.refusal import Refusal
from ..implied import require_at_most
from ..node import OnnxNode, normal_axis
from ..registry import converts
from ..value import OnnxValue
from .conv import convolve, per_channel
from .matmul import gemm, product
from .normalization import inverse_deviation

R = relax.op
MICROSOFT = "com.microsoft"


# ---------------------------------------------------------------------- activations


@converts("Gelu", "BiasGelu", domain=MICROSOFT)
def bias_gelu(node: OnnxNode) -> OnnxValue:
    return node.do(R.nn.gelu, biased(node, node.need(0), node[1]))


@converts("FastGelu", domain=MICROSOFT)
def fast_gelu(node: OnnxNode) -> OnnxValue:
    return node.do(R.nn.gelu_tanh, biased(node, node.need(0), node[1]))


@converts("QuickGelu", domain=MICROSOFT)
def quick_gelu(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    return node.do(R.multiply, x, node.do(R.sigmoid, node.do(R.multiply, x, node.scalar(node.attr("alpha", 1.702), x))))


def biased(node: OnnxNode, x: OnnxValue, bias: OnnxValue | None) -> OnnxValue:
    return x if bias is None else node.do(R.add, x, bias)


def _activated(node: OnnxNode, x: OnnxValue, parameters: list[float]) -> OnnxValue:
    """The activation that a fused Conv or Gemm names, applied to its result."""
    kind = node.attr("activation", "")
    first, second = [*parameters, 0.0, 0.0][:2]
    if not kind:
        return x
    if kind == "Relu":
        return node.do(R.nn.relu, x)
    if kind == "LeakyRelu":
        return node.do(R.nn.leakyrelu, x, alpha=first)
    if kind == "Clip":
        return node.do(R.clip, x, min=first, max=second)
    if kind == "HardSigmoid":
        line = node.do(R.add, node.do(R.multiply, x, node.scalar(first, x)), node.scalar(second, x))
        return node.do(R.clip, line, min=0.0, max=1.0)
    functions = {"Sigmoid": R.sigmoid, "Tanh": R.tanh}
    if kind not in functions:
        raise Refusal(f"the fused activation '{kind}' is not supported")
    return node.do(functions[kind], x)


# ---------------------------------------------------------------------- products and convolutions


@converts("FusedConv", domain=MICROSOFT)
def fused_conv(node: OnnxNode) -> OnnxValue:
    """activation(conv(x, w) + bias + z)"""
    y = convolve(node, node.need(0), node.need(1))
    if (bias := node[2]) is not None:
        y = node.do(R.add, y, per_channel(node, bias, y.rank))
    return _activated(node, biased(node, y, node[3]), node.attr("activation_params", []))


@converts("FusedGemm", domain=MICROSOFT)
def fused_gemm(node: OnnxNode) -> OnnxValue:
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    return _activated(node, gemm(node), [node.attr(n, 0.0) for n in names])


@converts("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(node: OnnxNode) -> OnnxValue:
    """alpha * A B; transBatch moves the first axis before the last, trans swaps the last two."""
    a, b = (_turned(node, node.need(i), side) for i, side in enumerate("AB"))
    y = product(node, a, b)
    alpha = node.attr("alpha", 1.0)
    return y if alpha == 1.0 else node.do(R.multiply, y, node.scalar(alpha, y))


def _turned(node: OnnxNode, x: OnnxValue, side: str) -> OnnxValue:
    axes = list(range(x.rank))
    if node.attr(f"transBatch{side}", 0):
        axes = [*axes[1:-1], 0, axes[-1]]
    if node.attr(f"trans{side}", 0) and x.rank > 1:
        axes[-2:] = axes[:-3:-1]
    return node.transpose(x, axes)


@converts("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(node: OnnxNode) -> OnnxValue:
    """A W' with W stored in blocks of ``bits`` wide integers along K, unpacked here."""
    a, packed, scales = node.need(0), node.constant(1, "its weights"), node.constant(2, "its scales")
    zeros, groups = node.constant(3, "its zero points"), node[4]
    rows, columns = int(node.attr("N")), int(node.attr("K"))
    bits, block = int(node.attr("bits", 4)), int(node.attr("block_size"))
    if packed is None or scales is None or bits not in (2, 4, 8) or groups is not None:
        raise Refusal("only blocks of 2, 4 or 8 bit weights in the order of their rows are supported")
    if block < 1 or rows < 1 or columns < 1 or packed.size != rows * -(-columns // block) * (block * bits // 8):
        raise Refusal(f"its weights {list(packed.shape)} are not N={rows} rows of K={columns} in blocks of {block}")
    blocks = -(-columns // block)
    numbers = _unpacked(packed.reshape(rows, -1), bits)[:, : blocks * block].reshape(rows, blocks, block)
    if zeros is None:
        offset = np.full((rows, blocks), 1 << (bits - 1), "float32")
    elif zeros.dtype == np.uint8:
        offset = _unpacked(zeros.reshape(rows, -1), bits)[:, :blocks]
    else:
        offset = zeros.reshape(rows, blocks)
    real = (numbers - offset[..., None].astype("float32")) * scales.reshape(rows, blocks, 1).astype("float32")
    weights = np.ascontiguousarray(real.reshape(rows, -1)[:, :columns].T)
    return biased(node, product(node, a, node.const(weights, a.dtype)), node[5])


def _unpacked(bytes_: np.ndarray, bits: int) -> np.ndarray:
    """[rows, n] bytes -> [rows, n * 8 / bits] numbers, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (bytes_[..., None] >> shifts) & ((1 << bits) - 1)
    return parts.reshape(bytes_.shape[0], -1).astype("float32")


# ---------------------------------------------------------------------- normalisations


@converts("SimplifiedLayerNormalization")
def simplified_layer_normalization(node: OnnxNode) -> list[OnnxValue | None]:
    x = node.need(0)
    y, inverse = _root_mean_square(node, x, node.need(1), normal_axis(node.attr("axis", -1), x.rank), 1e-5)
    return [y, node.cast(inverse, "float32")]


@converts("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(node: OnnxNode) -> list[OnnxValue | None]:
    """layer_norm(x + skip + bias); the fourth output is that sum."""
    total = biased(node, node.do(R.add, node.need(0), node.need(1)), node[4])
    y = _layer_norm(node, total, node.need(2), node[3])
    mean = inverse = None
    if node.wants(1) or node.wants(2):
        mean = node.do(R.mean, total, axis=[-1], keepdims=True)
        inverse = inverse_deviation(node, total, [total.rank - 1], node.attr("epsilon", 1e-12))
    return [y, mean, inverse, total]


@converts("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(node: OnnxNode) -> list[OnnxValue | None]:
    total = biased(node, node.do(R.add, node.need(0), node.need(1)), node[3])
    y, inverse = _root_mean_square(node, total, node.need(2), total.rank - 1, 1e-12)
    return [y, None, inverse, total]


@converts("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(node: OnnxNode) -> list[OnnxValue | None]:
    """layer_norm(words[ids] + positions[0..] + segments[ids]); the second output counts each row's mask."""
    ids, segments, mask, places = node.need(0), node[1], node[7], node[8]
    batch, length = ids.shape
    table = node.need(3)
    total = node.own("halotile.gather", node.need(2), ids, axis=0)
    if places is None:
        require_at_most(length, table.shape[0], f"the rows of the table of positions {table}")
        total = node.do(R.add, total, node.slice(table, 0, 0, length))
    else:
        total = node.do(R.add, total, node.own("halotile.gather", table, places, axis=0))
    if segments is not None and node.has(4):
        total = node.do(R.add, total, node.own("halotile.gather", node.need(4), segments, axis=0))
    count = node.broadcast(node.const(np.zeros((), "int32")), (batch,))
    if mask is not None and node.wants(1):
        ones = node.cast(node.do(R.equal, mask, node.scalar(1, mask)), "int32")
        count = node.do(R.sum, ones, axis=[1], keepdims=False)
    return [_layer_norm(node, total, node.need(5), node.need(6)), count, total]


def _layer_norm(node: OnnxNode, x: OnnxValue, gamma: OnnxValue, beta: OnnxValue | None) -> OnnxValue:
    beta = node.const(np.zeros(gamma.shape, gamma.dtype)) if beta is None else beta
    return node.do(R.nn.layer_norm, x, gamma, beta, axes=[-1], epsilon=node.attr("epsilon", 1e-12))


def _root_mean_square(
    node: OnnxNode, x: OnnxValue, scale: OnnxValue, axis: int, epsilon: float
) -> tuple[OnnxValue, OnnxValue]:
    axes = list(range(axis, x.rank))
    square = node.do(R.mean, node.do(R.multiply, x, x), axis=axes, keepdims=True)
    root = node.do(R.sqrt, node.do(R.add, square, node.scalar(node.attr("epsilon", epsilon), x)))
    inverse = node.do(R.divide, node.scalar(1, root), root)
    return node.do(R.multiply, node.do(R.divide, x, root), scale), inverse
