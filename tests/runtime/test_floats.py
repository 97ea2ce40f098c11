"""Floats below the normal ones: kept as they are, or flushed to zero in every thread of a run, and nowhere else."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
from pathlib import Path

import halotile
import numpy as np
import onnx
import pytest
from board_tools import needs, needs_zig
from commands import run_command
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.recipe import options_of
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.runtime.place import read_manifest
from halotile.compiler.state import Options
from halotile.errors import HalotileError, OutputError
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper, numpy_helper

SHAPE = (64, 64, 57)  # enough for several tasks
STATE = """
#include <xmmintrin.h>
unsigned get(void) { return _mm_getcsr(); }
void set(unsigned state) { _mm_setcsr(state); }
"""
TINY = np.float32(1e-40)


def scaled() -> onnx.ModelProto:
    """y = x * scale, z = x + x: with denormal scales, operands and results."""
    scale = np.ones(SHAPE[-1], np.float32)
    scale[::2], scale[1::4] = TINY, 2.0**-120
    x, y, z = (helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPE) for n in "xyz")
    nodes = [helper.make_node("Mul", ["x", "scale"], ["y"]), helper.make_node("Add", ["x", "x"], ["z"])]
    graph = helper.make_graph(nodes, "scaled", [x], [y, z], [numpy_helper.from_array(scale, "scale")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def operand() -> np.ndarray:
    """Ordinary numbers, small ones (2**-10) and denormal ones."""
    x = np.random.default_rng(3).uniform(0.5, 2.0, SHAPE).astype(np.float32)
    x[1::3] *= 2.0**-10
    x[2::3] *= TINY
    return x


def expected(x: np.ndarray, flush: bool) -> dict[str, np.ndarray]:
    def flushed(a: np.ndarray) -> np.ndarray:
        return np.where(np.abs(a) < np.finfo(np.float32).tiny, np.float32(0), a) if flush else a

    scale = numpy_helper.to_array(scaled().graph.initializer[0])
    return {"y": flushed(flushed(x) * flushed(scale)), "z": flushed(flushed(x) + flushed(x))}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("flush", [False, True])
def test_every_thread_does_as_the_model_says(flush: bool, threads: int) -> None:
    model, x = halotile.compile(scaled(), threads=threads, flush_denormals=flush), operand()
    assert model.report["flush_denormals"] is flush and model.report["denormal_constants"] == 29
    for _ in range(5):
        found = model({"x": x})
        for name, array in expected(x, flush).items():
            assert found[name].tobytes() == array.tobytes(), name
    assert x[2, 0, 0] * np.float32(2) != 0, "the caller's own arithmetic is as before"
    assert model.verify().ok


def test_that_model_gives_work_to_other_threads() -> None:
    build = run_pipeline(scaled(), Options(resolve("native"), threads=2, stop_after="schedule"))
    assert any("T.parallel" in str(kernel.function) for kernel in build.kernels)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="NOT RUN: sets the state of an x86-64 processor")
@pytest.mark.parametrize("flush", [False, True])
def test_the_callers_state_is_neither_used_nor_changed(flush: bool, tmp_path: Path) -> None:
    command = ["cc", "-shared", "-fPIC", "-xc", "-", "-o", "state.so"]
    subprocess.run(command, input=STATE, text=True, check=True, cwd=tmp_path)
    state = ctypes.CDLL(str(tmp_path / "state.so"))
    model, x = halotile.compile(scaled(), threads=2, flush_denormals=flush), operand()
    right, before = expected(x, flush), state.get()
    for own in (0x1F80, 0x9FC0, 0x7F80):  # as usual; all flushed; rounding towards zero
        state.set(own)
        found = model({"x": x})
        after = state.get()
        state.set(before)
        assert after & ~0x3F == own & ~0x3F  # but for the flags of what has happened
        for name, array in right.items():
            assert found[name].tobytes() == array.tobytes(), (name, hex(own))


@pytest.mark.parametrize("board", ["raspberry-pi-4", "raspberry-pi-3-32"])
def test_on_boards(board: str, tmp_path: Path) -> None:
    """32-bit NEON always flushes; 64-bit ARM does as it is told."""
    needs("qemu-aarch64-static", "qemu-arm-static")
    needs_zig()
    x, narrow = operand(), board.endswith("32")
    emulator = "qemu-arm-static -cpu cortex-a7" if narrow else "qemu-aarch64-static -cpu cortex-a72"
    for flush in (True,) if narrow else (False, True):
        library = tmp_path / str(flush)
        options = Options(resolve(board), threads=2, flush_denormals=flush, formats=("exe",))
        run_pipeline(scaled(), options, output=library)
        with RemoteModel(library, emulator) as model:
            found = model({"x": x}, threads=2)
        for name, array in expected(x, flush).items():
            assert found[name].tobytes() == array.tobytes(), (name, flush)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="NOT RUN: runs code of x86-64 levels")
@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3"])  # widened without and with instructions for it
def test_half_width_floats_are_normal_ones_once_widened(level: str) -> None:
    """A denormal float16 is a normal float32, and stays as it is."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT16, [2, 37]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "half", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    values = np.full((2, 37), 6e-8, np.float16)
    values[1], values[0, ::3] = 3e-6, 1.5
    found = halotile.compile(model, level, flush_denormals=True)({"x": values})["y"]
    np.testing.assert_array_equal(found, values + values)


def test_options_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HalotileError, match="exact forbids"):
        halotile.compile(scaled(), exact=True, flush_denormals=True)
    with pytest.raises(HalotileError, match="give True or False"):
        halotile.compile(scaled(), flush_denormals="yes")  # type: ignore[arg-type]


def test_the_command_tells_of_denormal_constants_and_a_manifest_of_the_choice(tmp_path: Path) -> None:
    (tmp_path / "scaled.onnx").write_bytes(scaled().SerializeToString())

    def build(*options: str) -> str:
        done = run_command(["build", "scaled.onnx", "--format", "so", *options], tmp_path, os.environ)
        assert done.returncode == 0, done.stderr
        return done.stderr

    told = build("-t", "x86-64-v3", "-o", "kept")
    assert "note: 29 constants are denormal" in told and "--flush-denormals" in told
    assert "denormal" not in build("-t", "x86-64-v3", "-o", "flushed", "--flush-denormals")
    assert "denormal" not in build("-t", "aarch64", "-o", "board")
    for folder, flush in (("kept", False), ("flushed", True)):
        recorded = read_manifest(tmp_path / folder)
        assert options_of(recorded).flush_denormals is flush
    recorded.options["exact"] = True
    with pytest.raises(OutputError, match="exact forbids"):
        options_of(recorded)
