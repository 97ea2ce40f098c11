"""Pools at a model's edge, where channels are not blocked: vectors along rows, edges apart from them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, module_of, narrow, native, staged
from halotile.schedules.operators import registry as operator
from tvm import relax

R = relax.op
F = "float32"


def windows(x: np.ndarray, kernel: tuple[int, int], stride: int, pads: tuple[int, ...], fill: float) -> np.ndarray:
    top, left, bottom, right = pads
    padded = np.pad(x.astype("float64"), [(0, 0), (0, 0), (top, bottom), (left, right)], constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=(2, 3))[:, :, ::stride, ::stride]


@pytest.mark.sampled
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 2, 1, 0), (2, 0, 0, 1)])
@pytest.mark.parametrize("width", [7, 35, 97, 131])
def test_padded_pools_in_plain_memory(width: int, pads: tuple[int, ...], stride: int) -> None:
    x = np.random.default_rng(width).standard_normal((2, 3, 11, width)).astype(F)

    def body(x: Any) -> Any:
        most = R.nn.max_pool2d(x, (3, 3), strides=(stride, stride), padding=pads)
        mean = R.nn.avg_pool2d(x, (3, 4), strides=(stride, stride), padding=pads, count_include_pad=True)
        return [R.nn.relu(most), R.multiply(mean, mean)]

    compiled = Compiled(staged(module_of([x], body)))
    most, mean = compiled.run([x])
    expected = windows(x, (3, 3), stride, pads, -np.inf).max((-1, -2))
    np.testing.assert_array_equal(most, np.maximum(expected, 0).astype(F))
    np.testing.assert_allclose(mean, windows(x, (3, 4), stride, pads, 0).mean((-1, -2)) ** 2, rtol=1e-4, atol=1e-6)
    for kernel in compiled.build.kernels:
        text = str(kernel.function)
        assert width == 7 or not re.search(r"for v\d+ in range", text), "lanes became a plain loop"
        if width // stride - 4 >= native().lanes():
            assert f"in T.vectorized({native().lanes()})" in text, kernel.schedule
            assert stride == 1 or "Shuffle" in text, "one element a lane is read"


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("channels", [3, 32])
def test_a_window_of_minus_infinity_stays_one_in_the_padding(channels: int, size: int) -> None:
    """Relax pads with the lowest finite number, which is more."""
    x = np.random.default_rng(size).standard_normal((1, channels, 12, 20)).astype(F)
    x[..., :7, :9] = -np.inf
    pads = (size // 2,) * 4
    ones = relax.const(np.ones((channels, 1, 1, 1), F))

    def body(x: Any) -> Any:
        same = R.nn.conv2d(x, ones, groups=channels)  # in channel blocks, where they fill them
        return [R.nn.max_pool2d(v, (size, size), strides=(s, s), padding=pads) for v, s in ((same, 1), (x, 2))]

    for got, stride in zip(Compiled(staged(module_of([x], body))).run([x]), (1, 2)):
        np.testing.assert_array_equal(got, windows(x, (size, size), stride, pads, -np.inf).max((-1, -2)))


@pytest.mark.parametrize("include", [True, False])
def test_means_are_products_with_a_reciprocal(include: bool) -> None:
    """Of the window's size, where that is the same everywhere; of what lies within the image otherwise."""
    x = np.random.default_rng(3).standard_normal((2, 3, 11, 70)).astype(F)
    x[0, 0, 4, 20] = np.inf

    def body(x: Any) -> Any:
        return R.nn.avg_pool2d(x, (3, 3), padding=(1, 1, 1, 1), count_include_pad=include)

    compiled = Compiled(staged(module_of([x], body)))
    (mean,) = compiled.run([x])
    ones = windows(np.ones_like(x), (3, 3), 1, (1, 1, 1, 1), 0).sum((-1, -2))
    total = windows(x, (3, 3), 1, (1, 1, 1, 1), 0).sum((-1, -2))
    np.testing.assert_allclose(mean, total / (9 if include else ones), rtol=1e-5, atol=1e-6)
    text = str(compiled.build.kernels[0].function)
    assert include == (" / " not in text) and re.search(r"(?<!T.float32\(1.0\)) / ", text) is None, "sums are divided"


@pytest.mark.parametrize("bits", [512, 128])
@pytest.mark.parametrize("stride", [2, 3, 4, 5])
def test_strided_reads_are_shuffles(stride: int, bits: int) -> None:
    """Of whole vectors that end at the last element wanted: the last row ends where the memory does."""
    x = np.arange(3 * 5 * 67, dtype=F).reshape(1, 3, 5, 67)[..., : 66 // stride * stride + 1].copy()
    x[0, 1, 2, stride] = np.nan

    def body(x: Any) -> Any:
        part = R.strided_slice(x, [3], [0], [x.ty.shape[3]], [stride])
        return [R.nn.max_pool2d(x, (2, 1), strides=(1, stride)), part]

    compiled = Compiled(staged(module_of([x], body), narrow(bits)))
    most, part = compiled.run([x])
    np.testing.assert_array_equal(part, x[..., ::stride])
    np.testing.assert_array_equal(most, np.fmax(x[:, :, :-1, ::stride], x[:, :, 1:, ::stride]))
    for kernel in compiled.build.kernels:
        assert ("Shuffle" in str(kernel.function)) == (stride < 5)


@pytest.mark.parametrize("bits", [512, 128])
@pytest.mark.parametrize("times", [2, 3, 4, 5])
def test_repeated_reads_are_shuffles(times: int, bits: int) -> None:
    """Of a part of a vector, no element beyond those wanted: the last row ends where the memory does."""
    x = np.arange(3 * 5 * 21, dtype=F).reshape(1, 3, 5, 21)

    def body(x: Any) -> Any:
        return operator.call("halotile.upsample", x, factors=[1, 1, 2, times])

    compiled = Compiled(staged(module_of([x], body), narrow(bits)))
    (found,) = compiled.run([x])
    np.testing.assert_array_equal(found, x.repeat(2, 2).repeat(times, 3))
    (kernel,) = compiled.build.kernels
    lanes = narrow(bits).lanes()
    if lanes > times != 3:  # three times an element fits a tail by chance
        assert "Shuffle" in str(kernel.function)
        assert ("for j" in str(kernel.function)) == (times < 5), "more often, lines are written out"
