"""Winograd convolutions with dilation: tiles of outputs d apart, against float64; boxes; that it is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import Suite, native, weight
from halotile import compile as compile_model
from halotile.benchmarks.graph import ModelGraph
from halotile.benchmarks.layers import activation, conv
from halotile.schedules.conv.winograd import algorithm as winograd_algorithm
from halotile.schedules.conv.winograd.transform import F2, F4, F6
from tvm import relax
from winograd_layers import convolution, plans_of, random

R = relax.op

# batch, channels in and out, height, width, padding (top, left, bottom, right), dilation
SHAPES: dict[str, tuple[int, int, int, int, int, tuple[int, int, int, int], tuple[int, int]]] = {
    "even": (1, 32, 32, 16, 24, (2, 2, 2, 2), (2, 2)),
    "phases differ": (1, 17, 23, 23, 37, (3, 3, 3, 3), (3, 3)),
    "a tile too many for most phases": (1, 33, 16, 17, 18, (4, 4, 4, 4), (4, 4)),
    "one axis": (2, 16, 20, 9, 31, (1, 5, 1, 5), (1, 5)),
    "unlike": (1, 20, 37, 29, 26, (2, 0, 7, 3), (2, 3)),
    "batch": (2, 33, 50, 13, 15, (2, 2, 2, 2), (2, 2)),
    "far": (1, 48, 16, 26, 25, (6, 6, 6, 6), (6, 6)),
    "unpadded": (1, 24, 24, 20, 21, (0, 0, 0, 0), (2, 2)),
}


@pytest.fixture(
    scope="module", params=[(F4, 0), (F4, 11), (F2, 3), (F6, 2)], ids=["F4", "F4-other-plans", "F2", "F6"]
)
def suite(request: pytest.FixtureRequest) -> Suite:
    suite = Suite()
    for i, (name, (n, cin, cout, h, w, pads, dilation)) in enumerate(SHAPES.items()):
        x, k = random((n, cin, h, w), i), random((cout, cin, 3, 3), 100 + i) / np.float32(3 * np.sqrt(cin))
        y = convolution(x, k, pads, dilation)
        b, r = random((1, cout, 1, 1), 200 + i), random(y.shape, 300 + i)

        def layer(x: Any, r: Any, k: Any = k, b: Any = b, pads: Any = pads, dilation: Any = dilation) -> Any:
            return R.nn.relu(R.nn.conv2d(x, weight(k), padding=list(pads), dilation=dilation) + weight(b) + r)

        suite.add(name, [x, r], layer, np.maximum(y + b + r, 0).astype(np.float32), 0, 1e-4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd_algorithm, "choose_plan", plans_of(*request.param))
        suite.compile()
    return suite


@pytest.mark.sampled
@pytest.mark.parametrize("name", SHAPES)
def test_equals_float64(suite: Suite, name: str) -> None:
    suite.check(name)
    assert any("winograd F" in s for s in suite.schedules(name))


@pytest.mark.parametrize("optimize", ["speed", "memory"])
def test_a_chain_of_them_chooses_it_and_may_be_tiled(optimize: str) -> None:
    g = ModelGraph("dilated")
    x = g.input("x", (1, 48, 67, 61))
    for dilation in (2, 3, 1):
        x = activation(g, conv(g, x, 48, dilation=dilation), "relu")
    model = g.finish(y=x)
    feeds = {"x": random((1, 48, 67, 61), 1)}
    found = compile_model(model, optimize=optimize, threads=2)
    schedules = [k["schedule"] for k in found.report["kernels"] if "relax.nn.conv2d" in k["operators"]]
    if optimize == "memory":
        assert any(s.startswith("tiled") for s in schedules)
    elif native().lanes("float32") >= 8:
        assert all("winograd" in s or "matrix conv" in s or s.startswith("tiled") for s in schedules)
    (wanted,) = compile_model(model, exact=True)(feeds).values()
    (got,) = found(feeds).values()
    np.testing.assert_allclose(got, wanted, atol=1e-4 * np.abs(wanted).max())
