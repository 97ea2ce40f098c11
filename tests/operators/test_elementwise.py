"""Elementwise operators over their whole range: digits, signs, infinities and NaN."""

from __future__ import annotations

import numpy as np
import pytest
from evaluate import agree, evaluate, one_node
from halotile.errors import UnsupportedError

WIDE = np.concatenate([-np.logspace(-30, 30, 121), [0.0], np.logspace(-30, 30, 121)]).astype("float32")
UNIT = np.concatenate([-np.logspace(-30, 0, 61), [0.0], np.logspace(-30, 0, 61)]).astype("float32")
ANGLES = np.linspace(-20, 20, 401).astype("float32")


@pytest.mark.parametrize(
    "operator,function,x",
    [
        ("Acos", np.arccos, UNIT), ("Asin", np.arcsin, UNIT), ("Atan", np.arctan, WIDE),
        ("Acosh", np.arccosh, np.logspace(0, 30, 61).astype("float32")), ("Asinh", np.arcsinh, WIDE),
        ("Atanh", np.arctanh, UNIT), ("Sinh", np.sinh, ANGLES), ("Cosh", np.cosh, ANGLES),
        ("Tan", np.tan, ANGLES), ("Tanh", np.tanh, ANGLES), ("Sin", np.sin, ANGLES), ("Cos", np.cos, ANGLES),
        ("Exp", np.exp, np.linspace(-103, 88, 300).astype("float32")), ("Log", np.log, np.abs(WIDE)),
        ("Sqrt", np.sqrt, np.abs(WIDE)), ("Reciprocal", np.reciprocal, WIDE[WIDE != 0]),
        ("Elu", lambda v: np.where(v < 0, np.expm1(v), v), WIDE),
        ("Softplus", lambda v: np.logaddexp(v, 0), WIDE),
        ("Sigmoid", lambda v: 1 / (1 + np.exp(-v)), ANGLES),
    ],
)  # fmt: skip
def test_six_digits_over_the_whole_range(operator: str, function, x: np.ndarray) -> None:
    model, feeds = one_node(operator, [x])
    with np.errstate(all="ignore"):
        expected = function(x.astype("float64"))
    np.testing.assert_allclose(evaluate(model, feeds)["o0"], expected, rtol=3e-6, atol=1e-38)


def test_the_sign_of_nan_is_nan() -> None:
    x = np.array([np.nan, -np.inf, -2, -1e-40, -0.0, 0, 1e-40, 3, np.inf], "float32")
    model, feeds = one_node("Sign", [x])
    np.testing.assert_array_equal(evaluate(model, feeds)["o0"], np.sign(x))


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
def test_signs_of_unsigned_numbers(dtype: str) -> None:
    """TVM's own forms ended in an internal error: they need a -1 of the type."""
    x = np.array([0, 1, 7, np.iinfo(dtype).max], dtype)
    model, feeds = one_node("Sign", [x])
    np.testing.assert_array_equal(evaluate(model, feeds)["o0"], np.sign(x))
    model, feeds = one_node("Neg", [x])
    with pytest.raises(UnsupportedError, match="unsigned"):
        evaluate(model, feeds)


def test_log_sum_exp_does_not_overflow() -> None:
    x = np.array([[1e4, 1e4], [-1e4, -1e4], [-np.inf, -np.inf], [np.inf, 0]], "float32")
    model, feeds = one_node("ReduceLogSumExp", [x, np.array([1], "int64")], keepdims=0, opset=18)
    expected = [1e4 + np.log(2), -1e4 + np.log(2), -np.inf, np.inf]
    np.testing.assert_allclose(evaluate(model, feeds)["o0"], expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_integer_powers_are_exact(dtype: str) -> None:
    base = np.array([0, 1, 2, 3, 7, 10], dtype)
    exponent = np.array([0, 5, 7, 4, 2, 2], dtype)
    model, feeds = one_node("Pow", [base, exponent], run_time=(0, 1))
    np.testing.assert_array_equal(evaluate(model, feeds)["o0"], base**exponent)


def test_power_keeps_the_type_of_its_base() -> None:
    for base, exponent in (("float32", "int64"), ("int32", "float32"), ("float32", "float64")):
        x, y = np.array([2, 3, 4], base), np.array([3, 2, 1], exponent)
        (result,) = agree("Pow", [x, y], opset=15)
        assert result.dtype == x.dtype


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "float16", "float64"])
@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div"])
def test_arithmetic_in_every_type(dtype: str, operator: str) -> None:
    x, y = np.array([7, 100, 3, 9], dtype), np.array([2, 3, 3, 4], dtype)
    model, feeds = one_node(operator, [x, y], run_time=(0, 1))
    exact = {"Add": x + y, "Sub": x - y, "Mul": x * y, "Div": x / y if "f" in dtype else x // y}[operator]
    np.testing.assert_array_equal(evaluate(model, feeds)["o0"], exact.astype(dtype))


def test_float16_sums_round_once() -> None:
    x = np.full((1, 4096), 0.1, "float16")
    model, feeds = one_node("ReduceSum", [x, np.array([1], "int64")], keepdims=0)
    assert evaluate(model, feeds)["o0"][0] == np.float16(x.astype("float64").sum())


def test_variance_of_a_large_mean() -> None:
    """E[x^2] - E[x]^2 would leave nothing of it in float32."""
    x = (1e4 + np.linspace(-1, 1, 256)).astype("float32")[None]
    scale, bias = np.ones(256, "float32"), np.zeros(256, "float32")
    model, feeds = one_node("LayerNormalization", [x, scale, bias], epsilon=1e-8)
    wide = x.astype("float64")
    expected = (wide - wide.mean()) / np.sqrt(wide.var() + 1e-8)
    np.testing.assert_allclose(evaluate(model, feeds)["o0"], expected, atol=2e-2)
    model, feeds = one_node("InstanceNormalization", [x[None], scale[:1], bias[:1]], epsilon=1e-8)
    np.testing.assert_allclose(evaluate(model, feeds)["o0"][0], expected, atol=2e-2)


def test_shifts_outside_the_width() -> None:
    x, y = np.array([1, 1, 255], "uint8"), np.array([7, 8, 9], "uint8")
    for direction, expected in (("LEFT", [128, 0, 0]), ("RIGHT", [0, 0, 0])):
        model, feeds = one_node("BitShift", [x, y], run_time=(0, 1), direction=direction)
        assert evaluate(model, feeds)["o0"].tolist() == expected


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64"])
@pytest.mark.parametrize(("lambd", "bias"), [(-5.0, 10.0), (-0.5, 1.0), (1.5, 1.5), (0.0, -2.0)])
def test_shrink_with_any_lambda(lambd: float, bias: float, dtype: str) -> None:
    x = np.array([-9, -5, -2, -1, 0, 1, 2, 5, 9, 30], dtype)
    model, feeds = one_node("Shrink", [x], lambd=lambd, bias=bias)
    expected = np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0)).astype(dtype)
    np.testing.assert_array_equal(evaluate(model, feeds)["o0"], expected)
