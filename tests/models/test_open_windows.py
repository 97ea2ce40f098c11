"""Windows over images whose sizes are open, in plain memory: pools at every small size, beside ONNX Runtime.

Vectors of outputs lie between edges that depend on the size, the last one is moved back, and windows over rows and
columns are two reductions.
"""

from __future__ import annotations

from typing import Any

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.schedules.kernel.open_ranges import OpenRanges
from halotile.schedules.words.dims import Dim, to_index
from tvm import tirx
from uncompiled import reported

from ..support.open_models import Drawing

SIZES = [(h, w) for h in (1, 2, 3, 5, 18, 40) for w in (1, 2, 3, 4, 5, 15, 16, 17, 18, 20, 33, 34, 35, 67, 131)]
POOLS: dict[str, tuple[str, dict[str, Any], int]] = {  # the operator, its attributes, the least size
    "3x3, a stride": ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, 1),
    "5x5": ("MaxPool", {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2]}, 1),
    "9x9": ("MaxPool", {"kernel_shape": [9, 9], "pads": [4, 4, 4, 4]}, 1),
    "uneven": ("MaxPool", {"kernel_shape": [3, 4], "strides": [1, 3], "pads": [0, 2, 2, 1]}, 2),
    "dilated": ("MaxPool", {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [2, 1, 2, 1]}, 3),
    "no padding": ("MaxPool", {"kernel_shape": [2, 3], "strides": [2, 1]}, 3),
    "means": ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, 1),
    "means of wide windows": ("AveragePool", {"kernel_shape": [5, 7], "pads": [2, 3, 2, 3], "strides": [2, 1]}, 1),
    "means with padding": (
        "AveragePool", {"kernel_shape": [4, 4], "pads": [1, 2, 2, 1], "count_include_pad": 1}, 2
    ),
}  # fmt: skip


def _model(operator: str, attributes: dict[str, Any]) -> onnx.ModelProto:
    g = Drawing(1)
    g.output(g(operator, g.input("x", "n", 3, "h", "w"), **attributes), 4)
    return g.model()


def _agrees(built: Any, model: onnx.ModelProto, shape: tuple[int, ...]) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(3).standard_normal(shape).astype("float32")
    (wanted,) = session.run(None, {"x": x})
    found = np.full(wanted.shape, np.nan, "float32")
    built.bind({"x": x}, {"y0": found})()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=str(shape))


@pytest.mark.parametrize("name", POOLS)
def test_pools_of_any_size(name):
    operator, attributes, least = POOLS[name]
    model = _model(operator, attributes)
    built = halotile.compile(model, threads=2)
    for h, w in SIZES:
        if min(h, w) >= least:
            _agrees(built, model, (2, 3, h, w))


def test_lines_and_images_too():
    for shape, window in ((("n", 3, "t"), [5]), (("n", 2, "d", "h", "w"), [3, 3, 3])):
        g = Drawing(1)
        pads = [k // 2 for k in window] * 2
        g.output(g("MaxPool", g.input("x", *shape), kernel_shape=window, pads=pads), len(shape))
        model = g.model()
        built = halotile.compile(model, threads=1)
        for size in (1, 2, 4, 17, 37):
            _agrees(built, model, (2, shape[1], *[size + 2 * i for i in range(len(window))]))


def test_vectors_are_left_without_choices():
    """Rows and columns of windows are two reductions, and machine code takes the largest of vectors."""
    target = "x86_64-linux-gnu+x86-64-v3"
    (kernel,) = reported(_model("MaxPool", POOLS["5x5"][1]), target)["kernels"]
    assert "2 phases" in kernel["schedule"], kernel["schedule"]


def test_conditions_between_open_ends():
    w = Dim.symbol("w", 1, 4096)
    x, k = tirx.Var("x", "int32"), tirx.Var("k", "int32")
    ranges = OpenRanges()
    ranges.note(x, 2, w + 1)
    ranges.note(k, 0, 4)
    width = to_index(w)
    assert ranges.holds(x >= 2) and ranges.holds(x < width + 2) and ranges.holds(x + k <= width + 5)
    assert not ranges.holds(x >= 3) and not ranges.holds(x <= width) and not ranges.holds(x + k < width + 5)
    left = ranges.left(tirx.all(x >= 2, x + k < width + 2))
    assert isinstance(left, type(x < 2)), left
    halves = tirx.Var("y", "int32")
    ranges.note(halves, 1, (w - 1) // 2 - 1)
    assert ranges.holds(halves * 2 + 2 < width + 1) and not ranges.holds(halves * 2 + 2 < width - 1)
