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
    # quotients of integers, which wrap, are so many operations that three of them are cut into two kernels
    assert len(suite.schedules("pooled")) <= (2 if kind == "divide" else 1)
    assert suite.compiled is not None
    assert len(str(suite.compiled.build.kernels[0].function)) < (8000 if kind == "divide" else 4000) * links
