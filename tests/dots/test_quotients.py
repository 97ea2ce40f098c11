"""What becomes bytes again: quotients without a division, and rounding to whole numbers, of which no bit may differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import Compiled, module_of, native, staged, weight
from halotile.passes.dots import Dots
from halotile.passes.dots.quotients import _fuses
from halotile.schedules.instructions.int8_dot import data_dtype
from halotile.schedules.operators.registry import call
from tvm import relax

R = relax.op
needs_fused = pytest.mark.skipif(not _fuses(native()), reason="NOT RUN: this machine rounds products and sums apart")
needs_dots = pytest.mark.skipif(data_dtype(native()) is None, reason="NOT RUN: this machine multiplies no bytes")
needs_x86 = pytest.mark.skipif(not native().triple.startswith("x86_64"), reason="NOT RUN: a rule of x86-64")


@needs_fused
@pytest.mark.parametrize("seed", range(6))
def test_quotients_are_those_of_a_division(seed: int) -> None:
    """All mantissas of one binade by one scale, and whole numbers by many."""
    rng = np.random.default_rng(seed)
    scale = np.float32(rng.uniform(1, 2) * 2.0 ** rng.integers(-12, 3))
    mantissas = (np.arange(1 << 20, dtype=np.uint32) * np.uint32(8) + np.uint32(seed)) | np.uint32(127 << 23)
    x = np.concatenate([mantissas.view(np.float32), rng.integers(-(1 << 24), 1 << 24, 1 << 16).astype("float32")])
    inverse = (1 / np.float64(scale)).astype("float32")
    build = staged(module_of([x], lambda p: call("halotile.quotient", p, weight(scale), weight(inverse))))
    np.testing.assert_array_equal(Compiled(build).run([x])[0], x / scale)


@needs_fused
def test_each_channel_may_have_its_own_divisor() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 37, 5, 7)).astype("float32")
    scales = rng.uniform(0.01, 3, (37, 1, 1)).astype("float32")
    inverse = (1 / scales.astype("float64")).astype("float32")
    build = staged(module_of([x], lambda p: call("halotile.quotient", p, weight(scales), weight(inverse))))
    np.testing.assert_array_equal(Compiled(build).run([x])[0], x / scales)


@needs_x86
@pytest.mark.parametrize(
    ("dtype", "zero", "low", "high"), [("uint8", 3, 0, 255), ("int8", -7, -128, 127), ("uint8", 0, 5, 99)]
)
def test_rounded_numbers_are_whole(dtype: str, zero: int, low: int, high: int) -> None:
    rng = np.random.default_rng(2)
    x = np.concatenate([np.arange(-700, 700) / 2, rng.uniform(-400, 400, 1000), [1e9, -1e9]]).astype("float32")
    own: dict[str, Any] = {"zero": zero, "low": low, "high": high, "dtype": dtype}
    build = staged(module_of([x], lambda p: call("halotile.rounded", p, **own)))
    wanted = np.clip(np.rint(x.astype("float64")) + zero, low, high)
    np.testing.assert_array_equal(Compiled(build).run([x])[0], wanted.astype(dtype))


def applied(arrays: list[np.ndarray], body: Any, exact: bool = False) -> dict[str, int]:
    result = Dots(exact=exact).apply(module_of(arrays, body), native())
    return dict(result.details.get("applied", {})) if result.changed else {}


def quantised(x: Any, scale: float = 0.037, zero: float = 11.0) -> Any:
    y = R.add(R.round(R.divide(x, relax.const(np.float32(scale)))), relax.const(np.float32(zero)))
    return R.astype(R.clip(y, 0, 255), "uint8")


WHOLE = np.zeros((4, 5), np.int32)
BYTES = np.zeros((4, 5), np.uint8)
REAL = np.zeros((4, 5), np.float32)


@needs_dots
@needs_fused
@needs_x86
def test_both_are_found() -> None:
    def body(x: Any) -> Any:
        return quantised(R.multiply(R.astype(x, "float32"), relax.const(np.float32(0.002))))

    assert applied([WHOLE], body) == {"quotients": 1, "rounded": 1}

    def longer(x: Any, y: Any) -> Any:
        """A relu, a bias and a function of other bytes between, and bytes again in the middle."""
        real = R.multiply(R.astype(x, "float32"), weight(np.full(5, 0.01, "float32")))
        real = R.add(real, weight(np.ones(5, "float32")))
        again = R.subtract(R.astype(quantised(R.nn.relu(real)), "int32"), relax.const(np.int32(11)))
        return quantised(R.multiply(R.astype(again, "float32"), R.erf(R.astype(y, "float32"))))

    assert applied([WHOLE, BYTES], longer) == {"quotients": 2, "rounded": 2}


@needs_dots
@needs_fused
@needs_x86
@pytest.mark.parametrize(
    ("arrays", "body"),
    [
        ([REAL], quantised),  # may be infinite
        ([WHOLE], lambda x: quantised(R.astype(x, "float32"), float("inf"))),
        ([WHOLE], lambda x: quantised(R.astype(x, "float32"), 1e-30)),
        ([WHOLE, REAL], lambda x, y: quantised(R.add(R.astype(x, "float32"), y))),
    ],
)
def test_declined(arrays: list[np.ndarray], body: Any) -> None:
    assert "quotients" not in applied(arrays, body) and "rounded" not in applied(arrays, body)


@needs_dots
@needs_fused
def test_exact_quotients_are_rounded() -> None:
    def body(x: Any) -> Any:
        return R.divide(R.astype(x, "float32"), relax.const(np.float32(3)))

    assert applied([WHOLE], body) == {"quotients": 1} and applied([WHOLE], body, exact=True) == {}
    assert applied([WHOLE], lambda x: R.round(body(x)), exact=True) == {"quotients": 1}


@needs_dots
@needs_x86
def test_large_numbers_are_rounded_as_floats() -> None:
    """Whole numbers of 32 bits by a small scale leave int32."""
    assert applied([WHOLE], lambda x: quantised(R.astype(x, "float32"), 0.25)).get("rounded", 0) == 0


@needs_dots
@needs_x86
def test_what_is_added_must_be_whole() -> None:
    assert "rounded" not in applied([BYTES], lambda x: quantised(R.astype(x, "float32"), zero=11.5))
    assert applied([BYTES], lambda x: quantised(R.astype(x, "float32"), zero=12)).get("rounded") == 1


@needs_dots
@needs_fused
@needs_x86
def test_sums_are_bounded_by_their_weights() -> None:
    """255 * 10 * 128 by 1e-3: far from what int32 holds, where any int32 would not be."""
    b = np.full((10, 4), -128, np.int8)

    def body(x: Any) -> Any:
        return quantised(R.astype(R.matmul(x, weight(b), out_dtype="int32"), "float32"), 1e-3)

    assert applied([np.zeros((3, 10), np.uint8)], body).get("rounded") == 1


@needs_dots
@needs_fused
@needs_x86
def test_bytes_that_are_moved_to_the_other_sign_are_rounded_as_such() -> None:
    """As products of signed bytes read them; not where some would wrap."""
    x = np.arange(-1400, 1400, dtype=np.int32).reshape(50, 56)

    def rounds(p: Any) -> Any:
        return quantised(R.multiply(R.astype(p, "float32"), relax.const(np.float32(0.125))), 1.0)

    def moved(q: Any, by: int) -> Any:
        return R.astype(R.add(R.astype(q, "int32"), relax.const(np.int32(by))), "int8")

    assert applied([x], lambda p: moved(rounds(p), -128)).get("moved") == 1
    assert "moved" not in applied([x], lambda p: moved(rounds(p), -127))
    given, builder = relax.Var("p", relax.TensorType(x.shape, "int32")), relax.BlockBuilder()
    with builder.function("main", [given]):
        with builder.dataflow():
            q = builder.emit(rounds(given))
            out = builder.emit_output(relax.Tuple([builder.emit(moved(q, -128)), q]))
        builder.emit_func_output(out)
    assert "moved" not in Dots().apply(builder.get(), native()).details["applied"], "others read the bytes"
    module = Dots().apply(module_of([x], lambda p: moved(rounds(p), -128)), native()).module
    wanted = np.clip(np.rint(x * 0.125) + 11, 0, 255) - 128
    np.testing.assert_array_equal(Compiled(staged(module)).run([x])[0], wanted.astype(np.int8))
