"""``halotile stream``: from file to file, plain rows through pipes, and on again after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import numpy as np
import onnx
import pytest
from commands import run_command
from halotile.compiler.model import load
from stream_models import upscaler

WIDTH, HEIGHT = 24, 61


def halotile(*arguments, cwd):
    return run_command(arguments, cwd, {**os.environ})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a model, its library, an image and what the library makes of it."""
    folder = tmp_path_factory.mktemp("stream")
    onnx.save(upscaler(WIDTH), folder / "m.onnx")
    asked = "--stream-rows", 8, "--format", "so", "-o", folder / "out", "--json"
    done = halotile("build", folder / "m.onnx", *asked, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verification"]["sizes"] == {"h": 29}
    x = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8)
    np.save(folder / "x.npy", x)
    files = "-i", folder / "x.npy", "-o", f"v5={folder / 'y.npy'}"
    done = halotile("stream", folder / "out", *files, "--scale", "1/255", cwd=folder)
    assert done.returncode == 0 and done.stdout == f"{folder / 'y.npy'}\n", done.stderr
    return folder


def test_files_are_as_the_library_has_them(place):
    x, y = np.load(place / "x.npy"), np.load(place / "y.npy")
    with load(place / "out") as model:
        assert np.array_equal(model.stream(x, scale=1 / 255), y)
    assert y.shape == (1, 3, 2 * HEIGHT, 2 * WIDTH) and y.dtype == np.float32


def test_plain_rows_go_through_pipes(place):
    x, y = np.load(place / "x.npy"), np.load(place / "y.npy")
    command = [sys.executable, "-m", "halotile.compiler.cli", "stream", str(place / "out"), "-i", "-", "-o", "-"]
    done = subprocess.run(
        [*command, "--type", "uint8", "--scale", "1/255"], input=x.tobytes(), capture_output=True, check=True
    )
    rows = np.frombuffer(done.stdout, np.float32).reshape(2 * HEIGHT, 2 * WIDTH, 3)
    assert np.array_equal(rows.transpose(2, 0, 1)[None], y)
    done = subprocess.run([*command, "--type", "uint8"], input=x.tobytes()[:-1], capture_output=True, text=False)
    assert done.returncode == 1 and b"ends within a row" in done.stderr


@pytest.mark.parametrize("name", ["y.npy", "y.tif"])
def test_it_goes_on_after_a_kill(place, tmp_path, name):
    """The process is killed while it waits between two steps, with a journal that is on disk."""
    code = (
        "import halotile, sys, time\n"
        "def wait(done, rows):\n"
        "    if done >= 40:\n"
        "        print(done, flush=True)\n"
        "        time.sleep(600)\n"
        "with halotile.load(sys.argv[1]) as model:\n"
        "    model.stream(sys.argv[2], sys.argv[3], scale=1 / 255, journal=True, journal_seconds=0, progress=wait)\n"
    )
    files = [str(place / "out"), str(place / "x.npy"), str(tmp_path / name)]
    with load(place / "out") as model:
        model.stream(place / "x.npy", place / name, scale=1 / 255)
    process = subprocess.Popen([sys.executable, "-c", code, *files], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "40\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (tmp_path / f"{name}.journal").exists()
    before = (place / name).read_bytes()
    assert (tmp_path / name).read_bytes() != before
    asked = "-i", files[1], "-o", files[2], "--scale", "1/255", "--journal", "--json"
    done = halotile("stream", files[0], *asked, cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout)["rows"] == HEIGHT, done.stderr
    assert (tmp_path / name).read_bytes() == before
    assert os.listdir(tmp_path) == [name]


def test_bytes_go_into_a_picture(place, tmp_path):
    """The same from a file, and through pipes, in plain rows of bytes."""
    x, out = np.load(place / "x.npy"), place / "out"
    (tmp_path / "x.raw").write_bytes(x.tobytes())
    kinds = "--type", "uint8", "--scale", "1/255", "--target-scale", "255", "--target-type", "uint8"
    for name in ("y.raw", "y.tif"):
        done = halotile("stream", out, "-i", "x.raw", "-o", name, *kinds, cwd=tmp_path)
        assert done.returncode == 0 and done.stdout == f"{name}\n", done.stderr
    rows = (tmp_path / "y.raw").read_bytes()
    assert (tmp_path / "y.tif").read_bytes().endswith(rows)
    y = np.clip(np.rint(np.load(place / "y.npy")[0].transpose(1, 2, 0) * np.float32(255)), 0, 255).astype(np.uint8)
    assert rows == y.tobytes()
    command = [sys.executable, "-m", "halotile.compiler.cli", "stream", str(out), "-i", "-", "-o", "-", *kinds]
    assert subprocess.run(command, input=x.tobytes(), capture_output=True, check=True).stdout == rows


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["-i", "x.npy", "-o", "no/y.npy"], "does not exist"),
        (["-i", "x.png", "-o", "y.npy"], "none of the files"),
        (["-i", "m.npy", "-o", "y.npy"], "does not fit"),
        (["-i", "-", "-o", "y.npy"], "-i - -o -"),
    ],
)
def test_what_is_wrong_is_one_line(place, arguments, words):
    np.save(place / "m.npy", np.zeros((8, WIDTH + 1, 3), np.uint8))
    done = halotile("stream", "out", *arguments, cwd=place)
    assert done.returncode == 1 and words in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_other_commands_send_here(place):
    done = halotile("run", place / "out", cwd=place)
    assert done.returncode == 1 and "halotile stream" in done.stderr
    done = halotile("verify", place / "m.onnx", place / "out", "--size", "h=9", cwd=place)
    assert done.returncode == 0, done.stderr
