"""Every board file: its facts are whole, LLVM accepts it, and its code uses the board's multiply-add."""

from __future__ import annotations

import re

import pytest
import tvm
from halotile.errors import TargetError
from halotile.targets import llvm
from halotile.targets.boards import board_names, boards, find_board, read_board, size
from halotile.targets.facts import core
from halotile.targets.resolve import resolve
from halotile.targets.target import Target
from tvm import te

NAMES = list(boards())

# The multiply-add that LLVM must choose on each architecture and vector width; x86-64-v2 has none to choose.
MULTIPLY_ADD = {
    ("x86_64", 128): r"\bmulps\b",
    ("x86_64", 256): r"vfn?m(add|sub)\d+ps.*%ymm",
    ("x86_64", 512): r"vfn?m(add|sub)\d+ps.*%zmm",
    ("aarch64", 128): r"\bfmla\b.*\.4s",
    ("armv7l", 128): r"\bvfma\.f32\s+q",
    ("wasm32", 128): r"f32x4\.mul[\s\S]*f32x4\.add",  # there is none to choose
}


def assembly(target: Target) -> str:
    """Assembly of out = a * b + c on 8 vectors, vectorised by the target's own width."""
    lanes = target.lanes()
    a, b, c = (te.placeholder((8, lanes), "float32", name) for name in "abc")
    out = te.compute((8, lanes), lambda i, j: a[i, j] * b[i, j] + c[i, j], "out")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([a, b, c, out]))
    _, j = schedule.get_loops("out")
    schedule.vectorize(j)
    return str(tvm.compile(schedule.mod, target=target.tvm()).mod.inspect_source("asm"))


def arch_of(target: Target) -> str:
    return llvm.architecture(target.triple)


@pytest.mark.parametrize("name", NAMES)
def test_board_is_accepted_and_multiplies_and_adds_in_full_vectors(name: str) -> None:
    target = resolve(name)
    arch = llvm.architecture(target.triple)
    assert re.search(MULTIPLY_ADD[arch, target.vector_bits], assembly(target))


@pytest.mark.parametrize("name", NAMES)
def test_facts_are_plausible(name: str) -> None:
    board = boards()[name]
    target = board.target
    assert board.description and target.source and {"chip", "core"} <= board.sources.keys()
    assert not target.glibc or (re.fullmatch(r"2\.\d\d", target.glibc) and "glibc" in board.sources)
    assert target.glibc or arch_of(target) in ("x86_64", "wasm32"), "a board has a floor"
    assert target.bandwidth >= 200_000_000 and board.sources["memory"]
    assert target.in_order == (
        core(target.cpu).in_order or (target.cpu == "generic" and target.system == "linux")
    )  # the least of its kind
    counts = [int(cluster.split(" x ")[0]) for cluster in target.clusters]
    assert not counts or counts[0] == target.cores or sum(counts) == target.cores
    assert not counts or target.clusters[0].split(" x ")[1] == target.cpu
    assert target.bits == (32 if target.triple.startswith(("armv", "wasm32")) else 64)
    assert target.cores >= 1 and target.fma_ports >= 1 and target.fma_latency >= 3
    assert target.far_bytes >= 1
    assert 16 * 1024 <= target.l1_bytes < target.l2_bytes
    assert target.l3_bytes == 0 or target.l3_bytes > target.l2_bytes
    arch = llvm.architecture(target.triple)
    on = llvm.features(arch, target.cpu, target.features)
    if arch == "x86_64":
        assert (target.vector_bits == 512) == ("avx512f" in on)
        assert (target.vector_bits >= 256) == ("avx2" in on)
    else:
        assert ("simd128" if arch == "wasm32" else "neon") in on
    assert target.vector_registers == (32 if arch == "aarch64" or target.vector_bits == 512 else 16)


def test_names_and_aliases_are_unique() -> None:
    names = board_names()
    assert len(names) == len(set(names))
    assert all(n == n.lower() and "_" not in n for n in names)


def test_alias_case_and_underscore_lead_to_the_same_board() -> None:
    assert find_board("RPi4") is find_board("raspberry_pi_4") is boards()["raspberry-pi-4"]


def test_sizes_in_kibibytes_and_mebibytes() -> None:
    assert (size("48K"), size("2M"), size(7)) == (49152, 2097152, 7)


def test_board_file_with_an_unknown_fact_is_refused(tmp_path) -> None:
    path = tmp_path / "toy.toml"
    path.write_text('description = "d"\n[sources]\n[target]\ntriple = "t"\ncpu = "c"\nl4_bytes = 3\n')
    with pytest.raises(TargetError, match="toy.toml: unknown fact 'l4_bytes'"):
        read_board(path)


def test_board_file_without_source_is_refused(tmp_path) -> None:
    path = tmp_path / "toy.toml"
    path.write_text('description = "d"\n[target]\ntriple = "t"\ncpu = "c"\n')
    with pytest.raises(TargetError, match="toy.toml lacks sources"):
        read_board(path)


def test_a_fact_without_its_source_is_refused(tmp_path) -> None:
    path = tmp_path / "toy.toml"
    path.write_text('description = "d"\n[sources]\nchip = "c"\n[target]\ntriple = "t"\ncpu = "c"\nglibc = "2.31"\n')
    with pytest.raises(TargetError, match="toy.toml lacks a source for glibc"):
        read_board(path)


def test_the_boards_people_have_are_all_there() -> None:
    wanted = (
        "raspberry-pi-3 raspberry-pi-4 raspberry-pi-5 raspberry-pi-zero-2 raspberry-pi-2-32 raspberry-pi-3-32 "
        "jetson-orin jetson-nano rk3588 rk3399 imx8m-plus graviton2 graviton3 ampere-altra aarch64 armv7 "
        "x86-64-v2 x86-64-v3 x86-64-v4"
    )
    assert set(wanted.split()) <= set(NAMES)


def test_big_and_little_cores_are_told_apart() -> None:
    target = resolve("rk3588")
    assert target.clusters == ("4 x cortex-a76", "4 x cortex-a55") and target.cores == 4
    assert any("Cortex-A76" in note for note in target.notes)


def test_what_nobody_stated_is_assumed_and_cores_bring_their_facts() -> None:
    spelt = resolve("aarch64-linux-gnu+cortex-a55")
    assert spelt.in_order and not resolve("aarch64-linux-gnu+cortex-a76").in_order
    assert spelt.bandwidth == resolve("raspberry-pi-3").bandwidth and resolve("native").bandwidth > spelt.bandwidth


def test_raspberry_pi_without_crypto_gets_none() -> None:
    target = resolve("raspberry-pi-4")
    assert not {"aes", "sha2"} & llvm.features("aarch64", target.cpu, target.features)
