"""Quantisation: to and from integers by a scale and a zero point, and the integer products."""

from __future__ import annotations

import numpy as np
from tvm import relax

from ....schedules.words.refusal import Refusal
from .. import narrow
from ..functions import dtype_name
from ..node import OnnxNode, normal_axis
from ..registry import converts
from ..value import PLAIN, OnnxValue
from . import whole
from .conv import convolve, per_channel
from .matmul import product

R = relax.op

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32")


@converts("QuantizeLinear", since=10)
def quantize_linear(node: OnnxNode) -> OnnxValue:
    """saturate(round_half_even(x / scale) + zero_point), the least number for NaN"""
    x, scale, zero = node.need(0), node.need(1), node[2]
    target = zero.dtype if zero is not None else (dtype_name(node.attr("output_dtype", 0)) or "uint8")
    if target not in (*narrow.INTEGERS, *narrow.FLOATS):
        _need_integer(target)
    precision = dtype_name(node.attr("precision", 0)) or scale.dtype
    axis, block = node.attr("axis", 1), node.attr("block_size", 0)
    spread = _spread(node, scale, x, axis, block)
    quotient = node.do(R.divide, node.cast(x, precision), node.cast(spread, precision))
    if target not in INTEGERS:
        return narrow.narrowed(node, _moved(node, quotient, zero, x, axis, block), target)
    offset = None if zero is None else _spread(node, zero, x, axis, block)
    known = spread.array is not None and (offset is None or offset.array is not None)
    if x.array is not None and known and precision in ("float32", "float64"):
        return _at_import(x.array, np.asarray(spread.array), offset, precision, target)
    return _quantized(node, quotient, offset, target)


def _at_import(x: np.ndarray, spread: np.ndarray, offset: OnnxValue | None, precision: str, target: str) -> OnnxValue:
    """Weights that a model quantises, as those trained for it do."""
    limits = np.iinfo(target)
    with np.errstate(all="ignore"):
        codes = np.rint((x.astype(precision) / spread.astype(precision)).astype("float32"))
        codes = codes.astype("float64")  # float32 has no 2**31 - 1
        if offset is not None and offset.array is not None:
            codes = codes + offset.array
        codes = np.fmin(np.fmax(codes, limits.min), limits.max)  # a NaN for the least
    return OnnxValue.of_array(codes.astype(target))


@converts("DequantizeLinear", since=10)
def dequantize_linear(node: OnnxNode) -> OnnxValue:
    """(x - zero_point) * scale"""
    x, scale, zero = node.need(0), node.need(1), node[2]
    target = dtype_name(node.attr("output_dtype", 0)) or scale.dtype
    axis, block = node.attr("axis", 1), node.attr("block_size", 0)
    if x.array is not None and x.dtype not in PLAIN:
        return _known(node, x.array, scale, zero, axis, block, target)
    if x.carried is not None:
        x = node.do(R.subtract, x.carried, _offset(node, zero, x, axis, block))
        return node.cast(node.do(R.multiply, x, node.cast(_spread(node, scale, x, axis, block), "float32")), target)
    _need_integer(x.dtype)
    wide = "float64" if target == "float64" else "float32"
    spread = node.cast(_spread(node, scale, x, axis, block), wide)
    offset = None
    if zero is not None and not (zero.array is not None and not zero.array.any()):
        offset = node.cast(_spread(node, zero, x, axis, block), "int32")
    if x.array is not None and spread.array is not None and (offset is None or offset.array is not None):
        if node.builder.limits.admit(8 * x.size, 8 * x.size, 0):  # in one step: several would take as much each
            whole = x.array.astype("int32")
            with np.errstate(over="ignore"):
                whole = whole if offset is None or offset.array is None else whole - offset.array
                return node.cast(OnnxValue.of_array(whole.astype(wide) * spread.array), target)
    x = node.cast(x, "int32")
    if offset is not None:
        x = _less(node, x, offset)
    return node.cast(node.do(R.multiply, node.cast(x, wide), spread), target)


def _offset(node: OnnxNode, zero: OnnxValue | None, x: OnnxValue, axis: int, block: int) -> OnnxValue:
    """The zero point in float32, of a type that only files have."""
    if zero is None:
        return node.const(np.zeros((), "float32"))
    if zero.array is None:
        raise Refusal(f"the quantised type {zero.dtype} is only supported with constant zero points")
    return _spread(node, OnnxValue.of_array(zero.array.astype("float32")), x, axis, block)


def _moved(
    node: OnnxNode, quotient: OnnxValue, zero: OnnxValue | None, x: OnnxValue, axis: int, block: int
) -> OnnxValue:
    """Whole numbers are rounded before the zero point is added."""
    if zero is None or zero.array is not None and not zero.array.any():
        return quotient
    whole = node.do(R.round, node.cast(quotient, "float32"))
    return node.do(R.add, whole, _offset(node, zero, x, axis, block))


def _known(
    node: OnnxNode, x: np.ndarray, scale: OnnxValue, zero: OnnxValue | None, axis: int, block: int, target: str
) -> OnnxValue:
    """Weights of a type that only files have (int4, float8 ...), turned into numbers at import."""
    numbers = OnnxValue.of_array(x.astype("float32"))
    spread = _spread(node, scale, numbers, axis, block).array
    offset: np.ndarray | None = np.zeros((), "float32")
    if zero is not None:
        known = None if zero.array is None else OnnxValue.of_array(zero.array.astype("float32"))
        offset = None if known is None else _spread(node, known, numbers, axis, block).array
    if spread is None or offset is None:
        raise Refusal(f"the quantised type {x.dtype.name} is only supported with constant scales and zero points")
    return node.const((x.astype("float32") - offset) * spread.astype("float32"), target)


@converts("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(node: OnnxNode) -> list[OnnxValue | None]:
    y, scale, offset = by_own_range(node, node.need(0))
    return [y, scale, node.cast(offset, "uint8")]


def by_own_range(node: OnnxNode, x: OnnxValue) -> tuple[OnnxValue, OnnxValue, OnnxValue]:
    """x as unsigned bytes of its own range, which holds zero; their scale, and their zero point in float32.

    Where x is zero throughout the scale is 1, as ONNX Runtime has it (ONNX's function body divides zero by zero). A NaN
    in x makes the scale one, and everything else 0.
    """
    zero, axes = node.scalar(0, x), list(range(x.rank))
    low = node.do(R.minimum, node.do(R.min, x, axis=axes), zero)
    high = node.do(R.maximum, node.do(R.max, x, axis=axes), zero)
    scale = node.do(R.divide, node.do(R.subtract, high, low), node.scalar(255, x))
    scale = node.do(R.where, node.do(R.equal, high, low), node.scalar(1, x), scale)
    place = node.do(R.divide, node.do(R.subtract, zero, low), scale)
    offset = narrow.saturated(node, node.do(R.round, place), "uint8", "float32")
    return _quantized(node, node.do(R.divide, x, scale), offset, "uint8"), scale, offset


@converts("MatMulInteger", since=10)
def matmul_integer(node: OnnxNode) -> OnnxValue:
    return _product(node, node.need(0), node[2], node.need(1), node[3])


@converts("ConvInteger", since=10)
def conv_integer(node: OnnxNode) -> OnnxValue:
    x, w = node.need(0), node.need(1)
    zero = node[3]
    if zero is not None and zero.rank == 1 and zero.size > 1:
        zero = node.reshape(zero, (zero.size,) + (1,) * (w.rank - 1))
    return _convolution(node, x, node[2], w, zero)


@converts("QLinearMatMul", since=10)
def qlinear_matmul(node: OnnxNode) -> OnnxValue:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (node.need(i) for i in range(8))
    total = _product(node, a, a_zero, b, b_zero)
    factor = node.do(
        R.multiply,
        node.cast(_rows(node, a_scale, a, True), "float32"),
        node.cast(_rows(node, b_scale, b, False), "float32"),
    )
    factor = node.do(R.divide, factor, node.cast(_rows(node, y_scale, total, True), "float32"))
    quotient = node.do(R.multiply, node.cast(total, "float32"), factor)  # in this order a tie rounds as elsewhere
    return _quantized(node, quotient, _rows(node, y_zero, total, True), y_zero.dtype)


@converts("QLinearConv", since=10)
def qlinear_conv(node: OnnxNode) -> OnnxValue:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (node.need(i) for i in range(8))
    bias = node[8]
    per_output = w_zero
    if w_zero.rank == 1 and w_zero.size > 1:
        per_output = node.reshape(w_zero, (w_zero.size,) + (1,) * (w.rank - 1))
    total = _convolution(node, x, x_zero, w, per_output)
    if bias is not None:
        total = node.do(R.add, total, per_channel(node, bias, total.rank))
    scale = per_channel(node, w_scale, total.rank) if w_scale.size > 1 else node.reshape(w_scale, ())
    factor = node.do(R.multiply, scale, node.reshape(x_scale, ()))
    factor = node.do(R.divide, factor, node.reshape(y_scale, ()))
    scaled = node.do(R.multiply, node.cast(total, "float32"), node.cast(factor, "float32"))
    return _quantized(node, scaled, node.reshape(y_zero, ()), y_zero.dtype)


def _product(
    node: OnnxNode, a: OnnxValue, a_zero: OnnxValue | None, b: OnnxValue, b_zero: OnnxValue | None
) -> OnnxValue:
    """The sums of a product in int32."""
    right, ranges = _centred(node, b, b_zero, rows=False), None
    if right.array is not None and right.rank > 1 and a.array is None and a.rank > 1:
        depth = right.shape[-2]
        ranges = whole.cuts(a.dtype, np.moveaxis(right.array, -2, 0).reshape(depth, 1, -1))
    if ranges is None:
        return product(node, _centred(node, a, a_zero, rows=True), right)
    left = _centred(node, a, a_zero, rows=True, wide="float32")
    return whole.summed(node, product, left, right, (a.rank - 1, right.rank - 2), ranges)


def _convolution(
    node: OnnxNode, x: OnnxValue, x_zero: OnnxValue | None, w: OnnxValue, w_zero: OnnxValue | None
) -> OnnxValue:
    """The sums of a convolution in int32."""
    weights, ranges = _centred(node, w, w_zero), None
    if weights.array is not None and weights.rank > 2 and x.array is None:
        outputs, depth = weights.shape[:2]
        ranges = whole.cuts(x.dtype, weights.array.reshape(outputs, depth, -1).transpose(1, 2, 0))
    if ranges is None or len(ranges) > 1 and x.shape[1:2] != w.shape[1:2]:
        return convolve(node, _centred(node, x, x_zero), weights)
    return whole.summed(node, convolve, _centred(node, x, x_zero, wide="float32"), weights, (1, 1), ranges)


def _need_integer(dtype: str) -> None:
    if dtype not in INTEGERS:
        raise Refusal(f"the quantised type {dtype} is not supported")


def _quantized(node: OnnxNode, quotient: OnnxValue, zero: OnnxValue | None, target: str) -> OnnxValue:
    _need_integer(target)
    wide = "float64" if target == "int32" else "float32"  # float32 has no 2**31 - 1
    value = node.cast(node.do(R.round, node.cast(quotient, "float32")), wide)
    if zero is not None:
        value = node.do(R.add, value, node.cast(zero, wide))
    return narrow.saturated(node, value, target, target)


def _centred(
    node: OnnxNode, x: OnnxValue, zero: OnnxValue | None, rows: bool | None = None, wide: str = "int32"
) -> OnnxValue:
    """x - zero_point in ``wide``; for a matrix, a vector of zero points is one per row or per column."""
    _need_integer(x.dtype)
    x = node.cast(x, wide)
    if zero is None or (zero.array is not None and not zero.array.any()):
        return x
    if rows is not None:
        zero = _rows(node, zero, x, rows)
    elif zero.size == 1:
        zero = node.reshape(zero, ())
    return _less(node, x, node.cast(zero, wide))


def _less(node: OnnxNode, x: OnnxValue, zero: OnnxValue) -> OnnxValue:
    """x - zero, at import where both are known: what kernels pack has to be."""
    if x.array is not None and zero.array is not None:
        return OnnxValue.of_array(x.array - zero.array)
    return node.do(R.subtract, x, zero)


def _rows(node: OnnxNode, vector: OnnxValue, matrix: OnnxValue, rows: bool) -> OnnxValue:
    """A scale or zero point so that it broadcasts over a matrix: a scalar, one per row, or one per column."""
    if vector.size == 1:
        return node.reshape(vector, ())
    if vector.rank == 1 and rows and matrix.rank > 1:
        return node.reshape(vector, (vector.size, 1))
    return vector


def _spread(node: OnnxNode, scale: OnnxValue, x: OnnxValue, axis: int, block: int) -> OnnxValue:
    """A scale that broadcasts over x: a scalar, one per position of ``axis``, or one per block of it."""
    if scale.size == 1 and scale.rank <= 1:
        return node.reshape(scale, ())
    axis = normal_axis(axis, x.rank)
    if scale.rank == 1:
        return node.reshape(scale, [scale.size if a == axis else 1 for a in range(x.rank)])
    if not block:
        raise Refusal(f"a scale {scale} without block_size does not fit {x}")
    if scale.shape[axis] != -(-x.shape[axis] // block):
        raise Refusal(f"a scale {scale} in blocks of {block} does not fit {x}")
    if scale.array is not None:
        wide = np.repeat(scale.array, block, axis)
        return node.const(np.ascontiguousarray(wide.take(np.arange(x.shape[axis]), axis)))
    factors = [block if a == axis else 1 for a in range(x.rank)]
    return node.slice(node.own("halotile.upsample", scale, factors=factors), axis, 0, x.shape[axis])
