"""Cheaper operators for the same values, and the special values that forbid them."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

op = relax.op
F32 = "float32"
X = [((60,), F32)]


def c(value, dtype=F32):
    return relax.const(np.asarray(value, dtype), dtype)


def test_power_of_two_is_a_product(check):
    check(X, lambda emit, x: emit(op.power(x, c(2))), ["multiply"], special=True)


def test_root_of_what_may_be_minus_infinity_stays(check):
    check(X, lambda emit, x: emit(op.power(x, c(0.5))), ["power"], special=True, declined="inf and no root")
    check(X, lambda emit, x: emit(op.power(emit(op.abs(x)), c(0.5))), ["abs", "sqrt"], special=True)


def test_reciprocal_root(check):
    check(
        X,
        lambda emit, x: emit(op.divide(c(1), emit(op.sqrt(emit(op.abs(x)))))),
        ["abs", "rsqrt"],
        special=True,
    )


def test_division_by_a_power_of_two_is_exact(check):
    check(X, lambda emit, x: emit(op.divide(x, c([8.0]))), ["multiply"], mode="exact", special=True)


def test_division_by_another_constant_rounds(check):
    check(X, lambda emit, x: emit(op.divide(x, c(3))), ["divide"], mode="exact", declined="power of two")
    check(X, lambda emit, x: emit(op.divide(x, c(3))), ["multiply"])


@pytest.mark.parametrize("divisor", [0.0, np.inf, 2e38, 1e-39])
def test_division_whose_reciprocal_is_not_normal_stays(check, divisor):
    check(X, lambda emit, x: emit(op.divide(x, c(divisor))), ["divide"], special=True, declined="reciprocal")


def test_integer_division_stays(check):
    check(
        [((60,), "int32")],
        lambda emit, x: emit(op.divide(x, c(4, "int32"))),
        ["divide"],
        declined="truncates",
    )


def test_zero_times_anything_may_be_nan(check):
    check(X, lambda emit, x: emit(op.multiply(x, c(0))), ["multiply"], special=True, declined="NaN")
    check(X, lambda emit, x: emit(op.multiply(x, c(0))), [], mode="finite")
    check([((60,), "int32")], lambda emit, x: emit(op.multiply(x, c(0, "int32"))), [], mode="exact")


@pytest.mark.parametrize(
    "build",
    [
        lambda x: op.multiply(x, c(1)),
        lambda x: op.divide(x, c(1)),
        lambda x: op.subtract(x, c(0)),
        lambda x: op.add(c(-0.0), x),
        lambda x: op.power(x, c(1)),
    ],
)
def test_neutral_elements(check, build):
    check(X, lambda emit, x: emit(build(x)), [], mode="exact", special=True)


def test_adding_zero_changes_the_sign_of_zero(check):
    check(X, lambda emit, x: emit(op.add(x, c(0))), ["add"], mode="exact", special=True)
    check(X, lambda emit, x: emit(op.add(x, c(0))), [], special=True)

    def divided(emit, x):
        return emit(op.divide(c(1), emit(op.add(x, c(0)))))

    check(X, divided, ["add", "divide"], special=True, declined="tells -0.0")


def test_a_neutral_constant_that_broadcasts_stays(check):
    check(
        [((4,), F32)],
        lambda emit, x: emit(op.multiply(x, c(np.ones((3, 4))))),
        ["multiply"],
        declined="broadcasts",
    )


@pytest.mark.parametrize("name", ["abs", "ceil", "floor", "round", "sign"])
def test_repeated_operators(check, name):
    function = getattr(op, name)
    check(X, lambda emit, x: emit(function(emit(function(x)))), [name], mode="exact", special=True)


def test_relu_of_what_is_never_negative(check):
    check(X, lambda emit, x: emit(op.nn.relu(emit(op.sigmoid(x)))), ["sigmoid"], mode="exact")


def test_negations_are_absorbed(check):
    def body(emit, x, y):
        return emit(op.add(x, emit(op.negative(y)))), emit(op.abs(emit(op.negative(x))))

    check(X * 2, body, ["subtract", "abs"], mode="exact", special=True)


def test_common_subexpressions_and_duplicate_constants(check):
    def body(emit, x):
        a = emit(op.add(x, c(np.arange(60.0))))
        b = emit(op.add(c(np.arange(60.0)), x))
        return emit(op.multiply(emit(op.exp(a)), emit(op.exp(b))))

    result = check(X, body, ["add", "exp", "multiply"], mode="exact")
    assert result.details["applied"] == {"common-subexpression": 2, "duplicate-constant": 1}


def test_zeros_of_both_signs_are_different_constants(check):
    def body(emit, x):
        return emit(op.divide(x, c([0.0]))), emit(op.divide(x, c([-0.0])))

    check(X, body, ["divide", "divide"], mode="exact", special=True)


def test_dead_code_goes(check):
    def body(emit, x):
        emit(op.exp(x))
        return emit(op.tanh(x))

    assert check(X, body, ["tanh"], mode="exact").details["applied"] == {"dead-code": 1}


def test_operators_on_one_operand_twice(check):
    check(X, lambda emit, x: (emit(op.maximum(x, x)), emit(op.minimum(x, x))), [], mode="exact", special=True)
    check(X, lambda emit, x: emit(op.subtract(x, x)), ["subtract"], special=True, declined="NaN less NaN")
    check(X, lambda emit, x: emit(op.subtract(x, x)), [], mode="finite")
    check([((60,), "int32")], lambda emit, x: emit(op.subtract(x, x)), [], mode="exact")
