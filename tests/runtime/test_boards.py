"""Libraries for other machines, linked by ziglang where it is installed, and run under qemu where that is."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from halotile.compiler.codegen.library import build_library
from halotile.compiler.codegen.toolchain import Toolchain, machine_of, zig_target
from halotile.compiler.runtime.loader import load
from halotile.errors import OutputError
from halotile.targets.target import Target

MAIN = Path(__file__).parent / "programs" / "stress.c"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None,
    reason="NOT RUN: linking for boards needs ziglang (pip install ziglang)",
)

BOARDS = {
    "aarch64": Target("aarch64", "aarch64-linux-gnu", "cortex-a53"),
    "arm": Target("arm", "armv7l-linux-gnueabihf", "cortex-a9"),
    "x86_64": Target("x86_64", "x86_64-linux-gnu", "x86-64"),
}


def zig(triple: str) -> Toolchain:
    command = (sys.executable, "-m", "ziglang", "cc", "-target", zig_target(triple))
    return Toolchain(command, "zig", machine_of(triple))


def build_for(target: Target, rounds, source: str, folder: Path, formats: tuple[str, ...] = ("so",)):
    toolchain = zig(target.triple)
    (folder / "kernel.c").write_text(source)
    toolchain.run(["-c", "-O1", "-fPIC", "kernel.c", "-o", "kernel.o"], folder, "compiling the kernel")
    spec = replace(rounds, object_bytes=(folder / "kernel.o").read_bytes(), target=target)
    return build_library(spec, folder / "out", toolchain=toolchain, formats=formats)


@pytest.mark.parametrize("board", BOARDS)
def test_a_library_for_another_machine(board, rounds, rounds_source, tmp_path):
    built = build_for(BOARDS[board], rounds, rounds_source, tmp_path)
    facts = subprocess.run(["readelf", "-hdW", built.library], capture_output=True, text=True).stdout
    names = {"aarch64": "AArch64", "arm": "ARM", "x86_64": "X86-64"}
    assert re.search(rf"Machine:.*{names[board]}", facts)
    assert set(re.findall(r"NEEDED.*\[(.*)\]", facts)) <= {"libc.so.6", "libm.so.6", "libpthread.so.0"}
    assert "TEXTREL" not in facts
    if machine_of(rounds.target.triple) == board:
        load(built.directory).close()
    else:
        with pytest.raises(OutputError, match=f"is for {board}, this machine is"):
            load(built.directory)


@pytest.mark.parametrize(
    ("triple", "cpu", "emulator"),
    [
        ("aarch64-linux-musl", "cortex-a53", "qemu-aarch64-static"),
        ("armv7l-linux-musleabihf", "cortex-a9", "qemu-arm-static"),
    ],
)
def test_a_static_library_runs_under_qemu(triple, cpu, emulator, rounds, rounds_source, tmp_path):
    if not shutil.which(emulator):
        pytest.skip(f"NOT RUN: running it needs {emulator} (Debian: qemu-user-static)")
    built = build_for(Target("board", triple, cpu), rounds, rounds_source, tmp_path, formats=("so", "a"))
    flags = [
        "-static",
        "-O1",
        str(MAIN),
        f"-I{built.directory}",
        str(built.archive),
        "-pthread",
        "-lm",
        "-o",
        "main",
    ]
    zig(triple).run(flags, tmp_path, "linking the program")
    done = subprocess.run([emulator, tmp_path / "main", "20"], capture_output=True, text=True, timeout=120)
    assert done.stdout == "40 runs, 0 wrong\n", done.stderr


def test_no_block_loads_are_made_of_the_runtime_on_32_bit_arm(tmp_path: Path) -> None:
    """The pass of LLVM that makes them is wrong (targets/target.py): three words are loaded one by one."""
    copies = "".join(f"int {v} = q[{i}];" for i, v in enumerate("abc")) + "".join(
        f"p[{i}] = {v};" for i, v in enumerate("abc")
    )
    (tmp_path / "copy.c").write_text(f"void copy(volatile int *q, volatile int *p) {{ {copies} }}\n")
    toolchain = zig("armv7l-linux-gnueabihf")
    objdump = shutil.which("llvm-objdump") or shutil.which("llvm-objdump-19")
    for flags in (toolchain.compile_flags, toolchain.program_flags):
        assert "-arm-load-store-opt=false" in flags
        toolchain.run([*flags, "-c", "copy.c", "-o", "copy.o"], tmp_path, "compiling a copy")
        if objdump:
            code = subprocess.run([objdump, "-d", tmp_path / "copy.o"], capture_output=True, text=True).stdout
            assert "ldr" in code and "ldm" not in code
    assert not any("load-store" in f for f in zig("aarch64-linux-gnu").compile_flags)
