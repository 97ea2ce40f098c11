"""Frames on the command line: build, inspect, tune, verify and report take the same options and mean the same."""

from __future__ import annotations

import json

import halotile
import numpy as np
import onnx
import pytest
from board_tools import halotile as command
from halotile.errors import HalotileError
from onnx import TensorProto, helper, numpy_helper

TOML = """[inputs.x]
colour = "NV12"
matrix = "BT.709"
size = [20, 28]
resize = "letterbox"
scale = 255

[outputs.y]
argmax = true
dtype = "uint8"
"""
FLAGS = ("--input", "x=NV12,BT.709,size=20x28,letterbox,scale=255", "--result", "y=argmax,uint8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("camera")
    weight = np.random.default_rng(1).standard_normal((8, 3, 3, 3)).astype("f4")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], name="first", pads=[1, 1, 1, 1])], "camera",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 16, 16))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 8, 16, 16))], [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path / "m.onnx")
    (path / "camera.toml").write_text(TOML)
    return path


def _done(folder, *arguments):
    done = command(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("how", [FLAGS, ("--images", "camera.toml")])
def test_inspect_shows_what_a_build_makes(folder, how):
    data = json.loads(_done(folder, "inspect", "m.onnx", "--stop-after", "import", "--json", *how))
    assert data["inputs"] == [{"name": "x", "dtype": "uint8", "shape": [1, 30, 28, 1]}]
    assert data["outputs"][0]["dtype"] == "uint8"
    assert "uint8 frame 20x28, NV12" in _done(folder, "inspect", "m.onnx", "--explain", *how)
    assert "arena" in _done(folder, "inspect", "m.onnx", "--plan", *how)


def test_without_a_stage_there_is_nothing_to_put_around(folder):
    done = command("inspect", "m.onnx", *FLAGS[:2], cwd=folder)
    assert done.returncode == 2 and "--input needs --plan, --explain or --stop-after" in done.stderr
    with pytest.raises(HalotileError, match="give a stage"):
        halotile.inspect(folder / "m.onnx", images=folder / "camera.toml")
    assert halotile.inspect(folder / "m.onnx", "import", images=folder / "camera.toml")["inputs"][0]["dtype"] == "uint8"


def test_verify_tune_and_report_take_frames(folder):
    assert "agrees" in _done(folder, "verify", "m.onnx", "--images", "camera.toml")
    tuned = json.loads(_done(folder, "tune", "m.onnx", "--seconds", "0.2", "--candidates", "2", "--json", *FLAGS))
    assert tuned["considered"] >= 1 and (folder / "tuning.json").is_file()
    _done(folder, "report", "m.onnx", "--seconds", "0.2", "-o", "r.html", *FLAGS)
    assert "uint8" in (folder / "r.html").read_text()


def test_a_library_has_its_steps_already(folder):
    _done(folder, "build", "m.onnx", "-o", "out", "--format", "so", *FLAGS)
    done = command("verify", "m.onnx", "out", "--images", "camera.toml", cwd=folder)
    assert done.returncode == 2 and "has its steps already" in done.stderr
    assert "agrees" in _done(folder, "verify", "m.onnx", "out")
