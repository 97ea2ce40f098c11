"""Transposed convolutions of few outputs in images of any size: one convolution of all phases, and a shuffle."""

from __future__ import annotations

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest

from ..support.open_models import Drawing

SIZES = [(1, 1, 1), (2, 1, 7), (1, 2, 3), (3, 13, 5), (1, 31, 17), (2, 24, 40), (1, 61, 33)]
CLOSE = 2e-5  # of the largest number


def _head(outputs: int, batch: int | str, **place: object) -> onnx.ModelProto:
    """The end of a detector of text: twice as large, and again, to a map or a few."""
    g = Drawing(4)
    x = g("Relu", g.conv(g.input("x", batch, 3, "h", "w"), 3, 24, 3))
    x = g("Relu", g("ConvTranspose", x, g.drawn(24, 16, 2, 2), strides=[2, 2]))
    kernel = place.get("kernel_shape", [2, 2])
    x = g("ConvTranspose", x, g.drawn(16, outputs, *kernel), g.drawn(outputs), strides=[2, 2], **place)
    g.output(g("Sigmoid", x), 4)
    return g.model()


def _agrees(built: halotile.Model, model: onnx.ModelProto, one: bool) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for number, (n, h, w) in enumerate(SIZES):
        x = np.random.default_rng(number).standard_normal((1 if one else n, 3, h, w)).astype("float32")
        (wanted,) = session.run(None, {"x": x})
        found = np.full(wanted.shape, np.nan, "float32")
        built.bind({"x": x}, {"y0": found})()
        assert np.array_equal(found, built({"x": x}, threads=1)["y0"])
        assert np.abs(found - wanted).max() <= CLOSE * np.abs(wanted).max(), (n, h, w)


@pytest.mark.parametrize("batch", [1, "n"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_all_phases_are_one_convolution(outputs: int, batch: int | str) -> None:
    model = _head(outputs, batch)
    built = halotile.compile(model, "x86-64-v3", threads=2, tile="off")
    schedules = [k["schedule"] for k in built.report["kernels"]]
    assert sum("transposed conv" in s for s in schedules) == 1, schedules  # that of many outputs
    _agrees(built, model, batch == 1)
    _agrees(halotile.compile(model, "x86-64-v3", threads=2), model, batch == 1)
    fixed = halotile.compile(model, "x86-64-v3", threads=2, shapes={"x": (1, 3, 64, 64)}, tile="off")
    sizes = {"h": 64, "w": 64} | ({} if batch == 1 else {"n": 1})
    assert built.arena_bytes(2, shape=sizes) <= 1.1 * fixed.arena_bytes(2)  # not a vector of outputs a position


@pytest.mark.parametrize(
    ("place", "left"),
    [({"pads": [1] * 4, "kernel_shape": [4, 4]}, 2), ({"output_padding": [1, 1], "kernel_shape": [3, 3]}, 1)],
)
def test_results_that_are_cut_stay(place: dict[str, list[int]], left: int) -> None:
    model = _head(1, "n", **place)
    built = halotile.compile(model, "x86-64-v3", threads=2, tile="off")
    assert sum("transposed conv" in k["schedule"] for k in built.report["kernels"]) == left
    _agrees(built, model, False)
