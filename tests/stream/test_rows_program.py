"""``model_run --stream``: plain rows in, plain rows out, from pipes and files, also on an emulated board, which takes
``HALOTILE_BOARD_ROWS=20000`` of them where asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import halotile
import numpy as np
import pytest
from board_tools import halotile as command
from board_tools import needs, needs_zig
from c_programs import run, run_sanitized
from halotile.compiler.codegen.library import write_sources
from halotile.compiler.codegen.link import write_program
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.targets.resolve import resolve
from stream_models import Maker, upscaler

ZERO2 = "qemu-aarch64-static -cpu cortex-a53"
BOARD_ROWS = int(os.environ.get("HALOTILE_BOARD_ROWS", "1000"))
SHAPE = ("--stream", "--stream-rows", 8, "--no-verify", "--threads", 2)


def _mean():
    """Pixels less their mean over the image, which takes a second pass."""
    m = Maker(3)
    y = m.conv("x", 3, 4)
    return m.model([m.op("Sub", y, m.op("GlobalAveragePool", y))], 12)


def _built(folder: Path, model: object, *words: object) -> Path:
    (folder / "net.onnx").write_bytes(model.SerializeToString())  # type: ignore[attr-defined]
    done = command("build", "net.onnx", "-o", "out", *SHAPE, *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "out"


@pytest.fixture(scope="module")
def upscale(tmp_path_factory) -> Path:
    return _built(tmp_path_factory.mktemp("upscale"), upscaler())


@pytest.fixture(scope="module")
def centred(tmp_path_factory) -> Path:
    return _built(tmp_path_factory.mktemp("centred"), _mean())


def _program(folder: Path, *words: object, data: bytes | None = None, prefix: str = "", cwd: Path | None = None):
    command = [*prefix.split(), str(folder / "model_run"), "--stream", *map(str, words)]
    return subprocess.run(command, input=data, cwd=cwd, capture_output=True, timeout=300)


def _pixels(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array[0].transpose(1, 2, 0)).tobytes()


def _planes(data: bytes, width: int, channels: int, dtype: type = np.float32) -> np.ndarray:
    return np.frombuffer(data, dtype).reshape(-1, width, channels).transpose(2, 0, 1)[None]


def test_rows_from_a_pipe_are_those_of_python(upscale):
    x = np.random.default_rng(0).integers(0, 256, (1, 3, 101, 24)).astype(np.uint8)
    with halotile.load(upscale, 2) as model:
        plain = model(x.astype(np.float32))
        scaled = model(x.astype(np.float32) * np.float32(1 / 255))
    own = _program(upscale, data=_pixels(x.astype(np.float32)))
    assert own.returncode == 0 and np.array_equal(_planes(own.stdout, 48, 3), plain)
    for kind in (np.uint8, np.uint16):
        told = _program(upscale, "--type", np.dtype(kind).name, "--scale", "1/255", data=_pixels(x.astype(kind)))
        assert told.returncode == 0 and np.array_equal(_planes(told.stdout, 48, 3), scaled)
    words = ("--type", "uint8", "--scale", "1/255", "--target-type", "uint8", "--target-scale", "255")
    rounded = _program(upscale, *words, data=_pixels(x))
    assert np.array_equal(_planes(rounded.stdout, 48, 3, np.uint8), np.clip(np.rint(scaled * np.float32(255)), 0, 255))


def test_a_pipe_that_gives_a_few_bytes_at_once(upscale):
    x = np.random.default_rng(1).standard_normal((1, 3, 29, 24)).astype(np.float32)
    whole = _program(upscale, data=_pixels(x)).stdout
    feeder = (
        "import os,sys,time\ndata=sys.stdin.buffer.read()\n"
        "for i in range(0, len(data), 331):\n    os.write(1, data[i:i+331])\n    i % 5 or time.sleep(0.001)\n"
    )
    first = subprocess.Popen([sys.executable, "-c", feeder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    second = subprocess.Popen(
        [upscale / "model_run", "--stream"], stdin=first.stdout, stdout=subprocess.PIPE
    )
    first.stdin.write(_pixels(x))
    first.stdin.close()
    assert second.communicate(timeout=120)[0] == whole and second.returncode == 0 and first.wait() == 0


def test_files_appear_when_they_are_whole(upscale, tmp_path):
    x = np.ones((1, 3, 20, 24), np.float32)
    (tmp_path / "x.raw").write_bytes(_pixels(x))
    done = _program(upscale, "-i", "x.raw", "-o", "y.raw", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == b""
    assert (tmp_path / "y.raw").read_bytes() == _program(upscale, data=_pixels(x)).stdout
    (tmp_path / "x.raw").write_bytes(_pixels(x)[:-1])
    told = _program(upscale, "-i", "x.raw", "-o", "z.raw", cwd=tmp_path)
    _line(told, 1, "x.raw ends within row 19", "287 of its 288 bytes")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.raw", "y.raw"]


def _line(done, code: int, *words: str) -> None:
    text = done.stderr.decode()
    assert done.returncode == code and text.startswith("model_run: ") and text.count("\n") == 1, (done.returncode, text)
    assert all(word in text for word in words), text


def test_what_is_wrong_is_one_line(upscale, tmp_path):
    data = _pixels(np.ones((1, 3, 5, 24), np.float32))
    _line(_program(upscale, data=data[:100]), 1, "the standard input ends within row 0", "100 of its 288")
    _line(_program(upscale, data=b""), 1, "at least 1 row\n")
    _line(_program(upscale, "--rows", 9, data=data), 1, "ends after 5 of 9 rows")
    _line(_program(upscale, "-i", "none.raw", cwd=tmp_path), 1, "can't read none.raw")
    _line(_program(upscale, "-o", "no/y.raw", data=data, cwd=tmp_path), 1, "can't write no/y.raw")
    _line(_program(upscale, "-i", "z=x.raw", cwd=tmp_path), 1, "no input 'z'")
    _line(_program(upscale, "--type", "int8"), 2, "--type int8", "uint8, uint16")
    _line(_program(upscale, "--scale", "1/0"), 2, "--scale 1/0")
    _line(_program(upscale, "--bench", "1"), 2, "--bench does not go with --stream")
    five = _program(upscale, "--rows", 5, data=data + data)
    assert five.returncode == 0 and five.stdout == _program(upscale, data=data).stdout


def test_a_reader_that_has_gone_is_one_line(upscale):
    """As `model_run --stream | head`: no signal ends it."""
    read, write = os.pipe()
    os.close(read)
    data = _pixels(np.ones((1, 3, 64, 24), np.float32))
    done = subprocess.run([upscale / "model_run", "--stream"], input=data, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    _line(done, 1, "can't write the standard output", "Broken pipe")


def test_two_passes_need_a_file(centred, tmp_path):
    x = np.random.default_rng(2).standard_normal((1, 3, 30, 12)).astype(np.float32)
    (tmp_path / "x.raw").write_bytes(b"skipped" + _pixels(x))
    with open(tmp_path / "x.raw", "rb") as file:
        file.seek(7)
        done = subprocess.run([centred / "model_run", "--stream"], stdin=file, capture_output=True, timeout=120)
    with halotile.load(centred, 2) as model:
        assert done.returncode == 0 and np.array_equal(_planes(done.stdout, 12, 4), model(x))
    _line(_program(centred, data=_pixels(x)), 1, "2 passes", "a pipe can't be read again")


def test_describe_says_what_a_stream_takes(upscale):
    folder = [str(upscale / "model_run"), "--describe"]
    assert "streams: " in run(*folder) and "in steps of 8 rows, 1 pass;" in run(*folder)
    import json

    told = json.loads(run(*folder, "--json"))["stream"]
    assert told["step_rows"] == 8 and told["passes"] == 1 and 10_000 < told["bytes"] < 1_000_000


@pytest.mark.parametrize("make", [upscaler, _mean])
def test_sanitizers_find_nothing(make, tmp_path):
    """The runtime, the tables and the program, instrumented; an odd number of rows."""
    options = Options(resolve("native"), threads=2, stream=8)
    built = run_pipeline(make(), options, output=tmp_path / "out")
    work = tmp_path / "work"
    work.mkdir()
    sources = write_sources(built.library, work)
    own = write_program(built.library.identifier, work, stream=True)
    flags = ["-std=gnu11", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    run("cc", *flags, *sources.c_files, *own, *sources.objects, "-pthread", "-lm", "-o", "program", cwd=work)
    x = np.random.default_rng(4).standard_normal((1, 3, 53, 24 if make is upscaler else 12)).astype(np.float32)
    (tmp_path / "x.raw").write_bytes(_pixels(x))
    done = run_sanitized(work / "program", "--stream", "-i", tmp_path / "x.raw", "-o", tmp_path / "y.raw")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    with halotile.load(tmp_path / "out", 2) as model:
        y = model(x)
    assert np.array_equal(_planes((tmp_path / "y.raw").read_bytes(), y.shape[3], y.shape[1]), y)


def test_an_emulated_board_takes_many_rows_from_a_pipe(upscale, tmp_path):
    """More rows than would fit beside each other into what the stream says it takes; near the server's values."""
    needs("qemu-aarch64-static")
    needs_zig()
    board = _built(tmp_path, upscaler(), "-t", "raspberry-pi-zero-2")
    x = np.random.default_rng(5).integers(0, 256, (1, 3, BOARD_ROWS, 24)).astype(np.uint8)
    words = ("--type", "uint8", "--scale", "1/255", "--threads", 1)
    there = _program(board, *words, data=_pixels(x), prefix=ZERO2)
    here = _program(upscale, *words, data=_pixels(x))
    assert there.returncode == 0 == here.returncode, there.stderr
    a, b = (_planes(d.stdout, 48, 3) for d in (there, here))
    assert a.shape == (1, 3, 2 * BOARD_ROWS, 48) and np.abs(a - b).max() < 1e-4


def test_the_example_beside_a_library_runs(centred, tmp_path):
    flags = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
    run("cc", *flags, "main.c", "-L.", "-lnet", f"-Wl,-rpath,{centred}", "-o", tmp_path / "main", cwd=centred)
    told = run(tmp_path / "main", 40)
    assert ": 40 rows of 192 bytes, the last ones begin with" in told
    assert "bytes for a stream of any height" in told
