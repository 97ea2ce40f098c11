"""Windows and macOS: libraries that are linked here and can't be run here; what they hold, need and export, read by a
parser, and what is refused."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path

import pytest
from board_tools import halotile, needs_zig, network
from corners import corners_model
from halotile.compiler.codegen.macho import read_macho
from halotile.compiler.codegen.pe import read_pe
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.errors import OutputError, TargetError, ToolchainError
from halotile.targets.resolve import resolve

WINDOWS, MACOS = "x86_64-windows-gnu+haswell", "aarch64-macos+apple-a14"
FUNCTIONS = {"arena_bytes", "create", "create_in", "describe", "destroy", "error_text", "run", "threads"}


def test_triples_have_one_form() -> None:
    assert resolve("x86_64-pc-windows-gnu+haswell").triple == "x86_64-windows-gnu"
    for text in ("arm64-apple-macos+apple-a14", "aarch64-apple-darwin+apple-a14", "arm64-macos+apple-a14"):
        assert resolve(text).triple == "aarch64-macos" and resolve(text).is_aarch64
    assert resolve(WINDOWS).one_thread and not resolve(MACOS).one_thread
    assert (resolve(WINDOWS).vector_bits, resolve(MACOS).vector_bits) == (256, 128)
    for text in ("x86_64-pc-windows-msvc+haswell", "x86_64-macos+haswell", "aarch64-windows-gnu+generic"):
        with pytest.raises(TargetError, match="did you mean"):
            resolve(text)


def test_a_dll_needs_windows_alone(tmp_path: Path) -> None:
    needs_zig()
    run_pipeline(network(), Options(resolve(WINDOWS)), output=tmp_path / "out")
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"net.dll", "net.lib", "net.h", "manifest.json"}
    facts = read_pe(tmp_path / "out" / "net.dll")
    assert facts.library and facts.machine == "x86_64"
    assert facts.exports == {f"net_{function}" for function in FUNCTIONS}
    assert all(name.lower().startswith(("kernel32", "api-ms-win-crt-", "ntdll")) for name in facts.needed)
    implib = (tmp_path / "out" / "net.lib").read_bytes()
    assert implib.startswith(b"!<arch>\n") and b"net_run\0" in implib and b"net.dll" in implib
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["max_threads"] == 1 and manifest["import_library"] == "net.lib"


def test_a_dylib_needs_the_system_library_alone(tmp_path: Path) -> None:
    needs_zig()
    build = run_pipeline(network(), Options(resolve(MACOS), threads=3), output=tmp_path / "out")
    path = tmp_path / "out" / "libnet.dylib"
    facts = read_macho(path)
    assert facts.library and facts.machine == "aarch64" and facts.signed and facts.minimum == "11.0"
    assert facts.needed == ("/usr/lib/libSystem.B.dylib",) and facts.name == "@rpath/libnet.dylib"
    assert facts.exports == {f"net_{function}" for function in FUNCTIONS}
    assert path.stat().st_size > build.library.weight_bytes and facts.code_bytes > 10_000
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["default_threads"] == 3 and manifest["linked"]["library"]["macos"] == "11.0"


@pytest.mark.parametrize("target", [WINDOWS, MACOS])
def test_weights_are_in_the_file_and_builds_are_the_same(target: str, tmp_path: Path) -> None:
    needs_zig()
    files = []
    for name in ("one", "two"):
        build = run_pipeline(network(), Options(resolve(target)), output=tmp_path / name)
        implib = build.built.import_library
        files.append(build.built.library.read_bytes() + (implib.read_bytes() if implib else b""))
        time.sleep(1.1)  # files may say when they were made
    assert b"".join(bytes(chunk) for chunk in build.library.weights) in files[0]
    assert files[0] == files[1]


def test_functions_of_libm_are_found_there(tmp_path: Path) -> None:
    needs_zig()
    for target in (WINDOWS, MACOS):
        run_pipeline(corners_model(), Options(resolve(target)), output=tmp_path / target)


@pytest.mark.parametrize(
    ("target", "arguments", "message"),
    [
        (WINDOWS, ("--threads", "2"), "run on one thread"),
        (WINDOWS, ("--timers",), "no clock for timers"),
        (WINDOWS, ("--format", "exe"), "--format exe is for Linux"),
        (MACOS, ("--static",), "--static is for Linux"),
        (MACOS, ("--glibc", "2.31"), "--glibc is for Linux"),
    ],
)
def test_what_they_can_not_have_is_refused(
    target: str, arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    (tmp_path / "net.onnx").write_bytes(network().SerializeToString())
    done = halotile("build", "net.onnx", "-t", target, "-o", "no", *arguments, cwd=tmp_path)
    assert done.returncode == 1 and message in done.stderr.strip().splitlines()[-1], done.stderr
    assert not (tmp_path / "no").exists()


def test_damaged_files_are_told(tmp_path: Path) -> None:
    for read, start in ((read_pe, b"MZ" + bytes(58) + struct.pack("<I", 64)), (read_macho, b"\xcf\xfa\xed\xfe")):
        for text in (b"", start, start + bytes(12), b"\x7fELF" + bytes(200)):
            (tmp_path / "file").write_bytes(text)
            with pytest.raises(ToolchainError, match="file is not a whole"):
                read(tmp_path / "file")


def test_python_says_where_they_run(tmp_path: Path) -> None:
    needs_zig()
    import halotile as package

    run_pipeline(network(), Options(resolve(WINDOWS)), output=tmp_path / "out")
    with pytest.raises(OutputError, match="net.dll is for Windows"):
        package.load(tmp_path / "out")
