"""Reductions over axes, with the axes as an attribute or an operand."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm import relax

from ..node import OnnxNode, normal_axes
from ..registry import converts
from ..value import OnnxValue

R = relax.op
Reduce = Callable[[OnnxNode, OnnxValue, list[int], bool], OnnxValue]


def _sum(node: OnnxNode, x: OnnxValue, axes: list[int], keep: bool) -> OnnxValue:
    return node.do(R.sum, x, axis=axes, keepdims=keep)


def _mean(node: OnnxNode, x: OnnxValue, axes: list[int], keep: bool) -> OnnxValue:
    """The mean of nothing, which the standard leaves open, is 0 as in ONNX Runtime."""
    if any(isinstance(x.shape[a], int) and x.shape[a] == 0 for a in axes):
        return _sum(node, x, axes, keep)
    if x.is_float:
        return node.do(R.mean, x, axis=axes, keepdims=keep)
    count = math.prod(x.shape[a] for a in axes)
    return node.own("halotile.integer_divide", _sum(node, x, axes, keep), node.scalar(count, x))


def _max(node: OnnxNode, x: OnnxValue, axes: list[int], keep: bool) -> OnnxValue:
    return _as_integer(node, x, lambda v: node.do(R.max, v, axis=axes, keepdims=keep))


def _min(node: OnnxNode, x: OnnxValue, axes: list[int], keep: bool) -> OnnxValue:
    return _as_integer(node, x, lambda v: node.do(R.min, v, axis=axes, keepdims=keep))


def _as_integer(node: OnnxNode, x: OnnxValue, function: Callable[[OnnxValue], OnnxValue]) -> OnnxValue:
    """Booleans are compared as bytes."""
    return node.cast(function(node.cast(x, "uint8")), "bool") if x.dtype == "bool" else function(x)


def _prod(node: OnnxNode, x: OnnxValue, axes: list[int], keep: bool) -> OnnxValue:
    return node.do(R.prod, x, axis=axes, keepdims=keep)


def _l1(node: OnnxNode, x: OnnxValue, axes: list[int], keep: bool) -> OnnxValue:
    return _sum(node, node.do(R.abs, x), axes, keep)


def _sum_square(node: OnnxNode, x: OnnxValue, axes: list[int], keep: bool) -> OnnxValue:
    return _sum(node, node.do(R.multiply, x, x), axes, keep)


def _l2(node: OnnxNode, x: OnnxValue, axes: list[int], keep: bool) -> OnnxValue:
    wide = x if x.is_float else node.cast(x, "float64")
    return node.cast(node.do(R.sqrt, _sum_square(node, wide, axes, keep)), x.dtype)


def _log_sum(node: OnnxNode, x: OnnxValue, axes: list[int], keep: bool) -> OnnxValue:
    wide = x if x.is_float else node.cast(x, "float64")
    return node.cast(node.do(R.log, _sum(node, wide, axes, keep)), x.dtype)


def _log_sum_exp(node: OnnxNode, x: OnnxValue, axes: list[int], keep: bool) -> OnnxValue:
    """max + log(sum(exp(x - max))), which does not overflow; an infinite maximum is the answer itself."""
    wide = x if x.is_float else node.cast(x, "float64")
    top = _max(node, wide, axes, True)
    finite = node.do(R.less, node.do(R.abs, top), node.scalar(np.inf, wide))
    shift = node.do(R.where, finite, top, node.scalar(0, wide))
    total = _sum(node, node.do(R.exp, node.do(R.subtract, wide, shift)), axes, True)
    result = node.do(R.add, node.do(R.log, total), shift)
    kept = [1 if a in axes else d for a, d in enumerate(x.shape)]
    shape = kept if keep else [d for a, d in enumerate(x.shape) if a not in axes]
    return node.cast(node.reshape(result, shape), x.dtype)


def _reduce(operator: str, function: Reduce) -> None:
    @converts(operator)
    def convert(node: OnnxNode) -> OnnxValue:
        x = node.need(0)
        axes = node.ints(1, "its axes", "axes")
        if not axes:
            if node.attr("noop_with_empty_axes", 0):
                return _elementwise(node, x, function)
            axes = list(range(x.rank))
        chosen = sorted(set(normal_axes(axes, x.rank)))
        keep = bool(node.attr("keepdims", 1))
        if not chosen:
            return _elementwise(node, x, function)
        return node.in_float32(lambda v: function(node, v, chosen, keep), x)


def _elementwise(node: OnnxNode, x: OnnxValue, function: Reduce) -> OnnxValue:
    """A reduction over no axes still applies its elementwise part: over an extra axis of one it does just that."""
    return node.in_float32(lambda v: function(node, node.reshape(v, (1, *v.shape)), [0], False), x)


for _name, _function in {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceMax": _max,
    "ReduceMin": _min,
    "ReduceProd": _prod,
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "ReduceSumSquare": _sum_square,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
}.items():
    _reduce(_name, _function)
