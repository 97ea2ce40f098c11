"""Winograd convolutions of one to four plain channels, as first layers read images; against float64."""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, Suite, module_of, staged, weight
from halotile import compile as compile_model
from halotile.benchmarks.graph import ExportForm, ModelGraph
from halotile.benchmarks.layers import activation
from halotile.benchmarks.layers import conv as conv_layer
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.passes.tile.search.member_cost import member_cost
from halotile.schedules.conv.winograd import algorithm as winograd_algorithm
from halotile.schedules.conv.winograd import choose as choose
from halotile.schedules.conv.winograd import plan as winograd_plan
from halotile.schedules.conv.winograd.transform import error_bound
from halotile.schedules.words.group import Box, Request
from halotile.schedules.words.policy import Policy
from tvm import relax
from winograd_layers import Pads, add_strided, convolution, facts_of, plans_of, random, server

R = relax.op
DENORMAL = 2  # of MXCSR: an operand was below the normal numbers

# batch, channels in and out, rows and columns, kernel, strides, padding (top, left, bottom, right)
SHAPES: dict[str, tuple[int, int, int, tuple[int, int], tuple[int, int], tuple[int, int], Pads]] = {
    "stem": (1, 3, 64, (57, 64), (7, 7), (2, 2), (3, 3, 3, 3)),
    "prime": (2, 1, 37, (53, 47), (5, 5), (1, 1), (2, 2, 2, 2)),
    "asymmetric": (1, 2, 23, (41, 37), (7, 7), (2, 2), (1, 2, 3, 0)),
    "rest of the stride": (1, 4, 16, (61, 67), (11, 11), (4, 4), (2, 2, 2, 2)),
    "no padding": (3, 3, 32, (31, 29), (9, 9), (1, 1), (0, 0, 0, 0)),
    "unlike": (1, 3, 48, (43, 50), (3, 8), (1, 3), (1, 0, 1, 5)),
    "one row": (1, 4, 32, (1, 131), (1, 11), (1, 2), (0, 5, 0, 5)),
    "3x3": (1, 3, 32, (25, 39), (3, 3), (1, 1), (1, 1, 1, 1)),
    "3x3/2": (2, 3, 24, (45, 39), (3, 3), (2, 2), (0, 0, 1, 1)),
    "beyond the margins": (1, 3, 16, (20, 21), (7, 7), (2, 2), (0, 0, 0, 0)),
}


def choice_of(rank: int, pick: int) -> Any:
    """A choice of the ``rank``-th transform by size (or the last) of a layer of few channels."""

    def choice(target: Any, facts: Any, *_: Any, **__: Any) -> Any:
        layer = winograd_plan.Layer.of(facts)
        able = winograd_plan.all_transforms(layer) if choose.applies(facts) and facts.is_plain else []
        return plans_of(able[min(rank, len(able) - 1)], pick)(target, facts) if able else None

    return choice


@pytest.fixture(scope="module", params=[(0, 0), (1, 5), (2, 9)], ids=["largest", "second", "third"])
def suite(request: pytest.FixtureRequest) -> Suite:
    suite = Suite()
    for i, (name, layer) in enumerate(SHAPES.items()):
        add_strided(suite, name, layer, i)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd_algorithm, "choose_plan", choice_of(*request.param))
        suite.compile()
    return suite


@pytest.mark.sampled
@pytest.mark.parametrize("name", SHAPES)
def test_equals_float64(suite: Suite, name: str) -> None:
    suite.check(name)
    assert any("winograd F(" in s and "few channels" in s for s in suite.schedules(name)), suite.schedules(name)


def test_the_bits_do_not_depend_on_the_tasks(suite: Suite) -> None:
    arrays = [a for case in suite.cases.values() for a in case.arrays]
    assert suite.compiled is not None
    once = suite.compiled.run(arrays, tasks=1)
    for a, b in zip(once, suite.compiled.run(arrays, tasks=3, poison=0x7F)):
        np.testing.assert_array_equal(a.view(np.int32), b.view(np.int32))


@pytest.mark.parametrize("kernel,strides", [((7, 7), (2, 2)), ((11, 11), (4, 4)), ((5, 5), (1, 1)), ((9, 9), (1, 1))])
def test_within_the_bound_of_errors(
    kernel: tuple[int, int], strides: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers of one sign, whose sums are the largest, and random ones."""
    monkeypatch.setattr(winograd_algorithm, "choose_plan", choice_of(0, 0))
    for shift in (0, 3):
        x, k = random((1, 3, 49, 49), 1) + np.float32(shift), random((32, 3, *kernel), 2)
        suite = Suite()

        def body(x: Any, k: Any = k) -> Any:
            return R.nn.relu(R.nn.conv2d(x, weight(k), strides=list(strides)))

        exact = np.maximum(convolution(x, k, (0, 0, 0, 0))[:, :, :: strides[0], :: strides[1]], 0)
        facts = facts_of(3, 32, 49 // strides[0], 49 // strides[1], kernel=kernel, strides=strides)
        t = winograd_plan.all_transforms(winograd_plan.Layer.of(facts))[0]
        terms = 3 * t.planes
        bound = error_bound(t, terms) * float(np.abs(x).max() * np.abs(k).max()) * terms
        suite.add("layer", [x], body, exact.astype(np.float32), 0, bound)
        suite.check("layer")
        assert any(str(t) in s for s in suite.schedules("layer"))
        error = np.abs(suite.cases["layer"].results[0] - exact).max()
        assert error <= 4e-5 * np.abs(exact).max()  # what F(6x6, 3x3) keeps to


@pytest.mark.parametrize(
    "kernel,strides,channels,size,few",
    [
        ((7, 7), (2, 2), 3, 112, True),
        ((11, 11), (4, 4), 3, 55, True),
        ((9, 9), (1, 1), 3, 100, True),
        ((3, 3), (1, 1), 3, 224, False),  # its transforms would take as long as what they save
        ((3, 3), (2, 2), 3, 112, False),
        ((4, 4), (4, 4), 3, 56, False),  # each output has inputs of its own
        ((3, 3), (1, 1), 5, 224, False),  # not plain, and too few to fill blocks
    ],
)
def test_chosen_where_it_saves_time(
    kernel: tuple[int, int], strides: tuple[int, int], channels: int, size: int, few: bool
) -> None:
    target = server()
    plan = choose.choose_plan(target, facts_of(channels, 64, size, size, kernel=kernel, strides=strides))
    assert (plan is not None and plan.plain) is few


def stem(kernel: int, stride: int, outputs: int = 32) -> Any:
    g = ModelGraph("stem", ExportForm(opset=17))
    x = activation(g, conv_layer(g, g.input("x", (1, 3, 71, 83)), outputs, kernel, stride=stride), "relu")
    return g.finish(y=activation(g, conv_layer(g, x, 48, 3), "relu"))


def test_models_take_it_and_exact_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through import, fusion and layout; the input stays as the user gives it."""
    monkeypatch.setattr(winograd_algorithm, "choose_plan", choice_of(0, 3))
    data = random((1, 3, 71, 83), 3)
    ours, exact = (compile_model(stem(7, 2), threads=1, exact=exact) for exact in (False, True))
    assert any("few channels" in k["schedule"] for k in ours.report["kernels"])
    assert not any("winograd" in k["schedule"] for k in exact.report["kernels"])
    got, wanted = (next(iter(m({"x": data}).values())) for m in (ours, exact))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=4e-5 * np.abs(wanted).max())


@pytest.mark.sampled
@pytest.mark.parametrize("kernel,stride", [(5, 1), (7, 2), (9, 1), (11, 4)])
@pytest.mark.parametrize("shape", [(6, None), (5, 9), (7, 11)])
def test_boxes_agree_with_the_whole(
    kernel: int, stride: int, shape: tuple[int, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows may end with what a box needs: taps of zero must not meet what lies behind them, which may be NaN."""
    monkeypatch.setattr(winograd_algorithm, "choose_plan", choice_of(0, 3))
    data, results = random((1, 3, 71, 83), 3), []
    for tile in ("off", {"shape": shape}):
        build = run_pipeline(stem(kernel, stride), Options(server(), stop_after="plan", threads=2, tile=tile))
        assert any("tiled" in k.schedule for k in build.kernels) is (tile != "off")
        parts = [p for k in build.kernels for p in getattr(k, "parts", ())]
        assert any("few channels" in k.schedule for k in (parts or build.kernels))
        results.append(Compiled(build).run([data])[0])
    np.testing.assert_allclose(*results, rtol=0, atol=1e-4)


def test_the_planner_knows_both_ways_of_boxes() -> None:
    """By tiles of 5 x 5 outputs, or directly where boxes have fewer rows."""
    build = run_pipeline(stem(7, 2, 64), Options(server(), stop_after="layout", threads=1))
    group = next(g for g in build.groups if g.anchor is not None and g.anchor.operands[0].shape[1] == 3)
    box = Box(*group.outputs[0].shape[2:])
    request = Request(group, build.layouts, server(cores=1), box=box)
    cost, direct = (member_cost(replace(request, policy=Policy.of(exact=exact))) for exact in (False, True))
    assert cost.box(20, 42) < 0.8 * direct.box(20, 42)
    assert cost.box(1, 42) == direct.box(1, 42)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="NOT RUN: flags of denormal operands are x86's")
@pytest.mark.parametrize("channels", [2, 32])
def test_nothing_that_no_tile_filled_is_multiplied(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last register tile of a strip may have places without a tile. What lies in scratch there may be numbers
    below the normal ones, which take a hundred times as long to multiply: their flag stays down."""
    plans: list[winograd_plan.WinogradPlan] = []

    def choice(target: Any, facts: Any, *_: Any, **__: Any) -> Any:
        layer = winograd_plan.Layer.of(facts)
        for plan in choose._plans(target, layer, winograd_plan.all_transforms(layer)[0]):
            scratch = winograd_plan.scratch_bytes(target.lanes(), channels, plan)[0]
            if plan.strip % plan.rows and scratch > winograd_plan.STACK_BYTES and not plan.products:
                plans.append(plan)
                return plan
        return None

    monkeypatch.setattr(winograd_algorithm, "choose_plan", choice)
    x, k = random((1, channels, 100, 100), 1), random((48, channels, 7, 7), 2)
    build = staged(module_of([x], lambda x: R.nn.conv2d(x, weight(k), strides=[2, 2] if channels == 2 else [1, 1])))
    assert plans and any(str(plans[0]) in kernel.schedule for kernel in build.kernels)
    compiled, libm = Compiled(build), ctypes.CDLL(ctypes.util.find_library("m"))
    environment = np.zeros(8, np.int32)  # fenv_t: the x87 unit's, then MXCSR
    for word in (0, 0x7FFF):
        libm.fegetenv(ctypes.c_void_p(environment.ctypes.data))
        environment[7] &= ~DENORMAL
        libm.fesetenv(ctypes.c_void_p(environment.ctypes.data))
        compiled.run([x], tasks=1, word=word)
        libm.fegetenv(ctypes.c_void_p(environment.ctypes.data))
        assert not environment[7] & DENORMAL
