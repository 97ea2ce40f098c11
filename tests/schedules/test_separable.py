"""Windows over rows and columns as two reductions: equal results for every shape, and only where taps are saved."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, module_of, narrow, staged, weight
from halotile.schedules.words.layout import Layout
from tvm import relax

R = relax.op
F = "float32"
MARGINS = ((0, 0), (0, 0), (1, 2), (3, 1))

# kernel, strides, pads (top, left, bottom, right), dilation
WINDOWS = [
    ((5, 5), (1, 1), (2, 2, 2, 2), (1, 1)),
    ((3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    ((3, 3), (1, 1), (0, 0, 0, 0), (1, 1)),
    ((4, 7), (1, 1), (0, 3, 2, 1), (1, 1)),
    ((9, 9), (2, 2), (4, 4, 4, 4), (1, 1)),
    ((5, 5), (1, 1), (4, 4, 4, 4), (2, 2)),
    ((13, 13), (1, 1), (6, 6, 6, 6), (1, 1)),
]


def windows(x: np.ndarray, kernel: Any, strides: Any, pads: Any, dilation: Any, fill: float) -> np.ndarray:
    top, left, bottom, right = pads
    padded = np.pad(x.astype("float64"), [(0, 0), (0, 0), (top, bottom), (left, right)], constant_values=fill)
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation))
    view = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3))
    return view[:, :, :: strides[0], :: strides[1], :: dilation[0], :: dilation[1]]


def data(channels: int, width: int) -> np.ndarray:
    x = np.random.default_rng(width).standard_normal((2, channels, 14, width)).astype(F)
    x[0, 1, 3, width // 2] = np.nan
    x[1, 2, 0, 0] = np.inf
    return x


@pytest.mark.sampled
@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize("width", [14, 20, 37, 67])
@pytest.mark.parametrize("window", WINDOWS)
def test_separated_windows(window: Any, width: int, blocked: bool) -> None:
    kernel, strides, pads, dilation = window
    x = data(19 if blocked else 3, width)

    def body(x: Any) -> Any:
        most = R.nn.max_pool2d(x, kernel, strides=strides, padding=pads, dilation=dilation)
        if dilation != (1, 1):
            return R.nn.relu(most)
        mean = R.nn.avg_pool2d(x, kernel, strides=strides, padding=pads, count_include_pad=True)
        return [R.nn.relu(most), R.multiply(mean, mean)]

    def lanes(build: Any) -> dict[Any, Layout]:
        values = {v for g in build.groups for v in (*g.inputs, *g.outputs)}
        return {v: Layout(v.shape, 16, MARGINS) if len(v.shape) == 4 else Layout(v.shape) for v in values}

    target = replace(narrow(512), cores=2 if width == 67 else 1)
    build = staged(module_of([x], body), target, layouts=lanes if blocked else None, tiled=False)
    for made in build.kernels:
        assert re.search("staged, [23] phases, prefix 3", made.schedule), made.schedule
    results = Compiled(build).run([x])
    if blocked:
        results = [r[:, :, 1:-2, 3:-1].transpose(0, 1, 4, 2, 3).reshape(2, -1, *r.shape[2:4] - np.array([3, 4]))
                   for r in results]  # fmt: skip
        assert all((r[:, 19:] == 0).all() for r in results), "lanes beyond the last channel"
        results = [r[:, :19] for r in results]
    with np.errstate(invalid="ignore"):
        most = np.fmax.reduce(windows(x, kernel, strides, pads, dilation, -np.inf), axis=(-1, -2))
        np.testing.assert_array_equal(results[0], np.where(most < 0, 0, most).astype(F))
        if dilation == (1, 1):
            mean = windows(x, kernel, strides, pads, dilation, 0).mean((-1, -2))
            np.testing.assert_allclose(results[1], mean**2, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("kernel", "stride"), [((2, 2), 2), ((3, 3), 2), ((3, 1), 1), ((1, 5), 1)])
def test_windows_with_nothing_to_gain(kernel: Any, stride: int) -> None:
    x = data(3, 37)
    build = staged(module_of([x], lambda x: R.nn.max_pool2d(x, kernel, strides=(stride, stride))))
    assert "staged, 1 phase," in build.kernels[0].schedule
    most = np.fmax.reduce(windows(x, kernel, (stride, stride), (0, 0, 0, 0), (1, 1), 0), axis=(-1, -2))
    np.testing.assert_array_equal(Compiled(build).run([x])[0], most.astype(F))


def test_a_map_before_the_window_joins_the_first_half() -> None:
    x = data(3, 37)
    build = staged(module_of([x], lambda x: R.nn.max_pool2d(R.nn.relu(x), (5, 5))))
    assert all("2 phases" in k.schedule for k in build.kernels if "staged" in k.schedule)
    (result,) = Compiled(build).run([x])
    most = np.fmax.reduce(windows(np.where(x < 0, 0, x), (5, 5), (1, 1), (0, 0, 0, 0), (1, 1), 0), axis=(-1, -2))
    np.testing.assert_array_equal(result, most.astype(F))


def test_rows_side_by_side_fit_the_stack() -> None:
    """Wide images have fewer rows side by side: all that is on the stack stays within its bounds."""
    for width, rows in ((100, 8), (3000, 2), (6000, 1)):
        x = np.random.default_rng(width).standard_normal((1, 2, 9, width)).astype(F)
        build = staged(module_of([x], lambda x: R.nn.max_pool2d(x, (5, 5))))
        text = str(build.kernels[0].function)
        (scratch,) = re.findall(r"= T.alloc_buffer\(\((\d+),", text)
        assert int(scratch) == rows * width
        most = np.fmax.reduce(windows(x, (5, 5), (1, 1), (0, 0, 0, 0), (1, 1), 0), axis=(-1, -2))
        np.testing.assert_array_equal(Compiled(build).run([x])[0], most.astype(F))


def test_rows_of_channel_lanes_are_not_side_by_side() -> None:
    """Their loads are each of one store, and wait for none."""
    x = np.random.default_rng(5).standard_normal((1, 32, 12, 23)).astype(F)
    w = np.random.default_rng(6).standard_normal((32, 32, 1, 1)).astype(F)

    def body(x: relax.Expr) -> relax.Expr:
        return R.nn.conv2d(R.nn.max_pool2d(R.nn.conv2d(x, weight(w)), (5, 5)), weight(w))

    build = staged(module_of([x], body), tiled=False)
    (pool,) = [k for k in build.kernels if "2 phases" in k.schedule]
    lanes = int(re.findall(r"lanes (\d+)", pool.schedule)[0])
    (scratch,) = re.findall(r"= T.alloc_buffer\(\((\d+),\)\)", str(pool.function))
    assert int(scratch) == 23 * lanes
    mixed = np.einsum("oi,nihw->nohw", w[:, :, 0, 0].astype("f8"), x)
    most = np.fmax.reduce(windows(mixed, (5, 5), (1, 1), (0, 0, 0, 0), (1, 1), 0), axis=(-1, -2))
    wanted = np.einsum("oi,nihw->nohw", w[:, :, 0, 0], most)
    np.testing.assert_allclose(Compiled(build).run([x])[0], wanted, rtol=1e-4, atol=1e-3)
