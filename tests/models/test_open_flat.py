"""Open images whose layers of 1x1 taps compute pixel after pixel, through the rows: which do so, and their numbers."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Options
from halotile.targets.resolve import resolve

from ..support.open_models import Drawing, feeds
from ..support.open_runs import run_in

CLOSE = 3e-5  # of the largest number of an output
FLAT = "rows end to end"
POISONS = (0xFF, 0x7F)
SIZES = [(1, 1), (1, 2), (2, 1), (3, 3), (5, 1), (1, 31), (7, 7), (2, 29), (13, 4), (11, 17), (23, 24), (6, 53)]


def conv(g: Drawing, x: str, inputs: int, outputs: int, taps: int = 1, groups: int = 1) -> str:
    return g.conv(x, inputs, outputs, taps, groups=groups)


def alone(g: Drawing, x: str) -> str:
    return g("Relu", conv(g, x, 24, 32))


def beside_margins(g: Drawing, x: str) -> str:
    """What a layer of 3x3 taps reads has margins: the result, and what is added to it."""
    y = g("Relu", conv(g, x, 24, 40))
    z = conv(g, g("Relu", conv(g, y, 40, 40, 3)), 40, 40)
    return conv(g, g("Relu", g("Add", z, y)), 40, 24, 3)


def depthwise_behind(g: Drawing, x: str) -> str:
    y = g("HardSwish", conv(g, x, 24, 144))
    return conv(g, g("Relu", conv(g, y, 144, 144, 3, groups=144)), 144, 24)


def scaled_before(g: Drawing, x: str) -> str:
    """A number for each channel, from the mean of all pixels, is multiplied in front."""
    y = conv(g, x, 24, 32, 3)
    scale = g("Sigmoid", conv(g, g("GlobalAveragePool", y), 32, 32))
    return conv(g, g("Mul", y, scale), 32, 48)


def scaled_by_pixels(g: Drawing, x: str) -> str:
    """A number for each pixel is multiplied in front of a layer and behind another."""
    own = g("ReduceMean", x, axes=[1], keepdims=1)
    return g("Mul", conv(g, g("Mul", conv(g, x, 24, 32, 3), own), 32, 16), own)


def scaled_by_rows(g: Drawing, x: str) -> str:
    own = g("ReduceMean", x, axes=[1, 3], keepdims=1)
    return g("Mul", conv(g, x, 24, 16), own)


def columns_beside(g: Drawing, x: str) -> str:
    """A number for each column, as one axis broadcasts it, and rows moved by one."""
    own = g("Reshape", g("ReduceMean", x, axes=[0, 1, 2], keepdims=0), g.whole(-1))
    y = g("Add", conv(g, x, 24, 16), own)
    return g("Add", conv(g, g("Mul", x, own), 24, 16), y)


def few_channels(g: Drawing, x: str) -> str:
    return conv(g, g("Relu", conv(g, conv(g, x, 24, 3), 3, 32)), 32, 20)


def groups(g: Drawing, x: str) -> str:
    return g("Relu", conv(g, conv(g, x, 24, 64), 64, 96, groups=2))


def odd_channels(g: Drawing, x: str) -> str:
    return conv(g, g("Relu", conv(g, conv(g, x, 24, 9), 9, 61)), 61, 125)


def upsampled_behind(g: Drawing, x: str) -> str:
    """A level of a pyramid that is added to a larger one: the smaller one's pixels are read more than once."""
    small = conv(g, g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), 24, 32)
    scales = g.constant([1, 1, 2, 2])
    return g("Add", conv(g, x, 24, 32), g("Resize", small, "", scales, mode="nearest"))


#: network -> how many of its layers are computed so
NETWORKS: dict[Callable[[Drawing, str], str], int] = {
    alone: 1, beside_margins: 2, depthwise_behind: 2, scaled_before: 1, scaled_by_pixels: 1, scaled_by_rows: 0,
    columns_beside: 1, few_channels: 2, groups: 2, odd_channels: 3, upsampled_behind: 1,
}  # fmt: skip


def network(make: Callable[[Drawing, str], str], shape: tuple[int | str, ...]) -> onnx.ModelProto:
    g = Drawing(5)
    g.output(make(g, g.input("x", shape[0], 24, *shape[1:])), 4)
    return g.model()


@pytest.mark.parametrize("target,threads", [("x86-64-v3", 2), ("native", 3)])
@pytest.mark.parametrize("make", NETWORKS, ids=lambda make: make.__name__)
def test_numbers_and_bits(make, target: str, threads: int, tmp_path) -> None:
    proto, twice = network(make, ("n", "h", "w")), 2 if make is upsampled_behind else 1
    typical = {"n": 1, "h": 24, "w": 24}
    options = Options(resolve(target), threads=threads, open=True, formats=("so",), typical=typical, exact=True)
    build = run_pipeline(proto.SerializeToString(), options, output=tmp_path / "out")
    flat = [k for k in build.kernels if FLAT in k.schedule]
    assert len(flat) >= NETWORKS[make] > 0 or not flat and not NETWORKS[make], [k.schedule for k in build.kernels]
    for kernel in flat:
        tiles = re.findall(r"tile (\d+)x(\d+)", kernel.schedule)
        assert {rows for rows, _ in tiles} == {"1"} and tiles[-1] == ("1", "1"), kernel.schedule
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path / "out") as library:
        for number, (h, w) in enumerate(SIZES):
            sizes = {"n": 1 + number % 4, "h": twice * h, "w": twice * w}
            given = feeds(proto, sizes, number)
            (wanted,) = session.run(None, given)
            ordered = {s.name: sizes[s.name] for s in build.imported.symbols}
            found = [run_in(library, ordered, given["x"], t, POISONS[t % 2]) for t in range(1, threads + 1)]
            assert np.abs(found[0] - wanted).max() <= CLOSE * max(1.0, np.abs(wanted).max()), sizes
            assert all(np.array_equal(found[0], other) for other in found[1:]), sizes


@pytest.mark.parametrize("shape", [("n", "h", 1), (1, "h", 1), (1, 1, "w"), ("n", 1, 1)], ids=str)
@pytest.mark.parametrize("make", [alone, scaled_by_pixels, scaled_before, groups], ids=lambda make: make.__name__)
def test_images_one_row_or_column_wide(make, shape, tmp_path) -> None:
    """What has one number for all pixels has as many columns as such an image."""
    proto = network(make, shape)
    typical = {name: 12 for name in shape if isinstance(name, str)}
    options = Options(resolve("x86-64-v3"), threads=2, open=True, formats=("so",), typical=typical)
    run_pipeline(proto.SerializeToString(), options, output=tmp_path / "out")
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path / "out") as library:
        for number in (1, 2, 7, 12, 31):
            sizes = {name: number for name in typical}
            given = feeds(proto, sizes, number)
            (wanted,) = session.run(None, given)
            for threads in (1, 2):
                found = run_in(library, sizes, given["x"], threads, 0xFF)
                assert np.abs(found - wanted).max() <= CLOSE * max(1.0, np.abs(wanted).max()), sizes


@pytest.mark.parametrize("shape", [(1, "h", "w"), (2, "h", 13), (3, 7, "w"), ("n", 7, 5)], ids=str)
def test_any_of_the_sizes_is_open(shape, tmp_path) -> None:
    proto = network(depthwise_behind, shape)
    typical = {name: 12 for name in shape if isinstance(name, str)}
    options = Options(resolve("x86-64-v3"), threads=2, open=True, formats=("so",), typical=typical)
    build = run_pipeline(proto.SerializeToString(), options, output=tmp_path / "out")
    assert sum(FLAT in k.schedule for k in build.kernels) == 2
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path / "out") as library:
        for number in (1, 2, 3, 7, 16, 23):
            sizes = {name: number for name in typical}
            given = feeds(proto, sizes, number)
            (wanted,) = session.run(None, given)
            found = [run_in(library, sizes, given["x"], threads, 0xFF) for threads in (1, 2)]
            assert np.abs(found[0] - wanted).max() <= CLOSE * np.abs(wanted).max(), sizes
            assert np.array_equal(*found), sizes
