"""Convolutions go before resizes of open size too: pyramids of images of any size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Build, Options
from halotile.targets.resolve import resolve

from ..support.open_models import Drawing
from ..support.open_runs import run_in

CLOSE = 3e-5  # of the largest number of an output
SIZES = [(1, 1), (3, 2), (7, 11), (12, 12), (5, 23)]  # of the small map


def pyramid(channels: int, joined: bool, scales: int = 2) -> onnx.ModelProto:
    """A map, and one that many times as large: the first enlarged, beside the second one or alone, to ten channels."""
    g = Drawing(scales)
    x = g.input("x", "n", 16, "h", "w")
    large = g("Relu", g.conv(x, 16, 24, 3))
    pool = {"kernel_shape": [scales] * 2, "strides": [scales] * 2, "ceil_mode": 0}
    small = g("Relu", g.conv(g("MaxPool", x, **pool), 16, channels, 3))
    scale = g.constant([1, 1, scales, scales])
    form = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    again = g("Resize", small, "", scale, **form)
    inputs = channels + 24 * joined
    g.output(g("Relu", g.conv(g("Concat", again, large, axis=1) if joined else again, inputs, 10, 1)), 4)
    return g.model()


def agrees(proto: onnx.ModelProto, build: Build, folder: Path, sizes: list[tuple[int, int]]) -> None:
    """Asserts that the library in ``folder`` gives ONNX Runtime's numbers, and the same bits on one and two threads."""
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with load(folder) as library:
        for number, (h, w) in enumerate(sizes):
            shape = (1 + number % 3, 16, h, w)
            x = np.random.default_rng(number).standard_normal(shape).astype("f")
            (wanted,) = session.run(None, {"x": x})
            at = {s.name: {"n": shape[0], "h": h, "w": w}[s.name] for s in build.imported.symbols}
            found = [run_in(library, at, x, threads, 0xFF) for threads in (1, 2)]
            assert np.abs(found[0] - wanted).max() <= CLOSE * max(1.0, np.abs(wanted).max()), at
            assert np.array_equal(*found), at


@pytest.mark.parametrize("scales", [2, 3])
@pytest.mark.parametrize("joined", [False, True])
def test_a_convolution_goes_before_the_resize(joined: bool, scales: int, tmp_path) -> None:
    proto = pyramid(96, joined, scales)
    typical = {"n": 1, "h": 24, "w": 24}
    options = Options(resolve("x86-64-v3"), threads=2, open=True, formats=("so",), typical=typical)
    build = run_pipeline(proto.SerializeToString(), options, output=tmp_path / "out")
    assert build.details["reassociate"]["applied"].get("resize-later") == 1
    agrees(proto, build, tmp_path / "out", [(scales * h, scales * w) for h, w in SIZES])


def test_few_channels_are_enlarged_first(tmp_path) -> None:
    """Ten channels of four would be more to enlarge than four."""
    options = Options(resolve("x86-64-v3"), open=True, formats=("so",), typical={"n": 1, "h": 24, "w": 24})
    build = run_pipeline(pyramid(4, True).SerializeToString(), options, output=tmp_path / "out")
    assert "resize-later" not in build.details.get("reassociate", {}).get("applied", {})


def decoder(mode: str, coordinate: str) -> onnx.ModelProto:
    """A map of a third of the size, rounded up, enlarged to that of another, beside which it is read."""
    g = Drawing(1)
    x = g.input("x", "n", 16, "h", "w")
    large = g("Relu", g.conv(x, 16, 24, 3))
    small = g("Relu", g.conv(g("MaxPool", x, kernel_shape=[3, 3], strides=[3, 3], ceil_mode=1), 16, 96, 3))
    size = g("Concat", g("Shape", small, end=2), g("Shape", large, start=2), axis=0)
    form = {"mode": mode, "coordinate_transformation_mode": coordinate}
    again = g("Resize", small, "", "", size, **form, **({"nearest_mode": "floor"} if mode == "nearest" else {}))
    g.output(g("Relu", g.conv(g("Concat", again, large, axis=1), 120, 10, 1)), 4)
    return g.model()


@pytest.mark.parametrize(
    ("mode", "coordinate"),
    [("linear", "half_pixel"), ("linear", "align_corners"), ("cubic", "half_pixel"), ("nearest", "asymmetric")],
)
def test_a_convolution_goes_before_a_resize_to_the_size_of_another(mode: str, coordinate: str, tmp_path) -> None:
    proto = decoder(mode, coordinate)
    typical = {"n": 1, "h": 24, "w": 24}
    options = Options(resolve("x86-64-v3"), threads=2, open=True, formats=("so",), typical=typical)
    build = run_pipeline(proto.SerializeToString(), options, output=tmp_path / "out")
    assert build.details["reassociate"]["applied"].get("resize-later") == 1
    agrees(proto, build, tmp_path / "out", [(4, 5), (7, 11), (12, 12), (13, 31), (24, 23)])
