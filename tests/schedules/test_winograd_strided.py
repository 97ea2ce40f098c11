"""Winograd convolutions of stride 2: transforms, results against float64, the error bound, boxes, and the choice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import Compiled, Suite, module_of, native, staged, weight
from halotile.benchmarks.graph import ExportForm, ModelGraph
from halotile.benchmarks.layers import activation
from halotile.benchmarks.layers import conv as conv_layer
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.schedules.conv.winograd import algorithm as winograd_algorithm
from halotile.schedules.conv.winograd import choose as choose
from halotile.schedules.conv.winograd import plan as winograd_plan
from halotile.schedules.conv.winograd.transform import S2, S4, Transform, error_bound
from tvm import relax
from winograd_layers import ONES, conv, convolution, facts_of, plans_of, random, server

R = relax.op
BOTH = pytest.mark.parametrize("t", [S4, S2], ids=["S4", "S2"])

# batch, input channels, output channels, height, width, padding (top, left, bottom, right): all have four outputs
SHAPES: dict[str, tuple[int, int, int, int, int, tuple[int, int, int, int]]] = {
    "even": (1, 32, 32, 32, 32, (1, 1, 1, 1)),
    "prime": (1, 17, 23, 23, 37, (1, 1, 1, 1)),
    "unpadded": (1, 48, 16, 21, 28, (0, 0, 0, 0)),
    "asymmetric": (1, 20, 37, 17, 18, (2, 0, 1, 3)),
    "one_sided": (1, 16, 16, 20, 20, (0, 0, 1, 1)),
    "batch": (2, 33, 50, 13, 15, (1, 1, 1, 1)),
    "one_tile": (1, 100, 64, 8, 8, (1, 1, 1, 1)),
    "long": (3, 16, 16, 9, 83, (1, 1, 1, 1)),
}


@BOTH
def test_the_matrices_convolve(t: Transform) -> None:
    d, w = random((t.across.extent, t.across.extent), 1).astype(np.float64), random((3, 3), 2).astype(np.float64)
    shared = np.minimum(np.arange(t.across.extent), t.across.rows - 1)
    g = t.across.weights[shared]
    y = t.across.result @ ((g @ w @ g.T) * (t.across.data @ d @ t.across.data.T)) @ t.across.result.T
    np.testing.assert_allclose(y, convolution(d[None, None], w[None, None], (0, 0, 0, 0), stride=2)[0, 0], atol=1e-12)
    unit, number = list(np.eye(t.across.extent)), float
    np.testing.assert_array_equal(np.array(t.across.apply_data(unit, number, lambda v: v)), t.across.data)
    np.testing.assert_array_equal(np.array(t.across.apply_result(unit, number, lambda v: v)), t.across.result)


@pytest.fixture(scope="module", params=[(S4, 0), (S4, 11), (S2, 3)], ids=["S4", "S4-other-plans", "S2"])
def suite(request: pytest.FixtureRequest) -> Suite:
    suite = Suite()
    for i, (name, (n, cin, cout, h, w, pads)) in enumerate(SHAPES.items()):
        x, k = random((n, cin, h, w), i), random((cout, cin, 3, 3), 100 + i) / np.float32(3 * np.sqrt(cin))
        y = convolution(x, k, pads, stride=2)
        suite.add(name, [x], lambda x, k=k, pads=pads: conv(x, k, pads, 2), y.astype(np.float32), 0, 1e-4)
    x, k = random((1, 24, 20, 27), 50), random((40, 24, 3, 3), 51) / np.float32(15)
    r, b = random((1, 40, 10, 14), 52), random((1, 40, 1, 1), 53)
    y = np.maximum(convolution(x, k, ONES, stride=2) + b + r, 0).astype(np.float32)
    suite.add("residual", [x, r], lambda x, r: R.nn.relu(conv(x, k, stride=2) + weight(b) + r), y, 0, 1e-4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd_algorithm, "choose_plan", plans_of(*request.param))
        suite.compile()
    return suite


@pytest.mark.sampled
@pytest.mark.parametrize("name", [*SHAPES, "residual"])
def test_equals_float64(suite: Suite, name: str) -> None:
    suite.check(name)
    assert any("3x3/2" in s for s in suite.schedules(name))


@BOTH
def test_error_bound(t: Transform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs that follow the largest rows of BT and G, and random data."""
    monkeypatch.setattr(winograd_algorithm, "choose_plan", plans_of(t, 0))
    rng = np.random.default_rng(9)
    sign = lambda v: np.where(v == 0, 1.0, np.sign(v))  # noqa: E731
    cases = [(random((1, 64, 21, 21), 5), random((32, 64, 3, 3), 6) / np.float32(24))]
    for _ in range(4):
        row, column = rng.integers(0, t.across.rows, 2)
        x = np.outer(sign(t.across.data[row]), sign(t.across.data[column]))
        x = np.pad(x, (0, 21 - t.across.extent), mode="wrap")
        w = np.outer(sign(t.across.weights[row]), sign(t.across.weights[column]))
        flips = rng.choice([-1.0, 1.0], (1, 64, 1, 1)), rng.choice([-1.0, 1.0], (32, 64, 1, 1))
        noise = 1 - 1e-3 * rng.random((1, 64, 21, 21)), 1 - 1e-3 * rng.random((32, 64, 3, 3))
        cases.append(((x * flips[0] * noise[0]).astype(np.float32), (w * flips[1] * noise[1]).astype(np.float32)))
    arrays = [x for x, _ in cases]
    module = module_of(arrays, lambda *xs: [conv(x, w, (0, 0, 0, 0), 2) for x, (_, w) in zip(xs, cases)])
    for i, ((x, w), y) in enumerate(zip(cases, Compiled(staged(module)).run(arrays))):
        exact = convolution(x, w, (0, 0, 0, 0), stride=2)
        error = np.abs(y - exact).max()
        assert 0 < error <= error_bound(t, 64) * np.abs(x).max() * np.abs(w).max() * 64
        assert i or error <= (1e-5 if t is S4 else 2e-6) * np.abs(exact).max()


@pytest.mark.parametrize("shape", [(6, None), (5, 9)])
def test_boxes_agree_with_the_whole(shape: tuple[int, Any]) -> None:
    g = ModelGraph("strided", ExportForm(opset=17))
    x = activation(g, conv_layer(g, g.input("x", (1, 3, 45, 39)), 32, 3), "relu")
    model = g.finish(y=activation(g, conv_layer(g, x, 48, 3, stride=2), "relu"))
    data = np.random.default_rng(3).standard_normal((1, 3, 45, 39)).astype(np.float32)
    results = []
    for tile in ("off", {"shape": shape}):
        build = run_pipeline(model, Options(native(), stop_after="plan", threads=2, tile=tile))
        assert any("tiled" in k.schedule for k in build.kernels) is (tile != "off")
        results.append(Compiled(build).run([data])[0])
    np.testing.assert_allclose(*results, rtol=0, atol=1e-4)


def test_chosen_where_it_saves_products() -> None:
    """A wide image by tiles of 4 x 4; where weights come from memory, smaller tiles or none."""
    target = server(fma_ports=1, l1_bytes=32 << 10, l2_bytes=1 << 20)

    def plan(cin: int, cout: int, size: int, strides: tuple[int, int] = (2, 2)) -> winograd_plan.WinogradPlan | None:
        return choose.choose_plan(target, facts_of(cin, cout, size, size, strides=strides))

    plans = [plan(*s) for s in ((128, 128, 28), (256, 256, 14), (2048, 2048, 4))]
    assert plans[0] is not None and plans[0].transform is S4
    assert plans[1] is not None
    assert plans[2] is None
    mixed = plan(128, 128, 28, (2, 1))
    assert mixed is not None and mixed.transform.down is S4.down and mixed.transform.across.stride == 1
    assert plan(128, 128, 28, (4, 2)) is None
    assert plan(3, 64, 112) is None


def test_weights_are_counted_once() -> None:
    """S4 has 81 products, which share 36 matrices."""
    assert (S4.products, S4.matrices, S2.products, S2.matrices) == (81, 36, 25, 16)
