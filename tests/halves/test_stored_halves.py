"""What layers in float32 make between layers in float16 is stored in float16."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from board_tools import needs, needs_zig
from compiled import machine, native, unitless
from half_models import Net
from halotile.benchmarks.boards import emulator
from halotile.compiler import storage
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.quantise.halves import largest_of
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.sample import random_inputs
from halotile.compiler.spec import TensorSpec
from halotile.compiler.state import Options
from halotile.passes.layout import stored
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


def residual(rows: int, width: int) -> onnx.ModelProto:
    """Sums that a norm reads, in float32, and the next sum, in float16; one is turned on its way to the norm."""
    net = Net((1, rows, width))

    def layer(y: str, inputs: int, outputs: int) -> str:
        return net.add("MatMul", y, net.weight(inputs, outputs, fan=inputs))  # type: ignore[no-any-return]

    def norm(y: str, size: int) -> str:
        scale, shift = (net.const(a.astype(np.float32)) for a in net.rng.standard_normal((2, size)))
        return net.add("LayerNormalization", y, scale, shift)  # type: ignore[no-any-return]

    x = layer("x0", width, width)
    y = net.add("Add", x, layer(net.add("Relu", layer(norm(x, width), width, 2 * width)), 2 * width, width))
    turned = net.add("Reshape", y, net.const(np.array([1, width, rows], np.int64)))
    z = net.add("Add", y, layer(net.add("Relu", layer(norm(y, width), width, 2 * width)), 2 * width, width))
    return net.model(layer(z, width, width), layer(norm(turned, rows), rows, 7), opset=17)


def test_what_is_widened_for_another_reader_lies_in_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = residual(53, 37)
    once = built(model, PI5)
    count = once.details["layout"]["once"]
    names = [v for v, base in once.views.items() if v.dtype == "float32" and base.dtype == "float16"]
    assert count == len(names) >= 2
    assert all(once.places.root(v).dtype == "float16" for v in names)
    assert not any(v in g.outputs for v in names for g in once.groups)
    monkeypatch.setattr(stored, "once", lambda groups, *_: (groups, {}))
    twice = built(model, PI5)
    assert once.report["planned_bytes"] < twice.report["planned_bytes"]


def test_what_an_output_is_has_memory_of_its_own() -> None:
    """Sums that the model gives as well stay apart: a user sees float32."""
    model = residual(53, 37)
    total = next(n for n in model.graph.node if n.op_type == "Add").output[0]
    model.graph.output.append(onnx.helper.make_tensor_value_info(total, onnx.TensorProto.FLOAT, None))
    build = built(model, PI5)
    assert not any(build.places.root(v).dtype == "float16" for v in build.graph.outputs)


@pytest.mark.parametrize("tile", ["off", "auto"])
@pytest.mark.parametrize(("rows", "width"), [(53, 37), (8, 64), (1, 19)])
def test_a_board_reads_what_lies_once(rows: int, width: int, tile: str, tmp_path: Path) -> None:
    """After a run on NaN, of which nothing is left; the same bits on one thread and on two."""
    run = emulator(resolve(PI5))
    needs(run[0])
    needs_zig()
    model = residual(rows, width)
    halves = largest_of(model, "float16")
    options = Options(resolve(PI5), precision="float16", halves=halves, formats=("exe",), tile=tile)
    build = run_pipeline(model, options, output=tmp_path / "out")
    assert build.details["layout"]["once"] >= 1
    x = np.random.default_rng(4).standard_normal((1, rows, width)).astype(np.float32)
    with RemoteModel(tmp_path / "out", " ".join(run)) as remote:
        assert all(np.isnan(v).any() for v in remote({"x0": np.full_like(x, np.nan)}).values())
        found = [remote({"x0": x}, threads=n) for n in (1, 2)]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for name, wanted in zip((o.name for o in model.graph.output), session.run(None, {"x0": x})):
        assert np.abs(found[0][name] - wanted).max() < 1e-2 * np.abs(wanted).max()
        np.testing.assert_array_equal(found[0][name], found[1][name])
