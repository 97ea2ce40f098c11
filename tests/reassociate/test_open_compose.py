"""Two linear maps in a row of open sizes become one, through moves that keep their channels whole, and no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Options
from halotile.targets.resolve import resolve

from ..support.open_models import Drawing, feeds
from ..support.open_runs import checked

CLOSE = 3e-5  # of the largest number
SIZES = [(1, 14, 14), (2, 1, 1), (1, 3, 17), (3, 7, 5)]


def products(g: Drawing) -> None:
    t = g("Reshape", g.input("x", "n", 8, "h", "w"), g.constant([0, -1, 8], np.int64))
    g.output(g.linear(g.linear(t, 8, 40), 40, 16), 3)


def on_the_image(g: Drawing) -> None:
    """A product of tokens, and a 1x1 convolution of their image."""
    x = g.input("x", "n", 8, "h", "w")
    ends = [g("Slice", g("Shape", x), g.whole(a), g.whole(b)) for a, b in ((0, 1), (2, 4))]
    shape = g("Concat", ends[0], g.whole(48), ends[1], axis=0)
    t = g("Transpose", g("Reshape", g.conv(x, 8, 8, 3), g.constant([0, 8, -1], np.int64)), perm=[0, 2, 1])
    image = g("Reshape", g("Transpose", g.linear(t, 8, 48), perm=[0, 2, 1]), shape)
    g.output(g.conv(image, 48, 16, 1, pads=[0, 0, 0, 0]), 4)


def convolutions(g: Drawing) -> None:
    g.output(g.conv(g.conv(g.input("x", "n", 8, "h", "w"), 8, 96, 3), 96, 8, 1, pads=[0, 0, 0, 0]), 4)


def other_channels(g: Drawing) -> None:
    """The reshape between them takes channels of several tokens together."""
    t = g("Reshape", g.input("x", "n", 8, "h", "w"), g.constant([0, -1, 8], np.int64))
    g.output(g.linear(g("Reshape", g.linear(t, 8, 40), g.constant([0, -1, 20], np.int64)), 20, 4), 3)


def a_number_for_each_row(g: Drawing) -> None:
    """What is added in between is no constant of channels."""
    x = g.input("x", "n", 8, "h", "w")
    y = g("Add", g.conv(x, 8, 96, 1, pads=[0, 0, 0, 0]), g("ReduceMean", x, axes=[1, 3], keepdims=1))
    g.output(g.conv(y, 96, 8, 1, pads=[0, 0, 0, 0]), 4)


@pytest.mark.parametrize("part,composed", [
    (products, True), (on_the_image, True), (convolutions, True),
    (other_channels, False), (a_number_for_each_row, False),
])  # fmt: skip
def test_where_channels_stay_whole(part, composed: bool, tmp_path: Path) -> None:
    g = Drawing(4)
    part(g)
    model = g.model()
    options = Options(resolve("native"), threads=2, formats=("so",), open=True, typical={"n": 1, "h": 14, "w": 14})
    build = run_pipeline(model.SerializeToString(), options, output=tmp_path / "out")
    assert build.details.get("reassociate", {}).get("applied", {}).get("compose", 0) == composed
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path / "out") as library:
        for number, (n, h, w) in enumerate(SIZES):
            checked(library, session, feeds(model, {"n": n, "h": h, "w": w}, number), CLOSE, (n, h, w))
