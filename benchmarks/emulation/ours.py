"""A model of ours for a board, built, run under the emulator, and what ran of each kernel.

    program = build(model, target, folder)
    counts = emulator.run(target, [str(program.path)], folder)
    program.kernel_of(address)                  the kernel that an instruction belongs to, or how the function is called
"""

from __future__ import annotations

import bisect
import json
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import tvm_ffi

from ...compiler.codegen.toolchain import find_static_toolchain
from ...compiler.flow.kernel import kernels_of
from ...compiler.pipeline import run_pipeline
from ...compiler.state import Build, Options
from ...errors import ToolchainError
from ...targets.target import Target

if TYPE_CHECKING:
    from ...targets.plain import JsonView

_PROGRAM = Path(__file__).parent / "marked_run.c"
NAME = "model"


@dataclass(frozen=True)
class StaticProgram:
    """A static program around a model, where its functions begin, and what they compute."""

    path: Path
    report: JsonView
    begins: tuple[int, ...]
    names: tuple[str, ...]
    schedules: Mapping[str, str] = field(default_factory=dict)  # of kernels by their function
    bytes_of: Mapping[str, int] = field(default_factory=dict)  # that its kernels read and write, by the plan

    def function_at(self, address: int) -> str:
        """The function that an instruction belongs to."""
        place = bisect.bisect_right(self.begins, address) - 1
        return self.names[place] if place >= 0 else ""

    def kernel_of(self, function: str) -> str:
        """What a function computes: its schedule, or its own name where it is no kernel."""
        return self.schedules.get(function, function)


def build(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], target: Target, folder: Path, nm: str, **options: Any
) -> StaticProgram:
    """Builds ``model`` for one thread of ``target`` in ``folder``, with its inputs beside the program."""
    wanted = Options(target, name=NAME, threads=1, formats=("a",), **options)
    done = run_pipeline(model, wanted, output=folder / "out")
    path = folder / "program"
    flags = [f'-DHEADER="{NAME}.h"', f"-DMODEL(what)={NAME}_##what", "-I", str(folder / "out"), "-static", "-O2"]
    sources = [str(_PROGRAM), str(folder / "out" / f"lib{NAME}.a"), "-pthread", "-lm"]
    toolchain = find_static_toolchain(target)
    if toolchain is None:
        raise ToolchainError(f"no compiler makes static programs for {target.triple}: pip install ziglang")
    toolchain.run([*flags, *sources, "-o", str(path)], folder, "building the program that is counted")
    for i, spec in enumerate(json.loads((folder / "out" / "manifest.json").read_text())["inputs"]):
        (folder / f"in{i}.bin").write_bytes(np.ascontiguousarray(feeds[spec["name"]]).tobytes())
    symbols = _functions(path, nm)
    schedules, moved = _kernels(done)
    places, names = tuple(a for a, _ in symbols), tuple(n for _, n in symbols)
    return StaticProgram(path, done.report, places, names, schedules, moved)


def _functions(path: Path, nm: str) -> list[tuple[int, str]]:
    said = subprocess.run([nm, "--numeric-sort", str(path)], capture_output=True, text=True, check=False)
    if said.returncode:
        raise ToolchainError(f"{nm} can't read {path.name}: {said.stderr.strip()[:200]}")
    lines = (line.split() for line in said.stdout.splitlines())
    found = {int(words[0], 16): words[2] for words in lines if len(words) == 3 and words[1] in "tTwW"}
    return sorted((address, name) for address, name in found.items() if not name.startswith("$"))


def _kernels(done: Build) -> tuple[dict[str, str], dict[str, int]]:
    """(schedule, bytes) by the name of the function; parts of tile groups have no bytes of their own."""
    schedules: dict[str, str] = {}
    moved: Counter[str] = Counter()
    for kernel, entry in zip(done.kernels, done.report["kernels"]):
        schedules[entry["function"]] = entry["schedule"]
        moved[entry["function"]] += entry["bytes"]
        for part in kernels_of(kernel):
            number = tvm_ffi.structural_hash(part.function, map_free_vars=True) & (1 << 64) - 1
            schedules.setdefault(f"halotile_k_{number:016x}", part.schedule)
    return schedules, dict(moved)
