"""Tiles that no border moved back run through loops of known length, whatever the epilogue costs."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.compiler.api import compile as compile_model
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.targets.resolve import resolve

from ..support.open_models import Drawing, feeds

TARGET = "x86-64-v3"
CLOSE = 3e-5  # of the largest number of an output
MOVED = re.compile(r"T\.grid\(4 - \S+, 4 - \S+\)")


def layer() -> onnx.ModelProto:
    """A convolution whose results take an exponential each."""
    g = Drawing(3)
    x = g("Mul", y := g.conv(g.input("x", "n", 32, "h", "w"), 32, 29, 3), g("Sigmoid", y))
    g.output(x, 4)
    return g.model()


def scripts(shapes) -> list[str]:
    options = Options(resolve(TARGET), shapes={"x": shapes}, typical={"h": 40, "w": 40} if "h" in shapes else None)
    build = run_pipeline(layer(), options)
    found = [k for k in build.kernels if "winograd F(4x4,3x3)" in k.schedule]
    return [f.script() for k in found for f in (p.function for p in getattr(k, "parts", None) or [k])]


@pytest.mark.parametrize(("shapes", "moved"), [((1, 32, "h", "w"), 1), ((1, 32, 37, 41), 1), ((1, 32, 36, 40), 0)])
def test_loops_of_known_length(shapes, moved) -> None:
    texts = [s for s in scripts(shapes) if "T.grid(4, 4)" in s]
    assert len(texts) == 1, "the tiles that are whole"
    assert len(MOVED.findall(texts[0])) == moved


def test_numbers_of_whole_and_moved_tiles() -> None:
    proto = layer()
    model = compile_model(proto, threads=2, target=TARGET, typical={"n": 1, "h": 40, "w": 40})
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for number, (n, h, w) in enumerate([(1, 24, 24), (1, 23, 24), (2, 24, 25), (3, 7, 29), (1, 8, 8), (1, 6, 11)]):
        given = feeds(proto, {"n": n, "h": h, "w": w}, number)
        (got,), (wanted,) = model(given).values(), session.run(None, given)
        assert np.abs(got - wanted).max() <= CLOSE * np.abs(wanted).max(), (n, h, w)
