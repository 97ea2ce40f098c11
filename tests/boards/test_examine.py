"""What comes out of the linker is examined: facts of real files, and each thing that is refused."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from board_tools import halotile, needs
from halotile.compiler.codegen.elf import read_elf, version_key
from halotile.compiler.codegen.examine import examine_program, examine_shared
from halotile.errors import ToolchainError
from halotile.targets.resolve import resolve

HERE = replace(resolve("x86-64-v2"), glibc="")
FUNCTIONS = {"f"}
MACHINES = {"x86_64": "X86-64", "aarch64": "AArch64"}


def compiled(folder: Path, source: str, *flags: str) -> Path:
    (folder / "a.c").write_text(source)
    subprocess.run(["cc", "a.c", *flags, "-o", "a.out"], cwd=folder, check=True, capture_output=True)
    return folder / "a.out"


@pytest.mark.parametrize("board", ["here", "pi5"])
def test_facts_are_readelfs(board: str, request) -> None:
    needs("readelf")
    folder = request.getfixturevalue(board)
    facts = read_elf(folder / "libnet.so")
    command = ["readelf", "-hdVW", "--dyn-syms", folder / "libnet.so"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.search(rf"Machine:.*{MACHINES[facts.machine]}", told)
    assert set(re.findall(r"NEEDED.*\[(.*)\]", told)) == set(facts.needed)
    assert set(facts.needed) <= {"libc.so.6", "libm.so.6", "libpthread.so.0"}
    assert set(re.findall(r"Name: (GLIBC_[\d.]+)", told)) == {v for v in facts.versions if v.startswith("GLIBC")}
    defined = re.compile(r"(FUNC|OBJECT)\s+GLOBAL\s+DEFAULT\s+\d")
    exported = {line.split()[7] for line in told.splitlines() if defined.search(line)}
    assert exported == facts.exports and all(name.startswith("net_") for name in exported) and len(exported) >= 8
    assert not facts.text_relocations and "TEXTREL" not in told


def test_the_boards_floor_is_kept(pi5: Path) -> None:
    linked = json.loads((pi5 / "manifest.json").read_text())["linked"]
    assert version_key(linked["library"]["glibc"]) <= version_key(resolve("raspberry-pi-5").glibc)
    assert linked["library"]["machine"] == "aarch64" and linked["library"]["code_bytes"] < 1 << 20
    assert linked["executable"]["needs"] == [] and linked["executable"]["glibc"] is None


def test_versions_are_numbers() -> None:
    assert version_key("2.4") < version_key("2.28") < version_key("2.100")


def test_a_library_of_the_system_is_refused(tmp_path: Path) -> None:
    path = compiled(tmp_path, "double sqrt(double); double f(double x) { return sqrt(x); }",
                    "-shared", "-fPIC", "-Wl,--no-as-needed", "-ldl", "-lresolv")  # fmt: skip
    with pytest.raises(ToolchainError, match="a.out would need lib(dl|resolv)"):
        examine_shared(path, HERE, FUNCTIONS)


def test_a_glibc_beyond_the_floor_is_refused(tmp_path: Path) -> None:
    path = compiled(tmp_path, "#include <string.h>\nvoid f(void *x, long n) { memcpy(x, (char *)x + 64, n); }",
                    "-shared", "-fPIC")  # fmt: skip
    needed = read_elf(path).highest("GLIBC")
    examine_shared(path, replace(HERE, glibc=needed), FUNCTIONS)
    with pytest.raises(ToolchainError, match=rf"needs glibc {needed}, x86-64-v2 has 2.1: .*--static"):
        examine_shared(path, replace(HERE, glibc="2.1"), FUNCTIONS)


def test_text_relocations_are_refused(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("{ global: f; g; local: *; };")
    path = compiled(tmp_path, 'int g; __asm__(".text\\n.quad g\\n"); int f(void) { return 0; }',
                    "-shared", "-fPIC", "-Wl,-z,notext", "-Wl,--version-script=m")  # fmt: skip
    assert read_elf(path).text_relocations
    with pytest.raises(ToolchainError, match="text relocations"):
        examine_shared(path, HERE, {"f", "g"})


@pytest.mark.parametrize(("more", "match"), [("int g(void) { return 1; }", "exports g"), ("", "lacks h")])
def test_the_exports_are_the_api_and_nothing_else(more: str, match: str, tmp_path: Path) -> None:
    path = compiled(tmp_path, f"int f(void) {{ return 0; }} {more}", "-shared", "-fPIC")
    with pytest.raises(ToolchainError, match=match):
        examine_shared(path, HERE, FUNCTIONS if more else {"f", "h"})


def test_another_machine_is_refused(pi5: Path) -> None:
    with pytest.raises(ToolchainError, match="came out for 64-bit aarch64, x86-64-v2 is 64-bit x86_64"):
        examine_shared(pi5 / "libnet.so", HERE, FUNCTIONS)
    with pytest.raises(ToolchainError, match="64-bit aarch64, raspberry-pi-3-32 is 32-bit arm"):
        examine_program(pi5 / "model_run", resolve("raspberry-pi-3-32"))


def test_a_program_that_needs_libraries_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="not static: it needs libc.so.6"):
        examine_program(compiled(tmp_path, "int main(void) { return 0; }"), HERE)


def test_lost_weights_are_noticed(here: Path) -> None:
    with pytest.raises(ToolchainError, match="lost some of its"):
        examine_program(here / "model_run", HERE, weights=1 << 40)


@pytest.mark.parametrize("cut", [0, 3, 40, 700])
def test_a_file_that_was_cut_short_is_no_crash(cut: int, here: Path, tmp_path: Path) -> None:
    (tmp_path / "a.so").write_bytes((here / "libnet.so").read_bytes()[:cut])
    with pytest.raises(ToolchainError, match="a.so is not a whole ELF file"):
        read_elf(tmp_path / "a.so")


def test_a_compiler_for_another_machine_leaves_nothing(model: Path, tmp_path: Path) -> None:
    done = halotile("build", model, "-t", "raspberry-pi-5", "--cc", "cc", "-o", "out", cwd=tmp_path)
    assert done.returncode == 1 and "error[E500]" in done.stderr and not (tmp_path / "out").exists()
