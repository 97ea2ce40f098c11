"""Libraries whose kernels use the matrix unit: what they ask the processor and the system, and what comes of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from compiled import machine
from halotile.compiler.codegen.library import build_library
from halotile.compiler.codegen.objects import build_object
from halotile.compiler.codegen.processor import processor_check, required_features
from halotile.compiler.codegen.spec import LibrarySpec
from halotile.compiler.spec import TensorSpec
from halotile.schedules.emit.builder import KernelBuilder
from halotile.schedules.instructions.amx import MatrixUnit, RegisterRows, has_matrix_unit, work_of
from halotile.schedules.instructions.bf16_parts import THREE, WORDS, order, pack, parts_of, split
from halotile.targets import detect
from halotile.targets.resolve import resolve

PROGRAM = Path(__file__).parent / "programs" / "matrix.c"
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic")
ZIG = [sys.executable, "-m", "ziglang", "cc", "-target"]
NAMED = "x86_64-linux-gnu+sapphirerapids"
WORDS_OF_REFUSAL = "lacks instructions that the library was compiled for, or the system keeps them from it"
M, K, N = 208, 64, 32
X = (np.arange(M * K) * 37 % 101 - 50).astype(np.float32).reshape(M, K) / 64
W = np.random.default_rng(3).standard_normal((K, N)).astype(np.float32)

needs_unit = pytest.mark.skipif(
    not has_matrix_unit(machine()), reason="NOT RUN: this machine has no matrix unit, or does not grant it"
)


# -- what is asked -------------------------------------------------------------------------------


def test_only_kernels_on_the_unit_ask_for_it() -> None:
    """A library for such a processor runs where a hypervisor hides the unit, unless it multiplies there."""
    target = resolve(NAMED)
    unit = {"amx-tile", "amx-bf16", "amx-int8"}
    assert not unit & set(required_features(target)) and unit <= set(required_features(target, matrix=True))
    plain, asking = processor_check(target), processor_check(target, matrix=True)
    assert "granted" not in plain and "kept(0xe6)" in plain
    assert "granted()" in asking and "kept(0x600e6)" in asking and "158, 0x1023, 18" in asking


@pytest.mark.parametrize("target", [f"{NAMED}+-amx-tile", "x86_64-linux-gnu+znver4", "raspberry-pi-5"])
def test_what_has_no_unit_asks_for_none(target: str) -> None:
    assert not has_matrix_unit(resolve(target))
    assert "granted" not in processor_check(resolve(target), matrix=True)


@pytest.mark.parametrize("compiler", [["cc"], [*ZIG, "x86_64-linux-gnu.2.28"]], ids=["cc", "zig"])
def test_the_question_is_strict_c(compiler: list[str], tmp_path: Path) -> None:
    """Whatever compiles it, on whatever C library; and the answer is what this process was told."""
    text = f"{processor_check(resolve(NAMED), matrix=True)}int main(void) {{ return !processor_fits(); }}\n"
    (tmp_path / "ask.c").write_text(text)
    subprocess.run([*compiler, *STRICT, "ask.c", "-o", "ask"], cwd=tmp_path, check=True)
    if compiler != ["cc"]:
        subprocess.run([*ZIG, "x86_64-linux-musl", *STRICT, "-c", "ask.c"], cwd=tmp_path, check=True)
    answer = subprocess.run([tmp_path / "ask"], check=False).returncode
    assert (answer == 0) == detect.runs_here(resolve(NAMED))


# -- what runs -----------------------------------------------------------------------------------


def kernel() -> Any:
    """y = x @ W in tasks of sixteen rows, of two parts and three products."""
    k = KernelBuilder("product")
    x, y = k.pointer("x", "float32", M * K), k.pointer("y", "float32", M * N)
    steps, count = K // 32, parts_of(THREE)
    weights = k.pointer("weights", "int32", N // 16 * steps * count * WORDS)
    k.pointer("arena", "uint8", 1)
    unit = MatrixUnit(k)
    with k.loop(M // 16, "parallel") as task:
        unit.configure()
        words = k.local("words", "int32", steps * count * WORDS, "global")
        with k.loop(steps) as step, k.loop(16) as row, k.loop(16, "vectorized") as lane:
            pair = [k.load(x, (task * 16 + row) * K + step * 32 + half * 16 + lane) for half in range(2)]
            for part, word in enumerate(split(k, *pair, count)):
                k.store(words, ((step * count + part) * 16 + row) * 16 + lane, word)
        for j in range(2):
            unit.zero(j)
        with k.loop(steps) as step:
            unit.step(
                (1, 2), THREE,
                lambda row, part: RegisterRows(words, (step * count + part) * WORDS),
                lambda column, part: RegisterRows(weights, ((column * steps + step) * count + part) * WORDS),
            )  # fmt: skip
        for j in range(2):
            unit.store(j, RegisterRows(y, task * 16 * N + j * 16, N * 4))
        unit.release()
    return k.finish({"global_symbol": "halotile_kernel_main", "calling_conv": 1})


@pytest.fixture(scope="module")
def product() -> LibrarySpec:
    function = kernel()
    assert work_of(function) == 6
    return LibrarySpec(
        name="product",
        inputs=(TensorSpec("x", "float32", (M, K)),),
        outputs=(TensorSpec("y", "float32", (M, N)),),
        object_bytes=build_object(tvm.IRModule({"halotile_kernel_main": function}), machine()),
        weights=[pack(W, order(K), parts_of(THREE)).tobytes()],
        planned_bytes=0,
        workspace_bytes=0,
        max_threads=64,
        default_threads=2,
        target=machine(),
        matrix_unit=True,
    )


@pytest.fixture(scope="module")
def program(product: LibrarySpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's program in C, and the library beside it."""
    folder = tmp_path_factory.mktemp("product")
    built = build_library(product, folder / "out", formats=("so", "a", "exe"))
    command = ["cc", "-std=gnu11", *STRICT[1:], PROGRAM, f"-I{built.directory}", built.archive, "-pthread", "-lm"]
    subprocess.run([*command, "-o", folder / "main"], check=True)
    return folder / "main"


def is_product(y: np.ndarray) -> bool:
    """To what three products give: 2**-15 of the sums of absolute values at most."""
    error = np.abs(y.reshape(M, N) - X.astype(np.float64) @ W)
    return bool((error <= 2.0**-15 * (np.abs(X).astype(np.float64) @ np.abs(W))).all())


@needs_unit
@pytest.mark.parametrize("how", ["", "early", "signals"])
def test_a_program_in_c(program: Path, how: str, tmp_path: Path) -> None:
    done = subprocess.run([program, how], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (done.returncode, done.stdout)
    assert is_product(np.fromfile(tmp_path / "y", np.float32))
    assert done.stdout == ("0 wrong, in use 0\n" if how == "signals" else "")


@needs_unit
def test_a_program_that_the_system_refuses_is_told(program: Path, tmp_path: Path) -> None:
    """Its signal stack has no room for the registers, so no thread may use them: an error, not a crash in a kernel."""
    done = subprocess.run([program, "narrow"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert WORDS_OF_REFUSAL in done.stdout


@needs_unit
@pytest.mark.parametrize("options", ["", "-X faulthandler"])
def test_python_loads_it_in_a_fresh_process(program: Path, options: str, tmp_path: Path) -> None:
    """Also where Python handles crashes on a signal stack of its own."""
    np.save(tmp_path / "x.npy", X)
    text = "import sys, numpy, halotile; model = halotile.load(sys.argv[1], threads=3); "
    text += "numpy.save('y.npy', model({'x': numpy.load('x.npy')})['y'])"
    command = [sys.executable, *options.split(), "-c", text, program.parent / "out"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    assert is_product(np.load(tmp_path / "y.npy"))


@needs_unit
def test_a_refusal_in_python_names_the_reason(program: Path) -> None:
    """Linux refuses as long as some thread has a signal stack that is too small."""
    text = """
import ctypes, sys, halotile
class Stack(ctypes.Structure):
    _fields_ = [("place", ctypes.c_void_p), ("flags", ctypes.c_int), ("bytes", ctypes.c_size_t)]
memory = ctypes.create_string_buffer(2048)
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(Stack(ctypes.addressof(memory), 0, 2048)), None) == 0
try:
    halotile.load(sys.argv[1])
except halotile.errors.OutputError as error:
    print(error)
"""
    command = [sys.executable, "-c", text, program.parent / "out"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert WORDS_OF_REFUSAL in done.stdout


@needs_unit
def test_model_run(program: Path, tmp_path: Path) -> None:
    """The static program asks as the library does."""
    np.save(tmp_path / "x.npy", X)
    command = [program.parent / "out" / "model_run", "-i", "x=x.npy", "-o", "y=y.npy", "--threads", "3"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    assert is_product(np.load(tmp_path / "y.npy"))
