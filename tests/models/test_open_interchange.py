"""Images of any size that leave blocks of channels: reads along memory are the innermost loop, and numbers stay."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Options
from halotile.targets.resolve import resolve

from ..support.open_models import Drawing, feeds

CLOSE = 3e-5  # of the largest number of an output
SIZES = [(1, 1), (3, 7), (2, 8), (5, 9), (4, 16), (7, 31), (1, 17), (40, 3)]


@pytest.mark.parametrize("target", ["x86-64-v3", "native"])
@pytest.mark.parametrize("channels,operator", [(5, "Sigmoid"), (10, "Sigmoid"), (6, "Neg"), (7, None)])
def test_channels_are_the_innermost_loop(channels: int, operator: str | None, target: str, tmp_path) -> None:
    g = Drawing(channels)
    x = g("Relu", g.conv(g.input("x", "n", 24, "h", "w"), 24, 16, 3))
    y = g.conv(x, 16, channels, 3)
    g.output(g(operator, y) if operator else y, 4)
    proto = g.model()
    typical = {"n": 1, "h": 40, "w": 40}
    options = Options(resolve(target), threads=2, open=True, formats=("so",), typical=typical)
    build = run_pipeline(proto.SerializeToString(), options, output=tmp_path / "out")
    texts = [k.function.script() for k in build.kernels if k.schedule == "map, plain"]
    lanes = 8 if target == "x86-64-v3" else resolve(target).lanes("float32")
    if channels < lanes:  # of as many, squares are transposed in registers
        assert any(f"w // {lanes}, {channels})" in text for text in texts), texts
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path / "out") as library:
        for number, (h, w) in enumerate(SIZES):
            sizes = {"n": 1 + number % 3, "h": h, "w": w}
            given = feeds(proto, sizes, number)
            wanted = session.run(None, given)
            found = [library(given, threads=threads).values() for threads in (1, 2)]
            for one, two, right in zip(*found, wanted, strict=True):
                assert np.abs(one - right).max() <= CLOSE * max(1.0, np.abs(right).max()), sizes
                assert np.array_equal(one, two), sizes
