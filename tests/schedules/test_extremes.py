"""Positions of extremes: the first or the last of equals, NaN, every axis and type, values and positions in vectors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, module_of, native, staged
from halotile.schedules.operators import registry as operator
from tvm import relax

NAMES = ("halotile.argmax", "halotile.argmin")


def position(x: np.ndarray, name: str, axis: int, last: bool) -> np.ndarray:
    find = np.argmax if name == NAMES[0] else np.argmin
    if not last:
        return find(x, axis)
    return x.shape[axis] - 1 - find(np.flip(x, axis), axis)


def found(x: np.ndarray, before: Any = lambda x: x) -> tuple[list[np.ndarray], list[np.ndarray], list[str]]:
    """What is computed, what is expected, and the kernels, for every axis and both of equals."""
    cases = [(name, axis, last) for name in NAMES for axis in range(x.ndim) for last in (False, True)]

    def body(x: Any) -> Any:
        x = before(x)
        return [operator.call(n, x, axis=a, keepdims=False, last=last) for n, a, last in cases]

    build = staged(module_of([x], body), fuse=False)
    kernels = [str(k.function) for k in build.kernels]
    return Compiled(build).run([x]), [position(x, *case) for case in cases], kernels


@pytest.mark.sampled
@pytest.mark.parametrize("shape", [(5, 3, 37), (2, 70, 131), (1, 9, 8), (33, 1, 1), (3, 1000), (2, 21, 9, 11)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32", "int8", "uint8", "int64"])
def test_of_equals_the_first_or_the_last(shape: tuple[int, ...], dtype: str) -> None:
    x = np.random.default_rng(len(shape)).integers(0, 6, shape).astype(dtype)
    for got, wanted in zip(*found(x)[:2]):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("fill", [-np.inf, np.inf, 0.0])
def test_nan_and_infinity(fill: float) -> None:
    x = np.full((6, 70, 19), fill, "float32")
    x[0, 3:66:9, 4] = np.nan
    x[1, :, ::3] = np.nan
    x[2, 69] = np.nan
    x[3, 0] = -np.nan
    x[4, 5:9] = -0.0
    for got, wanted in zip(*found(x)[:2]):
        np.testing.assert_array_equal(got, wanted)


def test_of_channels_in_blocks() -> None:
    x = np.random.default_rng(3).integers(0, 9, (1, 32, 12, 13)).astype("float32")
    ones = relax.const(np.ones((32, 1, 1, 1), "float32"))
    got, wanted, _ = found(x, lambda x: relax.op.nn.conv2d(x, ones, groups=32))
    for a, b in zip(got, wanted):
        np.testing.assert_array_equal(a, b)


def test_positions_have_as_many_lanes_as_values() -> None:
    """Both in vectors, positions in 32 bits until they are stored."""
    x = np.random.default_rng(4).standard_normal((3, 21, 1000)).astype("float32")
    lanes = native().lanes()
    for text in found(x)[2]:
        assert f"T.vectorized({lanes})" in text
        assert re.search(r'\(\d+,\), "int32"', text) and not re.search(r'acc\d+ = T.*"int64"', text)
