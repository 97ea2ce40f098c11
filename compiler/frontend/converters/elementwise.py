"""Elementwise arithmetic, comparison and logic, with numpy broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from tvm import relax

from ....schedules.words.dims import Dim, Open, is_open
from ....schedules.words.refusal import Refusal
from ....schedules.words.tvm_types import Expr
from ..implied import broadcast, equal
from ..node import OnnxNode
from ..registry import converts
from ..value import OnnxValue

R = relax.op

LARGEST_PRODUCT = 8  # exponents up to it become products, of three roundings more at most than a power has
LARGEST_WRAPPING = 64  # those of integers, whose products wrap as their powers do


def _unary(operator: str, function: Callable[..., Expr]) -> None:
    @converts(operator)
    def convert(node: OnnxNode) -> OnnxValue:
        return node.do(function, node.need(0))


for _name, _function in {
    "Abs": R.abs,
    "Ceil": R.ceil,
    "Cos": R.cos,
    "Erf": R.erf,
    "Exp": R.exp,
    "Floor": R.floor,
    "Log": R.log,
    "Not": R.logical_not,
    "Round": R.round,
    "Sigmoid": R.sigmoid,
    "Sin": R.sin,
    "Sqrt": R.sqrt,
    "Tanh": R.tanh,
    "BitwiseNot": R.bitwise_not,
}.items():
    _unary(_name, _function)


@converts("Neg")
def negative(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    if x.dtype.startswith("uint"):
        raise Refusal(f"its operand {x} is unsigned")
    return node.do(R.negative, x)


@converts("Sign")
def sign(node: OnnxNode) -> OnnxValue:
    """Sign; of unsigned numbers, for which Relax has none, 0 or 1."""
    x = node.need(0)
    if x.dtype.startswith("uint"):
        return node.cast(node.do(R.not_equal, x, node.scalar(0, x)), x.dtype)
    return node.do(R.sign, x)


# Relax's own versions of these are series or identities that lose digits; ours call the C library.
for _name in ("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cosh", "Sinh", "Tan"):

    def _precise(node: OnnxNode, function: str = _name.lower()) -> OnnxValue:
        return node.own("halotile.libm", node.need(0), function=function)

    converts(_name)(_precise)


@converts("Reciprocal")
def reciprocal(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    return node.do(R.divide, node.scalar(1, x), x)


def _binary(operator: str, function: Callable[..., Expr], since: int = 7) -> None:
    @converts(operator, since=since)
    def convert(node: OnnxNode) -> OnnxValue:
        a, b = same_dtype(node, 2)
        return node.do(function, a, b)


for _name, _function in {
    "Add": R.add,
    "Sub": R.subtract,
    "Mul": R.multiply,
    "Equal": R.equal,
    "Greater": R.greater,
    "Less": R.less,
    "And": R.logical_and,
    "Or": R.logical_or,
    "Xor": R.logical_xor,
    "GreaterOrEqual": R.greater_equal,
    "LessOrEqual": R.less_equal,
    "BitwiseAnd": R.bitwise_and,
    "BitwiseOr": R.bitwise_or,
    "BitwiseXor": R.bitwise_xor,
}.items():
    _binary(_name, _function)


@converts("Div", since=7)
def divide(node: OnnxNode) -> OnnxValue:
    """Integers divide towards zero, as in C."""
    return _quotient(node, *same_dtype(node, 2))


def _quotient(node: OnnxNode, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    return node.own("halotile.integer_divide", a, b) if a.is_integer else node.do(R.divide, a, b)


@converts("Add", "Sub", "Mul", "Div", "And", "Or", "Xor", "Equal", "Greater", "Less", since=1)
def legacy_binary(node: OnnxNode) -> OnnxValue:
    """Before opset 7, the second operand was aligned at ``axis`` when ``broadcast`` was set."""
    a, b = node.need(0), node.need(1)
    if node.attr("broadcast", 0) and "axis" in node.attributes:
        axis = node.attr("axis")
        axis += a.rank if axis < 0 else 0
        b = node.reshape(b, b.shape + (1,) * (a.rank - axis - b.rank))
    node.inputs = [a, b]
    if node.operator == "Div":
        return _quotient(node, a, b)
    function = {
        "Add": R.add,
        "Sub": R.subtract,
        "Mul": R.multiply,
        "And": R.logical_and,
        "Or": R.logical_or,
        "Xor": R.logical_xor,
        "Equal": R.equal,
        "Greater": R.greater,
        "Less": R.less,
    }[node.operator]
    return node.do(function, a, b)


@converts("Pow", since=1)
def power(node: OnnxNode) -> OnnxValue:
    """The result has the base's dtype; small constant exponents become products, which are exact and fast.

    Not so one half: the root of -inf is NaN, its power inf. Simplification sees where that can't be.
    """
    base, exponent = node.need(0), node.need(1)
    if exponent.array is not None and exponent.size == 1 and base.rank >= exponent.rank:
        number = float(exponent.array.reshape(-1)[0])
        shape = broadcast(base.shape, exponent.shape)
        largest = LARGEST_PRODUCT if base.is_float else LARGEST_WRAPPING if exponent.is_integer else 0
        if shape == base.shape and number in range(1, largest + 1):
            return whole_power(node, base, int(number))
    if base.is_integer:
        if exponent.is_integer:
            return node.own("halotile.integer_power", base, exponent)
        wide = node.do(R.power, node.cast(base, "float64"), node.cast(exponent, "float64"))
        return node.cast(wide, base.dtype)
    if base.dtype == "float64" or exponent.dtype == "float64":
        wide = node.do(R.power, node.cast(base, "float64"), node.cast(exponent, "float64"))
        return node.cast(wide, base.dtype)
    wide = node.do(R.power, node.cast(base, "float32"), node.cast(exponent, "float32"))
    return node.cast(wide, base.dtype)


def whole_power(node: OnnxNode, base: OnnxValue, exponent: int) -> OnnxValue:
    """base to the power of a small number from 1 on, by squares:  x^6 = (x^2) * (x^2)^2"""
    result: OnnxValue | None = None
    while True:
        if exponent % 2:
            result = base if result is None else node.do(R.multiply, result, base)
        exponent //= 2
        if not exponent:
            assert result is not None
            return result
        base = node.do(R.multiply, base, base)


@converts("Mod", since=10)
def modulo(node: OnnxNode) -> OnnxValue:
    """fmod=0: the result has the divisor's sign (integers); fmod=1: the dividend's, as C's fmod and %."""
    a, b = same_dtype(node, 2)
    fmod = bool(node.attr("fmod", 0))
    if a.is_float and not fmod and node.opset < 28:
        raise Refusal("fmod must be 1 for floating-point operands")
    return node.own("halotile.modulo", a, b, truncate=fmod)


@converts("BitShift", since=11)
def bit_shift(node: OnnxNode) -> OnnxValue:
    a, b = same_dtype(node, 2)
    return node.own("halotile.bit_shift", a, b, left=node.attr("direction") == "LEFT")


def _variadic(operator: str, function: Callable[..., Expr]) -> None:
    @converts(operator)
    def convert(node: OnnxNode) -> OnnxValue:
        values = same_dtype(node, len(node.inputs))
        return reduce(lambda a, b: node.do(function, a, b), values)


for _name, _function in {"Max": R.maximum, "Min": R.minimum, "Sum": R.add}.items():
    _variadic(_name, _function)


@converts("Mean")
def mean(node: OnnxNode) -> OnnxValue:
    values = same_dtype(node, len(node.inputs))
    total = reduce(lambda a, b: node.do(R.add, a, b), values)
    return node.do(R.divide, total, node.scalar(len(values), total))


@converts("Clip", since=1)
def clip_attributes(node: OnnxNode) -> OnnxValue:
    return _clip(node, node.need(0), node.attr("min"), node.attr("max"))


@converts("Clip", since=11)
def clip(node: OnnxNode) -> OnnxValue:
    """Bounds may be left out or computed at run time; a NaN stays a NaN."""
    x, low, high = node.need(0), node[1], node[2]
    if all(b is None or b.array is not None for b in (low, high)):
        bounds = [None if b is None or b.array is None else b.array.reshape(-1)[0] for b in (low, high)]
        return _clip(node, x, *bounds)
    if low is not None:
        x = node.do(R.maximum, x, node.reshape(low, ()))
    if high is not None:
        x = node.do(R.minimum, x, node.reshape(high, ()))
    return x


def _clip(node: OnnxNode, x: OnnxValue, low: Any, high: Any) -> OnnxValue:
    if low is not None and high is not None and x.dtype == "float32" and low <= high:
        return node.do(R.clip, x, min=float(low), max=float(high))
    if low is not None:
        x = node.do(R.maximum, x, node.scalar(low, x))
    if high is not None:
        x = node.do(R.minimum, x, node.scalar(high, x))
    return x


@converts("Where", since=9)
def where(node: OnnxNode) -> OnnxValue:
    return node.do(R.where, *fitted(node, [node.need(i) for i in range(3)]))


@converts("IsNaN", since=9)
def is_nan(node: OnnxNode) -> OnnxValue:
    return nan(node, node.need(0))


def nan(node: OnnxNode, x: OnnxValue) -> OnnxValue:
    return node.do(R.isnan, node.cast(x, "float32") if x.dtype == "bfloat16" else x)


@converts("IsInf", since=10)
def is_inf(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    positive, negative = node.attr("detect_positive", 1), node.attr("detect_negative", 1)
    plus = node.do(R.equal, x, node.scalar(np.inf, x))
    minus = node.do(R.equal, x, node.scalar(-np.inf, x))
    if positive and negative:
        return node.do(R.logical_or, plus, minus)
    if positive:
        return plus
    if negative:
        return minus
    return node.broadcast(node.const(False), x.shape)


def same_dtype(node: OnnxNode, count: int) -> list[OnnxValue]:
    """The first ``count`` operands; refuses operands of different dtypes, which ONNX forbids."""
    values = [node.need(i) for i in range(count)]
    if len({v.dtype for v in values}) > 1:
        raise Refusal(f"its operands have different types: {', '.join(map(str, values))}")
    return fitted(node, values)


def fitted(node: OnnxNode, values: list[OnnxValue]) -> list[OnnxValue]:
    """Operands that broadcast; an open dimension beside a fixed one is broadcast to it first, since it must be that
    long, or one."""
    try:
        target = broadcast(*(v.shape for v in values))
    except Open:
        raise
    except Refusal:
        raise Refusal(f"its operands do not broadcast: {', '.join(map(str, values))}") from None
    if not any(is_open(v.shape) for v in values):
        return values

    def fit(v: OnnxValue) -> OnnxValue:
        own = target[len(target) - v.rank :]
        wanted = [t if isinstance(d, Dim) and isinstance(t, int) else d for d, t in zip(v.shape, own)]
        v = node.broadcast(v, wanted)
        # what only a run shows to be equal has to look equal
        same = [t if isinstance(d, Dim) and d != 1 and equal(d, t) else d for d, t in zip(v.shape, own)]
        return node.reshape(v, same)

    return [fit(v) for v in values]
