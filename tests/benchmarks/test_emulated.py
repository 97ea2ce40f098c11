"""What ran under the emulator: counts read, blocks put together again, classes, cycles and predictions."""

from __future__ import annotations

import json
import shutil
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path

import halotile.benchmarks.emulated as emulated
import pytest
from board_tools import needs_llvm, needs_plugins, needs_zig
from halotile.benchmarks.cases import conv_case
from halotile.benchmarks.emulation import counts as c
from halotile.benchmarks.emulation import cycles, peer_run, peers, qemu
from halotile.benchmarks.emulation.peers import Root
from halotile.benchmarks.emulation.predict import CLOCKS, FunctionWork, predict
from halotile.benchmarks.executed import executions
from halotile.benchmarks.machine_code import NAME, disassembly, functions, object_of, tools
from halotile.benchmarks.models import random_inputs
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.errors import ToolchainError
from halotile.targets.resolve import resolve

FMLA, BNE, RET, NOTHING = 0x4F821020, 0x54FFFFA1, 0xD65F03C0, 0xFFFFFFFF
PI5 = "raspberry-pi-5"

def block(address: int, runs: int, *words: int, missed: tuple[int, int] = (0, 0)) -> c.Block:
    return c.Block(address, runs, missed, struct.pack(f"<{len(words)}I", *words))


def test_counts_are_read_and_places_found_in_files(tmp_path: Path) -> None:
    path = tmp_path / "counts"
    path.write_text(
        "block 400000 7 3 1 2010824fc0035fd6\nmarks 2\nshift 1000\n"
        "map 401000-402000 r-xp 00001000 fe:00 12  /lib/some thing.so\nend\n"
    )
    found = c.read(path)
    assert found.blocks == (block(0x400000, 7, FMLA, RET, missed=(3, 1)),)
    assert found.executed == 14 and found.missed == (3, 1)
    assert found.file_at(0x400010) == "some thing.so" and found.file_at(0x500000) == ""


@pytest.mark.parametrize(("text", "message"), [
    ("", "left no counts"), ("block 400000 7 0 0 2010824f\n", "left no counts"),
    ("block 400000 7 0 0 2010824f\nmarks 1\nend\n", "marked nothing"),
])  # fmt: skip
def test_a_run_that_did_not_end_or_marked_nothing_is_told(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "counts").write_text(text)
    with pytest.raises(ToolchainError, match=message):
        c.read(tmp_path / "counts")


def test_blocks_that_a_page_cut_are_one_again() -> None:
    head, tail, loop = block(0x1FF8, 10, FMLA, FMLA), block(0x2000, 13, FMLA, BNE), block(0x3000, 5, FMLA, BNE)
    found = c.joined([tail, loop, head])
    assert found == [
        block(0x1FF8, 10, FMLA, FMLA, FMLA, BNE), block(0x2000, 3, FMLA, BNE), block(0x3000, 5, FMLA, BNE),
    ]  # fmt: skip
    assert sum(b.executed for b in found) == sum(b.executed for b in (head, tail, loop))
    ends = block(0x2FF8, 4, FMLA, BNE)
    assert c.joined([ends, loop]) == [ends, loop], "a branch may go elsewhere"
    twice = [head, tail, replace(tail, code=tail.code + tail.code)]
    assert sorted(b.executed for b in c.joined(twice)) == sorted(b.executed for b in twice)


@pytest.mark.parametrize(("text", "kind"), [
    ("fmla v0.4s, v1.4s, v2.s[0]", "multiply-adds"), ("fmadd s0, s1, s2, s3", "multiply-adds"),
    ("fmla v0.8h, v1.8h, v2.h[0]", "multiply-adds of halves"),
    ("fmla z1.h, p0/m, z0.h, z2.h", "multiply-adds of halves"),
    ("sdot v0.4s, v1.16b, v2.4b[0]", "products of bytes"), ("ldr q0, [x1], #16", "loads"),
    ("ldp w0, w1, [sp]", "loads"),
    ("ldr q0, [sp, #16]", "to and from the stack"), ("stp q0, q1, [sp, #-32]!", "to and from the stack"),
    ("ld1r { v0.4s }, [x1]", "loads"), ("st1 { v0.s }[1], [x1]", "stores"), ("str x0, [sp]", "stores"),
    ("prfm pldl2keep, [x0]", "hints"), ("b.ne #-12", "branches"), ("bl #4", "branches"), ("cbz x0, #8", "branches"),
    ("bic v0.16b, v1.16b, v2.16b", "other arithmetic"), ("fmax v0.4s, v1.4s, v2.4s", "other arithmetic"),
    ("mov v0.16b, v1.16b", "moves"), ("dup v0.4s, w1", "moves"), ("add x0, x1, x2", "integers"),
    ("sbfiz x9, x8, #2, #32", "integers"), ("bfi w0, w1, #3, #4", "integers"), (c.NOTHING, "integers"),
])  # fmt: skip
def test_every_instruction_has_its_class(text: str, kind: str) -> None:
    assert c.class_of(text) == kind and kind in c.CLASSES


@needs_llvm
def test_words_are_read_and_their_cycles_known() -> None:
    found = tools()
    texts = c.disassembled([FMLA, BNE, RET, NOTHING], found.mca.replace("llvm-mca", "llvm-mc"))
    assert texts[FMLA] == "fmla v0.4s, v1.4s, v2.s[0]" and texts[RET] == "ret" and texts[NOTHING] == c.NOTHING
    assert texts[BNE].startswith("b.ne")
    fused = [FMLA + i for i in range(8, 24)]  # sixteen sums
    texts |= c.disassembled(fused, found.mca.replace("llvm-mca", "llvm-mc"))
    counts = c.Counts((block(0, 1000, *fused, BNE), block(0x100, 1, RET)))
    each = cycles.block_cycles(counts, texts, resolve("raspberry-pi-4"), found.mca)
    (only,) = each.values()
    assert 16 <= only <= 18, "one multiply-add a cycle"
    assert cycles.total_cycles(counts, each) == pytest.approx(1000 * only, rel=0.01)
    assert c.by_class(counts.blocks, texts) == {"multiply-adds": 16000, "branches": 1001}


@needs_llvm
def test_models_of_other_processors_are_doubted() -> None:
    """LLVM 14 takes a neoverse-v1 for a core that starts one multiply-add in a cycle, and two bfdot. A cortex-a72 is
    known to all versions."""
    target, mca = resolve("raspberry-pi-4"), tools().mca
    assert cycles.doubt(target, mca) == ""
    text = cycles.doubt(replace(target, fma_ports=7), mca)
    assert "starts 1 multiply-adds a cycle on cortex-a72, which starts 7" in text and "newer LLVM" in text


def test_the_longer_of_cycles_and_memory_counts_for_each_function() -> None:
    target = replace(resolve("raspberry-pi-4"), bandwidth=1_000_000_000)
    work = [FunctionWork(1e6, 0), FunctionWork(1e6, 4_000_000), FunctionWork(3e6, 1_000_000)]
    found = predict(work, target, 1e9)
    assert found.seconds == pytest.approx(1e-3 + 4e-3 + 3e-3) and found.waiting == pytest.approx(0.5)
    assert predict(work, replace(target, bandwidth=0), 1e9).seconds == pytest.approx(5e-3)
    assert all(resolve(name).is_aarch64 for name in CLOCKS)


@pytest.mark.parametrize(("arguments", "message"), [
    (["-m", "resnet5000"], "resnet5000"), (["-t", "x86-64-v3"], "64-bit ARM"), (["-t", "raspberry-pi-2-32"], "64-bit"),
])  # fmt: skip
def test_what_can_not_be_counted_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture) -> None:
    assert emulated.main(arguments) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and message in said.err


def test_builds_in_float16_know_the_size_of_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without, they would be float32's: nothing is computed in float16 of which nothing was seen."""
    asked = []

    def measured(name: str, *_: object, **options: object) -> emulated.EmulatedRow:
        asked.append(options)
        return emulated.EmulatedRow(name, PI5, "halotile", 1, {}, 1.0, 0, 1.0, 0.0, ())

    monkeypatch.setattr(emulated, "measure", measured)
    for precision in ("float16", "float32"):
        assert emulated.main(["-m", "espcn", "--small", "-t", PI5, "--precision", precision]) == 0
    assert [a["precision"] for a in asked] == ["float16", "float32"]
    assert asked[0]["halves"] and asked[1]["halves"] is None


def test_a_missing_emulator_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ToolchainError, match="apt-get install qemu-user"):
        qemu.Emulator(tmp_path)


def test_peers_are_told_of_the_board_and_not_of_this_machine(tmp_path: Path) -> None:
    for name, part, halves in (("raspberry-pi-4", "0xd08", False), ("raspberry-pi-5", "0xd0b", True)):
        Root(tmp_path).describe(resolve(name))
        text = (tmp_path / "proc" / "cpuinfo").read_text()
        assert text.count("processor") == 4 and text.count(f"CPU part\t: {part}\n") == 4
        assert ("asimdhp" in text) == halves
        assert (tmp_path / "sys/devices/system/cpu/possible").read_text() == "0-3\n"


def test_every_peer_has_its_run() -> None:
    assert set(peers.ENGINES) == set(peer_run.ENGINES)
    wheels = {w.split("==")[0].lower() for w in peers.WHEELS}
    assert {e.split("-")[0] for e in peers.ENGINES} == wheels - {"numpy"}


def test_wheels_that_a_root_lacks_are_fetched_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it says it has; packages once."""
    calls: list[str] = []
    monkeypatch.setattr(Root, "_packages", lambda self: (tmp_path.mkdir(exist_ok=True), calls.append("packages")))
    monkeypatch.setattr(Root, "_wheels", lambda self: calls.append("wheels"))
    for expected in (["packages", "wheels"], [], ["wheels"]):
        calls.clear()
        Root.made(tmp_path)
        assert calls == expected
        if not expected:
            (tmp_path / "complete").write_text("numpy")


def test_tables_have_a_line_for_each_row() -> None:
    part = emulated.FunctionShare("direct conv", 10_000_000, 4e6, 7_000_000, 64)
    loads = {"loads": 5_000_000}
    row = emulated.EmulatedRow("m", "raspberry-pi-5", "halotile", 12_000_000, loads, 5e6, 128, 2.5, 0.0, (part,))
    assert emulated.table([row]).splitlines()[-1] == "| m | raspberry-pi-5 | halotile | 12.0 | 5.0 | 5.0 | 0.0 | 2.5 |"
    assert "80.0%" in emulated.kernel_table(row) and "1.75" in emulated.kernel_table(row)


@needs_llvm
@needs_plugins
def test_counts_are_those_of_another_emulator(tmp_path: Path) -> None:
    """The multiply-adds of each kernel, and those that a second emulator counts of the kernel by itself."""
    needs_zig()
    target, case = resolve("raspberry-pi-5"), conv_case(13, 19, 11, 3)
    feeds = random_inputs(case.model(), seed=2)
    row = emulated.measure("case", case.model(), feeds, target, 2.4e9, tile="off")
    build = run_pipeline(case.model(), Options(target, threads=1, tile="off", stop_after="plan"))
    wanted: Counter[str] = Counter()
    for kernel in build.kernels:
        code = functions(disassembly([object_of(kernel, target)], target, tools().objdump))[NAME]
        runs = executions(code, target, len(kernel.operands))
        wanted[kernel.schedule] += sum(runs.get(i.address, 0) for i in code if i.is_multiply_add)
    found = {p.name: p.multiply_adds for p in row.parts}
    assert {name: found[name] for name in wanted} == wanted and max(wanted.values()) > 1000
    assert row.cycles > row.classes["multiply-adds"] / 2 and row.milliseconds > 0
    json.dumps(row.classes)
