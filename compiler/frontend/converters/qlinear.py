"""Operators on 8-bit numbers of ONNX Runtime's quantiser: back to numbers, the operation, and quantised again.

QLinearAdd(a, b)     becomes     quantize(dequantize(a) + dequantize(b))
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from ....schedules.words.refusal import Refusal
from ..node import OnnxNode, normal_axis
from ..registry import Converter, converts
from ..value import OnnxValue
from .elementwise import fitted
from .fused import MICROSOFT
from .matmul import product
from .pooling import average_pool, max_pool
from .quantize import (
    _centred,
    _quantized,
    _rows,
    _spread,
    by_own_range,
    dequantize_linear,
    qlinear_conv,
    quantize_linear,
)  # fmt: skip

R = relax.op

converts("QuantizeLinear", domain=MICROSOFT)(quantize_linear)
converts("DequantizeLinear", domain=MICROSOFT)(dequantize_linear)


@converts("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def binary(node: OnnxNode) -> OnnxValue:
    """Rounded behind the result's zero point, as the formulas say: a tie goes where the sum with it is even.

    (A - za)(B - zb) (sa sb / s) + z          (A - za)(sa / s) + (B - zb)(sb / s) + z
    """
    (a, a_scale), (b, b_scale) = _centred_floats(node, 0), _centred_floats(node, 3)
    scale = node.reshape(node.need(6), ())
    if node.operator == "QLinearMul":
        factor = node.do(R.divide, node.do(R.multiply, a_scale, b_scale), scale)
        quotient = node.do(R.multiply, node.do(R.multiply, a, b), factor)
    else:
        parts = ((a, node.do(R.divide, a_scale, scale)), (b, node.do(R.divide, b_scale, scale)))
        quotient = node.do(R.add, *(node.do(R.multiply, x, ratio) for x, ratio in parts))
    zero = node[7]
    if zero is None:
        return _quantized(node, quotient, None, "uint8")
    return _quantized(node, node.do(R.add, quotient, node.cast(node.reshape(zero, ()), "float32")), None, zero.dtype)


@converts("QLinearSigmoid", domain=MICROSOFT)
def sigmoid(node: OnnxNode) -> OnnxValue:
    return _stored(node, node.do(R.sigmoid, _real(node, 0)), 3)


@converts("QLinearLeakyRelu", domain=MICROSOFT)
def leaky_relu(node: OnnxNode) -> OnnxValue:
    return _stored(node, node.do(R.nn.leakyrelu, _real(node, 0), alpha=node.attr("alpha", 0.01)), 3)


@converts("QLinearSoftmax", domain=MICROSOFT)
def softmax(node: OnnxNode) -> OnnxValue:
    x = _real(node, 0)
    axis = normal_axis(node.attr("axis", -1), x.rank)
    if node.attr("opset", 13) < 13 and axis != x.rank - 1:
        raise Refusal("a softmax over several axes is not supported on quantised numbers")
    return _stored(node, node.do(R.nn.softmax, x, axis=axis), 3)


@converts("QLinearGlobalAveragePool", domain=MICROSOFT)
def global_average_pool(node: OnnxNode) -> OnnxValue:
    last = bool(node.attr("channels_last", 0))
    x = _real(node, 0)
    axes = list(range(1, x.rank - 1)) if last else list(range(2, x.rank))
    return _stored(node, node.do(R.mean, x, axis=axes, keepdims=True), 3)


@converts("QLinearReduceMean", domain=MICROSOFT)
def reduced_mean(node: OnnxNode) -> OnnxValue:
    x = _real(node, 0)
    axes = [normal_axis(a, x.rank) for a in node.attr("axes", None) or range(x.rank)]
    return _stored(node, node.do(R.mean, x, axis=axes, keepdims=bool(node.attr("keepdims", 1))), 3)


@converts("QLinearAveragePool", domain=MICROSOFT)
def window_average(node: OnnxNode) -> OnnxValue:
    return _stored(node, _moved(node, [_real(node, 0)], average_pool, bool(node.attr("channels_last", 0))), 3)


@converts("NhwcMaxPool", domain=MICROSOFT)
def window_maximum(node: OnnxNode) -> OnnxValue:
    return _moved(node, [node.need(0)], max_pool, True)


@converts("QLinearConv", domain=MICROSOFT)
def convolution(node: OnnxNode) -> OnnxValue:
    """ONNX's, with its channels last where it says so; weights have theirs where they always are."""
    return _moved(node, node.inputs, qlinear_conv, bool(node.attr("channels_last", 0)))


def _moved(node: OnnxNode, inputs: Sequence[OnnxValue | None], convert: Converter, last: bool) -> OnnxValue:
    """``convert`` on the first operand with its channels second, wherever they were."""
    x, *others = inputs
    if x is not None and last:
        x = node.transpose(x, [0, x.rank - 1, *range(1, x.rank - 1)])
    y = convert(node.on([x, *others]))
    assert isinstance(y, OnnxValue)
    return node.transpose(y, [0, *range(2, y.rank), 1]) if last else y


@converts("QLinearWhere", domain=MICROSOFT)
def where(node: OnnxNode) -> OnnxValue:
    chosen = fitted(node, [node.need(0), _real(node, 1), _real(node, 4)])
    return _stored(node, node.do(R.where, *chosen), 7)


@converts("QLinearConcat", domain=MICROSOFT)
def concat(node: OnnxNode) -> OnnxValue:
    parts = [_real(node, at) for at in range(2, len(node.inputs), 3)]
    axis = normal_axis(node.attr("axis"), parts[0].rank)
    return _stored(node, node.do(R.concat, parts, axis=axis), 0)


@converts("QGemm", domain=MICROSOFT)
def gemm(node: OnnxNode) -> OnnxValue:
    """A B + C in integers (C at the scale of the product); the result is real when it is given no scale."""
    a, b, c = node.need(0), node.need(3), node[6]
    total_a = _centred(node, a, node[2])
    total_b = _centred(node, b, node[5], rows=False if not node.attr("transB", 0) else None) if b.rank else b
    if node.attr("transB", 0) and (zero := node[5]) is not None and zero.size > 1:
        total_b = node.do(R.subtract, node.cast(b, "int32"), node.reshape(node.cast(zero, "int32"), (zero.size, 1)))
    total_a = node.transpose(total_a, [1, 0]) if node.attr("transA", 0) else total_a
    total_b = node.transpose(total_b, [1, 0]) if node.attr("transB", 0) else total_b
    total = product(node, total_a, total_b)
    if c is not None:
        total = node.do(R.add, total, c)
    scale = node.do(R.multiply, _flat(node, node.need(4)), node.reshape(node.need(1), ()))
    real = node.do(R.multiply, node.cast(total, "float32"), scale)
    if node.attr("alpha", 1.0) != 1.0:
        real = node.do(R.multiply, real, node.scalar(node.attr("alpha"), real))
    return real if node[7] is None else _stored(node, real, 7)


@converts("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(node: OnnxNode) -> OnnxValue:
    a, b = node.need(0), node.need(1)
    total = product(node, _centred(node, a, node[4], rows=True), _centred(node, b, node[5], rows=False))
    return _scaled(node, total, node.need(2), node.need(3), node[6], a)


@converts("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(node: OnnxNode) -> OnnxValue:
    """A quantised by its own range to unsigned bytes, times B."""
    x, b = node.need(0), node.need(1)
    a, scale, offset = by_own_range(node, x)
    total = product(node, node.do(R.subtract, node.cast(a, "int32"), node.cast(offset, "int32")),
                    _centred(node, b, node[3], rows=False))  # fmt: skip
    return _scaled(node, total, scale, node.need(2), node[4], a)


def _scaled(
    node: OnnxNode,
    total: OnnxValue,
    a_scale: OnnxValue,
    b_scale: OnnxValue,
    bias: OnnxValue | None,
    a: OnnxValue,
) -> OnnxValue:
    factor = node.do(R.multiply, _rows(node, a_scale, a, True), _flat(node, b_scale))
    y = node.do(R.multiply, node.cast(total, "float32"), factor)
    return y if bias is None else node.do(R.add, y, bias)


def _flat(node: OnnxNode, scale: OnnxValue) -> OnnxValue:
    """A scale of all columns, or one of each."""
    return node.reshape(scale, ()) if scale.size == 1 else scale


def _real(node: OnnxNode, at: int) -> OnnxValue:
    """Operands at, at + 1, at + 2 (numbers, scale, zero point) as real numbers."""
    if node.need(at).dtype == "float32":
        return node.need(at)
    return node.do(R.multiply, *_centred_floats(node, at))


def _centred_floats(node: OnnxNode, at: int) -> tuple[OnnxValue, OnnxValue]:
    """Operand ``at`` less its zero point, not scaled yet, and its scale."""
    x, scale, zero = node.need(at), node.need(at + 1), node[at + 2]
    centred = _centred(node, x, None if zero is None else _spread(node, zero, x, 1, 0))
    return node.cast(centred, "float32"), _spread(node, scale, x, 1, 0)


def _stored(node: OnnxNode, real: OnnxValue, at: int) -> OnnxValue:
    """Quantised by the scale and zero point at ``at``."""
    scale, zero = node.need(at), node[at + 1]
    target = "uint8" if zero is None else zero.dtype
    quotient = node.do(R.divide, real, _spread(node, scale, real, 1, 0))
    return _quantized(node, quotient, None if zero is None else _spread(node, zero, real, 1, 0), target)
