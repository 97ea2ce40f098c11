"""Functions of a byte are tables: every byte is what NumPy rounds it to, alone and behind a convolution."""

from __future__ import annotations

from math import erf, sqrt
from typing import Any

import numpy as np
import pytest
from byte_sums import numbers, reference
from compiled import Compiled, module_of, native, staged, weight
from halotile.passes.dots import Dots
from halotile.schedules.instructions.byte_packs import packs
from halotile.schedules.instructions.byte_tables import has_lookup, table_words
from halotile.schedules.instructions.int8_dot import data_dtype
from halotile.schedules.operators.registry import call
from tvm import relax

R = relax.op
needs_lookup = pytest.mark.skipif(
    not has_lookup(native()) or data_dtype(native()) is None,
    reason="NOT RUN: this machine looks up no bytes in registers",
)
SIZES = [(1,), (5, 7), (1, 3, 13, 17), (2, 48, 9, 11), (64, 64)]


def real(x: Any, scale: float, zero: int) -> Any:
    whole = R.add(R.astype(x, "int32"), relax.const(-zero, "int32"))
    return R.multiply(R.astype(whole, "float32"), relax.const(np.float32(scale)))


def quantised(x: Any, scale: float, zero: int, dtype: str = "uint8") -> Any:
    ends = np.iinfo(dtype)
    y = R.add(R.round(R.divide(x, relax.const(np.float32(scale)))), relax.const(np.float32(zero)))
    return R.astype(R.clip(y, int(ends.min), int(ends.max)), dtype)


def silu(x: Any) -> Any:
    """With a sigmoid that is rounded to bytes, as ONNX Runtime's quantiser has it."""
    gate = real(quantised(R.sigmoid(real(x, 0.0496, 124)), 0.00392, 0), 0.00392, 0)
    return quantised(R.multiply(real(x, 0.0496, 124), gate), 0.0265, 10)


def silu_of(x: np.ndarray) -> np.ndarray:
    value = (x.astype(np.float64) - 124) * np.float32(0.0496)
    gate = np.clip(np.rint(1 / (1 + np.exp(-value)) / np.float32(0.00392)), 0, 255) * np.float32(0.00392)
    return value * gate / np.float32(0.0265) + 10


def applied(arrays: list[np.ndarray], body: Any, exact: bool = False) -> dict[str, int]:
    result = Dots(exact=exact).apply(module_of(arrays, body), native())
    return dict(result.details.get("applied", {})) if result.changed else {}


def same(found: np.ndarray, wanted: np.ndarray) -> None:
    """``wanted`` before it is rounded: where float32 may round the other way, either is right."""
    ends = np.iinfo(found.dtype)
    low, high = (np.clip(np.rint(wanted + d), ends.min, ends.max).astype(found.dtype) for d in (-1e-4, 1e-4))
    assert ((found == low) | (found == high)).all()
    assert (low != high).mean() < 0.05


@needs_lookup
@pytest.mark.parametrize("made", ["uint8", "int8"])
@pytest.mark.parametrize("read", ["uint8", "int8"])
def test_every_byte_is_the_tables(read: str, made: str) -> None:
    rng = np.random.default_rng(3)
    for shape in SIZES:
        table, x = (rng.integers(0, 256, n).astype(np.uint8) for n in (256, shape))
        words = table_words(table)
        build = staged(module_of([x.view(read)], lambda p: call("halotile.byte_table", p, words=words, dtype=made)))  # noqa: B023
        np.testing.assert_array_equal(Compiled(build).run([x.view(read)])[0], table[x].view(made))


@needs_lookup
@pytest.mark.parametrize("shape", [(256,), (3, 7, 31), (1, 29, 11, 13)], ids=str)
def test_a_gate_is_one_table(shape: tuple[int, ...]) -> None:
    x = np.resize(np.arange(256, dtype=np.uint8), shape)
    assert applied([x], silu)["tables"] == 2  # the sigmoid's, which is gone when the gate has its own
    module = Dots().apply(module_of([x], silu), native()).module
    assert module.script().count("halotile.byte_table") == 1
    same(Compiled(staged(module)).run([x])[0], silu_of(x))


@needs_lookup
def test_an_error_function_is_a_table() -> None:
    def body(x: Any) -> Any:
        value = real(x, 0.031, 3)
        error = R.erf(R.multiply(value, relax.const(np.float32(sqrt(0.5)))))
        half = R.add(R.multiply(error, relax.const(0.5)), relax.const(0.5))
        return quantised(R.multiply(value, half), 0.021, -7, "int8")

    x = np.arange(-128, 128).astype(np.int8)
    assert applied([x], body)["tables"] == 1
    value = (x.astype(np.float64) - 3) * np.float32(0.031)
    wanted = value * (1 + np.array([erf(v * sqrt(0.5)) for v in value])) / 2 / np.float32(0.021) - 7
    same(Compiled(staged(Dots().apply(module_of([x], body), native()).module)).run([x])[0], wanted)


@needs_lookup
def test_what_is_no_table() -> None:
    x, y = np.zeros((4, 5), np.uint8), np.zeros((4, 5), np.float32)
    channel = weight(np.linspace(0.1, 1, 4).astype(np.float32)[:, None])

    def of_channels(p: Any) -> Any:
        return quantised(R.sigmoid(R.multiply(real(p, 0.1, 3), channel)), 0.004, 0)

    def of_two(p: Any, q: Any) -> Any:
        return quantised(R.sigmoid(R.add(real(p, 0.1, 3), real(q, 0.2, 0))), 0.004, 0)

    assert "tables" in applied([x], silu)
    assert "tables" not in applied([x], silu, exact=True)
    assert "tables" not in applied([x], of_channels)
    assert "tables" not in applied([y], lambda p: quantised(R.sigmoid(p), 0.004, 0))
    assert "tables" not in applied([x], lambda p: quantised(R.nn.relu(real(p, 0.1, 3)), 0.07, 0))
    assert "tables" not in applied([x, x], of_two)


@needs_lookup
@pytest.mark.skipif(not packs(native(), "uint8", native().lanes("int32")), reason="NOT RUN: nothing to narrow with")
@pytest.mark.parametrize("made", ["uint8", "int8"])
@pytest.mark.parametrize("groups", [1, 37])
def test_results_of_convolutions_are_looked_up_before_they_are_narrowed(groups: int, made: str) -> None:
    rng = np.random.default_rng(groups)
    x, w = numbers(rng, "uint8", (1, 37, 13, 17)), numbers(rng, "int8", (37, 37 // groups, 3, 3))
    table, scale = rng.integers(0, 256, 256).astype(np.uint8), np.exp2(rng.integers(-9, -2, (1, 37, 1, 1)))

    def body(p: Any) -> Any:
        data = R.maximum(p, relax.const(np.array(0, "uint8"), "uint8"))
        y = call(
            "halotile.dot_conv", data, weight(w), strides=[1, 1], dilations=[1, 1], begin=[1, 1], output=[13, 17],
            groups=groups, fill=0,
        )  # fmt: skip
        y = R.multiply(R.astype(y, "float32"), weight(scale.astype(np.float32)))
        y = call("halotile.rounded", y, zero=99, low=2, high=255, dtype="uint8")
        return call("halotile.byte_table", y, words=table_words(table), dtype=made)

    build = staged(module_of([x], body), native(), tiled=False)
    kernel = next(k for k in build.kernels if "dot products of bytes" in k.schedule)
    assert "packssdw" in kernel.function.script()
    sums = reference(x, w, [1, 1], [1, 1], ([1, 1], [1, 1]), groups, 0)
    wanted = table[np.clip(np.rint(sums * scale) + 99, 2, 255).astype(np.uint8)].view(made)
    np.testing.assert_array_equal(Compiled(build).run([x])[0], wanted)


@needs_lookup
def test_what_is_not_a_number_or_beyond_a_cast_is_left_to_kernels() -> None:
    def logarithm(x: Any) -> Any:
        return quantised(R.log(real(x, 0.02, 100)), 0.01, -5, "int8")

    def beyond(x: Any) -> Any:
        return R.astype(R.exp(real(x, 0.1, 0)), "uint8")

    def within(x: Any) -> Any:
        return R.astype(R.exp(real(x, 0.02, 0)), "uint8")

    x = np.arange(256).astype(np.uint8)
    assert "tables" not in applied([x], logarithm)
    assert "tables" not in applied([x], beyond)
    assert applied([x], within)["tables"] == 1
    found = Compiled(staged(Dots().apply(module_of([x], within), native()).module)).run([x])[0]
    np.testing.assert_array_equal(found, np.exp(x.astype("f8") * np.float32(0.02)).astype(np.uint8))
