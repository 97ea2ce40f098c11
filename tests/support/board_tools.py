"""What the tests of boards share: the command line, what they need of the system, and a small network."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import run_command
from halotile.benchmarks.emulation import qemu
from onnx import TensorProto, helper, numpy_helper

COMMAND = [sys.executable, "-m", "halotile.compiler.cli"]
PI5 = "qemu-aarch64-static -cpu cortex-a76"
SSHD = "/usr/sbin/sshd"
needs_llvm = pytest.mark.skipif(
    not any(shutil.which(f"llvm-mca{v}") for v in ("", *(f"-{n}" for n in range(14, 31)))),
    reason="NOT RUN: llvm-mca is not installed (Debian: llvm)",
)


def plugins_run() -> bool:
    command = shutil.which(qemu.QEMU)
    if command is None:
        return False
    said = subprocess.run([command, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"version (\d+)", said)
    return version is not None and int(version[1]) <= qemu.NEWEST


needs_plugins = pytest.mark.skipif(
    not plugins_run(), reason="NOT RUN: qemu-aarch64 up to version 8 is not installed (Debian: qemu-user)"
)


def needs(*tools: str) -> None:
    """Skips, loudly, where a tool is missing: `make test` installs them where it can."""
    missing = [tool for tool in tools if not (shutil.which(tool) or Path(tool).exists())]
    if missing:
        pytest.skip(f"NOT RUN: needs {', '.join(missing)} (.ci/debian.sh installs them)")


def needs_zig() -> None:
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("NOT RUN: needs ziglang (pip install ziglang)")


def cache_of_ones_own(folder: Path) -> dict[str, str]:
    """An environment in which nothing is remembered that other tests built, but for the C libraries that zig compiled:
    a static one takes half a minute of a processor."""
    zig = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "zig"
    return {"XDG_CACHE_HOME": str(folder), "ZIG_GLOBAL_CACHE_DIR": os.environ.get("ZIG_GLOBAL_CACHE_DIR", str(zig))}


def halotile(*arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    if any(name.startswith("PYTHON") for name in environment):
        return subprocess.run(
            [*COMMAND, *map(str, arguments)], cwd=cwd, env={**os.environ, **environment}, capture_output=True,
            text=True, stdin=subprocess.DEVNULL, timeout=600,
        )  # fmt: skip
    return run_command(arguments, cwd, {**os.environ, **environment}, timeout=600)


def network() -> onnx.ModelProto:
    """x [1,3,13,17] -> conv 3x3, relu, conv 1x1 (y) and a sum over the image (total); biases, odd sizes."""
    rng = np.random.default_rng(7)
    weights = {
        "w": rng.standard_normal((16, 3, 3, 3)) / 5, "b": rng.standard_normal(16),
        "v": rng.standard_normal((5, 16, 1, 1)) / 4, "c": rng.standard_normal(5),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["h"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "v", "c"], ["y"]),
        helper.make_node("ReduceMean", ["y"], ["total"], axes=[2, 3], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 13, 17])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5, 13, 17]),
         helper.make_tensor_value_info("total", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
