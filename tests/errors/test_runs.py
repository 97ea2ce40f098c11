"""A built library with bad inputs, and things that are no library."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest
from manifests import write_text
from small_models import WEIGHT


@pytest.fixture
def library(tmp_path: Path, built_library: Path) -> Path:
    shutil.copytree(built_library, tmp_path / "lib")
    return tmp_path / "lib"


def put(folder: Path, name: str, array: np.ndarray) -> str:
    np.save(folder / name, array)
    return name


def test_right_input_runs(halotile, library, tmp_path) -> None:
    put(tmp_path, "x.npy", np.ones((2, 4), np.float32))
    outcome = halotile("run", "lib", "-i", "x=x.npy", "-o", "y.npy")
    assert outcome.code == 0, outcome.err
    assert outcome.new_files == ("y.npy",)
    expected = np.maximum(np.ones((2, 4), np.float32) @ WEIGHT, 0)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-5, atol=1e-6)


def test_wrong_dtype(halotile, library, tmp_path) -> None:
    put(tmp_path, "x.npy", np.ones((2, 4)))
    halotile("run", "lib", "-i", "x=x.npy").refused("E700", "'x'", "float64", "expected float32")


def test_wrong_shape(halotile, library, tmp_path) -> None:
    put(tmp_path, "x.npy", np.ones((4, 2), np.float32))
    halotile("run", "lib", "-i", "x=x.npy").refused("E700", "'x'", "(4, 2)", "expected (2, 4)")


def test_wrong_input_name(halotile, library, tmp_path) -> None:
    put(tmp_path, "x.npy", np.ones((2, 4), np.float32))
    halotile("run", "lib", "-i", "image=x.npy").refused("E700", "'image'", "its inputs are x")


def test_wrong_output_name(halotile, library) -> None:
    halotile("run", "lib", "-o", "z=z.npy").refused("E700", "'z'", "its outputs are y")


def test_missing_input_file(halotile, library) -> None:
    halotile("run", "lib", "-i", "x=absent.npy").refused("E700", "absent.npy")


def test_input_file_that_is_not_numpys(halotile, library, tmp_path) -> None:
    (tmp_path / "x.npy").write_text("1 2 3")
    halotile("run", "lib", "-i", "x=x.npy").refused("E700", "x.npy", "not a .npy")


def test_a_pipe_as_output_is_written_to_and_stays(halotile, library, tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    end = os.open(tmp_path / "pipe", os.O_RDWR)  # holds what is written until it is read
    try:
        done = halotile("run", "lib", "-o", "y=pipe")
        assert done.code == 0, done.err
        assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode) and os.read(end, 6) == b"\x93NUMPY"
    finally:
        os.close(end)


def test_output_in_a_folder_that_is_not_there(halotile, library) -> None:
    halotile("run", "lib", "-o", "nowhere/y.npy").refused("E600", "nowhere/y.npy")


def test_folder_without_a_library(halotile, tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    halotile("run", "empty").refused("E600", "empty", "manifest.json")


def test_folder_that_is_not_there(halotile) -> None:
    halotile("run", "nowhere").refused("E600", "nowhere", "does not exist")


def test_damaged_manifest(halotile, library) -> None:
    (library / "manifest.json").write_text("{")
    halotile("run", "lib").refused("E600", "manifest.json")


def test_missing_shared_object(halotile, library) -> None:
    next(library.glob("*.so")).unlink()
    halotile("run", "lib").refused("E600", "incomplete")


def test_truncated_shared_object(halotile, library) -> None:
    file = next(library.glob("*.so"))
    file.write_bytes(file.read_bytes()[:100])
    halotile("run", "lib").refused("E600", file.name)


def test_too_many_threads(halotile, library) -> None:
    outcome = halotile("run", "lib", "--threads", "1024")
    outcome.refused("E700", "thread")


def test_an_archive_alone(halotile, library) -> None:
    manifest = (library / "manifest.json").read_text().replace('"library": "libtiny.so",', "")
    write_text(library, manifest.replace('"executable": "model_run",', ""))
    halotile("run", "lib").refused("E600", "archive alone")
    halotile("verify", "lib.onnx", "lib").refused("E100", "lib.onnx")


def test_the_program_stands_in_for_a_library_that_was_not_built(halotile, library, tmp_path) -> None:
    if not (library / "model_run").exists():
        pytest.skip("NOT RUN: nothing here links static programs")
    manifest = (library / "manifest.json").read_text().replace('"library": "libtiny.so",', "")
    write_text(library, manifest)
    (library / "libtiny.so").unlink()
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    put(tmp_path, "x.npy", x)
    outcome = halotile("run", "lib", "-i", "x=x.npy", "-o", "y.npy")
    assert outcome.code == 0, outcome.err
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), np.maximum(x @ WEIGHT, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("option", ["--rtol", "--atol"])
@pytest.mark.parametrize("value", ["nan", "inf", "-1", "x"])
def test_tolerances_are_finite(option, value) -> None:
    from halotile.compiler.cli.main import run

    assert run(["verify", "m.onnx", option, value]) == 2
