"""Loops cut out of object code, and what the static analyser says of them: of all that matter, not of the best."""

from __future__ import annotations

import shutil

import halotile.benchmarks.mca as mca
import pytest
from halotile.benchmarks import machine_code
from halotile.targets.resolve import resolve

needs_llvm = pytest.mark.skipif(
    not any(shutil.which(f"llvm-mca{v}") for v in ("", *(f"-{n}" for n in range(14, 31)))),
    reason="NOT RUN: llvm-mca is not installed (Debian: llvm)",
)

# the same step three times: as it should be, with a vector that goes to the stack and comes back, and in a rare case
LISTING = """
0000000000000000 <kernel>:
       0: 4f820020     \tfmla\tv0.4s, v1.4s, v2.s[0]
       4: 4f820024     \tfmla\tv4.4s, v1.4s, v2.s[0]
       8: f1000400     \tsubs\tx0, x0, #0x1
       c: 54ffffa1     \tb.ne\t0x0 <kernel>
      10: 3d8003e2     \tstr\tq2, [sp]
      14: 3dc003e3     \tldr\tq3, [sp]
      18: 4f830020     \tfmla\tv0.4s, v1.4s, v3.s[0]
      1c: 4f830024     \tfmla\tv4.4s, v1.4s, v3.s[0]
      20: b4000040     \tcbz\tx0, 0x28 <kernel+0x28>
      24: 3dc00043     \tldr\tq3, [x2]
      28: f1000421     \tsubs\tx1, x1, #0x1
      2c: 54ffff21     \tb.ne\t0x10 <kernel+0x10>
      30: 4f820020     \tfmla\tv0.4s, v1.4s, v2.s[0]
      34: f1000442     \tsubs\tx2, x2, #0x1
      38: 54ffffc1     \tb.ne\t0x30 <kernel+0x30>
      3c: d65f03c0     \tret
"""


def test_every_loop_counts_that_does_a_hundredth_of_the_work() -> None:
    code = machine_code.functions(LISTING)["kernel"]
    counts = {i.address: 600 if i.address < 0x10 else 300 if i.address < 0x30 else 10 for i in code}
    counts[0x24] = 20  # seldom
    heavy = mca.heavy_loops(code, counts)
    assert [loop.instructions[0].address for loop, _ in heavy] == [0, 0x10]
    assert [part for _, part in heavy] == pytest.approx([1200 / 1810, 600 / 1810])
    good, bad = (loop for loop, _ in heavy)
    assert (good.multiply_adds, good.spills, bad.multiply_adds, bad.spills) == (2, 0, 2, 2)
    assert bad.loads == 0, "what most iterations pass over is not counted"
    counts.update({0x30: 20, 0x34: 20, 0x38: 20})
    assert len(mca.heavy_loops(code, counts)) == 3
    assert mca.heavy_loops(code, {}) == []


def row(family: str, share: float, in_order: bool = False, instructions: int = 30, spills: int = 0) -> mca.McaRow:
    return mca.McaRow("c", family, "x", "s", 0.5, 20, instructions, 5, spills, 20.0, 2.0, share, in_order)


def test_what_falls_short_is_a_dense_loop_of_a_core_out_of_order() -> None:
    assert row("conv", 0.89).falls_short and not row("conv", 0.91).falls_short
    assert not row("conv", 0.5, in_order=True).falls_short and not row("depthwise", 0.5).falls_short
    assert row("winograd", 0.5).falls_short and not row("winograd", 0.5, instructions=60).falls_short
    assert row("winograd", 0.5, instructions=60, spills=30).falls_short, "spills make no other arithmetic of it"
    text = mca.table([row("conv", 0.5, spills=3), row("depthwise", 0.5)]).splitlines()
    assert text[2].endswith("| 50% (short) |") and text[3].endswith("| 50% (not judged) |")


def test_a_missing_analyser_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert mca.main(["--cpus", "haswell"]) == 1
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and "llvm-mca" in captured.err


@pytest.mark.parametrize("arguments", [["--cpus", "pentium"], ["--models", "resnet5000"]])
def test_unknown_names_are_wrong_usage(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        mca.main(arguments)
    assert raised.value.code == 2


@needs_llvm
def test_the_rate_of_independent_multiply_adds_is_that_of_the_ports() -> None:
    analyser = mca.tools().mca
    for cpu, ports in (("haswell", 2), ("znver2", 2), ("skylake-avx512", 2)):
        target = resolve(f"x86_64-linux-gnu+{cpu}")
        (cycles,) = mca.cycles([mca._independent(target)], target, analyser)
        assert mca.PEAK_LOOP / cycles == pytest.approx(ports, rel=0.05) == pytest.approx(target.fma_ports, rel=0.05)


@needs_llvm
@pytest.mark.parametrize(
    ("cpu", "layers"),
    [
        ("haswell", ("3x3/1 256->256 at 14",)),
        ("cortex-a72", ("1x1/1 32->192 at 28", "1x1/1 64->256 at 56")),
        ("cortex-a76", ("1x1/1 144->24 at 56", "1x1/1 32->192 at 28", "1x1/1 64->256 at 56")),
    ],
)
def test_convolutions_and_products_keep_the_rate(
    cpu: str, layers: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("unicorn", reason="NOT RUN: needs unicorn (pip install unicorn)")
    chosen = [next(c for c in reversed(mca.CASES) if c[0] == family) for family in ("matmul", "winograd")]
    chosen += [c for c in mca.CASES if c[0] == "conv" and c[1].name in layers]
    monkeypatch.setattr(mca, "CASES", tuple(chosen))
    rows = list(mca.analyse([cpu]))
    assert {r.family for r in rows} == {"matmul", "conv", "winograd"} == set(mca.DENSE)
    assert {r.schedule.split()[0] for r in rows if r.family == "winograd"} == {"winograd"}
    assert not any(r.falls_short for r in rows), mca.table(rows)
    dense = [r for r in rows if r.is_dense]
    assert all(r.multiply_adds >= 8 and 0.9 <= r.share <= 1.01 for r in dense)
    for kernel in {(r.case, r.schedule) for r in rows}:
        assert 0.9 <= sum(r.part for r in rows if (r.case, r.schedule) == kernel) <= 1.01
    assert all(r.part >= mca.LEAST for r in rows)
