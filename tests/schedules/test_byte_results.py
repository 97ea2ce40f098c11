"""Results of bytes that are narrowed four columns at a time are what NumPy rounds and clips."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byte_sums import numbers, reference
from compiled import Compiled, module_of, native, staged, weight
from halotile.schedules.instructions.byte_packs import packs
from halotile.schedules.instructions.int8_dot import data_dtype
from halotile.schedules.operators.registry import call
from tvm import relax

needs_packs = pytest.mark.skipif(
    data_dtype(native()) != "uint8" or not packs(native(), "uint8", native().lanes("int32")),
    reason="NOT RUN: this machine narrows no four vectors of 16",
)

#  channels, outputs, groups, size, kernel, dtype, zero, low, high
CASES = [
    (32, 32, 1, (13, 17), 1, "uint8", 0, 0, 255),
    (29, 43, 1, (7, 11), 3, "uint8", 113, 0, 255),
    (37, 37, 37, (13, 19), 3, "uint8", 3, 3, 251),
    (31, 31, 31, (11, 7), 5, "int8", -5, -128, 127),
    (64, 48, 1, (5, 4), 1, "int8", 11, -17, 99),
    (16, 16, 1, (3, 3), 1, "uint8", 0, 0, 255),
    (53, 19, 1, (23, 29), 1, "uint8", 128, 0, 255),
]


def _body(w: Any, scale: Any, bias: Any, case: Any, saturated: bool, share: Any = None) -> Any:
    channels, _, groups, size, kernel, dtype, zero, low, high = case

    def body(p: Any) -> Any:
        data = relax.op.maximum(p, relax.const(np.array(0, "uint8"), "uint8"))
        y = call(
            "halotile.dot_conv", data, weight(w), strides=[1, 1], dilations=[1, 1], begin=[kernel // 2] * 2,
            output=list(size), groups=groups, fill=0,
        )  # fmt: skip
        y = relax.op.add(y, weight(share)) if share is not None else y
        y = relax.op.add(relax.op.multiply(relax.op.astype(y, "float32"), weight(scale)), weight(bias))
        if saturated:
            y = relax.op.add(relax.op.round(y), relax.const(np.array(zero, "float32"), "float32"))
            return call("halotile.saturated", y, low=float(low), high=float(high), dtype=dtype)
        return call("halotile.rounded", y, zero=zero, low=low, high=high, dtype=dtype)

    return body


@pytest.mark.sampled
@needs_packs
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("saturated", [False, True])
def test_bytes_are_rounded_and_clipped(case: Any, saturated: bool) -> None:
    channels, outputs, groups, size, kernel, dtype, zero, low, high = case
    rng = np.random.default_rng(channels)
    x = numbers(rng, "uint8", (2, channels, *size))
    w = numbers(rng, "int8", (outputs, channels // groups, kernel, kernel))
    sums = reference(x, w, [1, 1], [1, 1], ([kernel // 2] * 2, [kernel // 2] * 2), groups, 0)
    # powers of two, so that products are exact; some channels leave 16 bits far behind
    scale = np.exp2(rng.integers(-9, 3, (1, outputs, 1, 1))).astype(np.float32)
    bias = rng.integers(-40, 40, (1, outputs, 1, 1)).astype(np.float32) / 2
    share = None if zero else rng.integers(-(1 << 20), 1 << 20, (1, outputs, 1, 1)).astype(np.int32)
    sums = sums if share is None else sums + share
    wanted = np.clip(np.rint(sums * scale.astype(np.float64) + bias) + zero, low, high).astype(dtype)

    build = staged(module_of([x], _body(w, scale, bias, case, saturated, share)), native(), tiled=False)
    kernel_ = next(k for k in build.kernels if "dot products of bytes" in k.schedule)
    columns = int(kernel_.schedule.split("tile ")[1].split("x")[1])
    assert any(getattr(o, "name", "").startswith("s_") for o in kernel_.operands) is (share is not None)
    assert ("packssdw" in kernel_.function.script()) == (columns >= 4)
    (found,) = Compiled(build).run([x])
    np.testing.assert_array_equal(found, wanted)


@needs_packs
def test_packs_where_a_row_has_four_columns() -> None:
    w, one = np.ones((16, 16, 1, 1), np.int8), np.ones((1, 16, 1, 1), np.float32)
    for size, expected in (((8, 8), True), ((8, 3), False)):
        x = np.ones((1, 16, *size), np.uint8)
        case = (16, 16, 1, size, 1, "uint8", 0, 0, 255)
        kernels = staged(module_of([x], _body(w, one, one, case, False)), native(), tiled=False).kernels
        made = next(k for k in kernels if "dot products of bytes" in k.schedule)
        assert ("packssdw" in made.function.script()) is expected
