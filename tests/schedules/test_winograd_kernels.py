"""Winograd convolutions of other kernels than 3 x 3: one axis, two that differ, few taps, and many in parts; against
float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import Compiled, Suite, module_of, native, staged, weight
from halotile import compile as compile_model
from halotile.benchmarks.graph import ExportForm, ModelGraph
from halotile.benchmarks.layers import activation
from halotile.benchmarks.layers import conv as conv_layer
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.schedules.conv.winograd import algorithm as winograd_algorithm
from halotile.schedules.conv.winograd import choose as choose
from halotile.schedules.conv.winograd import cost as winograd_cost
from halotile.schedules.conv.winograd import plan as winograd_plan
from halotile.schedules.conv.winograd.axis_transform import axis
from halotile.schedules.conv.winograd.transform import (
    F6,
    MOST_GROWTH,
    SIZES,
    Transform,
    error_bound,
    transforms,
)
from tvm import relax
from winograd_layers import Pads, add_strided, convolution, facts_of, plans_of, random, server

R = relax.op
KERNELS = [(1, 2), (1, 3), (3, 1), (1, 5), (7, 1), (1, 11), (2, 2), (4, 4), (5, 5), (3, 5), (4, 2), (7, 6), (2, 9)]
ALL = [t for kernel in KERNELS for t in transforms(kernel, (1, 1))]
LARGEST = {str(t): t for t in (transforms(kernel, (1, 1))[0] for kernel in KERNELS)}

# batch, channels in and out, tiles down and across, outputs beyond them, padding (top, left, bottom, right), dilation
SHAPES: dict[str, tuple[int, int, int, tuple[int, int], tuple[int, int], Pads, tuple[int, int]]] = {
    "whole": (1, 32, 32, (2, 3), (0, 0), (0, 0, 0, 0), (1, 1)),
    "prime": (1, 17, 23, (2, 2), (1, 1), (1, 1, 1, 1), (1, 1)),
    "asymmetric": (2, 20, 37, (1, 2), (0, 1), (2, 0, 1, 3), (1, 1)),
    "one_tile": (1, 48, 16, (1, 1), (0, 0), (0, 1, 0, 0), (1, 1)),
    "dilated": (1, 33, 50, (2, 4), (1, 1), (1, 2, 0, 3), (2, 3)),
}


def layer(k: np.ndarray, b: np.ndarray, pads: Any, dilation: Any) -> Any:
    """A convolution along as many axes as ``pads`` has pairs, a bias, a residual, an activation."""
    conv = R.nn.conv1d if len(dilation) == 1 else R.nn.conv2d

    def made(x: Any, r: Any) -> Any:
        return R.nn.relu(conv(x, weight(k), padding=list(pads), dilation=list(dilation)) + weight(b) + r)

    return made


def add_cases(suite: Suite, t: Transform, seed: int, one_axis: bool = False) -> None:
    for name, (n, cin, cout, tiles, more, pads, dilation) in SHAPES.items():
        used = [taps > 1 for taps in t.kernel]
        pads = tuple(p * used[i % 2] for i, p in enumerate(pads))  # type: ignore[assignment]
        dilation = tuple(d if u else 1 for d, u in zip(dilation, used))  # type: ignore[assignment]
        outputs = [m * c * d + e for m, c, d, e in zip(t.tile, tiles, dilation, more)]
        outputs[0] = 1 if one_axis else outputs[0]
        h, w = (o + d * (k - 1) - pads[i] - pads[i + 2] for i, (o, d, k) in enumerate(zip(outputs, dilation, t.kernel)))
        if min(h, w) < 1:
            continue  # the padding alone would do
        x, b = random((n, cin, h, w), seed), random((1, cout, 1, 1), 200 + seed)
        k = random((cout, cin, *t.kernel), 100 + seed) / np.float32(np.sqrt(cin * np.prod(t.kernel)))
        r = random((n, cout, *outputs), 300 + seed)
        y = np.maximum(convolution(x, k, pads, dilation) + b + r, 0).astype(np.float32)
        if one_axis:
            x, k, b, r, y = (a[:, :, 0] for a in (x, k, b, r, y))
            pads, dilation = pads[1::2], dilation[1:]  # type: ignore[assignment]
        suite.add(f"{t} {name}{' 1d' if one_axis else ''}", [x, r], layer(k, b, pads, dilation), y, 0, 1e-4)


def choice_of(rank: int, pick: int) -> Any:
    """A choice of the transform that is ``rank``-th by size of those that a layer's kernel has (or its last)."""

    def choice(target: Any, facts: Any, **options: Any) -> Any:
        able = transforms(facts.plane.kernel, facts.plane.strides)
        return plans_of(able[min(rank, len(able) - 1)], pick)(target, facts, **options)

    return choice


@pytest.fixture(scope="module", params=[(0, 0), (1, 7), (2, 11)], ids=["largest", "second", "third"])
def suite(request: pytest.FixtureRequest) -> Suite:
    suite, (rank, pick) = Suite(tiled=False), request.param  # boxes may be smaller than a tile of the transform
    for i, kernel in enumerate(KERNELS):
        able = transforms(kernel, (1, 1))
        t = able[min(rank, len(able) - 1)]
        add_cases(suite, t, i)
        if kernel[0] == 1 and t.tile[1] > 4:
            add_cases(suite, t, i, one_axis=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd_algorithm, "choose_plan", choice_of(rank, pick))
        suite.compile()
    return suite


STRIDED: dict[str, tuple[int, int, int, tuple[int, int], tuple[int, int], tuple[int, int], Pads]] = {
    "4x4/2": (1, 32, 32, (29, 41), (4, 4), (2, 2), (1, 1, 1, 1)),
    "prime": (2, 17, 23, (37, 31), (4, 4), (2, 2), (2, 0, 1, 3)),
    "6x6/2": (1, 20, 37, (33, 27), (6, 6), (2, 2), (2, 2, 2, 2)),
    "in two parts": (1, 33, 16, (43, 40), (14, 2), (2, 1), (6, 0, 6, 1)),
    "unlike": (1, 24, 48, (25, 51), (3, 6), (1, 3), (1, 2, 1, 2)),
    "8x8/4": (1, 16, 16, (61, 67), (8, 8), (4, 4), (2, 2, 2, 2)),
    "rows of three": (1, 23, 32, (37, 29), (3, 3), (2, 1), (1, 1, 1, 1)),
    "columns of three": (1, 32, 24, (30, 45), (5, 3), (1, 2), (2, 1, 2, 0)),
}


@pytest.mark.parametrize("rank,pick", [(0, 3), (1, 8), (2, 1)])
def test_strides_that_divide_the_kernel(rank: int, pick: int, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = Suite()
    for i, (name, layer) in enumerate(STRIDED.items()):
        add_strided(suite, name, layer, i)
    monkeypatch.setattr(winograd_algorithm, "choose_plan", choice_of(rank, pick))
    suite.compile()
    for name in STRIDED:
        suite.check(name)
        assert any("winograd F(" in s and "/" in s.split(",")[1] for s in suite.schedules(name)), suite.schedules(name)


def test_equals_float64(suite: Suite) -> None:
    """In the transform that was asked for, all but a few that are tiles of a chain."""
    assert len(suite.cases) > 60
    whole = 0
    for name in suite.cases:
        suite.check(name)
        whole += any(s.startswith(f"winograd {name.split()[0]}") for s in suite.schedules(name))
        assert not any(s.startswith("direct") for s in suite.schedules(name)), (name, suite.schedules(name))
    assert whole >= len(suite.cases) - 5


def test_the_bits_do_not_depend_on_the_tasks(suite: Suite) -> None:
    arrays = [a for case in suite.cases.values() for a in case.arrays]
    assert suite.compiled is not None
    once = suite.compiled.run(arrays, tasks=1)
    for a, b in zip(once, suite.compiled.run(arrays, tasks=3, poison=0x7F)):
        np.testing.assert_array_equal(a.view(np.int32), b.view(np.int32))


@pytest.mark.parametrize("size", SIZES)
def test_an_axis_of_any_taps_convolves(size: int) -> None:
    """As matrices, and as short chains, which are these matrices."""
    for taps in range(2, size):
        a = axis(size, taps)
        assert (a.m, a.taps, a.extent) == (size - taps + 1, taps, size)
        d, w = random((size,), taps).astype(np.float64), random((taps,), 50 + taps).astype(np.float64)
        exact = np.lib.stride_tricks.sliding_window_view(d, taps) @ w
        np.testing.assert_allclose(a.result @ ((a.weights @ w) * (a.data @ d)), exact, atol=1e-11)
        unit = list(np.eye(size))
        np.testing.assert_array_equal(np.array(a.apply_data(unit, float, lambda v: v)), a.data)
        np.testing.assert_array_equal(np.array(a.apply_result(unit, float, lambda v: v)), a.result)


def test_chains_are_short() -> None:
    """As many operations as the transforms that were once written by hand."""
    for size, data, result in ((8, 24, 20), (6, 12, 10), (4, 4, 4)):
        assert (axis(size, 3).data_operations, axis(size, 3).result_operations) == (data, result)


def test_what_errors_grow_by_is_bounded() -> None:
    assert all(t.growth <= MOST_GROWTH for t in ALL)
    assert transforms((1, 1), (1, 1)) == ()
    assert transforms((3, 3), (4, 2)) == () and transforms((5, 5), (2, 2)) == () and transforms((2, 2), (2, 2)) == ()
    assert [(str(t), t.parts) for t in transforms((4, 4), (2, 2))][:1] == [("F(7x7,4x4/2)", (2, 2))]
    assert [(t.tile, t.parts) for t in transforms((5, 5), (1, 1))][:2] == [((4, 4), (1, 1)), ((2, 2), (1, 1))]
    assert [(t.tile, t.parts) for t in transforms((1, 7), (1, 1))][:2] == [((1, 4), (1, 1)), ((1, 5), (1, 2))]


@pytest.mark.parametrize("strides", [(1, 1), (2, 1), (2, 3)])
@pytest.mark.parametrize("kernel", [(1, 11), (7, 7), (9, 4), (31, 1), (4, 9), (14, 6)])
def test_parts_are_the_kernel(kernel: tuple[int, int], strides: tuple[int, int]) -> None:
    """Every tap is in one of them, no part reaches beyond, and outputs take fewer products than taps."""
    w = random((2, 3, *kernel), 1)
    for t in transforms(kernel, strides):
        whole = np.zeros_like(w)
        for start, part in zip(t.starts(), t.split(w), strict=True):
            assert part.shape[-2:] == (t.down.taps, t.across.taps)
            whole[(..., *(slice(f, f + s * a.taps, s) for f, s, a in zip(start, strides, t.axes)))] += part
        np.testing.assert_array_equal(whole, w)
        assert t.planes * t.products < 0.8 * t.outputs * kernel[0] * kernel[1]


@pytest.mark.parametrize("t", LARGEST.values(), ids=LARGEST.keys())
def test_error_bound(t: Transform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the stated bound where signs follow the largest rows of BT and G; on random data within 4e-5 of the
    largest output, what F(6x6, 3x3) keeps to."""
    monkeypatch.setattr(winograd_algorithm, "choose_plan", plans_of(t, 0))
    rng = np.random.default_rng(9)
    h, w = (3 * m + k - 1 for m, k in zip(t.tile, t.kernel))
    terms = 64 * t.planes
    scale = np.float32(np.sqrt(64 * np.prod(t.kernel)))
    cases = [(random((1, 64, h, w), 5), random((32, 64, *t.kernel), 6) / scale)]
    cases.append((random((1, 64, h, w), 7) + 3, random((32, 64, *t.kernel), 8) / scale))
    sign = lambda v: np.where(v == 0, 1.0, np.sign(v))  # noqa: E731
    for _ in range(3):
        row, column = (rng.integers(0, a.rows) for a in t.axes)
        tile = np.outer(sign(t.down.data[row]), sign(t.across.data[column]))
        x = np.pad(tile, ((0, h - t.extents[0]), (0, w - t.extents[1])), mode="wrap")
        taps = np.outer(sign(t.down.weights[row]), sign(t.across.weights[column]))
        taps = np.pad(taps, [(0, k - r) for k, r in zip(t.kernel, taps.shape)], mode="wrap")
        flips = rng.choice([-1.0, 1.0], (1, 64, 1, 1)), rng.choice([-1.0, 1.0], (32, 64, 1, 1))
        noise = 1 - 1e-3 * rng.random((1, 64, h, w)), 1 - 1e-3 * rng.random((32, 64, *t.kernel))
        cases.append(((x * flips[0] * noise[0]).astype(np.float32), (taps * flips[1] * noise[1]).astype(np.float32)))
    arrays = [x for x, _ in cases]
    module = module_of(arrays, lambda *xs: [R.nn.conv2d(x, weight(k)) for x, (_, k) in zip(xs, cases)])
    build = staged(module)
    assert sum(str(t) in k.schedule for k in build.kernels) == len(cases)
    for i, ((x, k), y) in enumerate(zip(cases, Compiled(build).run(arrays))):
        exact = convolution(x, k, (0, 0, 0, 0))
        error = np.abs(y - exact).max()
        assert 0 < error <= error_bound(t, terms) * np.abs(x).max() * np.abs(k).max() * terms
        assert i > 1 or error <= 4e-5 * np.abs(exact).max()


@pytest.mark.sampled
@pytest.mark.parametrize("kernel", [(1, 7), (7, 1), (5, 5), (1, 3)])
@pytest.mark.parametrize("shape", [(6, None), (5, 9)])
def test_boxes_agree_with_the_whole(kernel: tuple[int, int], shape: tuple[int, Any]) -> None:
    g = ModelGraph("boxes", ExportForm(opset=17))
    x = activation(g, conv_layer(g, g.input("x", (1, 3, 45, 39)), 32, 3), "relu")
    model = g.finish(y=activation(g, conv_layer(g, x, 48, kernel), "relu"))
    data = random((1, 3, 45, 39), 3)
    results = []
    for tile in ("off", {"shape": shape}):
        build = run_pipeline(model, Options(native(), stop_after="plan", threads=2, tile=tile))
        assert any("tiled" in k.schedule for k in build.kernels) is (tile != "off")
        results.append(Compiled(build).run([data])[0])
    np.testing.assert_allclose(*results, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "kernel,channels,height,width",
    [((5, 5), 64, 35, 35), ((1, 7), 160, 17, 17), ((7, 1), 160, 17, 17), ((1, 3), 64, 64, 64), ((4, 4), 64, 32, 32)],
)
def test_chosen_where_it_saves_products(kernel: tuple[int, int], channels: int, height: int, width: int) -> None:
    target = server(fma_ports=1, l1_bytes=32 << 10, l2_bytes=1 << 20)
    facts = facts_of(channels, channels, height, width, kernel=kernel)
    plan = choose.choose_plan(target, facts)
    assert plan is not None and plan.transform.kernel == kernel
    assert plan.cycles < 0.8 * winograd_cost.direct_cycles(target, facts)


def test_large_transforms_promise_more() -> None:
    """Those that multiply errors as F(6x6, 3x3) does."""
    large = {str(t) for t in ALL if t.is_large}
    assert F6.is_large and "F(4x4,5x5)" in large and "F(1x4,1x7)" not in large and "F(3x3,2x2)" not in large


def test_choice_counts_every_part() -> None:
    """Eleven taps are two parts of six: data is transformed twice, and each sum has twice the terms."""
    target = server(fma_ports=1, l1_bytes=32 << 10, l2_bytes=1 << 20)
    facts = facts_of(64, 64, 1, 2000, kernel=(1, 11), before=(0, 5), after=(0, 5))
    plan = choose.choose_plan(target, facts)
    assert plan is not None and (plan.transform.parts, plan.planes) == ((1, 2), 2)
    single = next(iter(choose._plans(target, winograd_plan.Layer.of(facts), transforms((1, 6), (1, 1))[0])))
    double = next(iter(choose._plans(target, winograd_plan.Layer.of(facts), plan.transform)))
    size = winograd_plan.scratch_bytes(16, 64, double)[0] / winograd_plan.scratch_bytes(16, 64, single)[0]
    assert (double.rows, double.vectors, double.strip) == (single.rows, single.vectors, single.strip)
    assert 1.8 < size < 2
    assert winograd_plan.weight_bytes(16, 64, double) == 2 * winograd_plan.weight_bytes(16, 64, single)
    assert 1.5 * single.cycles < double.cycles  # a little more than half of them: sums are transformed back once


def test_models_of_one_axis_take_it_and_exact_does_not() -> None:
    """Through import, fusion and layout."""
    g = ModelGraph("sound")
    x = g.input("x", (2, 32, 701))
    for taps in (3, 7, 11):
        w = g.weight("w", g.fan_in((32, 32, taps), 2.0))
        x = activation(g, g.op("Conv", x, w, pads=[taps // 2, taps // 2], kernel_shape=[taps]), "relu")
    model = g.finish(y=x)
    feeds = {"x": random((2, 32, 701), 1)}
    exact = compile_model(model, exact=True, threads=1)
    ours = compile_model(model, threads=1, target=native())
    schedules = [k["schedule"] for k in ours.report["kernels"] if "relax.nn.conv1d" in k["operators"]]
    if native().lanes("float32") >= 8:
        assert len(schedules) == 3 and all("winograd F(1x" in s for s in schedules)
    assert not any("winograd" in k["schedule"] for k in exact.report["kernels"])
    (wanted,), (got,) = exact(feeds).values(), ours(feeds).values()
    np.testing.assert_allclose(got, wanted, atol=4e-5 * np.abs(wanted).max())
