"""Convolutions of bytes, exactly equal to sums of integers in NumPy."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from byte_sums import numbers, reference, value_range
from compiled import Compiled, module_of, narrow, native, staged, weight
from halotile.schedules.instructions.int8_dot import data_dtype
from halotile.schedules.operators.registry import call
from tvm import relax

DTYPE = data_dtype(native())
needs_dots = pytest.mark.skipif(DTYPE is None, reason="NOT RUN: this machine multiplies no bytes")


#  batch, channels, outputs, size, kernel, strides, dilations, before, after, groups, fill
CASES = [
    (1, 64, 32, (14, 14), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 1, 0),
    (1, 16, 48, (13, 17), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1, 0),
    (2, 37, 29, (11, 7), (3, 3), (2, 2), (1, 1), (1, 0), (0, 1), 1, 117),
    (1, 5, 3, (9, 9), (5, 1), (1, 2), (2, 1), (4, 0), (4, 0), 1, 3),
    (3, 23, 17, (5, 31), (2, 3), (1, 1), (1, 3), (0, 3), (1, 3), 1, 1),
    (1, 64, 64, (12, 12), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 2, 40),
    (1, 96, 32, (7, 7), (1, 1), (2, 2), (1, 1), (0, 0), (0, 0), 2, 0),
    (2, 3, 24, (19, 23), (7, 7), (2, 2), (1, 1), (3, 3), (3, 3), 1, 127),
    (2, 3, 17, (29,), (5,), (1,), (2,), (2,), (1,), 1, 50),
    (1, 4, 9, (4, 5, 6), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 0, 1), (0, 1, 1), 1, 5),
    (1, 2, 20, (14, 14), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1, 128),
    (2, 19, 33, (23,), (7,), (2,), (1,), (3,), (3,), 1, 100),
    (1, 17, 18, (5, 6, 7), (3, 1, 3), (1, 1, 2), (1, 1, 1), (1, 0, 1), (1, 0, 1), 1, 9),
    (1, 512, 40, (3, 3), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1, 77),
]


@pytest.mark.sampled
@needs_dots
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("half", [False, True])
def test_sums_are_exact(case: Any, half: bool) -> None:
    batch, channels, outputs, size, kernel, strides, dilations, before, after, groups, fill = case
    rng = np.random.default_rng(channels + outputs)
    x = numbers(rng, str(DTYPE), (batch, channels, *size))
    w = numbers(rng, "int8", (outputs, channels // groups, *kernel))
    bias = rng.integers(-1000, 1000, (1, outputs, *(1 for _ in size))).astype(np.int32)
    wanted = reference(x, w, strides, dilations, (before, after), groups, fill)

    def body(p: Any) -> Any:
        # the data is made in blocks, with margins, by a kernel of its own
        data = relax.op.maximum(p, relax.const(np.array(value_range(str(DTYPE))[0], str(DTYPE)), str(DTYPE)))
        y = call(
            "halotile.dot_conv", data, weight(w), strides=strides, dilations=dilations, begin=before,
            output=list(wanted.shape[2:]), groups=groups, fill=fill,
        )  # fmt: skip
        return relax.op.add(y, weight(bias))

    target = narrow(native().vector_bits // 2) if half else native()
    if data_dtype(target) is None:
        pytest.skip("NOT RUN: this machine multiplies no bytes in half a vector")
    build = staged(module_of([x], body), target, tiled=False)
    schedules = [k.schedule for k in build.kernels]
    assert sum(s.startswith("dot products of bytes") for s in schedules) == 1, schedules
    (found,) = Compiled(build).run([x])
    np.testing.assert_array_equal(found, wanted + bias)


@needs_dots
def test_one_instruction_for_the_products_of_a_word() -> None:
    w = np.ones((64, 64, 1, 1), np.int8)
    x = np.ones((1, 64, 28, 28), str(DTYPE))

    def body(p: Any) -> Any:
        return call(
            "halotile.dot_conv", p, weight(w), strides=[1, 1], dilations=[1, 1], begin=[0, 0], output=[28, 28],
            groups=1, fill=0,
        )  # fmt: skip

    kernel = next(k for k in staged(module_of([x], body)).kernels if k.schedule.startswith("dot products"))
    assert re.search("vpdpbusd|tdpbusd|sdot|pmadd.wd", kernel.function.script())
