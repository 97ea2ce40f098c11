"""Open images smaller than the taps around a pixel: tiles pass over the taps that lie in the padding."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.compiler.flow.kernel import kernels_of
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Options
from halotile.targets.resolve import resolve

from ..support.open_models import Drawing, feeds
from ..support.open_runs import run_in

CLOSE = 2e-5  # of the largest number of an output
SIZES = [(1, 1), (1, 2), (2, 1), (2, 2), (1, 9), (7, 1), (3, 2), (2, 5), (11, 13), (1, 40)]
# (taps, strides, dilations, pads)
WINDOWS = [
    (3, 1, 1, (1, 1, 1, 1)),
    (5, 1, 1, (2, 2, 2, 2)),
    (3, 2, 1, (1, 1, 1, 1)),
    (3, 1, 3, (3, 3, 3, 3)),
    (3, 2, 1, (0, 0, 1, 1)),
    (5, 1, 2, (6, 3, 2, 5)),
]


def network(
    window: tuple[int, int, int, tuple[int, ...]], outputs: int, only: int | None = None
) -> onnx.ModelProto:
    """A convolution of 40 channels, of whose taps ``only`` one is a number, if given."""
    taps, strides, dilation, pads = window
    g = Drawing(taps + dilation)
    x = g.input("x", "n", 40, "h", "w")
    weight = np.random.default_rng(taps).standard_normal((outputs, 40, taps, taps)).astype("f")
    if only is not None:
        weight.reshape(outputs, 40, -1)[:, :, [t for t in range(taps * taps) if t != only]] = np.nan
    steps = {"strides": [strides] * 2, "dilations": [dilation] * 2}
    y = g("Conv", x, g.constant(weight), g.drawn(outputs), kernel_shape=[taps] * 2, pads=list(pads), **steps)
    g.output(g("Relu", y), 4)
    return g.model()


def options(target: str, typical: int) -> Options:
    return Options(resolve(target), threads=2, open=True, formats=("so",), typical={"n": 1, "h": typical, "w": typical})


@pytest.mark.parametrize("target,typical", [("native", 24), ("x86-64-v3", 4)])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_numbers_and_bits(window, target: str, typical: int, tmp_path) -> None:
    proto = network(window, 56)
    build = run_pipeline(proto.SerializeToString(), options(target, typical), output=tmp_path / "out")
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path / "out") as library:
        for number, (h, w) in enumerate(SIZES):
            if min(h, w) < window[0] - window[3][0] - window[3][2]:
                continue  # no output
            sizes = {"n": 1 + number % 3, "h": h, "w": w}
            given = feeds(proto, sizes, number)
            (wanted,) = session.run(None, given)
            ordered = {s.name: sizes[s.name] for s in build.imported.symbols}
            found = [run_in(library, ordered, given["x"], threads, 0xFF) for threads in (1, 2)]
            assert np.abs(found[0] - wanted).max() <= CLOSE * max(1.0, np.abs(wanted).max()), sizes
            assert np.array_equal(*found), sizes


@pytest.mark.parametrize("window,only", [(WINDOWS[0], 4), (WINDOWS[1], 12), (WINDOWS[3], 4)], ids=str)
def test_taps_in_the_padding_are_not_multiplied(window, only: int, tmp_path) -> None:
    """Of an image of one pixel one tap counts, whatever the others are."""
    proto = network(window, 48, only)
    run_pipeline(proto.SerializeToString(), options("native", 24), output=tmp_path / "out")
    with load(tmp_path / "out") as library:
        (result,) = library({"x": np.ones((1, 40, 1, 1), "f")}, threads=1).values()
    assert np.isfinite(result).all() and result.any()


def test_narrow_tiles_ask_for_no_line_again_and_again() -> None:
    """Of eight channels in a vector, a tile of four columns would ask four times for each line of its results."""
    g = Drawing(2)
    y = g.conv(g.input("x", "n", 16, "h", "w"), 16, 16, 3, strides=[2, 2])
    g.output(g("Relu", y), 4)
    asked = Options(resolve("x86-64-v3"), open=True, typical={"n": 1, "h": 48, "w": 48}, stop_after="schedule")
    build = run_pipeline(g.model().SerializeToString(), asked)
    found = {}
    for part in (p for k in build.kernels for p in kernels_of(k)):
        if tile := re.search(r"direct conv C8, tile \d+x(\d+)x", part.schedule):
            found.setdefault(int(tile[1]) <= 4, []).append(", 1, 3, 1)" in part.function.script())
    assert found[True] and not any(found[True])
    assert False not in found or any(found[False])
