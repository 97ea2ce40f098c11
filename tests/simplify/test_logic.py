"""Boolean algebra, comparisons and where."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

op = relax.op
FLAG, F32, I32 = "bool", "float32", "int32"


@pytest.mark.parametrize(
    ("compare", "opposite"),
    [
        ("less", "greater_equal"),
        ("less_equal", "greater"),
        ("greater", "less_equal"),
        ("greater_equal", "less"),
        ("equal", "not_equal"),
        ("not_equal", "equal"),
    ],
)
def test_not_of_an_integer_comparison(check, compare, opposite):
    def body(emit, x, y):
        return emit(op.logical_not(emit(getattr(op, compare)(x, y))))

    check([(("n", 5), I32), ((5,), I32)], body, [opposite], mode="exact", n=4)


def test_not_of_a_float_order_stays_because_of_nan(check):
    def body(emit, x, y):
        return emit(op.logical_not(emit(op.less(x, y))))

    check([((40,), F32), ((40,), F32)], body, ["less", "logical_not"], special=True, declined="NaN")
    check([((40,), F32), ((40,), F32)], body, ["greater_equal"], mode="finite")


def test_not_of_a_float_inequality(check):
    def body(emit, x, y):
        return emit(op.logical_not(emit(op.not_equal(x, y))))

    check([((40,), F32), ((40,), F32)], body, ["equal"], special=True, exact=True)


def test_not_not(check):
    check([((7,), FLAG)], lambda emit, x: emit(op.logical_not(emit(op.logical_not(x)))), [], exact=True)


def test_de_morgan_of_two_negations(check):
    def body(emit, a, b):
        return emit(op.logical_and(emit(op.logical_not(a)), emit(op.logical_not(b))))

    check([((9,), FLAG), ((9,), FLAG)], body, ["logical_or", "logical_not"], exact=True)


def test_de_morgan_nested(check):
    """not(or(or(not a, not b), c)) -> and(and(a, b), not c)"""

    def body(emit, a, b, c):
        inner = emit(op.logical_or(emit(op.logical_not(a)), emit(op.logical_not(b))))
        return emit(op.logical_not(emit(op.logical_or(inner, c))))

    result = check([(("n",), FLAG)] * 3, body, None, exact=True, n=16)
    assert result.details["operators_after"] == 3
    assert result.details["operators"]["relax.logical_not"] == 1


def test_cast_equal_zero_is_not(check, tools):
    def body(emit, x):
        return emit(op.equal(emit(op.astype(x, I32)), tools.const(0, I32)))

    check([(("n", 3), FLAG)], body, ["logical_not"], mode="exact", n=5)


def test_cast_not_equal_zero_is_the_flag(check, tools):
    def body(emit, x):
        return emit(op.not_equal(emit(op.astype(x, F32)), tools.const(0.0)))

    check([((6,), FLAG)], body, [], mode="exact")


def test_where_of_a_masked_score(check, tools):
    """where(cast(b) == 0, -inf, s) -> where(b, s, -inf)"""

    def body(emit, b, s):
        empty = emit(op.equal(emit(op.astype(b, F32)), tools.const(0.0)))
        return emit(op.where(empty, tools.const(-np.inf), s))

    check([(("n", 4), FLAG), (("n", 4), F32)], body, ["where"], mode="exact", n=3)


def test_where_with_a_known_condition(check, tools):
    def body(emit, x, y):
        return emit(op.where(tools.const(np.ones((4,), bool)), x, y)), emit(
            op.where(tools.const(False, FLAG), x, y)
        )

    check([((4,), F32), ((4,), F32)], body, [], mode="exact")


def test_where_with_equal_branches(check):
    check([((4,), FLAG), ((4,), F32)], lambda emit, c, x: emit(op.where(c, x, x)), [], mode="exact")


def test_where_that_broadcasts_its_branch(check):
    check(
        [((3, 4), FLAG), ((4,), F32)],
        lambda emit, c, x: emit(op.where(c, x, x)),
        ["broadcast_to"],
        mode="exact",
    )


def test_where_of_flags(check, tools):
    def body(emit, c):
        return emit(op.where(c, tools.const(True, FLAG), tools.const(False, FLAG)))

    check([((5,), FLAG)], body, [], mode="exact")


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("logical_and", True, []),
        ("logical_or", False, []),
        ("logical_xor", False, []),
        ("logical_xor", True, ["logical_not"]),
        ("logical_and", False, []),
        ("logical_or", True, []),
    ],
)
def test_logic_with_constants(check, tools, operator, value, expected):
    check(
        [((5,), FLAG)],
        lambda emit, x: emit(getattr(op, operator)(x, tools.const(value, FLAG))),
        expected,
        mode="exact",
    )


def test_logic_constant_that_broadcasts_stays(check, tools):
    full = tools.const(np.ones((3, 5), bool))
    check(
        [((5,), FLAG)], lambda emit, x: emit(op.logical_and(x, full)), ["logical_and"], declined="broadcasts"
    )


def test_a_float_may_differ_from_itself(check):
    check(
        [((50,), F32)],
        lambda emit, x: emit(op.equal(x, x)),
        ["equal"],
        special=True,
        declined="differs from itself",
    )
    check([((50,), F32)], lambda emit, x: emit(op.equal(x, x)), [], mode="finite")
    check([((50,), I32)], lambda emit, x: emit(op.equal(x, x)), [], mode="exact")
    check([((50,), F32)], lambda emit, x: emit(op.less(x, x)), [], special=True, mode="exact")
