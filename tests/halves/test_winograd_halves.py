"""Winograd's transforms in float16: their points, when they are taken, and how far off their results are."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import halotile
import numpy as np
import onnx
import pytest
from compiled import machine, native, unitless
from half_models import Net, stack
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.quantise.halves import largest_of
from halotile.compiler.sample import random_inputs
from halotile.compiler.spec import TensorSpec
from halotile.compiler.state import Options
from halotile.schedules.conv.winograd import algorithm as winograd_algorithm
from halotile.schedules.conv.winograd import choose, cost
from halotile.schedules.conv.winograd import plan as winograd_plan
from halotile.schedules.conv.winograd.transform import (
    DATA,
    HALF2,
    HALF4,
    HALF42,
    HALF_S2,
    HALF_S4,
    HALF_S42,
    RUN,
    Transform,
    error_bound,
    transforms,
)
from halotile.schedules.words.group import Value
from halotile.targets.resolve import resolve
from winograd_layers import convolution, facts_of

PI5, SERVER = "raspberry-pi-5", "x86_64-linux-gnu+sapphirerapids"
HERE = pytest.mark.skipif(not machine().has_halves, reason="NOT RUN: this machine does not compute in float16")
ALL = {"F4": HALF4, "F42": HALF42, "F2": HALF2, "S4": HALF_S4, "S42": HALF_S42, "S2": HALF_S2}
EACH = pytest.mark.parametrize("t", ALL.values(), ids=ALL)
NEAR = {HALF4: 6e-3, HALF42: 4e-3, HALF2: 3e-3, HALF_S4: 6e-3, HALF_S42: 4e-3, HALF_S2: 3e-3}  # of a result's size


def random(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# -- the transforms --------------------------------------------------------------------------------


@EACH
def test_the_matrices_convolve(t: Transform) -> None:
    d, w = random(t.extents, 1).astype(np.float64), random((1, 1, 3, 3), 2)
    moved = t.down.data @ (d * t.shrink) @ t.across.data.T
    rows, columns = (np.minimum(np.arange(a.extent), a.rows - 1) for a in t.axes)  # some products share weights
    matrix = t.transform_weights(w).reshape(t.down.rows, t.across.rows)[rows][:, columns]
    y = t.down.result @ (matrix * moved) @ t.across.result.T
    exact = convolution(d[None, None], w, (0, 0, 0, 0), stride=t.strides[0])
    np.testing.assert_allclose(y, exact[0, 0], atol=1e-12)


@EACH
def test_the_short_chains_are_the_matrices_and_float16_holds_all_numbers(t: Transform) -> None:
    d = list(np.eye(t.across.extent))
    np.testing.assert_array_equal(np.array(t.across.apply_data(d, float, lambda v: v)), t.across.data)
    np.testing.assert_array_equal(np.array(t.across.apply_result(d, float, lambda v: v)), t.across.result)
    for matrix in (t.across.data, t.across.result):
        np.testing.assert_array_equal(matrix.astype(np.float16), matrix)


@pytest.mark.parametrize(
    ("kernel", "stride"), [((3, 3), 1), ((5, 5), 1), ((1, 7), 1), ((2, 2), 1), ((3, 1), 1), ((3, 3), 2), ((4, 4), 2)]
)
def test_transformed_data_stay_near_the_data(kernel: tuple[int, int], stride: int) -> None:
    found = transforms(kernel, (stride, stride), half=True)
    assert found and all(np.log2(t.shrink) % 1 == 0 for t in found)
    for t in found:
        most = [np.abs(a.data).sum(1).max() for a in t.axes]
        assert most[0] * most[1] * t.shrink <= DATA * np.sqrt(2)


# -- where they are taken --------------------------------------------------------------------------


def options(model: onnx.ModelProto, target: Any, **more: Any) -> Options:
    target = resolve(target) if isinstance(target, str) else target
    largest = largest_of(model, "float16")
    return Options(target, precision="float16", halves=largest, **{"tile": "off", "matrix": False, **more})


def schedules(model: onnx.ModelProto, target: Any, **more: Any) -> list[str]:
    build = run_pipeline(model, options(model, target, stop_after="schedule", **more))
    assert build.report["precision"]["in_float16"] == build.report["precision"]["products"]
    return [k["schedule"] for k in build.report["kernels"] if "conv" in k["schedule"] or "winograd" in k["schedule"]]


@pytest.mark.parametrize("target", [PI5, SERVER])
def test_large_layers_take_them_and_layers_of_few_channels_do_not(target: str) -> None:
    found = schedules(stack((8, 128, 128), (56, 56), 3), target)
    assert len(found) == 2 and "direct" in found[0] and found[1].startswith("winograd F(4x4,3x3)")
    assert "float16" in found[1]


@pytest.mark.parametrize("target", [PI5, SERVER])
def test_layers_of_stride_two_take_their_own(target: str) -> None:
    net = Net((1, 128, 56, 56))
    model = net.model(net.add("Conv", "x0", net.weight(128, 128, 3, 3), pads=[1] * 4, strides=[2, 2]))
    (found,) = schedules(model, target)
    assert re.match(r"winograd F\(\dx\d,3x3/2\).*float16", found)


def test_layers_by_an_error_and_sums_in_order_do_without() -> None:
    model = stack((64, 128, 128), (56, 56), 3)
    assert all("direct" in s for s in schedules(model, PI5, winograd=False))
    layers = {"layers": {"n0": "float16", "n2": "float16"}}
    assert all("direct" in s for s in schedules(model, PI5, assigned=layers))


@pytest.mark.parametrize("target", [PI5, SERVER])
def test_models_whose_float32_has_transforms_are_in_float16(target: str) -> None:
    """Two and a quarter products of float16 for an output take less than those of any transform in float32."""
    model = stack((64, 64, 64, 64, 64), (96, 96), 3)
    assert sum("float16" in s for s in schedules(model, target)) >= 3


def test_a_plan_takes_half_of_the_bytes_and_of_the_cycles() -> None:
    target = resolve(PI5)
    wide = facts_of(128, 128, 56, 56)
    half = replace(wide, output=Value("y", wide.output.shape, "float16"))
    found = {f.output.dtype: choose.choose_plan(target, f) for f in (wide, half)}
    narrow = found["float16"]
    assert narrow is not None and narrow.half and narrow.transform is HALF4
    same = replace(narrow, half=False)
    assert 2 * winograd_plan.weight_bytes(8, 128, narrow) == winograd_plan.weight_bytes(8, 128, same)
    for half_of, whole in zip(*(winograd_plan.scratch_bytes(8, 128, plan) for plan in (narrow, same)), strict=True):
        assert 2 * half_of == whole
    assert 2 * winograd_plan.held_bytes(8, 128, narrow) <= winograd_plan.held_bytes(8, 128, same)
    assert 0.45 < cost.direct_cycles(target, half) / cost.direct_cycles(target, wide) < 0.6
    assert narrow.cycles < 0.75 * found["float32"].cycles


# -- answers ---------------------------------------------------------------------------------------


def forced(transform: Transform, pick: int) -> Any:
    """A choice of ``transform`` wherever it fits, in strips, groups and register tiles that differ."""

    def choice(target: Any, facts: Any, *_: Any, **__: Any) -> Any:
        layer = winograd_plan.Layer.of(facts)
        able = winograd_plan.all_transforms(layer) if choose.applies(facts) and layer.half else []
        if transform not in able:
            return None
        plans = list(choose._plans(target, layer, transform))
        return replace(plans[(7 * facts.channels + 5 * facts.outputs + pick) % len(plans)], cycles=0.0)

    return choice


def layer(
    batch: int, cin: int, cout: int, size: tuple[int, int], seed: int = 0, stride: int = 1
) -> tuple[onnx.ModelProto, Any, Any]:
    """A 3x3 layer alone, an input, and its exact result for what float16 makes of both."""
    net = Net((batch, cin, *size), seed=seed)
    weights = net.weight(cout, cin, 3, 3)
    model = net.model(net.add("Conv", "x0", weights, pads=[1] * 4, strides=[stride] * 2))
    x = random((batch, cin, *size), seed + 1)
    w = onnx.numpy_helper.to_array(model.graph.initializer[0])
    return model, x, convolution(*(a.astype(np.float16) for a in (x, w)), (1, 1, 1, 1), stride=stride)


@HERE
@EACH
@pytest.mark.parametrize("shape", [(2, 37, 45, (13, 17)), (1, 64, 32, (8, 8)), (1, 161, 70, (23, 9))])
def test_results_are_within_the_bound(t: Transform, shape: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (model, x, exact), cin = layer(*shape, stride=t.strides[0]), shape[1]
    w = onnx.numpy_helper.to_array(model.graph.initializer[0])
    rms, bits = np.sqrt((exact**2).mean()), set()
    for threads, pick in ((1, 0), (2, 0), (2, 3)):
        monkeypatch.setattr(winograd_algorithm, "choose_plan", forced(t, pick))
        kept = {"tile": "off", "threads": threads, "precision": "float16"}
        compiled = halotile.compile(model, target=unitless(native()), **kept)
        assert any("winograd" in k["schedule"] and "float16" in k["schedule"] for k in compiled.report["kernels"])
        found = next(iter(compiled({"x0": x}).values()))
        bits.add(found.tobytes())
        error = np.abs(found - exact)
        assert 0 < error.max() <= error_bound(t, cin, half=True) * np.abs(x).max() * np.abs(w).max() * cin
        assert np.sqrt((error**2).mean()) < NEAR[t] * rms
    assert len(bits) == 1, "no bit depends on threads, strips or groups"


@HERE
def test_runs_keep_long_sums_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 512 channels all of one sign: one sum in float16 would be off by percents."""
    monkeypatch.setattr(winograd_algorithm, "choose_plan", forced(HALF4, 0))
    net = Net((1, 512, 9, 9))
    weights = net.const((np.abs(net.rng.standard_normal((40, 512, 3, 3))) / 64).astype(np.float32))
    model = net.model(net.add("Conv", "x0", weights, pads=[1] * 4))
    x = np.abs(random((1, 512, 9, 9), 3))
    w = onnx.numpy_helper.to_array(model.graph.initializer[0])
    exact = convolution(x, w, (1, 1, 1, 1))
    found = next(iter(halotile.compile(model, target=unitless(native()), precision="float16")({"x0": x}).values()))
    assert 512 > RUN and np.abs(found - exact).max() < 1e-2 * np.abs(exact).max()


@HERE
def test_inputs_far_beyond_the_samples_are_finite() -> None:
    """Samples reach 4; eight times as much is within what is left of the range."""
    model = stack((16, 64, 64, 64), (41, 43), 3, (200.0, 1.0, 1.0))
    spec = [TensorSpec("x0", "float32", (1, 16, 41, 43))]
    x = random_inputs(spec, model, 5)["x0"]
    compiled = halotile.compile(model, target=unitless(native()), precision="float16", tile="off")
    assert compiled.report["precision"]["in_float16"] == 3
    name = model.graph.output[0].name
    assert np.isfinite(compiled({"x0": 8 * x})[name]).all()
