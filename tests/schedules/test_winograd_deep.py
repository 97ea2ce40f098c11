"""Winograd convolutions with depth: planes of a kernel are more terms of the same sums, against float64; choices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled import Suite, native, weight
from halotile import compile as compile_model
from halotile.benchmarks.graph import ModelGraph
from halotile.schedules.conv.facts import ConvFacts
from halotile.schedules.conv.winograd import algorithm as winograd_algorithm
from halotile.schedules.conv.winograd import choose as choose
from halotile.schedules.conv.winograd import cost as winograd_cost
from halotile.schedules.conv.winograd import plan as winograd_plan
from halotile.schedules.conv.winograd.transform import F2, F4, F6, S2, S4
from halotile.schedules.words.group import Value
from tvm import relax
from winograd_layers import convolution, facts_of, plans_of, random, server

R = relax.op
Triple = tuple[int, int, int]

# batch, channels in and out, depth, height, width, planes of the kernel, padding (all befores, all afters), strides and
# dilation along depth, rows and columns
SHAPES: dict[str, tuple[int, int, int, Triple, int, tuple[int, ...], Triple, Triple]] = {
    "even": (1, 32, 32, (4, 16, 24), 3, (1, 1, 1, 1, 1, 1), (1, 1, 1), (1, 1, 1)),
    "blocks that are not full": (2, 17, 23, (5, 13, 19), 3, (1, 1, 1, 1, 1, 1), (1, 1, 1), (1, 1, 1)),
    "fewer channels than a block": (1, 5, 33, (3, 15, 14), 2, (0, 1, 1, 1, 1, 1), (1, 1, 1), (1, 1, 1)),
    "one plane": (3, 24, 16, (3, 15, 14), 1, (0, 1, 1, 0, 1, 1), (1, 1, 1), (1, 1, 1)),
    "steps in depth": (1, 20, 37, (9, 13, 13), 3, (0, 2, 0, 2, 0, 1), (2, 1, 1), (1, 1, 1)),
    "far planes": (1, 33, 20, (9, 14, 17), 3, (4, 1, 1, 2, 1, 1), (3, 1, 1), (2, 1, 1)),
    "dilation": (1, 16, 18, (6, 17, 19), 3, (2, 2, 3, 2, 2, 3), (1, 1, 1), (2, 2, 3)),
}
STRIDED: dict[str, tuple[int, int, int, Triple, int, tuple[int, ...], Triple, Triple]] = {
    "all axes": (1, 19, 33, (7, 17, 18), 3, (1, 1, 1, 1, 1, 1), (2, 2, 2), (1, 1, 1)),
    "rows and columns": (2, 32, 16, (3, 18, 19), 1, (0, 1, 1, 0, 0, 0), (1, 2, 2), (1, 1, 1)),
}


def deep(x: np.ndarray, w: np.ndarray, pads: tuple[int, ...], strides: Triple, dilation: Triple) -> np.ndarray:
    """The exact result, plane by plane."""
    x = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[3]), (0, 0), (0, 0)))
    planes = (x.shape[2] - dilation[0] * (w.shape[2] - 1) - 1) // strides[0] + 1
    flat = (pads[1], pads[2], pads[4], pads[5])
    found = []
    for z in range(planes):
        taps = [(x[:, :, z * strides[0] + t * dilation[0]], w[:, :, t]) for t in range(w.shape[2])]
        found.append(sum(convolution(a, b, flat, dilation[1:], strides[1]) for a, b in taps))
    return np.stack(found, 2)


@pytest.fixture(
    scope="module",
    params=[(F4, 0), (F4, 11), (F2, 3), (F6, 2), (S4, 1), (S2, 5)],
    ids=["F4", "F4-other-plans", "F2", "F6", "S4", "S2"],
)
def suite(request: pytest.FixtureRequest) -> tuple[Suite, list[str]]:
    """The layers that the transform can compute, and their names."""
    suite, shapes = Suite(), STRIDED if request.param[0].across.stride == 2 else SHAPES
    for i, (name, case) in enumerate(shapes.items()):
        n, cin, cout, size, planes, pads, strides, dilation = case
        x = random((n, cin, *size), i)
        k = random((cout, cin, planes, 3, 3), 100 + i) / np.float32(3 * np.sqrt(cin * planes))
        y = deep(x, k, pads, strides, dilation)
        b, r = random((1, cout, 1, 1, 1), 200 + i), random(y.shape, 300 + i)

        def layer(x: Any, r: Any, k: Any = k, b: Any = b, p: Any = pads, s: Any = strides, d: Any = dilation) -> Any:
            return R.nn.relu(R.nn.conv3d(x, weight(k), strides=s, padding=list(p), dilation=d) + weight(b) + r)

        suite.add(name, [x, r], layer, np.maximum(y + b + r, 0).astype(np.float32), 0, 1e-4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd_algorithm, "choose_plan", plans_of(*request.param))
        suite.compile()
    return suite, list(shapes)


def test_equals_float64(suite: tuple[Suite, list[str]]) -> None:
    layers, names = suite
    for name in names:
        layers.check(name)
        assert any("winograd F" in s for s in layers.schedules(name)), name


def network() -> Any:
    g = ModelGraph("video")
    x = g.input("x", (1, 48, 5, 31, 29))
    for i, stride in enumerate((1, 1, 2)):
        w = g.weight(f"w{i}", random((48, 48, 3, 3, 3), 10 + i) / np.float32(36))
        b = g.weight(f"b{i}", random((48,), 20 + i))
        x = g.op("Relu", g.op("Conv", x, w, b, pads=[1] * 6, strides=[1, stride, stride]))
    return g.finish(y=x)


def test_networks_choose_it_with_the_same_bits_for_every_number_of_threads() -> None:
    model, x = network(), random((1, 48, 5, 31, 29), 1)
    one, two = compile_model(model, threads=1), compile_model(model, threads=2)
    schedules = [k["schedule"] for k in one.report["kernels"] if "relax.nn.conv3d" in k["operators"]]
    if native().lanes("float32") >= 8:
        assert len(schedules) == 3 and all("winograd" in s for s in schedules[:2]), schedules
    exact = compile_model(model, exact=True)
    assert not any("winograd" in k["schedule"] for k in exact.report["kernels"])
    (wanted,), (got,), (other,) = (m({"x": x}).values() for m in (exact, one, two))
    np.testing.assert_allclose(got, wanted, atol=1e-4 * np.abs(wanted).max())
    assert got.tobytes() == other.tobytes() == one({"x": x}, threads=2)["y"].tobytes()


@pytest.mark.parametrize("planes", [1, 3])
def test_maps_before_them_are_computed_in_their_loads_where_that_is_once(planes: int) -> None:
    """Zero in the padding, whatever they make of zero; three planes would compute each of their results three times."""
    g = ModelGraph("pre")
    x = g.input("x", (1, 32, 4, 19, 21))
    y = g.op("Relu", g.op("Add", x, g.weight("shift", random((1, 32, 1, 1, 1), 3) + 1)))
    w = g.weight("w", random((32, 32, planes, 3, 3), 4) / np.float32(17))
    model = g.finish(y=g.op("Conv", y, w, pads=[planes // 2, 1, 1] * 2))
    feeds = {"x": random((1, 32, 4, 19, 21), 5)}
    compiled, exact = compile_model(model), compile_model(model, exact=True)
    kernel = next(k for k in compiled.report["kernels"] if "relax.nn.conv3d" in k["operators"])
    if "winograd" in kernel["schedule"]:
        assert ("relax.add" in kernel["operators"]) == (planes == 1)
    assert native().lanes("float32") < 8 or "winograd" in kernel["schedule"]
    (wanted,), (got,) = exact(feeds).values(), compiled(feeds).values()
    np.testing.assert_allclose(got, wanted, atol=1e-4 * np.abs(wanted).max())


def facts(planes: int, depth: int) -> ConvFacts:
    data, result = (Value(name, (1, 64, depth, 28, 28), "float32") for name in "xy")
    taps = Value("w", (64, 64, planes, 3, 3), "float32")
    ones = (1, 1, 1)
    around = (planes // 2, 1, 1)
    return ConvFacts(data, taps, result, (planes, 3, 3), ones, ones, around, around, 1)


def test_planes_count_as_channels_and_positions_in_depth_as_images() -> None:
    target = server()
    flat, one, three = facts_of(64, 64, 28, 28, batch=5), facts(1, 5), facts(3, 5)
    assert choose.choose_plan(target, one) == choose.choose_plan(target, flat)
    assert winograd_cost.direct_cycles(target, one) == winograd_cost.direct_cycles(target, flat)
    plan = choose.choose_plan(target, three)
    assert plan is not None and plan.planes == 3
    wide = facts_of(192, 64, 28, 28, batch=5)
    assert winograd_cost.direct_cycles(target, three) == winograd_cost.direct_cycles(target, wide)
    alone = replace(plan, planes=1)
    assert winograd_plan.scratch_bytes(16, 64, plan) == winograd_plan.scratch_bytes(16, 192, alone)
    assert winograd_plan.weight_bytes(16, 64, plan) == winograd_plan.weight_bytes(16, 192, alone)
