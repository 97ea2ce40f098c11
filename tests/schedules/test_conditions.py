"""What stands under a condition: divisions that are computed although they are not chosen, and long expressions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import Suite, weight
from halotile.schedules.operators.registry import call
from tvm import relax

R = relax.op


def windows(x: np.ndarray) -> np.ndarray:
    """Average pools of 1x3/3 with two columns of padding, which their reads may not leave."""
    padded = np.pad(x, ((0, 0), (0, 0), (0, 0), (2, 0)))
    return np.asarray(padded[..., : padded.shape[-1] // 3 * 3].reshape(*x.shape[:3], -1, 3).mean(-1))


def pooled(x: Any) -> Any:
    return R.nn.avg_pool2d(x, (1, 3), (1, 3), padding=(0, 2, 0, 0), count_include_pad=True)


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_divisions_of_what_is_not_read(dtype: str, stored: bool) -> None:
    """Outside of the image the divisor reads as zero. TVM takes tests of ``b`` away where it knows that ``b != 0``;
    LLVM deleted the kernel around the division by zero, and the call ran into the next kernel."""
    x = np.random.default_rng(1).integers(0, 100, (1, 3, 9, 24)).astype(dtype)
    divisor = np.full((1, 1, 1, 1 if stored else 24), 7, dtype)

    def body(v: Any, *given: Any) -> Any:
        quotient = call("halotile.integer_divide", v, *(given or (weight(divisor),)))
        rest = call("halotile.modulo", v, *(given or (weight(divisor),)), truncate=True)
        made = R.power(R.astype(R.add(quotient, rest), "float32"), weight(np.float32(1.7)))
        return pooled(made)

    suite = Suite()
    wanted = windows((x // 7 + x % 7).astype("float64") ** 1.7)
    suite.add("pooled", [x] if stored else [x, divisor], body, wanted.astype("float32"), rtol=1e-5, atol=1e-4)
    suite.check("pooled")
    assert len(suite.schedules("pooled")) == 1, "the division is not part of the pool's kernel"


@pytest.mark.parametrize("kind", ["where", "maximum", "divide"])
def test_values_that_are_read_often_have_names(kind: str) -> None:
    """Ten choices in a row are 3^10 reads where they have no names, in the kernel and in what plans it; and no function
    is among them."""
    x = np.random.default_rng(2).integers(1, 60, (1, 3, 9, 24)).astype("float32")
    links = 3 if kind == "divide" else 10
    exact = x.astype("float64")
    for _ in range(links):
        if kind == "divide":
            exact = exact + 1000 // exact
        elif kind == "maximum":
            exact = np.maximum(exact * 0.75, np.minimum(exact + 1, 6))
        else:
            exact = np.where(exact > 5, exact * 0.75, exact + 1)

    def link(v: Any) -> Any:
        if kind == "divide":
            whole = R.astype(v, "int32")
            quotient = call("halotile.integer_divide", weight(np.int32(1000)), whole)
            return R.astype(R.add(whole, quotient), "float32")
        if kind == "maximum":
            low = R.minimum(R.add(v, weight(np.float32(1))), weight(np.float32(6)))
            return R.maximum(R.multiply(v, weight(np.float32(0.75))), low)
        yes, no = R.multiply(v, weight(np.float32(0.75))), R.add(v, weight(np.float32(1)))
        return R.where(R.greater(v, weight(np.float32(5))), yes, no)

    def body(v: Any) -> Any:
        for _ in range(links):
            v = link(v)
        return pooled(v)

    suite = Suite()
    suite.add("pooled", [x], body, windows(exact).astype("float32"), rtol=1e-5, atol=1e-4)
    suite.check("pooled")
    assert len(suite.schedules("pooled")) == 1
    assert suite.compiled is not None
    assert len(str(suite.compiled.build.kernels[0].function)) < 4000 * links


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint32", "uint64"])
@pytest.mark.parametrize("divisor", [0, -1, 1, 7, 100])
def test_known_divisors_need_no_guards(dtype: str, divisor: int) -> None:
    """A choice by what ``b`` is only stands where that is unknown; the literals 0 and -1 leave no division at all."""
    if divisor < 0 and dtype.startswith("u"):
        pytest.skip("no such number")
    info = np.iinfo(dtype)
    x = np.array([info.min, info.min + 1, info.max, info.max - 1, 0, 1, 3, 99, 100, 101, 7, 14, 15], dtype)
    known = weight(np.array(divisor, dtype))
    exact = [int(v) for v in x]
    towards_zero = [abs(v) // abs(divisor) * (1 if (v < 0) == (divisor < 0) else -1) if divisor else 0 for v in exact]
    rests = [v - q * divisor if divisor else 0 for v, q in zip(exact, towards_zero)]

    def wrapped(values: list[int]) -> np.ndarray:
        return np.array([(v - int(info.min)) % (1 << info.bits) + int(info.min) for v in values], dtype)

    def rest(v: Any, truncate: bool) -> Any:
        return call("halotile.modulo", v, known, truncate=truncate)

    suite = Suite()
    suite.add("over", [x], lambda v: call("halotile.integer_divide", v, known), wrapped(towards_zero))
    suite.add("rest", [x], lambda v: rest(v, True), wrapped(rests))
    suite.add("floor", [x], lambda v: rest(v, False), wrapped([v % divisor if divisor else 0 for v in exact]))
    for name in ("over", "rest", "floor"):
        suite.check(name)
    assert suite.compiled is not None
    for kernel in suite.compiled.build.kernels:
        assert "Select" not in str(kernel.function)


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_quotients_by_zero_are_zero(dtype: str) -> None:
    """Of numbers, of literals, and where an arm that is not taken divides."""
    x = np.array([5, 0, 250, 17, 1, 0, 90], dtype)
    y = np.array([0, 0, 7, 0, 1, 3, 255], dtype)
    safe = np.where(y == 0, 1, y).astype("int64")

    def over(a: Any, b: Any) -> Any:
        return call("halotile.integer_divide", a, b)

    def chosen(a: Any, b: Any) -> Any:
        return R.where(R.equal(b, weight(np.array(0, dtype))), a, over(a, b))

    def literal(b: Any) -> Any:
        return over(weight(np.array(100, dtype)), b)

    suite = Suite()
    suite.add("both", [x, y], over, np.where(y == 0, 0, x // safe).astype(dtype))
    suite.add("literal", [y], literal, np.where(y == 0, 0, 100 // safe).astype(dtype))
    suite.add("chosen", [x, y], chosen, np.where(y == 0, x, x // safe).astype(dtype))
    for name in ("both", "literal", "chosen"):
        suite.check(name)
