"""Target texts: what each form means, and what is refused with which hint."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from halotile.errors import TargetError
from halotile.targets import llvm
from halotile.targets.boards import boards
from halotile.targets.detect import runs_here
from halotile.targets.facts import core
from halotile.targets.resolve import precheck, resolve
from halotile.targets.systems import known_triples, parse

ROOT = Path(__file__).resolve().parents[2]


def test_spelt_out_with_features() -> None:
    target = resolve("aarch64-linux-gnu+cortex-a76+dotprod,-aes")
    assert (target.triple, target.cpu) == ("aarch64-linux-gnu", "cortex-a76")
    assert target.features == ("+dotprod", "-aes")
    assert (target.vector_bits, target.vector_registers, target.fma_ports) == (128, 32, 2)


def test_a_feature_changes_the_facts() -> None:
    wide = resolve("x86_64-linux-gnu+haswell+avx512f,avx512vl")
    assert (wide.vector_bits, wide.vector_registers) == (512, 32)
    narrow = resolve("x86_64-linux-gnu+skylake-avx512+-avx512f")
    assert (narrow.vector_bits, narrow.vector_registers) == (256, 16)


def test_a_board_with_other_features_is_that_board() -> None:
    board, other = resolve("raspberry-pi-5"), resolve("rpi5+-dotprod,sha3")
    assert other.features == ("-dotprod", "+sha3") and other.id == "rpi5+-dotprod,sha3"
    facts = ("triple", "cpu", "vector_bits", "l1_bytes", "l2_bytes", "l3_bytes", "cores", "glibc", "bandwidth")
    assert all(getattr(board, fact) == getattr(other, fact) for fact in facts)
    wide, narrow = resolve("x86-64-v4"), resolve("x86-64-v4+-avx512f")
    assert (wide.vector_bits, wide.vector_registers) == (512, 32)
    assert (narrow.vector_bits, narrow.vector_registers) == (256, 16)
    here = resolve("native")
    less = resolve("native+-fma" if here.triple.startswith("x86") else "native+-crc")
    assert less.features[:-1] == here.features and not less.native and less.l2_bytes == here.l2_bytes
    assert runs_here(less)
    for text in ("raspberry-pi-5+-dotprod", "native+-avx2", "HOST+-avx2"):
        precheck(text)


def test_names_that_compilers_take_are_names() -> None:
    assert (resolve("aarch64-macos+apple-m1").cpu, resolve("aarch64-linux-gnu+cobalt-100").cpu) == (
        "apple-a14", "neoverse-n2",
    )  # fmt: skip


def test_a_core_spelt_out_has_its_caches() -> None:
    a76 = resolve("aarch64-linux-gnu+cortex-a76")
    assert (a76.l1_bytes, a76.l2_bytes, a76.l3_bytes) == (64 << 10, 512 << 10, 2 << 20)
    assert resolve("aarch64-linux-gnu+cortex-a53").l3_bytes == 0
    for board in boards().values():
        target = board.target
        if target.cpu == "generic" or target.cpu.startswith("x86-64"):
            continue  # which are levels, and not cores
        known = core(target.cpu)
        assert known.l1_bytes == target.l1_bytes and known.l2_bytes <= target.l2_bytes, board.name
        assert known.l3_bytes <= target.l3_bytes and known.fma_ports == target.fma_ports, board.name


def test_old_tvm_text_is_read_with_a_note() -> None:
    target = resolve("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon -device=arm_cpu")
    assert (target.triple, target.cpu, target.features) == ("aarch64-linux-gnu", "cortex-a72", ("+neon",))
    assert target.id == "aarch64-linux-gnu+cortex-a72+neon"
    assert any("write that instead" in note for note in target.notes)
    assert any("-device" in note for note in target.notes)


def test_plain_llvm_is_this_machine() -> None:
    assert resolve("llvm").cpu == resolve("native").cpu


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "target is empty"),
        ("rasberry-pi-4", "did you mean raspberry-pi-4"),
        ("nativ", "did you mean native"),
        ("toaster", "unknown target 'toaster'; `halotile targets list`"),
        ("raspberry-pi-6", "did you mean raspberry-pi-5"),
        ("raspberrypi5", "did you mean raspberry-pi-5"),
        ("raspberry pi 5", "did you mean raspberry-pi-5"),
        ("jetson", "did you mean jetson-orin, jetson-nano"),
        ("rk3588x", "did you mean rk3588"),
        ("graviton4", "did you mean graviton3"),
        ("imx8", "did you mean imx8mp"),
        ("armv8.2-a", "did you mean armv8-a"),
        ("x86-64-v5", "did you mean x86-64-v4"),
        ("cortex-a76", "is a CPU, not a machine; write aarch64-linux-gnu.cortex-a76"),
        ("znver4", "is a CPU, not a machine; write x86_64-linux-gnu.znver4"),
        ("aarch64-linux-gnu", "names no CPU; write aarch64-linux-gnu.cpu"),
        ("arm64-apple-macos", "names no CPU; write arm64-apple-macos.cpu"),
        ("aarch64-macos+apple-n1", "did you mean apple-m1"),
        ("native+avx3", "unknown feature 'avx3'"),
        ("raspberry-pi-5+dotprdo", "unknown feature 'dotprdo'.*did you mean dotprod"),
        ("raspberry-pi-5+", "empty feature"),
        ("aarch64-linux-gnu+cortexa76", "unknown CPU 'cortexa76'.*did you mean cortex-a76"),
        ("aarch64-linux-gnu+cortex-a76,dotprod", "unknown CPU 'cortex-a76,dotprod'.*did you mean cortex-a76"),
        ("aarch64-linux-gnu+cortex-a53+sve3", "unknown feature 'sve3'.*did you mean sve"),
        ("armv7l-linux-gnueabihf+cortex-a7+neon2", "unknown feature 'neon2'.*did you mean neon"),
        ("arch64-linux-gnu+cortex-a76", "unknown architecture 'arch64'; did you mean aarch64"),
        ("armv6l-linux-gnueabihf+arm1176jzf-s", "unknown architecture 'armv6l'; did you mean"),
        ("sparc64-linux-gnu+generic", "unknown architecture 'sparc64'"),
        ("aarch64-apple-ios+apple-a14", "did you mean aarch64-linux-gnu or aarch64-linux-musl or aarch64-macos"),
        ("x86_64-pc-windows-msvc+haswell", "did you mean x86_64-linux-gnu"),
        ("aarch64-linux-gnux+cortex-a76", "did you mean aarch64-linux-gnu"),
        ("armv7l-linux-gnueabi+cortex-a7", "did you mean armv7l-linux-gnueabihf"),
        ("aarch64-linux-gnu+cortex-a76+", "empty feature"),
        ("+cortex-a76", "unknown architecture"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a7x", "unknown CPU 'cortex-a7x'.*did you mean cortex-a7"),
        ("llvm -mtriple=aarch64-linux-gnu -mattr=+dotprdo", "unknown feature 'dotprdo'.*did you mean dotprod"),
        ("llvm -mcpu=", "has no value"),
        ("llvm -mcpu='haswell", "can't be read: no closing quotation"),
        ("x86_64-linux-gnu+hasswell", "unknown CPU 'hasswell' for x86_64-linux-gnu; did you mean haswell"),
        ("aarch64-linux-gnu+haswell", "unknown CPU 'haswell' for aarch64-linux-gnu"),
        ("x86_64-linux-gnu+haswell+avx513f", "unknown feature 'avx513f'.*did you mean avx512f"),
        ("x86_64-linux-gnu+haswell+neon", "unknown feature 'neon'"),
        ("x86_64-linux-gnu+", "names no CPU"),
        ("z80-linux+generic", "unknown architecture 'z80'"),
        ("x86-64-linux-gnu+haswell", "unknown architecture 'x86'"),
        ("llvm -mcpu=hasswell", "did you mean haswell"),
        ("llvm -mcpu=haswell nonsense", "'nonsense' is not an option"),
    ],
)
def test_refused_with_one_line(text: str, message: str) -> None:
    with pytest.raises(TargetError, match=message) as caught:
        resolve(text)
    assert "\n" not in str(caught.value)
    assert caught.value.code == "E400"


def test_pages_promise_no_system_that_is_refused() -> None:
    pages = {p: p.read_text(encoding="utf-8") for p in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]}
    for path, text in pages.items():
        words = r"any other (?:target|triple|processor|machine|system|board|architecture|one)\b|spells out any"
        assert not re.search(words, " ".join(text.split())), path
    section = pages[ROOT / "docs" / "targets.md"].split("## Systems")[1].split("\n## ")[0]
    told = [name for row in re.findall(r"^\| (`.*?) \|", section, re.M) for name in re.findall(r"`([^`]+)`", row)]
    built = {parse(name) for name in told}
    assert built >= {parse(name) for name in known_triples()}
    assert {t.arch for t in built} == {"x86_64", "aarch64", "armv7l", "riscv64", "wasm32"}
    said = pages[ROOT / "README.md"].split("\n\n")[1]
    assert re.search(r"\(x86-64,\sARM,\sRISC-V\), and into WebAssembly", said)
    assert "Everything else is refused by name" in section


@pytest.mark.parametrize("arch", ["powerpc64le", "s390x", "mips64el", "loongarch64", "riscv32", "hexagon", "wasm64"])
@pytest.mark.parametrize("system", ["linux-gnu", "freebsd", "unknown-unknown"])
def test_everything_else_is_refused_with_what_there_is(arch: str, system: str) -> None:
    with pytest.raises(TargetError, match=f"unknown architecture '{arch}'.*known: ") as caught:
        resolve(f"{arch}-{system}+generic")
    assert all(name in str(caught.value) for name in known_triples()) and "\n" not in str(caught.value)


@pytest.mark.parametrize("system", ["freebsd", "linux-android", "none-elf", "fuchsia"])
@pytest.mark.parametrize("arch", ["x86_64", "aarch64", "riscv64"])
def test_other_systems_are_refused_with_those_there_are(arch: str, system: str) -> None:
    with pytest.raises(TargetError, match=f"'{arch}-{system}' is not one that can be built for; did you mean {arch}-"):
        resolve(f"{arch}-{system}+generic")


def test_precheck_and_board_list_need_no_tvm() -> None:
    code = (
        "import sys; sys.modules['tvm'] = None\n"
        "from halotile.targets.resolve import precheck\n"
        "from halotile.targets.boards import boards\n"
        "precheck('raspberry-pi-4'); precheck('native'); assert boards()\n"
        "try: precheck('rasberry-pi-4')\n"
        "except Exception as e: print(type(e).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "TargetError", done.stderr


def test_precheck_lets_every_valid_form_pass() -> None:
    for text in ("native", "raspberry-pi-4", "x86_64-linux-gnu+haswell", "llvm -mcpu=haswell"):
        precheck(text)


def test_every_core_with_facts_is_known_to_llvm() -> None:
    from halotile.targets.facts import known_cores

    known = llvm.cpus("x86_64") | llvm.cpus("aarch64") | llvm.cpus("armv7l")
    assert set(known_cores()) <= known
