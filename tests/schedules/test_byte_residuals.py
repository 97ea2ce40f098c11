"""Bytes that a kernel makes and reads itself: no narrowing between a rounding and the sum behind it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byte_sums import numbers, reference
from compiled import Compiled, module_of, native, staged, weight
from halotile.schedules.emit.written_out import HELD, narrows
from halotile.schedules.instructions.int8_dot import data_dtype
from halotile.schedules.operators.registry import call
from halotile.schedules.words.tvm_types import Expr
from tvm import relax, te, tirx

needs_dots = pytest.mark.skipif(
    data_dtype(native()) != "uint8", reason="NOT RUN: this machine has no dot products of unsigned bytes"
)


def net(w: np.ndarray, size: tuple[int, int], dtype: str, zero: int, kept: bool) -> Any:
    """A convolution rounded to bytes, a residual in bytes added to what these stand for, the sum rounded again."""
    low, high = (int(end) for end in (np.iinfo(dtype).min, np.iinfo(dtype).max))

    def body(p: Any) -> Any:
        data = relax.op.maximum(p, relax.const(np.array(0, "uint8"), "uint8"))
        y = call(
            "halotile.dot_conv", data, weight(w), strides=[1, 1], dilations=[1, 1], begin=[0, 0], output=list(size),
            groups=1, fill=0,
        )  # fmt: skip
        y = relax.op.multiply(relax.op.astype(y, "float32"), relax.const(np.float32(2**-6)))
        y = call("halotile.rounded", y, zero=zero, low=low, high=high, dtype=dtype)
        whole = relax.op.subtract(relax.op.astype(y, "int32"), relax.const(np.int32(zero)))
        other = relax.op.astype(relax.op.astype(p, "int32"), "float32")
        total = relax.op.add(relax.op.astype(whole, "float32"), other)
        made = call("halotile.rounded", relax.op.multiply(total, relax.const(np.float32(0.5))), zero=0, low=0, high=255,
                    dtype="uint8")  # fmt: skip
        return relax.Tuple([made, y]) if kept else made

    return body


@needs_dots
def test_the_sum_reads_no_narrowed_byte() -> None:
    rng = np.random.default_rng(1)
    x, w = numbers(rng, "uint8", (2, 37, 7, 11)), numbers(rng, "int8", (37, 37, 1, 1))
    kernels = staged(module_of([x], net(w, (7, 11), "int8", -7, False)), native(), tiled=False).kernels
    (text,) = [k.function.script() for k in kernels if "dot products" in k.schedule]
    assert not [line for line in text.splitlines() if "alloc_local" in line and '"int8"' in line]


@pytest.mark.sampled
@needs_dots
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 0), ("uint8", 113), ("int8", -7)])
@pytest.mark.parametrize("size", [(7, 11), (13, 17), (1, 1)], ids=str)
def test_residuals_of_bytes(size: tuple[int, int], dtype: str, zero: int, kept: bool) -> None:
    rng = np.random.default_rng(zero + 200)
    x, w = numbers(rng, "uint8", (2, 37, *size)), numbers(rng, "int8", (37, 37, 1, 1))
    sums = reference(x, w, [1, 1], [1, 1], ([0, 0], [0, 0]), 1, 0)
    ends = np.iinfo(dtype)
    y = np.clip(np.rint(sums * 2.0**-6) + zero, ends.min, ends.max).astype(dtype)
    wanted = np.clip(np.rint((y.astype(np.int64) - zero + x) * 0.5), 0, 255).astype("uint8")
    build = staged(module_of([x], net(w, size, dtype, zero, kept)), native(), tiled=False)
    found = Compiled(build).run([x])
    np.testing.assert_array_equal(found[0], wanted)
    if kept:
        np.testing.assert_array_equal(found[1], y)


def stage(dtype: str, attrs: dict[str, Any]) -> Expr:
    x = te.placeholder((8,), "int32", name="x")
    made = te.compute((8,), lambda i: x[i].astype(dtype), name="made", attrs=attrs)
    return made(tirx.Var("i", "int32"))


@pytest.mark.parametrize("wide", ["int32", "float32"])
def test_what_narrows(wide: str) -> None:
    assert all(narrows(tirx.Cast(wide, stage(d, {HELD: True}))) for d in ("int8", "uint8", "int16", "uint16"))
    assert not narrows(tirx.Cast(wide, stage("uint8", {})))
    assert not narrows(tirx.Cast(wide, stage("uint32", {HELD: True})))
    assert not narrows(tirx.Cast(wide, tirx.Var("i", "uint8")))


@pytest.mark.parametrize("other", ["int64", "uint32", "float16", "int8"])
def test_what_narrows_is_read_wide_by_two_types_alone(other: str) -> None:
    assert not narrows(tirx.Cast(other, stage("uint8", {HELD: True})))
