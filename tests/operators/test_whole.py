"""Convolutions and products of bytes against sums of 64-bit integers: not one unit off, by the kernels of float32 and
by those of bytes."""

from __future__ import annotations

from typing import Any

import halotile
import numpy as np
import pytest
from evaluate import one_node
from halotile.compiler.frontend.converters.whole import LIMIT, MOST_PARTS, cuts
from halotile.schedules.conv.direct.int8_depthwise import takes_words
from halotile.schedules.instructions.int8_dot import data_dtype
from halotile.targets.resolve import resolve

RNG = np.random.default_rng(21)


@pytest.fixture(params=["float32", "bytes"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """By the kernels of float32, or of bytes, where this machine has an instruction for these."""
    if request.param == "float32":
        monkeypatch.setattr("halotile.passes.dots.dots.data_dtype", lambda _target: None)
    elif data_dtype(resolve("native")) is None:
        pytest.skip("NOT RUN: this machine multiplies no bytes")
    return str(request.param)


def sums(x: np.ndarray, w: np.ndarray, groups: int, pads: int, strides: int) -> np.ndarray:
    """A convolution of 64-bit integers."""
    x = np.pad(x.astype("int64"), ((0, 0), (0, 0), (pads, pads), (pads, pads)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))[:, :, ::strides, ::strides]
    batch, channels, rows, columns = windows.shape[:4]
    windows = windows.reshape(batch, groups, channels // groups, rows, columns, *w.shape[2:])
    kernels = w.astype("int64").reshape(groups, -1, *w.shape[1:])
    return np.einsum("bgcyxij,gocij->bgoyx", windows, kernels).reshape(batch, -1, rows, columns)


def total(operator: str, inputs: list[Any], **attributes: Any) -> tuple[np.ndarray, list[str]]:
    model, feeds = one_node(operator, inputs, **attributes)
    results, schedules = [], []
    for threads, tile in ((1, "auto"), (2, "off")):  # whether a plan is worth it depends on the machine
        built = halotile.compile(model, threads=threads, tile=tile)
        results.append(built(feeds)["o0"])
        schedules = [k["schedule"].split(" C")[0].split(",")[0] for k in built.report["kernels"]]
    np.testing.assert_array_equal(*results)
    return results[0], schedules


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("channels", "outputs", "kernel", "groups", "strides"),
    [
        *((64, 48, 3, 1, 1), (64, 64, 3, 2, 1), (37, 29, 3, 1, 2), (64, 64, 3, 4, 1)),
        *((32, 32, 3, 32, 1), (96, 130, 1, 1, 1), (13, 7, 5, 1, 1)),
    ],
)
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("w_zero", [0, -7])  # weights less seven are no bytes
def test_convolutions(
    channels: int, outputs: int, kernel: int, groups: int, strides: int, signed: bool, w_zero: int, way: str
) -> None:
    low, dtype = (-128, "int8") if signed else (0, "uint8")
    x = RNG.integers(low, low + 256, (2, channels, 23, 19)).astype(dtype)
    w = RNG.integers(-128, 128, (outputs, channels // groups, kernel, kernel)).astype("int8")
    zero = np.array(low + 100, dtype)
    pads = kernel // 2
    window = {"pads": [pads] * 4, "group": groups, "strides": [strides] * 2}
    got, schedules = total("ConvInteger", [x, w, zero, np.int8(w_zero)], **window)
    wanted = sums(x - zero.astype("int64"), w.astype("int64") - w_zero, groups, pads, strides)
    np.testing.assert_array_equal(got, wanted)
    lanes = resolve("native").lanes("int32")
    blocks = groups == 1 or channels // groups % lanes == outputs // groups % lanes == 0
    columns = groups == channels == outputs and takes_words(resolve("native"), (kernel, kernel), 1)
    dots = way == "bytes" and w_zero == 0 and (blocks or columns)
    assert any(("dot products" if dots else "conv") in s for s in schedules), schedules
    assert not any("winograd" in s or "halves" in s for s in schedules), "their sums are not exact"


@pytest.mark.parametrize(("channels", "parts"), [(518, 1), (519, 2), (4 * 512, 4), (4 * 518 + 1, 0)])
def test_the_largest_sums(channels: int, parts: int, way: str) -> None:
    """All terms are as large as bytes make them: one more than 2**24 holds begins another part."""
    x = np.full((1, channels, 9, 11), 255, "uint8")
    w = np.full((5, channels, 1, 1), 127, "int8")
    terms = w.reshape(5, channels, 1).transpose(1, 2, 0)
    ranges = cuts("uint8", terms)
    assert len(ranges or []) == parts and 255 * 127 * 518 <= LIMIT < 255 * 127 * 519 and MOST_PARTS == 4
    got, schedules = total("ConvInteger", [x, w, np.uint8(0)])
    assert (got == channels * 255 * 127).all()
    if way == "bytes":
        assert sum("dot products" in s for s in schedules) == 1, schedules  # parts are one again
    else:
        assert sum("conv" in s for s in schedules) == parts, schedules


@pytest.mark.parametrize("column", [True, False])
@pytest.mark.parametrize(("depth", "products"), [(96, 1), (2048, 2)])
def test_products_with_zero_points_of_run_time(depth: int, products: int, column: bool) -> None:
    a = RNG.integers(0, 256, (3, 17, depth)).astype("uint8")
    b = RNG.integers(-128, 128, (depth, 33)).astype("int8")
    b_zero = RNG.integers(-5, 5, 33).astype("int8") if column else np.int8(3)
    got, schedules = total("MatMulInteger", [a, b, np.array(255, "uint8"), b_zero], run_time=(0, 2))
    np.testing.assert_array_equal(got, (a.astype("int64") - 255) @ (b.astype("int64") - b_zero))
    assert sum("matmul" in s for s in schedules) == products, schedules


def test_large_products_are_exact() -> None:
    """Seven products of halves add operands before they multiply, and would leave what float32 holds."""
    a = RNG.integers(0, 256, (384, 1024)).astype("uint8")
    b = RNG.integers(-128, 128, (1024, 1024)).astype("int8")
    got, schedules = total("MatMulInteger", [a, b, np.uint8(3)])
    np.testing.assert_array_equal(got, (a.astype("int64") - 3) @ b.astype("int64"))
    assert sum("matmul" in s for s in schedules) == 1 and not any("halves" in s for s in schedules), schedules


def test_other_types_are_summed_as_integers() -> None:
    """Numbers of 16 bits, weights of run time: nothing bounds their sums."""
    few = np.ones((4, 1, 2), "int64")
    assert cuts("int8", few) == [(0, 4)] and cuts("int16", few) is None and cuts("int32", few) is None
    x = RNG.integers(0, 256, (1, 8, 9, 9)).astype("uint8")
    w = RNG.integers(0, 256, (8, 8, 3, 3)).astype("uint8")
    got, _ = total("ConvInteger", [x, w, np.uint8(128), np.uint8(128)], run_time=(0, 1))
    np.testing.assert_array_equal(got, sums(x.astype("int64") - 128, w.astype("int64") - 128, 1, 0, 1))
