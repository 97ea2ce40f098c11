"""What ``inspect`` says of a file, without compiling it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from halotile import inspect
from halotile.benchmarks.models import MODELS
from halotile.compiler.cli.main import run
from halotile.errors import HalotileError, ModelError, ShapeError
from onnx import TensorProto, helper, numpy_helper
from small_models import external, model_of, tiny

LIGHT = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "light")


def test_a_small_model() -> None:
    data = inspect(tiny())
    assert data["inputs"] == [{"name": "x", "dtype": "float32", "shape": [2, 4]}]
    assert data["outputs"] == [{"name": "y", "dtype": "float32", "shape": [2, 5]}]
    assert data["operators"] == {"MatMul": 1, "Relu": 1}
    assert data["weights"] == {"tensors": 1, "elements": 20, "bytes": 80}
    assert data["macs"] == 2 * 5 * 4
    assert data["coverage"]["supported"] and data["coverage"]["exact"]
    json.dumps(data)


def test_squeezenet_has_the_known_count() -> None:
    data = inspect(os.path.join(LIGHT, "light_squeezenet.onnx"))
    assert data["macs"] == 349_151_936
    assert data["operators"]["Conv"] == 26


def conv_model(**attributes) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8, 10, 12])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, list("nchw"))
    w = numpy_helper.from_array(np.zeros((8, 4, 3, 3), np.float32), "w")
    kind = attributes.pop("kind")
    return helper.make_model(
        helper.make_graph([helper.make_node(kind, ["x", "w"], ["y"], **attributes)], "g", [x], [y], [w]),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip


def test_multiply_adds_of_grouped_and_transposed_convolutions() -> None:
    # 2 images, 8 channels of 4x5 after the stride, each from 4 channels of 3x3
    assert inspect(conv_model(kind="Conv", group=2, strides=[2, 2]))["macs"] == 2 * 8 * 4 * 5 * 4 * 9
    # every input element meets 4 output channels of 3x3
    assert inspect(conv_model(kind="ConvTranspose"))["macs"] == 2 * 8 * 10 * 12 * 4 * 9


def test_open_dimensions_leave_the_count_open_until_fixed() -> None:
    data = inspect(tiny(("batch", 4)))
    assert data["inputs"][0]["shape"] == ["batch", 4]
    assert data["macs"] is None and data["macs_unknown_for"] == ["mm"]
    assert data["coverage"]["supported"] and data["coverage"]["exact"]
    assert [s["name"] for s in data["symbols"]] == ["batch"] and data["outputs"][0]["shape"] == ["batch", 5]
    fixed = inspect(tiny(("batch", 4)), shapes={"x": (7, 4)})
    assert fixed["macs"] == 7 * 20 and fixed["coverage"]["exact"]


def test_refused_operators_are_listed() -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first"),
        helper.make_node("RandomNormalLike", ["x"], ["b"], name="second"),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    coverage = inspect(model_of(*nodes))["coverage"]
    assert not coverage["supported"] and len(coverage["refused"]) == 2
    assert "first" in coverage["refused"][0] and "second" in coverage["refused"][1]


def test_errors() -> None:
    with pytest.raises(ModelError):
        inspect(b"nonsense")
    with pytest.raises(ShapeError, match="'z'"):
        inspect(tiny(), shapes={"z": (1,)})
    with pytest.raises(ShapeError, match="whole numbers"):
        inspect(tiny(), shapes={"x": (2.5, 4)})
    with pytest.raises(ShapeError, match="contradicts the model's .2, 4. in dimension 0: 2 can't be open"):
        inspect(tiny(), shapes={"x": ("two", 4)})
    with pytest.raises(HalotileError, match="stage 'polish' can't be inspected"):
        inspect(tiny(), stage="polish")


def test_external_weights_are_counted(tmp_path) -> None:
    np.zeros(20, np.float32).tofile(tmp_path / "w.bin")
    external(tmp_path / "m.onnx", "w.bin")
    data = inspect(tmp_path / "m.onnx")
    assert data["weights"]["bytes"] == 80 and data["macs"] == 40


def test_operators_after_a_stage_have_shapes_and_attributes() -> None:
    data = inspect(conv_model(kind="Conv", group=2, strides=[2, 1]), stage="import")
    (conv,) = [o for o in data["operators"] if o["operator"] == "relax.nn.conv2d"]
    assert conv["inputs"] == ["float32[2, 8, 10, 12]", "float32[8, 4, 3, 3]"]
    assert conv["outputs"] == "float32[2, 8, 4, 10]"
    assert conv["attributes"]["groups"] == 2 and conv["attributes"]["strides"] == [2, 1]
    json.dumps(data)


def test_what_is_inspected_is_tiled_as_a_build_would_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--explain listed the kernels of the fastest plan, whatever the budget."""
    path = tmp_path / "edsr.onnx"
    onnx.save(MODELS["edsr"].model(small=True, height=48, width=64), path)
    plain = {k["name"] for k in inspect(path, "plan")["kernels"]}
    tiled = {k["name"] for k in inspect(path, "plan", optimize="memory")["kernels"]}
    assert len(tiled) < len(plain)
    assert run(["inspect", str(path), "--explain", "--optimize", "memory", "--json"]) == 0
    assert {k["name"] for k in json.loads(capsys.readouterr().out)["kernels"]} == tiled
    with pytest.raises(HalotileError, match="memory_budget"):
        inspect(path, "plan", memory_budget="much")


@pytest.mark.parametrize("arguments", [{"target": None}, {"target": 5}, {"stage": np.zeros(3)}])
def test_wrong_kinds_of_arguments(arguments: dict) -> None:
    with pytest.raises(HalotileError, match="a target is a name or a Target|can't be inspected"):
        inspect(tiny(), **{"stage": "fuse", **arguments})


def test_a_stage_is_planned_for_the_threads_that_are_asked_for(monkeypatch) -> None:
    """A plan may depend on them: of a build for one thread, and for three, not of the target's cores."""
    from halotile.compiler import pipeline

    real, seen = pipeline.run_pipeline, []
    monkeypatch.setattr(pipeline, "run_pipeline", lambda m, o, *a, **k: seen.append(o.threads) or real(m, o, *a, **k))
    for threads in (1, 3, None):
        inspect(tiny(), "plan", threads=threads)
    assert seen == [1, 3, None]
    with pytest.raises(HalotileError, match="threads=0"):
        inspect(tiny(), "plan", threads=0)


def test_the_command_takes_threads_for_a_plan(tmp_path: Path, capsys, monkeypatch) -> None:
    from halotile.compiler import plans

    (tmp_path / "m.onnx").write_bytes(tiny().SerializeToString())
    real, seen = plans.run_pipeline, []
    monkeypatch.setattr(plans, "run_pipeline", lambda m, o, *a, **k: seen.append(o.threads) or real(m, o, *a, **k))
    assert run(["inspect", str(tmp_path / "m.onnx"), "--plan", "-j", "3"]) == 0
    assert seen == [3] and "arena" in capsys.readouterr().out
