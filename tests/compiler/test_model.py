"""Models as callers hold them: arrays of any library in and out, copies, pickles, notebooks; nothing is left behind."""

from __future__ import annotations

import copy
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import halotile
import numpy as np
import pytest
from commands import run_command
from halotile.compiler.runtime import private
from halotile.errors import OutputError, RunError
from onnx import TensorProto, helper
from small_models import WEIGHT, tiny

ROOT = Path(halotile.__file__).parent
X = np.arange(8, dtype=np.float32).reshape(2, 4) - 3
Y = np.maximum(X @ WEIGHT, 0)


def two() -> Any:
    """sum and difference of a and b."""
    a, b, s, d = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 5]) for n in ("a", "b", "s", "d"))
    nodes = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Sub", ["a", "b"], ["d"])]
    graph = helper.make_graph(nodes, "two", [a, b], [s, d])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def compiled() -> halotile.Model:
    return halotile.compile(tiny(), threads=2)


@pytest.fixture(scope="module")
def both(compiled: halotile.Model, tmp_path_factory: pytest.TempPathFactory) -> dict[str, halotile.Model]:
    folder = compiled.save(tmp_path_factory.mktemp("saved") / "lib")
    return {"compiled": compiled, "loaded": halotile.load(folder)}


@pytest.fixture(params=["compiled", "loaded"])
def model(request: pytest.FixtureRequest, both: dict[str, halotile.Model]) -> halotile.Model:
    return both[request.param]


class Foreign:
    """An array of another library."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array


class OfDlpack(Foreign):
    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class OfNumpy(Foreign):
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.array


class Copying(Foreign):
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.array.copy()


def test_it_is_one_class(model: halotile.Model) -> None:
    assert type(model) is halotile.Model and model.name == "tiny" and model.threads == 2
    assert model.arena_bytes(1) <= model.arena_bytes(4) and model.target is not None
    assert model.target.triple and model.path.name == "libtiny.so" and model.report["kernels"]
    assert model.manifest["prefix"] == "tiny" and model.output_shapes() == {"y": (2, 5)}
    assert "halotile.Model tiny" in repr(model) and "x: float32[2, 4]" in repr(model)


def test_one_array_for_one_input(model: halotile.Model) -> None:
    result = model(X)
    assert isinstance(result, np.ndarray)
    np.testing.assert_array_equal(result, model({"x": X})["y"])
    for wrong in ([1, 2], 5, "x", None):
        with pytest.raises(RunError, match="must be a dict of names to arrays"):
            model(wrong)


def test_several_inputs_have_names_and_one_input_may_have_several_outputs() -> None:
    with halotile.compile(two()) as model, pytest.raises(RunError, match="must be a dict"):
        model(np.zeros((3, 5), np.float32))


@pytest.mark.parametrize("kind", [OfDlpack, OfNumpy, memoryview])
def test_arrays_of_others_go_in(kind: Any, model: halotile.Model) -> None:
    np.testing.assert_array_equal(model({"x": kind(X)})["y"], model(X))
    np.testing.assert_array_equal(model(kind(X)), model(X))


@pytest.mark.parametrize("kind", [np.asarray, OfNumpy, memoryview])
def test_results_go_into_arrays_of_the_callers(kind: Any, model: halotile.Model) -> None:
    memory = np.full((2, 5), np.nan, np.float32)
    given = kind(memory)
    named = {"y": given}
    assert model({"x": X}, out=named) is named and (memory == model(X)).all()
    memory[:] = np.nan
    assert model(kind(X), out=given) is given and (memory == model(X)).all()
    memory[:] = np.nan
    run = model.bind({"x": kind(X)}, {"y": given})
    run()
    assert (memory == model(X)).all()


def test_results_are_seen_by_others_without_a_copy(model: halotile.Model) -> None:
    result = model(X)
    assert np.shares_memory(np.from_dlpack(result), result)


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ({}, "'y' is missing"),
        ({"z": Y}, "'y' is missing"),
        ([Y], "memory numpy can't see"),
        ({"y": Y.astype(np.float64)}, "dtype float64"),
        ({"y": Y[:1]}, "shape"),
        ({"y": np.asfortranarray(np.zeros((2, 5), np.float32))}, "not a contiguous"),
        ({"y": Copying(Y.copy())}, "memory numpy can't see"),
        ({"y": np.frombuffer(bytes(40), np.float32).reshape(2, 5)}, "read-only"),
    ],
)
def test_wrong_places_for_results(out: Any, words: str, model: halotile.Model) -> None:
    with pytest.raises(RunError, match=words):
        model({"x": X}, out=out)


def test_a_result_may_not_lie_on_an_input() -> None:
    with halotile.compile(two()) as model:
        a, b = np.ones((3, 5), np.float32), np.full((3, 5), 2, np.float32)
        into = {"s": np.empty_like(a), "d": np.empty_like(a)}
        assert model({"a": a, "b": b.T.copy().T}, out=into) is into
        assert (into["s"] == 3).all() and (into["d"] == -1).all()
        with pytest.raises(RunError, match="shares memory"):
            model({"a": a, "b": b}, out={"s": a, "d": b})


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_is_a_model_of_its_own(duplicate: Any, model: halotile.Model) -> None:
    other = duplicate(model)
    assert other.path != model.path and other.threads == model.threads and other.target == model.target
    assert other.report == model.report
    np.testing.assert_array_equal(other(X), model(X))
    other.close()
    np.testing.assert_array_equal(model(X), model(X))


def test_code_for_another_machine_goes_through_pickles(tmp_path: Path) -> None:
    try:
        model = halotile.compile(tiny(), target="aarch64")
    except halotile.errors.ToolchainError as error:
        assert "ziglang" in str(error)
        return
    other = pickle.loads(pickle.dumps(model))
    assert (other.save(tmp_path / "lib") / "libtiny.so").is_file() and other.inputs == model.inputs
    with pytest.raises(RunError, match="which this machine can't run; save"):
        other(X)


def test_closed_models_say_so() -> None:
    model = halotile.compile(tiny())
    folder = model.path.parents[1]
    with model:
        model(X)
    assert not folder.exists()
    with pytest.raises(RunError, match="was closed"):
        model(X)
    with pytest.raises(OutputError, match="was closed"):
        model.save("somewhere")
    model.close()


def test_a_loaded_library_is_compared_with_its_model(both: dict[str, halotile.Model]) -> None:
    with pytest.raises(RunError, match="say which model"):
        both["loaded"].verify()
    assert both["loaded"].verify(model=tiny()).ok and both["compiled"].verify().ok


def test_notebooks_show_a_table(model: halotile.Model) -> None:
    text = model._repr_html_()
    for words in ("<table>", "halotile.Model tiny", "x: float32[2, 4]", "y: float32[2, 5]", "arena", "kernels"):
        assert words in text
    named = halotile.compile(tiny(), name="<b>&")
    assert "<b>" not in named._repr_html_() and "&lt;b&gt;&amp;" in named._repr_html_()


def test_stages_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "halotile"):
        halotile.compile(tiny())
    told = [r.message.split(":")[0] for r in caplog.records if r.name == "halotile.compile"]
    assert told[:2] == ["import", "simplify"]
    assert any(isinstance(h, logging.NullHandler) for h in logging.getLogger("halotile").handlers)


# ---------------------------------------------------------------------- names


def test_public_names_are_seen() -> None:
    assert {n for n in dir(halotile) if not n.startswith("__")} | {"__version__"} == set(halotile.__all__)
    for name in halotile.__all__:
        assert getattr(halotile, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'compil'; did you mean 'compile'"):
        _ = halotile.compil


def test_the_literals_are_those_that_are_checked() -> None:
    from typing import get_args

    from halotile.compiler.options import Stage
    from halotile.compiler.state import STAGES

    assert get_args(Stage) == tuple(s for s in STAGES if s not in ("assemble", "link"))


def test_type_checkers_refuse_what_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    lines = {
        'halotile.compil("m.onnx")': "compil",
        'halotile.compile("m.onnx", float_mode="loose")': "float_mode",
        'halotile.compile("m.onnx", optimize="size")': "optimize",
        'halotile.compile("m.onnx", weights="int3")': "weights",
        'halotile.inspect("m.onnx", "fuze")': "inspect",
        'halotile.load("lib").clos()': "clos",
        'reveal_type(halotile.compile("m.onnx"))': "Model",
        'halotile.compile("m.onnx", weights="float16", tile="off", optimize="memory", float_mode="exact")': "",
    }
    (tmp_path / "user.py").write_text("import halotile\n" + "".join(f"{line}\n" for line in lines))
    command = [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--follow-imports=silent", "user.py"]
    command += ["--cache-dir", str(ROOT / ".mypy_cache/users")]
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed/halotile").symlink_to(ROOT)  # whatever the folder of this checkout is called
    environment = {**os.environ, "MYPYPATH": str(tmp_path / "installed")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    told = done.stdout.splitlines()
    for i, (line, words) in enumerate(lines.items()):
        mine = [t for t in told if t.startswith(f"user.py:{i + 2}:")]
        assert bool(mine) == bool(words) and all(words in t for t in mine[:1]), (line, done.stdout, done.stderr)


# ---------------------------------------------------------------------- nothing is left


def test_no_resource_is_left_to_the_collector() -> None:
    code = (
        "import gc, sys; sys.path.insert(0, sys.argv[1])\n"
        "import halotile; from small_models import tiny\n"
        "m = halotile.compile(tiny()); m.close(); m = halotile.compile(tiny()); del m; gc.collect()\n"
    )
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", code, ROOT / "tests/support"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "ResourceWarning" not in done.stderr, done.stderr


@pytest.mark.parametrize("when", ["compiling", "after"])
def test_folders_of_a_process_that_was_ended_go_with_the_next(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = os.fork()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

        def stop(stage: str, done: int, total: int) -> None:
            if stage == "link":
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(60)

        model = halotile.compile(tiny(), progress=stop if when == "compiling" else None)
        os.kill(os.getpid(), signal.SIGTERM)
        model.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    assert len(list(tmp_path.iterdir())) == 1
    with private.PrivateFolder() as folder:
        assert [p.name for p in tmp_path.iterdir()] == [Path(folder).name]
        private.sweep(tmp_path)
        assert Path(folder).is_dir(), "who lives keeps his own"
    assert not list(tmp_path.iterdir())


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    for name in ("halotile-mine", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / "other/.alive").touch()
    (tmp_path / "halotile-file").touch()
    private.sweep(tmp_path)
    assert len(list(tmp_path.rglob("*"))) == 6


# ---------------------------------------------------------------------- metadata


def test_what_the_exporter_tells_stays_with_the_library(tmp_path: Path) -> None:
    source = tiny()
    told = {"names": "{0: 'cat', 1: 'dög\n'}", "stride": "32", "empty": "", "long": "x" * 99_999}
    for key, value in told.items():
        source.metadata_props.add(key=key, value=value)
    kept = {key: value for key, value in told.items() if key != "long"}
    model = halotile.compile(source)
    assert model.metadata == kept == halotile.load(model.save(tmp_path / "lib")).metadata
    assert json.loads((tmp_path / "lib/manifest.json").read_text())["metadata"] == kept
    assert halotile.inspect(source)["metadata"] == kept and pickle.loads(pickle.dumps(model)).metadata == kept
    (tmp_path / "m.onnx").write_bytes(source.SerializeToString())
    done = run_command(["inspect", "m.onnx"], tmp_path, os.environ)
    assert "stride: 32" in done.stdout and "names: {0: 'cat', 1: 'dög" in done.stdout, done.stderr
    assert halotile.compile(tiny()).metadata == {}
