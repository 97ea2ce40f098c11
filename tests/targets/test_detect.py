"""Native detection: from descriptions of machines, and on the machine that runs the tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from halotile.schedules.instructions.amx import has_matrix_unit
from halotile.targets import detect, llvm
from halotile.targets import flags as kernel_flags
from halotile.targets.detect import Machine, describe, parse_cpuinfo, read_caches
from halotile.targets.resolve import resolve

BASE = "fpu cx8 cmov mmx fxsr sse sse2 pni ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm"
AVX2 = BASE + " avx avx2 f16c fma bmi1 bmi2 abm movbe xsave xsaveopt fsgsbase invpcid rdrand pclmulqdq"
AVX512 = (
    AVX2
    + " rdseed adx clflushopt xsavec xsaves clwb pku avx512f avx512bw avx512cd avx512dq avx512vl aes 3dnowprefetch"
)


def machine(arch: str, vendor: str, flags: str, cpu: str, second: int = 1 << 20) -> Machine:
    return Machine(arch, vendor, frozenset(flags.split()), cpu, ((1, 32768, 64), (2, second, 64)), 4)


def test_avx2_machine() -> None:
    target = describe(machine("x86_64", "GenuineIntel", AVX2, "haswell"))
    assert (target.cpu, target.vector_bits, target.vector_registers, target.fma_ports) == (
        "haswell",
        256,
        16,
        2,
    )


def test_avx512_server() -> None:
    target = describe(machine("x86_64", "GenuineIntel", AVX512, "skylake-avx512"))
    assert (target.cpu, target.vector_bits, target.vector_registers) == ("skylake-avx512", 512, 32)
    assert "-prefer-256-bit" in target.features


def test_a_wrong_model_number_does_not_enable_hidden_instructions() -> None:
    """A hypervisor shows a Sapphire Rapids model number, but masks everything above AVX2."""
    target = describe(machine("x86_64", "GenuineIntel", AVX2, "sapphirerapids"))
    on = llvm.features("x86_64", target.cpu, target.features)
    assert not [f for f in on if f.startswith(("avx512", "amx"))]
    assert target.vector_bits == 256


def test_a_wrong_model_number_does_not_cost_instructions() -> None:
    """A hypervisor shows an old model number; the flags say AVX-512 with VNNI and bf16."""
    flags = AVX512 + " avx512_vnni avx512_bf16"
    target = describe(machine("x86_64", "GenuineIntel", flags, "nehalem"))
    on = llvm.features("x86_64", target.cpu, target.features)
    assert {"avx512f", "avx512vl", "avx512vnni", "avx512bf16"} <= on
    assert any("nehalem" in note for note in target.notes)


ICELAKE = (
    AVX512.replace(" pku", "") + " avx512ifma avx512vbmi avx512_vbmi2 avx512_vnni avx512_bitalg avx512_vpopcntdq sha_ni"
    " gfni vaes vpclmulqdq rdpid fsrm"
)
SAPPHIRE = ICELAKE + " avx_vnni avx512_bf16 avx512_fp16 cldemote movdiri movdir64b serialize tsxldtrk"


@pytest.mark.parametrize(
    ("flags", "guess", "second", "cpus"),
    [
        # Rocket Lake's model number and no protection keys: that core lacks nothing, a server's seven hidden features.
        (SAPPHIRE + " amx_bf16 amx_tile amx_int8 hle rtm", "rocketlake", 2 << 20, {"emeraldrapids", "sapphirerapids"}),
        (SAPPHIRE, "rocketlake", 2 << 20, {"emeraldrapids", "sapphirerapids"}),  # tiles are hidden, too
        (ICELAKE, "generic", 1280 << 10, {"icelake-server"}),
        # A server's model number, all that it has beyond Ice Lake hidden: the cache is that model's.
        (ICELAKE, "emeraldrapids", 2 << 20, {"emeraldrapids"}),
        (ICELAKE, "rocketlake", 2 << 20, {"icelake-server"}),  # no such cache, and the nearest is a server's
        (ICELAKE, "rocketlake", 512 << 10, {"rocketlake"}),
    ],
)
def test_what_a_hypervisor_hides_does_not_make_a_server_a_client(
    flags: str, guess: str, second: int, cpus: set[str]
) -> None:
    target = describe(machine("x86_64", "GenuineIntel", flags, guess, second))
    assert target.cpu in cpus
    assert target.fma_ports == (1 if target.cpu == "rocketlake" else 2)


def granting(grants: bool) -> Machine:
    """A server with a matrix unit."""
    flags = frozenset((SAPPHIRE + " amx_bf16 amx_tile amx_int8").split())
    caches = ((1, 48 << 10, 64), (2, 2 << 20, 64))
    return Machine("x86_64", "GenuineIntel", flags, "sapphirerapids", caches, 4, grants)


def test_the_matrix_unit_is_used_where_the_system_grants_it() -> None:
    target = describe(granting(True))
    assert has_matrix_unit(target) and has_matrix_unit(target, "amx-int8")
    assert "-amx-tile" not in target.features and not any("AMX" in note for note in target.notes)


def test_the_matrix_unit_is_off_where_the_system_keeps_it() -> None:
    """And nothing else is."""
    target = describe(granting(False))
    assert not has_matrix_unit(target) and not has_matrix_unit(target, "amx-int8")
    assert "without the matrix unit (AMX): the system keeps it from this process" in target.notes
    granted = describe(granting(True))
    assert set(target.features) - set(granted.features) == {"-amx-tile"}
    assert (target.cpu, target.vector_bits) == (granted.cpu, 512)


@pytest.mark.parametrize("grants", [True, False])
def test_code_for_the_matrix_unit_runs_where_it_is_granted(grants: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What belongs to the system, and this hypervisor hides, is no matter."""
    monkeypatch.setattr(detect, "read_machine", lambda: granting(grants))
    named = "x86_64-linux-gnu+sapphirerapids"
    assert "pku" in llvm.features("x86_64", "sapphirerapids") and "pku" not in granting(grants).flags
    assert detect.runs_here(resolve(f"{named}+-amx-tile"))
    assert detect.runs_here(resolve(named)) == grants
    assert not detect.runs_here(resolve("x86_64-linux-gnu+diamondrapids"))


def test_amd_is_never_taken_for_intel() -> None:
    flags = AVX2 + " sse4a clzero mwaitx aes sha_ni rdseed adx clflushopt xsavec xsaves 3dnowprefetch"
    assert describe(machine("x86_64", "AuthenticAMD", flags, "generic")).cpu.startswith("znver")


ZEN4 = (
    AVX512.replace(" pku", "") + " sse4a clzero sha_ni vaes vpclmulqdq gfni avx512ifma avx512vbmi avx512_vbmi2"
    " avx512_vnni avx512_bitalg avx512_vpopcntdq avx512_bf16 rdpid fsrm invpcid"
)


def test_zen4_under_a_hypervisor_starts_one_512_bit_multiply_add_a_cycle() -> None:
    """Family 25, model 17: it has the registers, and splits what is in them in two."""
    target = describe(machine("x86_64", "AuthenticAMD", ZEN4, "znver4"))
    assert (target.cpu, target.vector_bits, target.vector_registers) == ("znver4", 512, 32)
    assert (target.fma_ports, target.fma_latency) == (1, 4)
    assert (target.l1_bytes, target.l2_bytes) == (32 << 10, 1 << 20)
    assert "-mwaitx" in target.features and "-prefer-256-bit" not in target.features


def test_bytes_a_cycle_from_beyond_the_second_level_are_the_cores() -> None:
    """A mesh gives one core of Intel's servers less than the default, which is Zen 4's."""
    intel = machine("x86_64", "GenuineIntel", AVX512, "skylake-avx512")
    assert describe(intel).far_bytes == resolve("x86_64-linux-gnu+emeraldrapids").far_bytes == 10
    amd = machine("x86_64", "AuthenticAMD", ZEN4, "znver4")
    assert describe(amd).far_bytes == resolve("x86_64-linux-gnu+znver5").far_bytes == resolve("avx2").far_bytes == 12


def test_arm_board_without_crypto() -> None:
    target = describe(machine("aarch64", "", "fp asimd evtstrm crc32 cpuid", "cortex-a72"))
    assert (target.cpu, target.vector_bits, target.vector_registers) == ("cortex-a72", 128, 32)
    assert not {"aes", "sha2"} & llvm.features("aarch64", target.cpu, target.features)


def test_arm_core_that_llvm_does_not_know() -> None:
    target = describe(machine("aarch64", "", "fp asimd asimddp asimdhp atomics", "cortex-z99"))
    assert target.cpu == "generic"
    assert {"dotprod", "fullfp16"} <= llvm.features("aarch64", target.cpu, target.features)


def test_cpuinfo_keeps_what_all_processors_share() -> None:
    one = "vendor_id\t: GenuineIntel\nflags\t\t: "
    assert parse_cpuinfo(f"{one}fma avx avx2\n\n{one}avx avx2 sha_ni\n") == ("GenuineIntel", frozenset({"avx", "avx2"}))


def test_caches_from_sysfs(tmp_path: Path) -> None:
    rows = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M")]
    for i, (level, kind, size) in enumerate(rows):
        folder = tmp_path / f"index{i}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size), ("coherency_line_size", "64")):
            (folder / name).write_text(text + "\n")
    (tmp_path / "index3").mkdir()  # a cache without facts is passed over
    assert read_caches(tmp_path) == ((1, 49152, 64), (2, 2097152, 64))


def test_affinity_limits_the_cores() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    assert detect.physical_cores(cpus[:1]) == 1


def test_native_never_uses_what_this_machine_lacks() -> None:
    read = detect.read_machine()
    target = resolve("native")
    on = llvm.features(read.arch, target.cpu, target.features) & kernel_flags.visible(read.arch)
    has = kernel_flags.translate(read.arch, set(read.flags)) | {"crc32"}
    assert on <= has
    assert target.native and 1 <= target.cores <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize("arch", ["x86_64", "aarch64", "armv7l"])
def test_the_flag_tables_speak_llvm(arch: str) -> None:
    unknown = kernel_flags.visible(arch) - llvm.known_features(arch)
    # Features of processors that LLVM has dropped or that no listed processor switches on by default.
    assert unknown <= {"avx512er", "avx512pf", "avx5124fmaps", "avx5124vnniw", "amx-fp16", "rtm", "sm4"}
