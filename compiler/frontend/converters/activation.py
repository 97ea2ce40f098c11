"""Activations: elementwise functions of one tensor."""

from __future__ import annotations

import math

from tvm import relax

from ..node import OnnxNode, normal_axis
from ..registry import converts
from ..value import OnnxValue

R = relax.op


@converts("Relu")
def relu(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    return node.do(R.maximum, x, node.scalar(0, x)) if x.is_integer else node.do(R.nn.relu, x)


@converts("LeakyRelu")
def leaky_relu(node: OnnxNode) -> OnnxValue:
    return node.do(R.nn.leakyrelu, node.need(0), alpha=node.attr("alpha", 0.01))


@converts("PRelu")
def prelu(node: OnnxNode) -> OnnxValue:
    """x where x >= 0, else slope * x; the slope broadcasts one way. Opset < 7: one slope per channel."""
    x, slope = node.need(0), node.need(1)
    if node.opset < 7 and slope.rank == 1 and x.rank > 1 and slope.size > 1:
        slope = node.reshape(slope, (slope.size,) + (1,) * (x.rank - 2))
    negative = node.do(R.multiply, x, slope)
    return node.do(R.where, node.do(R.less, x, node.scalar(0, x)), negative, x)


@converts("Elu")
def elu(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    return _below_zero(node, x, _times(node, _expm1(node, x), node.attr("alpha", 1.0)))


@converts("Celu", since=12)
def celu(node: OnnxNode) -> OnnxValue:
    x, alpha = node.need(0), node.attr("alpha", 1.0)
    return _below_zero(node, x, _times(node, _expm1(node, _times(node, x, 1.0 / alpha)), alpha))


@converts("Selu")
def selu(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    alpha = node.attr("alpha", 1.67326319217681884765625)
    gamma = node.attr("gamma", 1.05070102214813232421875)
    if node.opset < 6:
        alpha, gamma = node.attr("alpha", 1.6732), node.attr("gamma", 1.0507)
    return _times(node, _below_zero(node, x, _times(node, _expm1(node, x), alpha)), gamma)


@converts("ThresholdedRelu")
def thresholded_relu(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    above = node.do(R.greater, x, node.scalar(node.attr("alpha", 1.0), x))
    return node.do(R.where, above, x, node.scalar(0, x))


@converts("HardSigmoid")
def hard_sigmoid(node: OnnxNode) -> OnnxValue:
    return _hard_sigmoid(node, node.need(0), node.attr("alpha", 0.2), node.attr("beta", 0.5))


@converts("HardSwish", since=14)
def hard_swish(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    return node.do(R.multiply, x, _hard_sigmoid(node, x, 1.0 / 6.0, 0.5))


@converts("Softplus")
def softplus(node: OnnxNode) -> OnnxValue:
    """log(1 + e^x), written as max(x, 0) + log1p(e^-|x|), which neither overflows nor cancels."""
    return _softplus(node, node.need(0))


@converts("Softsign")
def softsign(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    return node.do(R.divide, x, node.do(R.add, node.do(R.abs, x), node.scalar(1, x)))


@converts("Mish", since=18)
def mish(node: OnnxNode) -> OnnxValue:
    return node.own("halotile.mish", node.need(0))


@converts("Swish", since=24)
def swish(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    return node.do(R.multiply, x, node.do(R.sigmoid, _times(node, x, node.attr("alpha", 1.0))))


@converts("Gelu", since=20)
def gelu(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    exact = node.attr("approximate", "none") == "none"
    return node.in_float32(lambda v: node.do(R.nn.gelu if exact else R.nn.gelu_tanh, v), x)


@converts("Shrink", since=9)
def shrink(node: OnnxNode) -> OnnxValue:
    """x + bias below -lambd, x - bias above lambd, else zero: in this order, where a negative lambd makes both true."""
    x = node.need(0)
    bias, lambd = node.attr("bias", 0.0), node.attr("lambd", 0.5)
    dtype = x.dtype
    x = node.cast(x, "float32") if x.is_integer else x
    high = node.do(R.where, node.do(R.greater, x, node.scalar(lambd, x)), _plus(node, x, -bias), node.scalar(0, x))
    result = node.do(R.where, node.do(R.less, x, node.scalar(-lambd, x)), _plus(node, x, bias), high)
    return node.cast(result, dtype)


@converts("Softmax", "LogSoftmax", since=13)
def softmax(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    return _softmax(node, x, normal_axis(node.attr("axis", -1), x.rank))


@converts("Softmax", "LogSoftmax", since=1)
def flattening_softmax(node: OnnxNode) -> OnnxValue:
    """Before opset 13 the tensor is seen as 2-D, split at ``axis``, and normalised over all of the second part."""
    x = node.need(0)
    axis = normal_axis(node.attr("axis", 1), x.rank)
    if axis == x.rank - 1:
        return _softmax(node, x, axis)
    flat = node.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    return node.reshape(_softmax(node, flat, 1), x.shape)


@converts("Hardmax", since=1)
def hardmax(node: OnnxNode) -> OnnxValue:
    """One at the first largest element along the axis, zero elsewhere."""
    x = node.need(0)
    shape = x.shape
    if node.opset < 13:
        axis = normal_axis(node.attr("axis", 1), x.rank)
        x = node.reshape(x, (math.prod(shape[:axis]), math.prod(shape[axis:])))
        axis = 1
    else:
        axis = normal_axis(node.attr("axis", -1), x.rank)
    first = node.own("halotile.argmax", x, axis=axis, keepdims=True, last=False)
    positions = node.reshape(
        node.counting(x.shape[axis]), [d if a == axis else 1 for a, d in enumerate(x.shape)]
    )
    hit = node.do(R.equal, first, positions)
    return node.reshape(node.cast(hit, x.dtype), shape)


def _softmax(node: OnnxNode, x: OnnxValue, axis: int) -> OnnxValue:
    function = R.nn.softmax if node.operator == "Softmax" else R.nn.log_softmax
    return node.in_float32(lambda v: node.do(function, v, axis=axis), x)


def _hard_sigmoid(node: OnnxNode, x: OnnxValue, alpha: float, beta: float) -> OnnxValue:
    line = _plus(node, _times(node, x, alpha), beta)
    if x.dtype == "float32":
        return node.do(R.clip, line, min=0.0, max=1.0)
    return node.do(R.minimum, node.do(R.maximum, line, node.scalar(0, x)), node.scalar(1, x))


def _softplus(node: OnnxNode, x: OnnxValue) -> OnnxValue:
    return node.own("halotile.softplus", x)


def _expm1(node: OnnxNode, x: OnnxValue) -> OnnxValue:
    return node.own("halotile.libm", x, function="expm1")


def _below_zero(node: OnnxNode, x: OnnxValue, negative: OnnxValue) -> OnnxValue:
    return node.do(R.where, node.do(R.less, x, node.scalar(0, x)), negative, x)


def _times(node: OnnxNode, x: OnnxValue, factor: float) -> OnnxValue:
    return x if factor == 1.0 else node.do(R.multiply, x, node.scalar(factor, x))


def _plus(node: OnnxNode, x: OnnxValue, term: float) -> OnnxValue:
    return x if term == 0.0 else node.do(R.add, x, node.scalar(term, x))
