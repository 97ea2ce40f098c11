"""What layers in float32 make between layers in float16 is stored in float16."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from compiled import machine, native, unitless
from half_models import Net
from halotile.compiler import storage
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.quantise.halves import largest_of
from halotile.compiler.sample import random_inputs
from halotile.compiler.spec import TensorSpec
from halotile.compiler.state import Options
from halotile.schedules.emit.builder import KernelBuilder
from halotile.schedules.math.float16 import Halved, half_load
from halotile.targets.resolve import resolve

PI5, SERVER = "raspberry-pi-5", "x86_64-linux-gnu+sapphirerapids"
HERE = pytest.mark.skipif(not machine().has_halves, reason="NOT RUN: this machine does not compute in float16")
SHAPE = (2, 24, 29, 31)


def excited(scale: float = 1.0) -> onnx.ModelProto:
    """Squeeze and excite by a mean, and softmax over channels, between layers: maps that stay in float32."""
    net = Net(SHAPE)
    a = net.add("HardSwish", net.conv("x0", 48, 24, 3, 3, pads=[1] * 4, act=""))
    a = net.add("Mul", a, net.const(np.float32(scale)))
    b = net.add("Mul", a, net.add("Sigmoid", a))
    m = net.add("GlobalAveragePool", b)
    c = net.add("Mul", b, net.add("Sigmoid", net.conv(m, 48, 48, 1, 1)))
    d = net.add("AveragePool", c, kernel_shape=[3, 3], pads=[1] * 4)
    d = net.add("Mul", d, net.const(np.float32(1 / scale)))
    p = net.add("Softmax", net.conv(d, 37, 48, 1, 1, act=""), axis=1)
    q = net.add("Transpose", net.add("Tanh", p), perm=[0, 1, 3, 2])
    return net.model(net.conv(q, 24, 37, 3, 3, pads=[1] * 4), opset=18)


def built(model: onnx.ModelProto, target: str, **more: Any) -> Any:
    halves = largest_of(model, "float16")
    options = Options(resolve(target), precision="float16", halves=halves, tile="off", matrix=False, stop_after="plan")
    return run_pipeline(model, replace(options, **more))


def test_stores_round_and_what_is_only_moved_keeps_its_bits() -> None:
    k = KernelBuilder("f")
    x, y = (Halved(k.pointer(name, "float16", 16)) for name in "xy")
    assert half_load(x[3] + x[4]) is None and half_load(x[3]) is not None
    with k.loop(16, "vectorized") as v:
        k.store(y, v, x[v])
    k.store(y, 0, x[1] + x[2])
    text = k.finish().script()
    assert text.count("float32") == 2, "the sum's operands alone are widened"


@pytest.mark.parametrize("target", [PI5, SERVER])
def test_values_between_layers_take_half_of_the_bytes(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = excited()
    half = built(model, target)
    monkeypatch.setattr(storage, "_fits", lambda largest: lambda node: False)
    without = built(model, target)
    outer = {*half.graph.inputs, *half.graph.outputs, *half.closing}
    made = [v for g in half.groups for v in g.outputs if v.dtype == "float32" and v not in outer]
    held = {v: half.layouts[v].held(v.dtype) for v in made if v in half.layouts}
    assert list(held.values()).count("float16") >= 3
    assert half.details["layout"]["in_float16"] >= 3
    assert not any(half.layouts[v].stored for v in outer if v in half.layouts)
    assert without.details["layout"]["in_float16"] == 0
    assert half.report["planned_bytes"] <= without.report["planned_bytes"]


def test_what_may_leave_the_range_is_stored_in_float32() -> None:
    model = excited()
    largest = largest_of(model, "float16")
    assert largest is not None
    usual = built(model, PI5)
    high = built(model, PI5, halves={**largest, "n4": 5000.0, "n3": 5000.0})  # what the mean and the product read
    assert high.details["layout"]["in_float16"] < usual.details["layout"]["in_float16"]


@HERE
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_answers_are_near_and_finite(scale: float) -> None:
    model = excited(scale)
    inputs = random_inputs([TensorSpec("x0", "float32", SHAPE)], model, 5)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)[0]
    found = []
    for threads in (1, 2):
        compiled = halotile.compile(model, target=unitless(native()), precision="float16", threads=threads, tile="off")
        found.append(compiled(inputs)[model.graph.output[0].name])
    assert (found[0] == found[1]).all() and np.isfinite(found[0]).all()
    assert np.abs(found[0] - expected).max() < 1e-2 * np.abs(expected).max()
