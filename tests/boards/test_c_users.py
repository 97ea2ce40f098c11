"""What C users find in the folder works as it stands: the example, the CMake snippet, the pkg-config file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from board_tools import needs, network

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def expected() -> str:
    """The example's line about `total` for an input of ones, to three digits, by ONNX Runtime."""
    import onnxruntime as ort

    session = ort.InferenceSession(network().SerializeToString(), providers=["CPUExecutionProvider"])
    total = session.run(["total"], {"x": np.ones((1, 3, 13, 17), np.float32)})[0].ravel()
    return " ".join(f"{value:.3f}" for value in total)


def told(out: str) -> str:
    line = next(line for line in out.splitlines() if line.startswith("total: float32, 5 elements: "))
    return " ".join(f"{float(value):.3f}" for value in line.split(": ")[2].split())


@pytest.mark.parametrize("flags", [("-L.", "-lnet", "-Wl,-rpath,$ORIGIN"), ("libnet.a", "-pthread", "-lm")])
def test_the_example_compiles_without_a_warning_and_runs(flags, here: Path, tmp_path: Path) -> None:
    shutil.copytree(here, tmp_path / "out")
    run("cc", *STRICT, "main.c", *flags, "-o", "main", cwd=tmp_path / "out")
    assert told(run("./main", cwd=tmp_path / "out")) == expected()


def test_the_example_runs_for_a_board(pi5: Path, tmp_path: Path) -> None:
    from halotile.compiler.codegen.toolchain import find_toolchain, zig_toolchain
    from halotile.targets.resolve import resolve

    needs("qemu-aarch64-static", "/usr/aarch64-linux-gnu/lib")
    target = resolve("raspberry-pi-5")
    shutil.copytree(pi5, tmp_path / "out")
    flags = ["main.c", "-L.", "-lnet", "-Wl,-rpath,$ORIGIN", "-o", "main"]
    find_toolchain(target).run([*STRICT, *flags], tmp_path / "out", "the example")
    emulator = ("qemu-aarch64-static", "-cpu", "cortex-a76", "-L", "/usr/aarch64-linux-gnu")
    assert told(run(*emulator, "./main", cwd=tmp_path / "out")) == expected()
    static = zig_toolchain("aarch64-linux-musl")
    assert static is not None
    static.run([*STRICT, "-static", "main.c", "libnet.a", "-o", "static"], tmp_path / "out", "the static example")
    assert told(run(*emulator[:3], "./static", cwd=tmp_path / "out")) == expected()


def test_pkg_config_finds_it_wherever_it_lies(here: Path, tmp_path: Path) -> None:
    needs("pkg-config")
    shutil.copytree(here, tmp_path / "moved")
    flags = run("pkg-config", "--cflags", "--libs", tmp_path / "moved" / "net.pc", cwd=tmp_path).split()
    run("cc", tmp_path / "moved" / "main.c", *flags, f"-Wl,-rpath,{tmp_path}/moved", "-o", "main", cwd=tmp_path)
    assert told(run("./main", cwd=tmp_path)) == expected()


@pytest.mark.parametrize("library", ["shared", "static"])
def test_cmake_links_either_library(library: str, here: Path, tmp_path: Path) -> None:
    needs("cmake")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(user C)\n"
        f"include({here}/net.cmake)\ninclude({here}/net.cmake)\nadd_executable(main {here}/main.c)\n"
        f"target_link_libraries(main PRIVATE net::{library})\n"
    )
    run("cmake", "-S", ".", "-B", "build", cwd=tmp_path)
    run("cmake", "--build", "build", cwd=tmp_path)
    assert told(run("build/main", cwd=tmp_path)) == expected()


def test_the_cmake_snippet_names_what_was_built(here: Path, pi5: Path) -> None:
    for folder in (here, pi5):
        text = (folder / "net.cmake").read_text()
        for name in ("libnet.so", "libnet.a"):
            assert f"/{name}" in text and (folder / name).is_file()
        assert str(folder) not in text + (folder / "net.pc").read_text()
