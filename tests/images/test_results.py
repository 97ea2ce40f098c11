"""What is taken in place of outputs, in Python and on the command line, and what is recorded of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import halotile
import numpy as np
import onnx
import pytest
from commands import run_command
from halotile.compiler.cache.library import key_of_library
from halotile.compiler.cache.place import chosen_cache
from halotile.compiler.state import Options
from halotile.errors import HalotileError
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper, numpy_helper


def _model(shape, opset=17, kind=TensorProto.FLOAT):
    """x -> y = x + x, and z = y * y, so that the raw output is read inside as well."""
    nodes = [helper.make_node("Add", ["x", "x"], ["y"]), helper.make_node("Mul", ["y", "y"], ["z"])]
    given = [helper.make_tensor_value_info("x", kind, shape)]
    taken = [helper.make_tensor_value_info(n, kind, shape) for n in "yz"]
    graph = helper.make_graph(nodes, "two", given, taken)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


CASES = [
    (halotile.Output(argmax=True, dtype="uint8"), lambda y: y.argmax(1).astype(np.uint8)),
    (halotile.Output(argmax=True, axis=-1), lambda y: y.argmax(-1).astype(np.int32)),
    (halotile.Output(multiply=255, dtype="uint8", layout="NHWC"),
     lambda y: np.clip(np.rint(y * 255), 0, 255).astype(np.uint8).transpose(0, 2, 3, 1)),
    (halotile.Output(softmax=True), lambda y: _softmax(y, 1)),
    (halotile.Output(softmax=True, axis=3, layout="NHWC"), lambda y: _softmax(y, 3).transpose(0, 2, 3, 1)),
    (halotile.Output(dtype="int32", multiply=1000), lambda y: np.rint(y * np.float32(1000)).astype(np.int32)),
    (halotile.Output(top=3, axis=1), lambda y: -np.sort(-y, 1)[:, :3]),
]  # fmt: skip


@pytest.mark.parametrize("opset", [9, 10, 17])
@pytest.mark.parametrize("wanted, formula", CASES, ids=[str(c[0]) for c in CASES])
def test_equals_numpy(wanted, formula, opset):
    if opset != 17 and wanted.top is None and not wanted.softmax:
        pytest.skip("of one form in every opset")
    model = halotile.compile(_model((2, 5, 7, 3), opset), outputs={"y": wanted}, cache=False, threads=1)
    x = np.random.default_rng(3).standard_normal((2, 5, 7, 3)).astype(np.float32)
    found = model({"x": x})
    expected = formula(x + x)
    assert found["y"].shape == expected.shape and found["y"].dtype == expected.dtype
    if expected.dtype.kind == "f":
        assert np.abs(found["y"] - expected).max() < 1e-5
    else:
        assert np.abs(found["y"].astype(int) - expected.astype(int)).max() <= int(wanted.multiply != 1)
        assert (found["y"] == expected).mean() > 0.99
    assert np.allclose(found["z"], (x + x) ** 2, rtol=1e-6)
    if wanted.top:
        assert found["y.indices"].dtype == np.int32
        assert (np.take_along_axis(x + x, found["y.indices"], 1) == found["y"]).all()
    if wanted.dtype is None:
        assert model.verify().ok


def test_dequantise():
    model = _model((1, 4, 2, 2), kind=TensorProto.INT32)
    made = halotile.compile(model, outputs={"y": {"dequantise": [0.5, 3]}}, cache=False, threads=1)
    x = np.arange(16, dtype=np.int32).reshape(1, 4, 2, 2)
    assert (made({"x": x})["y"] == (2 * x - 3) * np.float32(0.5)).all()


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"argmax": True, "axis": 4}, "axis 4 is none"),
        ({"argmax": True, "layout": "NHWC"}, "does not go with"),
        ({"top": 6}, "top=6 of 5"),
        ({"top": 0}, "whole number from 1"),
        ({"dtype": "float16"}, "give one of"),
    ],
)
def test_refusals(fields, words):
    with pytest.raises(HalotileError, match=words) as error:
        halotile.compile(_model((2, 5, 7, 3)), outputs={"y": fields}, cache=False)
    assert "\n" not in str(error.value)


def test_too_many_classes_for_bytes():
    with pytest.raises(HalotileError, match="300 places do not fit uint8"):
        halotile.compile(_model((1, 300, 2, 2)), outputs={"y": {"argmax": True, "dtype": "uint8"}}, cache=False)


def test_the_cache_tells_options_apart(tmp_path):
    cache, model, target = chosen_cache(tmp_path), _model((1, 3, 4, 4)), resolve("native")
    asked = [
        {}, {"inputs": {"x": {"colour": "BGR"}}}, {"inputs": {"x": {}}}, {"inputs": {"x": {"mean": 3.0}}},
        {"outputs": {"y": {"argmax": True}}},
    ]  # fmt: skip
    keys = [key_of_library(model, Options(target, **options), cache) for options in asked]
    assert len(set(keys)) == len(asked) and None not in keys


def _run(folder: Path, *arguments: object):
    return run_command(arguments, folder, {**os.environ, "OMP_NUM_THREADS": "1"})


def test_command_line(tmp_path):
    (tmp_path / "m.onnx").write_bytes(_model((1, 3, 4, 4)).SerializeToString())
    (tmp_path / "io.toml").write_text(
        '[inputs.x]\ncolour = "BGR"\nsize = [8, 8]\nresize = "area"\nscale = [1, 2, 4]\n[outputs.y]\nargmax = true\n'
    )
    words = ["build", "m.onnx", "--format", "so", "--verify"]
    first = _run(tmp_path, *words, "-o", "a", "--images", "io.toml")
    assert first.returncode == 0, first.stderr
    second = _run(
        tmp_path, *words, "-o", "b", "--input", "x=BGR,size=8x8,resize=area,scale=1/2/4", "--result", "y=argmax"
    )
    assert second.returncode == 0, second.stderr
    made = [json.loads((tmp_path / f / "manifest.json").read_text()) for f in "ab"]
    assert made[0]["options"] == made[1]["options"]
    assert made[0]["options"]["inputs"] == {
        "x": {"colour": "BGR", "size": [8, 8], "resize": "area", "scale": [1.0, 2.0, 4.0]}
    }
    (header,) = (tmp_path / "a").glob("*.h")
    assert "input 0  x: uint8[1, 8, 8, 3], 192 bytes; uint8 frame 8x8, BGR, NHWC\n" in header.read_text()
    again = _run(tmp_path, "build", "--from", "a/manifest.json", "m.onnx", "-o", "c")
    assert again.returncode == 0 and "not the recorded bytes" not in again.stderr, again.stderr
    checked = _run(tmp_path, "verify", "m.onnx", "c")
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    "arguments, code, words",
    [
        (["--input", "x=NV61"], 2, "'NV61' is none of"),
        (["--input", "x=size=0x4"], 2, "Image: size="),
        (["--input", "x"], 2, "not of the form"),
        (["--input", "q=RGB"], 1, "no input 'q'"),
        (["--result", "y=argmax,float32"], 2, "not float32"),
        (["--images", "none.toml"], 1, "none.toml can't be read"),
        (["--images", "bad.toml"], 1, "has no 'colour_of'"),
    ],
)
def test_errors_on_the_command_line(tmp_path, arguments, code, words):
    (tmp_path / "m.onnx").write_bytes(_model((1, 3, 4, 4)).SerializeToString())
    (tmp_path / "bad.toml").write_text("[inputs.x]\ncolour_of = 1\n")
    done = _run(tmp_path, "build", "m.onnx", "-o", "out", *arguments)
    assert done.returncode == code and words in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()


def test_verify_knows_weights_in_files_of_their_own(tmp_path):
    weight = numpy_helper.from_array(np.random.default_rng(5).standard_normal((4, 3, 8, 8)).astype(np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "outside",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 9, 9))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 2, 2))],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    file = tmp_path / "m.onnx"
    onnx.save(model, file, save_as_external_data=True, location="weights.bin", size_threshold=0)
    inputs = {"x": halotile.Image(size=(5, 6), resize="letterbox")}
    made = halotile.compile(file, inputs=inputs, cache=False, threads=1)
    assert made.verify().ok
    made.save(tmp_path / "saved")
    assert halotile.load(tmp_path / "saved").verify(model=file).ok
