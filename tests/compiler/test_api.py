"""The Python API: compile, call, save, load, verify, report."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import halotile
import numpy as np
import pytest
from commands import run_command
from halotile import errors
from onnx import TensorProto, helper
from small_models import WEIGHT, tiny

X = np.arange(8, dtype=np.float32).reshape(2, 4) - 3
Y = np.maximum(X @ WEIGHT, 0)


@pytest.fixture(scope="module")
def model() -> halotile.compiler.model.Model:
    return halotile.compile(tiny())


def test_dict_in_dict_out(model) -> None:
    result = model({"x": X})
    assert list(result) == ["y"]
    np.testing.assert_allclose(result["y"], Y, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(model({"x": X}, threads=1)["y"], result["y"])


def test_inputs_outputs_and_report(model) -> None:
    assert [(t.name, t.dtype, t.shape) for t in model.inputs] == [("x", "float32", (2, 4))]
    assert [(t.name, t.dtype, t.shape) for t in model.outputs] == [("y", "float32", (2, 5))]
    assert model.report["kernels"] and model.report["seconds"]["assemble"] > 0
    json.dumps(model.report)
    assert "x: float32[2, 4]" in repr(model)


def test_inputs_that_no_output_depends_on_may_be_given(tmp_path: Path) -> None:
    source = tiny()
    source.graph.input.append(helper.make_tensor_value_info("idle", TensorProto.INT64, [3]))
    model = halotile.compile(source)
    assert [t.name for t in model.inputs] == ["x"] and model.report["dropped_inputs"] == ["idle"]
    given = {"x": X, "idle": np.zeros(3, np.int64)}
    np.testing.assert_allclose(model(given)["y"], Y, rtol=1e-5, atol=1e-6)
    model.save(tmp_path / "lib")
    np.testing.assert_allclose(halotile.load(tmp_path / "lib")(given)["y"], Y, rtol=1e-5, atol=1e-6)
    with pytest.raises(errors.RunError, match="unknown input 'odd'; the model takes 'x'"):
        model({**given, "odd": X})


def test_verify(model) -> None:
    assert model.verify().ok
    assert model.verify({"x": X}, seed=4).inputs == "given"
    assert not model.verify(rtol=0, atol=0).ok or model.verify(rtol=0, atol=0).max_error == 0
    with pytest.raises(errors.RunError, match="no input 'z'"):
        model.verify({"z": X})


def test_verify_knows_the_shapes_of_inputs_that_only_give_theirs(tmp_path: Path) -> None:
    """What is dropped because only its shape matters has that shape in the reference too."""
    x, like = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch" + n, 4]) for n in ("x", "like"))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [helper.make_node("Shape", ["like"], ["s"]), helper.make_node("Expand", ["x", "s"], ["y"])]
    source = helper.make_model(
        helper.make_graph(nodes, "g", [x, like], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    model = halotile.compile(source, shapes={"x": (1, 4), "like": (3, 4)})
    assert [t.name for t in model.inputs] == ["x"] and model.outputs[0].shape == (3, 4)
    assert model.verify().ok
    (tmp_path / "m.onnx").write_bytes(source.SerializeToString())
    build = ["build", "m.onnx", "--shape", "x=1,4", "--shape", "like=3,4", "-o", "lib", "--format", "so"]
    for arguments in (build, ["verify", "m.onnx", "lib"]):
        done = run_command(arguments, tmp_path, os.environ)
        assert done.returncode == 0, done.stderr


def test_builds_in_several_threads_take_turns() -> None:
    """TVM's builders are one stack for the whole process, and met there."""
    order: list[int] = []
    waiting = threading.Event()

    def build(who: int, wait: bool) -> None:
        def progress(stage: str, done: int, total: int) -> None:
            order.append(who)
            if wait and stage == "import" and not done:
                waiting.set()
                time.sleep(0.5)  # the other one would begin

        halotile.compile(tiny(), progress=progress)

    first = threading.Thread(target=build, args=(0, True))
    first.start()
    assert waiting.wait(60)
    build(1, False)
    first.join()
    assert order == sorted(order) and set(order) == {0, 1}


def test_save_and_load(model, tmp_path: Path) -> None:
    assert model.save(tmp_path / "a" / "lib") == tmp_path / "a" / "lib"
    loaded = halotile.load(tmp_path / "a" / "lib")
    np.testing.assert_array_equal(loaded({"x": X})["y"], model({"x": X})["y"])
    assert loaded.report["target"] == loaded.target.cpu != "native"
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["lib"]


def test_a_saved_library_runs_without_tvm_and_onnx(model, tmp_path: Path) -> None:
    model.save(tmp_path / "lib")
    code = (
        "import sys\n"
        "for n in ('tvm', 'tvm_ffi', 'onnx', 'onnxruntime', 'click', 'rich'): sys.modules[n] = None\n"
        "import numpy as np, halotile\n"
        "print(halotile.load('lib')({'x': np.ones((2, 4), np.float32)})['y'].shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "(2, 5)\n", done.stderr


def test_the_private_folder_goes_with_the_model() -> None:
    model = halotile.compile(tiny())
    folder = Path(model._folder.name)
    assert folder.is_dir()
    del model
    gc.collect()
    assert not folder.exists()


def test_a_failed_compile_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(errors.ShapeError):
        halotile.compile(tiny(("batch", 4)), shapes={"x": (2, 5)})
    assert list(tmp_path.iterdir()) == []


def test_shapes_path_bytes_and_threads(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(tiny(("batch", 4)).SerializeToString())
    for source in (path, str(path), path.read_bytes()):
        model = halotile.compile(source, shapes={"x": [2, 4]}, threads=1)
        np.testing.assert_allclose(model({"x": X})["y"], Y, rtol=1e-5, atol=1e-6)
        assert model.report["threads"] == 1
        assert model.verify().ok


def test_progress_tells_every_stage_in_order() -> None:
    from halotile.compiler.state import STAGES

    seen: list[str] = []
    halotile.compile(tiny(), progress=lambda stage, done, total: seen.append(stage))
    assert list(dict.fromkeys(seen)) == list(STAGES)


def test_code_for_another_machine_is_saved_not_run(tmp_path: Path) -> None:
    try:
        model = halotile.compile(tiny(), target="aarch64")
    except errors.ToolchainError as error:
        assert "ziglang" in str(error)
        return
    with pytest.raises(errors.RunError, match="save"):
        model({"x": X})
    assert (model.save(tmp_path / "lib") / "libtiny.so").is_file()


def test_numbers_may_be_numpys(model) -> None:
    options = {"threads": np.int64(1), "memory_budget": np.int32(1 << 20), "shapes": {"x": np.array([2, 4])}}
    again = halotile.compile(memoryview(tiny().SerializeToString()), **options)
    np.testing.assert_array_equal(again({"x": X})["y"], model({"x": X})["y"])


@pytest.mark.parametrize(
    "options",
    [
        {"rtol": float("nan")}, {"atol": float("inf")}, {"seed": -1}, {"seed": "a"}, {"rtol": "a"}, {"inputs": 5},
        {"inputs": [X]}, {"inputs": {"x": "a"}},
    ],
)  # fmt: skip
def test_bad_comparisons(model, options: dict) -> None:
    with pytest.raises(errors.RunError):
        model.verify(**options)


class PathOf:
    """An object that stands for a path of bytes, or of no path at all."""

    def __init__(self, text: object) -> None:
        self.text = text

    def __fspath__(self) -> object:
        return self.text


@pytest.mark.parametrize("place", [5, None, b"lib", [Path("lib")], PathOf(b"lib"), PathOf(5)])
def test_a_folder_is_named_by_a_path(model, place) -> None:
    for function in (model.save, halotile.load):
        with pytest.raises(errors.OutputError, match="named by a path"):
            function(place)


def test_a_name_that_has_no_bytes(model) -> None:
    with pytest.raises(errors.OutputError, match="no folder can have that name"):
        model.save("a\ud800")


@pytest.mark.parametrize("path", [PathOf(b"lib"), PathOf(5), "a\ud800"])
def test_files_are_named_by_paths(path) -> None:
    with pytest.raises(errors.ModelError, match="a model is a path|a name that no file can have"):
        halotile.compile(path)
    with pytest.raises(errors.HalotileError, match="is no path"):
        halotile.compile(tiny(), dump_ir=path)


@pytest.mark.parametrize("threads", ["a", "", 1.5, [1], [], np.zeros(3)])
def test_threads_are_a_number(model, tmp_path: Path, threads) -> None:
    with pytest.raises(errors.RunError, match="positive integer"):
        model({"x": X}, threads=threads)
    with halotile.load(model.save(tmp_path / "lib")) as loaded, pytest.raises(errors.RunError, match="integer"):
        loaded.arena_bytes(threads)
    with pytest.raises(errors.RunError, match="integer"):
        halotile.load(tmp_path / "lib", threads=threads)


@pytest.mark.parametrize("options", [{"seconds": "a"}, {"candidates": 0}, {"candidates": "a"}])
def test_bad_measures(tmp_path: Path, options: dict) -> None:
    with pytest.raises(errors.HalotileError, match=r"give (how long|a whole number)"):
        halotile.tune(tiny(), tmp_path / "t.json", **options)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"target": "toaster"}, errors.TargetError),
        ({"threads": 0}, errors.HalotileError),
        ({"threads": 1.5}, errors.HalotileError),
        ({"target": None}, errors.TargetError),
        ({"tile": np.ones(3)}, errors.HalotileError),
        ({"name": "a\udcff"}, errors.HalotileError),
        ({"tuning": 5}, errors.HalotileError),
        ({"dump_ir": "a\0b"}, errors.HalotileError),
        ({"shapes": [("x", (2, 4))]}, errors.ShapeError),
        ({"shapes": {"x": (2.5, 4)}}, errors.ShapeError),
        ({"shapes": {"z": (1,)}}, errors.ShapeError),
        ({"shapes": {"x": "wide"}}, errors.ShapeError),
        ({"shapes": {"x": (-1, 4)}}, errors.ShapeError),
        ({"float_mode": "loose"}, errors.HalotileError),
        ({"float_mode": np.ones(3)}, errors.HalotileError),
        ({"weights": ["float32"]}, errors.HalotileError),
    ],
)
def test_bad_arguments(arguments: dict, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        halotile.compile(tiny(), **arguments)
    assert "\n" not in str(caught.value)


def test_the_base_of_all_errors_stands_beside_the_functions() -> None:
    import halotile

    assert halotile.HalotileError is halotile.errors.HalotileError and "HalotileError" in halotile.__all__
