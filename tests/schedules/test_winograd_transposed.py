"""Transposed convolutions whose phases take Winograd's algorithm, against double precision; their scratch; exact."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from compiled import Compiled, native
from halotile.benchmarks.graph import ExportForm, ModelGraph
from halotile.benchmarks.layers import activation
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Build, Options
from halotile.schedules.conv.facts import ConvFacts
from halotile.schedules.conv.winograd import transposed_phases
from halotile.schedules.conv.winograd.choose import applies, best_plan
from halotile.schedules.conv.winograd.plan import STACK_BYTES, WinogradPlan
from halotile.schedules.words.group import Scratch
from halotile.targets.target import Target
from onnx.reference import ReferenceEvaluator
from winograd_layers import random

# batch, channels in and out, height, width, kernel, stride, padding (top, left, bottom, right), output padding,
# dilation
SHAPES = {
    "4x4/2": (1, 48, 32, 13, 15, (4, 4), (2, 2), (1, 1, 1, 1), (0, 0), 1),
    "prime": (2, 37, 41, 11, 17, (4, 4), (2, 2), (1, 0, 0, 1), (1, 0), 1),
    "unlike phases": (1, 33, 48, 19, 14, (5, 5), (2, 2), (2, 2, 2, 2), (1, 1), 1),
    "three": (1, 32, 32, 12, 13, (9, 6), (3, 3), (3, 1, 3, 2), (0, 0), 1),
    "one axis": (1, 40, 24, 9, 61, (1, 8), (1, 4), (0, 2, 0, 2), (0, 0), 1),
    "stride 1": (1, 24, 32, 15, 14, (3, 3), (1, 1), (1, 1, 1, 1), (0, 0), 1),
    "dilated": (1, 32, 32, 14, 13, (4, 4), (2, 2), (3, 3, 3, 3), (0, 0), 3),
}


def model(name: str) -> onnx.ModelProto:
    """A transposed convolution with bias, residual and ReLU, of an intermediate."""
    batch, cin, cout, height, width, kernel, strides, pads, more, dilation = SHAPES[name]
    g = ModelGraph("up", ExportForm(opset=17))
    x = activation(g, g.input("x", (batch, cin, height, width)), "silu")
    w = g.weight("w", random((cin, cout, *kernel), 1) / np.float32(np.sqrt(cin * np.prod(kernel) / np.prod(strides))))
    b = g.weight("b", random((cout,), 2))
    settings = {"strides": strides, "pads": pads, "output_padding": more, "dilations": (dilation, dilation)}
    y = g.op("ConvTranspose", x, w, b, **settings)
    r = g.input("r", g.shape(y))
    return g.finish(y=activation(g, g.op("Add", y, r), "relu"))


def feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in model.graph.input}
    return {name: random(shape, i) for i, (name, shape) in enumerate(shapes.items())}


def build_of(name: str, **options: object) -> Build:
    return run_pipeline(model(name), Options(native(), stop_after="plan", tile="off", threads=2, **options))  # type: ignore


@pytest.mark.parametrize("name", SHAPES)
def test_equals_double_precision(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With any number of tasks the same bits."""
    monkeypatch.setattr(transposed_phases, "choose_plan", wherever_it_applies)
    build = build_of(name)
    schedules = [k.schedule for k in build.kernels if k.schedule.startswith("transposed")]
    assert len(schedules) == 1 and "winograd F(" in schedules[0]
    wanted, given = wide(model(name)), feeds(model(name))
    (exact,) = ReferenceEvaluator(wanted).run(None, {k: v.astype(np.float64) for k, v in given.items()})
    compiled = Compiled(build)
    (got,) = compiled.run(list(given.values()))
    np.testing.assert_allclose(got, exact, rtol=0, atol=4e-5 * np.abs(exact).max())
    for tasks, poison in ((1, 0), (3, 0x7F)):
        (again,) = compiled.run(list(given.values()), tasks=tasks, poison=poison)
        np.testing.assert_array_equal(again.view(np.int32), got.view(np.int32))


def wherever_it_applies(target: Target, facts: ConvFacts, room: int | None) -> WinogradPlan | None:
    return best_plan(target, facts, room) if applies(facts) else None


def wide(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in double precision."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for constant in copy.graph.initializer:
        value = onnx.numpy_helper.to_array(constant)
        if value.dtype == np.float32:
            constant.CopyFrom(onnx.numpy_helper.from_array(value.astype(np.float64), constant.name))
    for value in (*copy.graph.input, *copy.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    del copy.graph.value_info[:]
    return copy


def large(threads: int = 2, **options: object) -> Build:
    g = ModelGraph("up", ExportForm(opset=17))
    x = activation(g, g.input("x", (1, 128, 32, 32)), "relu")
    w = g.weight("w", random((128, 128, 4, 4), 1))
    model = g.finish(y=g.op("ConvTranspose", x, w, strides=[2, 2], pads=[1, 1, 1, 1]))
    return run_pipeline(model, Options(native(), stop_after="plan", threads=threads, **options))  # type: ignore


def test_phases_share_their_scratch() -> None:
    """The plan has room for the largest of each kind, a part for each core."""
    build = large(tile="off")
    (kernel,) = [k for k in build.kernels if k.schedule.startswith("transposed")]
    assert "winograd" in kernel.schedule and kernel.workspace == 0
    scratch = [o for o in kernel.operands if isinstance(o, Scratch)]
    assert 1 <= len(scratch) <= 2 and all(o.bytes > 2 * STACK_BYTES for o in scratch)


def test_not_under_exact_nor_where_there_is_no_room() -> None:
    def schedule(build: Build) -> str:
        return next(k.schedule for k in build.kernels if "transposed" in k.schedule or "tiled" in k.schedule)

    assert "winograd" not in schedule(large(exact=True))
    assert "winograd" not in schedule(large(winograd=False))
    assert "winograd" in schedule(large(tile="off"))


@pytest.mark.parametrize("share", [0.9, 0.6])
def test_budgets_count_it(share: float) -> None:
    whole = large(tile="off").memory.planned_bytes  # type: ignore
    less = large(memory_budget=int(share * whole)).memory.planned_bytes  # type: ignore
    assert less <= share * whole
