"""Names of open dimensions that say nothing, or say too much; inputs that nothing reads."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import halotile
import numpy as np
import onnx
import pytest
from commands import run_command
from halotile.compiler.frontend import import_model
from halotile.compiler.frontend.shapes import declared_shape
from halotile.errors import ShapeError
from onnx import TensorProto, helper


def model(nodes: list[onnx.NodeProto], inputs: dict[str, list], **outputs: None) -> onnx.ModelProto:
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n, dims in inputs.items()]
    outs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs or {"y": None}]
    graph = helper.make_graph(nodes, "g", made, outs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("name", ["?", "??", " ", "-1", "-100", "*", "None", "null", "unk", "Unknown", "_", ".", "0"])
def test_what_is_no_name(name: str) -> None:
    one = model([helper.make_node("Relu", ["x"], ["y"])], {"x": [-1, 3, name, name]})
    assert declared_shape(one.graph.input[0]) == [None, 3, None, None]
    imported = import_model(one, {"x": (2, 3, 5, 7)})
    assert imported.inputs[0].shape == (2, 3, 5, 7) and not imported.warnings
    symbolic = import_model(one, symbolic=True).inputs[0].shape
    assert len({str(d) for d in symbolic}) == 4


@pytest.mark.parametrize("name", ["batch", "N", "unk__12", "dynamic", "?x", "-1b", "h1", "unknown_3", "n-1"])
def test_what_is_one(name: str) -> None:
    one = model([helper.make_node("Relu", ["x"], ["y"])], {"x": [name, 3, name]})
    assert declared_shape(one.graph.input[0]) == [name, 3, name]


def test_a_nameless_dimension_gets_a_name_that_no_other_has() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Relu", ["x_0"], ["z"])]
    inputs = {"x": ["?", "x_0"], "x_0": ["x_1", "?"]}
    imported = import_model(model(nodes, inputs, y=None, z=None), symbolic=True)
    shapes = [str(d) for spec in imported.inputs for d in spec.shape]
    assert len(set(shapes)) == 4 and shapes[1:3] == ["x_0", "x_1"]


def test_a_name_for_unrelated_dimensions_may_be_contradicted() -> None:
    """Right results with a warning; a use that needs the two to be equal is refused, and the warning says why."""
    nodes = [helper.make_node("ReduceSum", [i], [o], keepdims=0) for i, o in ("xa", "zb")]
    nodes.append(helper.make_node("Add", ["a", "b"], ["y"]))
    apart = model(nodes, {"x": ["unk__12", "n"], "z": ["unk__12", "n", "n"]})
    compiled = halotile.compile(apart, shapes={"x": (2, 5), "z": (3, 7, 4)})
    warnings = compiled.report["warnings"]
    assert len(warnings) == 2 and "'unk__12' is 2 in the shape given for input 'x' and 3 in that for 'z'" in warnings[0]
    assert "'n' is 5" in warnings[1] and compiled.inputs[1].shape == (3, 7, 4)
    x, z = np.arange(10, dtype=np.float32).reshape(2, 5), np.arange(84, dtype=np.float32).reshape(3, 7, 4)
    np.testing.assert_allclose(compiled({"x": x, "z": z})["y"], x.sum() + z.sum(), rtol=1e-6)
    assert compiled.verify().ok
    together = model([helper.make_node("MatMul", ["x", "z"], ["y"])], {"x": ["b", "n"], "z": ["n", "c"]})
    with pytest.raises(ShapeError, match=r"'n' is 5 in the shape given for input 'x' and 4 in that.*MatMul"):
        import_model(together, {"x": (2, 5), "z": (4, 3)})


def test_a_name_still_fixes_what_is_not_given() -> None:
    nodes = [helper.make_node("Add", ["x", "z"], ["a"]), helper.make_node("Add", ["a", "w"], ["y"])]
    three = model(nodes, {"x": ["b", 4], "z": ["b", 4], "w": ["b", 4]})
    assert [s.shape for s in import_model(three, {"z": (3, 4)}).inputs] == [(3, 4)] * 3
    with pytest.raises(ShapeError, match="'w' has .b, 4."):  # which of the two would it be?
        import_model(three, {"x": (1, 4), "z": (3, 4)})
    imported = import_model(three, {"x": (1, 4), "z": (3, 4), "w": (3, 4)})
    assert imported.outputs[0].shape == (3, 4) and len(imported.warnings) == 1


def test_an_input_that_nothing_reads_is_told_of_once_and_accepted(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["dead"], ["gone"])]
    onnx.save(model(nodes, {"x": [2, 3], "idle": [4], "dead": [5]}), tmp_path / "m.onnx")
    done = run_command(["build", "m.onnx", "-o", "lib"], tmp_path, os.environ)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if "'idle'" in line]
    assert len(told) == 1 and "'dead'" in told[0] and told[0].startswith("note: ")
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    for name, array in {"x": x, "idle": np.ones(4, "f"), "dead": np.ones(5, "f")}.items():
        np.save(tmp_path / f"{name}.npy", array)
    words = [w for name in ("x", "idle", "dead") for w in ("-i", f"{name}={name}.npy")]
    for command in (["run", "lib"], ["run", "lib", "--on", "env"]):
        (tmp_path / "y.npy").unlink(missing_ok=True)
        done = run_command([*command, *words, "-o", "y=y.npy"], tmp_path, os.environ)
        assert done.returncode == 0, done.stderr
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.maximum(x, 0))
    program = [str(tmp_path / "lib" / "model_run"), *words]
    assert subprocess.run(program, cwd=tmp_path, capture_output=True).returncode == 0
    assert subprocess.run([*program, "-i", "nope=x.npy"], cwd=tmp_path, capture_output=True).returncode == 1
    with halotile.load(tmp_path / "lib") as loaded:
        np.testing.assert_array_equal(loaded({"x": x, "idle": x, "dead": x})["y"], np.maximum(x, 0))
