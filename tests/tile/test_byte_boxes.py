"""Depthwise layers in bytes and results narrowed together, in boxes of tile groups: the bits of whole layers, those of
ONNX Runtime's float32, which holds every sum. Arenas are poisoned, with bytes of no layer's padding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from compiled import native
from halotile.compiler.pipeline import Build, Options, run_pipeline
from halotile.passes.tile.plan.checker import check_plan
from halotile.passes.tile.search.program import Program
from halotile.passes.tile.tile import replaced
from halotile.schedules.instructions.byte_packs import packs
from halotile.schedules.instructions.int8_dot import data_dtype
from halotile.schedules.tiled import TiledKernel
from quantised_layers import Quantised
from tile_forms import finished, planned

pytestmark = pytest.mark.skipif(
    data_dtype(native()) != "uint8", reason="NOT RUN: this machine sums no products of unsigned bytes"
)

#: channels, and of each depthwise layer: kernel, strides, dilations, pads, byte of its zero, bias
Layers = list[tuple[tuple[int, int], list[int], list[int], list[int], int, bool]]
CHAINS: dict[str, tuple[tuple[int, int, int, int], Layers]] = {
    "prime": (
        (1, 19, 23, 29),
        [((3, 3), [1, 1], [1, 1], [1] * 4, 0, True), ((3, 3), [1, 1], [1, 1], [0] * 4, 7, True)],
    ),
    "strides": (
        (1, 37, 41, 31),
        [((5, 5), [2, 1], [1, 1], [2, 2, 1, 2], 0, True), ((3, 3), [1, 2], [1, 1], [1, 0, 2, 2], 0, False)],
    ),
    "dilated": (
        (1, 16, 29, 37),
        [((3, 3), [1, 1], [2, 1], [2, 1, 2, 1], 0, False), ((2, 7), [1, 1], [3, 1], [0] * 4, 200, True)],
    ),
    "batch": (
        (3, 41, 17, 13),
        [((3, 5), [1, 1], [1, 1], [1, 2, 1, 2], 0, False), ((4, 3), [2, 2], [1, 1], [0] * 4, 255, False)],
    ),
}


def chain(name: str) -> onnx.ModelProto:
    """1x1 layers around the depthwise ones."""
    (batch, channels, height, width), layers = CHAINS[name]
    g = Quantised(channels)
    x = g("Relu", g.conv("x", channels, channels, (1, 1), 128))
    for kernel, strides, dilations, pads, zero, bias in layers:
        given: dict[str, Any] = {"strides": strides, "dilations": dilations, "pads": pads, "group": channels}
        if bias:
            x = g("Relu", g.conv(x, channels, channels, kernel, zero, **given))
        else:
            weight = g.weight(channels, 1, *kernel, axis=0)
            x = g("Conv", g.bytes(x, zero), weight, kernel_shape=list(kernel), **given)
    return g.model(g.conv(x, channels, 23, (1, 1), 0), batch, channels, height, width)


def built(model: onnx.ModelProto) -> Build:
    return run_pipeline(model, Options(target=native(), stop_after="layout", winograd=False, threads=3))


def tiled(model: onnx.ModelProto, rng: np.random.Generator, sharing: int) -> Build | None:
    """With all of its groups of bytes in one tile group of a random form."""
    build = built(model)
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    able = [i for i in range(len(build.groups)) if program.refusal(i) is None]
    assert able == [*range(able[0], able[-1] + 1)] and len(able) >= 4
    plan = planned(build, program, able[0], able[-1], rng, sharing)
    if plan is None:
        return None
    plan = replace(plan, sharing=sharing)
    assert check_plan(plan).problems == []
    result = replaced(build.groups, [(able[0], able[-1], plan)])
    build.groups, build.tiled = result.groups, dict(result.plans)
    return build


@pytest.mark.parametrize("name", CHAINS)
def test_boxes_have_the_bits_of_whole_layers(name: str) -> None:
    model = chain(name)
    rng = np.random.default_rng(len(name))
    dims = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = (rng.integers(-160, 160, dims) / 32).astype(np.float32)
    whole = finished(built(model))
    schedules = [k.schedule for k in whole.build.kernels]
    assert sum(s.startswith("depthwise dot products of bytes") for s in schedules) == len(CHAINS[name][1]), schedules
    (wanted,) = whole.run([x])
    assert np.abs(wanted).max() > 0.1
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), plain, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(wanted.reshape(expected.shape), expected)
    packed = executed = 0
    for form in range(24):
        build = tiled(model, rng, 1 + form % 2) if executed < 4 else None
        if build is None:
            continue
        found = finished(build)
        (kernel,) = (k for k in build.kernels if isinstance(k, TiledKernel))
        parts = [p for p in kernel.parts if p.schedule.startswith("depthwise dot products of bytes")]
        assert parts, [p.schedule for p in kernel.parts]
        packed += sum("packssdw" in p.function.script() for p in kernel.parts)
        executed += 1
        for poison in (0xFF, 0x55):
            (got,) = found.run([x], poison=poison)
            np.testing.assert_array_equal(got, wanted, err_msg=f"{name}, form {form}")
    assert executed == 4
    assert packed or not packs(native(), "uint8", native().lanes("int32"))
