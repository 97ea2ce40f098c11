"""The README is true: its Python, its commands and its main.c run as they stand and give the same numbers."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SQUEEZENET = next(Path(onnx.__file__).parent.rglob("light_squeezenet.onnx"))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.S | re.M)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where squeezenet.onnx lies and the Python example has run."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "squeezenet.onnx").write_bytes(SQUEEZENET.read_bytes())
    np.save(folder / "x.npy", np.ones((1, 3, 224, 224), np.float32))
    example = blocks("python")[0]
    done = run([sys.executable, "-c", example], folder)
    assert re.fullmatch(r"\(1, 1000, 1, 1\) \d+\nTrue \S+\n\d+ kernels, \d+ bytes of arena\n", done.stdout), (
        done.stdout
    )
    return folder


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done


def test_less_memory(folder: Path) -> None:
    (example,) = blocks("python")[1:]
    shown = "print(model.report['arena_bytes'], sum('tiled' in k['schedule'] for k in model.report['kernels']))"
    lines = [line for line in example.splitlines() if line.startswith("model =")]
    for line, most in zip(lines, (2 << 20, 2 << 20), strict=True):
        done = run([sys.executable, "-c", f"import halotile\n{line}\n{shown}"], folder)
        arena, tiled = map(int, done.stdout.split())
        assert arena <= most and tiled


def test_commands(folder: Path) -> None:
    lines = next(b for b in blocks("sh") if "halotile inspect" in b).splitlines()
    for line in lines:
        words = line.split("#")[0].split()
        assert words[0] == "halotile"
        command = [sys.executable, "-m", "halotile.compiler.cli", *words[1:]]
        if "raspberry-pi-4" in words:
            build_for_a_board(command, folder)
        else:
            run(command, folder)
    assert np.load(folder / "y.npy").shape == (1, 1000, 1, 1)


def build_for_a_board(command: list[str], folder: Path) -> None:
    """Works where something can link for the board; elsewhere says what to install and leaves nothing."""
    header = folder / "out" / "pi4" / "squeezenet.h"
    if importlib.util.find_spec("ziglang") or shutil.which("aarch64-linux-gnu-gcc"):
        run(command, folder)
        assert header.is_file()
    else:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 1 and "error[E500]" in done.stderr and "ziglang" in done.stderr
        assert not header.parent.exists()


def test_main_c_gives_the_same_numbers(folder: Path) -> None:
    from halotile import load

    (source,) = blocks("c")
    (folder / "main.c").write_text(source)
    compile_and_run = next(b for b in blocks("sh") if b.startswith("cc "))
    printed = run(["bash", "-euc", compile_and_run], folder).stdout
    y = load(folder / "out" / "squeezenet")({"data_0": np.ones((1, 3, 224, 224), np.float32)})[
        "softmaxout_1"
    ].ravel()
    assert printed == f"class {y.argmax()} with {y.max():.6f}\n"


def test_make_knows_every_target_that_the_readme_and_its_own_help_name() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for name in set(re.findall(r"make ([a-z][a-z-]*)", README + makefile)) - {"it"}:
        assert re.search(rf"^{name}:", makefile, re.M), name
