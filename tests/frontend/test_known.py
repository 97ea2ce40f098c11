"""Inputs whose value is given at compile time: constants, and no inputs of the library."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import halotile
import numpy as np
import onnx
import pytest
from commands import run_command
from halotile import errors
from onnx import TensorProto, helper

X = np.arange(24, dtype=np.float32).reshape(1, 1, 4, 6)


def crop(size: int = TensorProto.INT64, dims: tuple[int | str, ...] = (2,)) -> onnx.ModelProto:
    """y is the upper left part of x, as large as ``size`` says: lengths that only its value tells."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4, "w"])
    s = helper.make_tensor_value_info("size", size, dims)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("Cast", ["size"], ["ends"], to=TensorProto.INT64),
        helper.make_node("Constant", [], ["starts"], value_ints=[0, 0]),
        helper.make_node("Constant", [], ["axes"], value_ints=[2, 3]),
        helper.make_node("Slice", ["x", "starts", "ends", "axes"], ["part"], name="cut"),
        helper.make_node("Relu", ["part"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "crop", [x, s], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("size", "value"),
    [
        (TensorProto.INT64, [3, 5]),
        (TensorProto.INT64, np.array([3, 5], np.uint8)),
        (TensorProto.FLOAT, (3, 5.0)),
        (TensorProto.FLOAT16, np.array([3, 5], np.float64)),
    ],
)
def test_a_value_fixes_what_follows_from_it(size: int, value) -> None:
    with pytest.raises(errors.UnsupportedError, match="cut"):
        halotile.compile(crop(size), shapes={"x": X.shape})
    model = halotile.compile(crop(size), shapes={"x": X.shape}, fixed={"size": value})
    assert [t.name for t in model.inputs] == ["x"] and model.outputs[0].shape == (1, 1, 3, 5)
    assert "fixed to the values that were given: 'size'" in model.report["notes"]["import"][0]
    np.testing.assert_array_equal(model({"x": X})["y"], X[:, :, :3, :5])
    assert model.verify().ok and model.verify({"x": X}).ok
    with pytest.raises(errors.RunError, match="unknown input 'size'"):
        model({"x": X, "size": np.zeros(2)})
    with pytest.raises(errors.RunError, match="'size' was fixed when the model was compiled"):
        model.verify({"size": np.array([1, 1])})


@pytest.mark.parametrize("operator", ["ReduceSum", "Range", "SequenceAt"])
def test_a_refusal_names_the_input_that_may_be_fixed(operator: str) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 6])
    k = helper.make_tensor_value_info("how many", TensorProto.INT64, [1] if operator == "ReduceSum" else [])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT if operator != "Range" else TensorProto.INT64, None)
    nodes = {
        "ReduceSum": [helper.make_node("ReduceSum", ["x", "how many"], ["y"], name="it")],
        "Range": [
            helper.make_node("Constant", [], ["zero"], value_int=0),
            helper.make_node("Constant", [], ["one"], value_int=1),
            helper.make_node("Range", ["zero", "how many", "one"], ["y"], name="it"),
        ],
        "SequenceAt": [
            helper.make_node("SplitToSequence", ["x"], ["s"], axis=0),
            helper.make_node("SequenceAt", ["s", "how many"], ["y"], name="it"),
        ],
    }[operator]
    graph = helper.make_graph(nodes, "g", [x, k], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(errors.UnsupportedError) as refused:
        halotile.compile(proto)
    assert "'it'" in str(refused.value) and re.search(
        "must be (a constant|constants): --fix how many=VALUE makes", str(refused.value)
    )
    assert "fixed={'how many': VALUE}" in str(refused.value)
    assert halotile.compile(proto, fixed={"how many": [1] if operator == "ReduceSum" else 1}).verify().ok
    inner = [helper.make_node("Abs", ["how many"], ["many"]), *nodes]
    for each in inner[1:]:
        each.input[:] = ["many" if name == "how many" else name for name in each.input]
    graph = helper.make_graph(inner, "g", [x, k], [y])
    told = "must be (a constant: it|constants: they) follows? from 'how many', and --fix"
    with pytest.raises(errors.UnsupportedError, match=told):
        halotile.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def test_the_shape_of_a_value_fixes_open_dimensions() -> None:
    seen = halotile.inspect(crop(dims=("n",)), "import", {"x": X.shape}, fixed={"size": [2, 2]})
    assert seen["nodes_after"] > 0
    coverage = halotile.inspect(crop(dims=("n",)), None, {"x": X.shape}, fixed={"size": [2, 2]})["coverage"]
    assert coverage["supported"] and coverage["exact"]


@pytest.mark.parametrize(
    ("fixed", "error", "message"),
    [
        ([3, 5], errors.HalotileError, "give a dict of input names and values"),
        ({"sizes": [3, 5]}, errors.ShapeError, "'sizes', but the model's inputs are 'x', 'size'"),
        ({"size": [3]}, errors.ShapeError, r"has the shape \[1\], which does not fit the model's \[2\]"),
        ({"size": [[3, 5]]}, errors.ShapeError, r"has the shape \[1, 2\], which does not fit the model's \[2\]"),
        ({"size": [3, 4.5]}, errors.ModelError, "holds 4.5, but the input holds int64"),
        ({"size": [True, False]}, errors.ModelError, "but the input holds int64"),
        ({"size": ["a", "b"]}, errors.HalotileError, "no array of numbers"),
        ({"size": None}, errors.HalotileError, "no array of numbers"),
        ({"size": [[1], [2, 3]]}, errors.HalotileError, "no array of numbers"),
        ({"size": [1j, 2]}, errors.HalotileError, "no array of numbers"),
    ],
)
def test_values_that_can_not_be(fixed, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        halotile.compile(crop(), shapes={"x": X.shape}, fixed=fixed)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL, TensorProto.BFLOAT16])
def test_a_value_without_elements(kind: int) -> None:
    nodes = [
        helper.make_node("Cast", ["none"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Concat", ["x", "floats"], ["y"], axis=0),
    ]
    inputs = [helper.make_tensor_value_info(n, t, [d]) for n, t, d in (("x", TensorProto.FLOAT, 3), ("none", kind, 0))]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, [y]), opset_imports=[opset], ir_version=8)
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(halotile.compile(model, fixed={"none": []})({"x": x})["y"], x)


def test_a_float_beyond_the_models_type() -> None:
    with pytest.raises(errors.ModelError, match="holds 100000.0, but the input holds float16"):
        halotile.compile(crop(TensorProto.FLOAT16), shapes={"x": X.shape}, fixed={"size": [1e5, 5]})


def test_the_command_line_and_its_record(tmp_path: Path) -> None:
    """What --fix made is in the manifest, by which the library is verified and built again to the byte."""
    (tmp_path / "crop.onnx").write_bytes(crop(dims=("n",)).SerializeToString())
    np.save(tmp_path / "size.npy", np.array([3, 5]))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_command(arguments, tmp_path, os.environ)

    shape = ("--shape", "x=1,1,4,6")
    for text, out in (("size=3,5", "a"), ("size=size.npy", "b")):
        done = run("build", "crop.onnx", *shape, "--fix", text, "-o", out, "--format", "so")
        assert done.returncode == 0, done.stderr
        recorded = json.loads((tmp_path / out / "manifest.json").read_text())["options"]["fixed"]
        assert recorded == {"size": {"shape": [2], "values": [3, 5]}}
    done = run("verify", "crop.onnx", "a")
    assert done.returncode == 0, done.stderr
    done = run("verify", "crop.onnx", *shape, "--fix", "size=2,2")
    assert done.returncode == 0, done.stderr
    done = run("build", "--from", "a", "-o", "c")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a" / "libcrop.so").read_bytes() == (tmp_path / "c" / "libcrop.so").read_bytes()
    assert "all operators" in run("inspect", "crop.onnx", *shape, "--fix", "size=3,5").stdout
    for text, code, words in (
        ("size", 2, "not of the form"),
        ("size=a,b", 2, "no list of numbers"),
        ("size=", 2, "no list of numbers"),
        ("size=none.npy", 1, "can't be read"),
        ("sizes=1,2", 1, "a value was given for 'sizes'"),
        ("size=1,2.5", 1, "holds 2.5"),
        ("size=1,-99999999999999999999999", 1, "holds -99999999999999999999999, which is too large for int64"),
    ):
        done = run("build", "crop.onnx", *shape, "--fix", text, "-o", "d")
        assert (done.returncode, words in done.stderr) == (code, True), done.stderr
        assert "Traceback" not in done.stderr and not (tmp_path / "d").exists()
    done = run("build", "--from", "a", "--fix", "size=1,1", "-o", "d")
    assert done.returncode == 2 and "--fix is in the manifest already" in done.stderr
