"""Elementwise operators: their nodes, and what NumPy makes of NaN, infinities and zeros of both signs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numerics import Sheet
from onnx import TensorProto

Build = Callable[[Sheet, str, str], str]
Meaning = Callable[[Any, Any], Any]
_erf = np.vectorize(math.erf, otypes=[np.float64])


@dataclass(frozen=True)
class Rule:
    """An operator of one or two tensors: its nodes, and what it means in NumPy (float64 in, any dtype out)."""

    name: str
    build: Build
    meaning: Meaning
    signs: bool = True  # of a zero are told


def _plain(
    operator: str, meaning: Callable[..., Any], operands: int = 1, signs: bool = True, **attributes: Any
) -> Rule:
    def build(s: Sheet, x: str, y: str) -> str:
        return str(s.node(operator, *(x, y)[:operands], **attributes))

    return Rule(operator.lower(), build, lambda x, y: meaning(*(x, y)[:operands]), signs)


def _softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _less_than_zero(below: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: np.where(x < 0, below(x), x)


def _fraction(low: Any, high: Any, x: Any) -> Any:
    return np.minimum(np.maximum(x, low), high)


_ONE = [
    _plain("Relu", lambda x: np.maximum(x, 0), signs=False),
    _plain("LeakyRelu", _less_than_zero(lambda x: 0.1 * x), alpha=0.1),
    _plain("Elu", _less_than_zero(np.expm1)),
    _plain(
        "Selu",
        lambda x: (
            1.05070102214813232421875 * _less_than_zero(lambda v: 1.67326319217681884765625 * np.expm1(v))(x)
        ),
    ),
    _plain("Celu", _less_than_zero(np.expm1)),
    _plain("HardSigmoid", lambda x: _fraction(0, 1, 0.2 * x + 0.5), signs=False),
    _plain("HardSwish", lambda x: x * _fraction(0, 1, x / 6 + 0.5), signs=False),
    _plain("Softplus", _softplus),
    _plain("Softsign", lambda x: x / (1 + np.abs(x))),
    _plain("Sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    _plain("Tanh", np.tanh),
    _plain("Mish", lambda x: x * np.tanh(_softplus(x)), signs=False),
    _plain("Gelu", lambda x: x * 0.5 * (1 + _erf(x * 0.5**0.5)), signs=False),
    _plain("ThresholdedRelu", lambda x: np.where(x > 0.5, x, 0), alpha=0.5),
    _plain("Erf", _erf),
    _plain("Abs", np.abs),
    _plain("Neg", np.negative),
    _plain("Sign", np.sign, signs=False),
    _plain("Ceil", np.ceil),
    _plain("Floor", np.floor),
    _plain("Round", np.rint),
    _plain("Sqrt", np.sqrt),
    _plain("Exp", np.exp),
    _plain("Log", np.log),
    _plain("Reciprocal", lambda x: 1 / x),
    _plain("Sin", np.sin),
    _plain("Cos", np.cos),
    _plain("Atan", np.arctan),
    _plain("IsNaN", np.isnan),
    _plain("IsInf", np.isinf),
    Rule("to_bool", lambda s, x, y: s.node("Cast", x, to=TensorProto.BOOL), lambda x, y: x.astype(bool)),
    Rule(
        "not_to_bool",
        lambda s, x, y: s.node("Not", s.node("Cast", x, to=TensorProto.BOOL)),
        lambda x, y: ~x.astype(bool),
    ),
]
_TWO = [
    _plain("Add", np.add, 2),
    _plain("Sub", np.subtract, 2),
    _plain("Mul", np.multiply, 2),
    _plain("Div", np.divide, 2),
    _plain("Max", np.maximum, 2, signs=False),
    _plain("Min", np.minimum, 2, signs=False),
    _plain("Pow", np.power, 2, signs=False),
    _plain("Mod", np.fmod, 2, fmod=1),
    _plain("PRelu", lambda x, y: np.where(x < 0, x * y, x), 2),
    *[
        _plain(name, function, 2)
        for name, function in (
            ("Equal", np.equal),
            ("Less", np.less),
            ("Greater", np.greater),
            ("LessOrEqual", np.less_equal),
            ("GreaterOrEqual", np.greater_equal),
        )
    ],
    *[
        Rule(
            f"not_{name.lower()}",
            lambda s, x, y, n=name: s.node("Not", s.node(n, x, y)),
            lambda x, y, f=f: ~f(x, y),
        )
        for name, f in (("Equal", np.equal), ("Less", np.less), ("GreaterOrEqual", np.greater_equal))
    ],
    *[
        Rule(f"{name.lower()}_itself", lambda s, x, y, n=name: s.node(n, x, x), lambda x, y, f=f: f(x, x))
        for name, f in (
            ("Sub", np.subtract),
            ("Div", np.divide),
            ("Equal", np.equal),
            ("GreaterOrEqual", np.greater_equal),
            ("Max", np.maximum),
        )
    ],
    Rule(
        "where",
        lambda s, x, y: s.node("Where", s.node("Less", x, y), x, y),
        lambda x, y: np.where(x < y, x, y),
    ),
    Rule(
        "chain",
        lambda s, x, y: s.node("Min", s.node("Max", x, y), y, s.constant(0.75)),
        lambda x, y: np.minimum(np.minimum(np.maximum(x, y), y), 0.75),
        False,
    ),
]


def _with_constant(operator: str, function: Any, value: float, first: bool, signs: bool) -> Rule:
    def build(s: Sheet, x: str, y: str) -> str:
        c = s.constant(value)
        return str(s.node(operator, c, x) if first else s.node(operator, x, c))

    def meaning(x: Any, y: Any) -> Any:
        return function(value, x) if first else function(x, value)

    return Rule(f"{operator.lower()}_{'of_' if first else ''}{value}", build, meaning, signs)


def _inverse(name: str, build: Build, meaning: Meaning) -> Rule:
    """1 / what ``build`` makes: tells the zeros apart."""
    return Rule(
        f"inverse_{name}",
        lambda s, x, y: s.node("Reciprocal", build(s, x, y)),
        lambda x, y: 1 / meaning(x, y),
    )


def _clip(low: float | None, high: float | None) -> Rule:
    def build(s: Sheet, x: str, y: str) -> str:
        bounds = ["" if b is None else s.constant(b) for b in (low, high)]
        return str(s.node("Clip", x, *bounds))

    def meaning(x: Any, y: Any) -> Any:
        x = x if low is None else np.maximum(x, low)
        return x if high is None else np.minimum(x, high)

    return Rule(f"clip_{low}_{high}", build, meaning, False)


_CONSTANTS = [
    _with_constant(operator, function, value, first, operator not in ("Max", "Min"))
    for operator, function in (
        ("Add", np.add),
        ("Sub", np.subtract),
        ("Mul", np.multiply),
        ("Div", np.divide),
        ("Max", np.maximum),
        ("Min", np.minimum),
    )
    for value in (0.0, -0.0, np.nan, np.inf)
    for first in (False, True)
    if not (operator in ("Add", "Sub") and value == 0)  # below, where the sign of the result tells
]
_ZEROS = [
    _inverse(
        f"{operator.lower()}_{'of_' if first else ''}{zero}",
        *(lambda r: (r.build, r.meaning))(_with_constant(operator, function, zero, first, True)),
    )
    for operator, function in (("Add", np.add), ("Sub", np.subtract))
    for zero in (0.0, -0.0)
    for first in (False, True)
]
_CLIPS = [_clip(0.0, 6.0), _clip(-1.0, None), _clip(None, np.nan), _clip(np.nan, 1.0), _clip(-np.inf, 0.5)]
_CLIPS.append(
    Rule(
        "clips",
        lambda s, x, y: s.node("Min", s.node("Relu", s.node("Max", x, s.constant(-1))), s.constant(4)),
        lambda x, y: np.minimum(np.maximum(np.maximum(x, -1), 0), 4),
        False,
    )
)

RULES = {r.name: r for r in (*_ONE, *_TWO, *_CONSTANTS, *_ZEROS, *_CLIPS)}
assert len(RULES) == sum(map(len, (_ONE, _TWO, _CONSTANTS, _ZEROS, _CLIPS)))
#: What networks have behind their products, and what simplification, fusion and vectors might lose a NaN in.
EPILOGUES = (
    "relu leakyrelu elu hardsigmoid hardswish sigmoid gelu clip_0.0_6.0 clip_nan_1.0 max_nan min_of_nan clips prelu"
    " sign max chain inverse_add_0.0 mul_0.0 sub_itself not_less to_bool"
).split()


def meaning(rule: Rule, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(rule.meaning(x.astype(np.float64), y.astype(np.float64)))
