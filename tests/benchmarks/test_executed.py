"""How often instructions of kernels run, against what the layers' arithmetic says."""

from __future__ import annotations

import re
import shutil
import sys

import pytest
from halotile.benchmarks import executed, mca
from halotile.benchmarks import machine_code as m
from halotile.benchmarks.cases import conv_case, matmul_case
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.errors import ToolchainError
from halotile.targets.resolve import resolve

needs_llvm = pytest.mark.skipif(
    not any(shutil.which(f"llvm-objdump{v}") for v in ("", *(f"-{n}" for n in range(14, 31)))),
    reason="NOT RUN: llvm-objdump is not installed (Debian: llvm)",
)
# (rows, depth, columns) that the register tiles divide, and a layer whose last tile of a row is moved back
EXACT = matmul_case(48, 40, 96)
MOVED = conv_case(16, 16, (6, 29), 3)


@needs_llvm
@pytest.mark.parametrize("cpu", ["cortex-a76", "haswell", "skylake-avx512"])
def test_multiply_adds_are_those_of_the_layer(cpu: str) -> None:
    pytest.importorskip("unicorn", reason="NOT RUN: needs unicorn (pip install unicorn)")
    target = resolve(f"{mca.CPUS[cpu]}+{cpu}")
    for case, most in ((EXACT, 1.0), (MOVED, 1.25)):
        options = Options(target, threads=1, winograd=False, matrix=False, tile="off", stop_after="plan")
        kernel = max(run_pipeline(case.model(), options).kernels, key=lambda k: k.flops)
        code = m.functions(m.disassembly([m.object_of(kernel, target)], target, m.tools().objdump))[m.NAME]
        counts = executed.executions(code, target, len(kernel.operands))
        lanes = {i.address: _lanes(i) for i in code if i.is_multiply_add}
        flops = sum(2 * counts.get(at, 0) * count for at, count in lanes.items())
        least = 2 * 48 * 40 * 96 if case is EXACT else 2 * 16 * 16 * 9 * 6 * 29
        assert least <= flops <= most * least, (cpu, case.name)
        assert counts[code[0].address] == 1


def _lanes(instruction: m.Instruction) -> int:
    width = re.search(r"\.(\d)s|%([xyz])mm", instruction.text)
    assert width is not None
    return int(width[1]) if width[1] else {"x": 4, "y": 8, "z": 16}[width[2]]


def test_an_instruction_that_does_nothing_is_as_long_as_the_one_it_stands_for() -> None:
    assert [len(executed.nothing("x86_64", n)) for n in range(1, 16)] == list(range(1, 16))
    assert executed.nothing("aarch64", 4) == bytes.fromhex("1f2003d5")


def test_an_emulator_that_is_missing_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "unicorn", None)
    with pytest.raises(ToolchainError, match="pip install unicorn"):
        executed.executions([], resolve("x86-64-v3"), 0)
