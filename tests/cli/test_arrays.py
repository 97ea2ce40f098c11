"""Arrays in files: .npy, .npz, plain bytes, and the standard streams."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from halotile.compiler.cli import arrays, main
from halotile.compiler.cli.running import destinations
from halotile.compiler.spec import TensorSpec
from halotile.errors import OutputError, RunError
from small_models import tiny

COMMAND = [sys.executable, "-m", "halotile.compiler.cli"]
SPECS = (TensorSpec("x", "float32", (2, 3)), TensorSpec("ids", "int64", (4,)))
X, IDS = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(4)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "x.bin").write_bytes(X.tobytes())
    np.savez(tmp_path / "all.npz", x=X, ids=IDS)
    return tmp_path


def test_every_kind_of_file_is_read(files: Path) -> None:
    for name in ("x.npy", "x.bin"):
        (found,) = arrays.read_arrays([f"x={files / name}"], SPECS).values()
        np.testing.assert_array_equal(found, X)
        assert found.dtype == np.float32 and found.flags.writeable
        (alone,) = arrays.read_arrays([str(files / name)], SPECS[:1]).values()
        np.testing.assert_array_equal(alone, X)
    both = arrays.read_arrays([str(files / "all.npz")], SPECS)
    assert both.keys() == {"x", "ids"}


def test_what_is_wrong_with_a_file_is_told(files: Path) -> None:
    (files / "short.bin").write_bytes(b"123")
    (files / "odd.npy").write_bytes(b"no")
    for text, told in (
        (f"x={files / 'short.bin'}", r"3 bytes; x: float32\[2, 3\] takes 24"),
        (f"x={files / 'odd.npy'}", "not a .npy"),
        (f"x={files / 'none.npy'}", "can't be read: No such file"),
        (f"x={files / 'all.npz'}", "several arrays"),
        (f"idss={files / 'x.npy'}", "did you mean 'ids'"),
        (f"{files / 'x.npy'}", "2 inputs"),
    ):
        with pytest.raises(RunError, match=told):
            arrays.read_arrays([text], SPECS)


def test_a_file_of_another_kind_is_not_written(files: Path) -> None:
    for name in ("y.png", "y.bmp"):
        with pytest.raises(OutputError, match=rf"{name} can't be written: .* is none of .npy, .npz, .bin"):
            destinations([f"y={files / name}"], ["y"])
    assert destinations([f"y={files / 'y'}", "y=/dev/null"], ["y"])


def test_every_kind_of_file_is_written(files: Path) -> None:
    arrays.write_arrays(str(files / "y.bin"), {"y": X.T})
    assert (files / "y.bin").read_bytes() == X.T.tobytes()
    arrays.write_arrays(str(files / "y.npy"), {"y": X})
    np.testing.assert_array_equal(np.load(files / "y.npy"), X)
    arrays.write_arrays(str(files / "y.npz"), {"y": X, "z": IDS})
    assert sorted(np.load(files / "y.npz").files) == ["y", "z"]
    assert not [p for p in files.iterdir() if "partial" in p.name]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    (folder / "tiny.onnx").write_bytes(tiny().SerializeToString())
    data = (folder / "tiny.onnx").read_bytes()
    words = ["build", "-", "-o", "out", "--format", "so", "--no-verify", "-v"]
    done = subprocess.run([*COMMAND, *words], input=data, cwd=folder, capture_output=True, timeout=120)
    assert done.returncode == 0 and done.stdout == b"out\n", done.stderr
    assert b"] import" in done.stderr and b"] link" in done.stderr  # progress, on a pipe: -v tells it from the start
    return folder


def run(library: Path, *words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, "run", "out", *words], cwd=library, capture_output=True, timeout=120, **more)


def test_a_run_between_two_pipes(library: Path) -> None:
    x = np.cos(np.arange(8, dtype=np.float32)).reshape(2, 4)
    held = io.BytesIO()
    np.save(held, x)
    npy = run(library, "-i", "x=-", "-o", "y=-", "-q", input=held.getvalue())
    plain = run(library, "-i", "-", "-o", "-", "-q", input=x.tobytes())
    assert npy.returncode == plain.returncode == 0 and npy.stderr == plain.stderr == b""
    y = np.load(io.BytesIO(npy.stdout))
    assert y.shape == (2, 5) and npy.stdout == plain.stdout
    x.tofile(library / "x.bin")
    assert run(library, "-i", "x.bin", "-o", "y.bin").returncode == 0
    assert (library / "y.bin").read_bytes() == y.tobytes()
    mixed = run(library, "-o", "y=-", "--json")
    assert mixed.returncode == 2 and b"mixed" in mixed.stderr


def test_plain_bytes_for_an_input_that_becomes_a_constant(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "m.onnx").write_bytes(tiny().SerializeToString())
    (tmp_path / "x.bin").write_bytes(np.ones((2, 4), np.float32).tobytes())
    assert main.run(["inspect", str(tmp_path / "m.onnx"), "--fix", f"x={tmp_path / 'x.bin'}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["inputs"][0]["shape"] == [2, 4]
    (tmp_path / "x.bin").write_bytes(b"12")
    assert main.run(["inspect", str(tmp_path / "m.onnx"), "--fix", f"x={tmp_path / 'x.bin'}"]) == 1
    assert "2 bytes" in capsys.readouterr().err
