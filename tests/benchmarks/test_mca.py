"""Inner loops cut out of object code, and what the static analyser says of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import halotile.benchmarks.mca as mca
import pytest
from halotile.errors import ToolchainError
from halotile.targets.resolve import resolve

needs_llvm = pytest.mark.skipif(
    not any(shutil.which(f"llvm-mca{v}") for v in ("", *(f"-{n}" for n in range(14, 31)))),
    reason="NOT RUN: llvm-mca is not installed (Debian: llvm)",
)

LISTING = """
0000000000000000 <kernel>:
       0: vxorps %xmm0, %xmm0, %xmm0
       4: movl $0x5, %eax
       8: vfmadd231ps (%rdi), %ymm1, %ymm0      # comment
       c: vfmadd231ps %ymm1, %ymm2, %ymm3
      10: decl %eax
      12: jne 0x8 <kernel+0x8>
      14: vfmadd231ps (%rdi), %ymm1, %ymm0
      18: decl %ecx
      1a: jne 0x4 <kernel+0x4>
      1c: retq

0000000000000040 <other>:
      40: fmla v0.4s, v1.4s, v2.s[1]
      44: add x1, x2, x3, lsl #2
      48: b.ne 0x40 <other>
"""


def test_only_innermost_loops_are_found_as_the_assembler_takes_them() -> None:
    first, second = mca.loops(LISTING)
    assert first.lines == (
        "vfmadd231ps (%rdi), %ymm1, %ymm0",
        "vfmadd231ps %ymm1, %ymm2, %ymm3",
        "decl %eax",
        "jne .Lloop",
    )
    assert second.lines == ("fmla v0.4s, v1.4s, v2.s[1]", "add x1, x2, x3, lsl #2", "b.ne .Lloop")
    assert (first.multiply_adds, second.multiply_adds) == (2, 1)
    assert mca.busiest(iter([second, first])) is first
    assert mca.busiest(iter([])) is None and mca.busiest(iter([mca.Loop(("nop",))])) is None


def test_a_missing_analyser_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ToolchainError, match="apt-get install llvm"):
        mca.tools()
    assert mca.main(["--cpus", "haswell"]) == 1
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and "llvm-mca" in captured.err


def test_an_unknown_processor_is_wrong_usage() -> None:
    with pytest.raises(SystemExit) as raised:
        mca.main(["--cpus", "pentium"])
    assert raised.value.code == 2


@needs_llvm
def test_the_rate_of_independent_multiply_adds_is_that_of_the_ports() -> None:
    analyser, _ = mca.tools()
    for cpu, ports in (("haswell", 2), ("znver2", 2)):
        target = resolve(f"x86_64-linux-gnu+{cpu}")
        cycles = mca._cycles(mca._independent(target), target, analyser)
        assert mca.PEAK_LOOP / cycles == pytest.approx(ports, rel=0.05) == pytest.approx(target.fma_ports, rel=0.05)


@needs_llvm
@pytest.mark.parametrize("cpu", ["haswell", "cortex-a72"])
def test_convolutions_and_products_keep_the_rate(cpu: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = [next(c for c in reversed(mca.CASES) if c[0] == family) for family in ("matmul", "conv", "winograd")]
    monkeypatch.setattr(mca, "CASES", tuple(chosen))
    rows = list(mca.analyse([cpu]))
    assert {r.family for r in rows} == {"matmul", "conv", "winograd"} == set(mca.DENSE)
    assert [r.schedule.split()[0] for r in rows if r.family == "winograd"] == ["winograd"]
    assert not any(r.falls_short for r in rows), mca.table(rows)
    assert all(r.multiply_adds >= 8 and 0.85 <= r.share <= 1.01 for r in rows)
