"""The link stage: what is in a library, what is beside it, and that nothing half-made is ever seen."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from halotile.compiler.codegen import link
from halotile.compiler.codegen.library import build_library
from halotile.compiler.codegen.toolchain import Toolchain, _zig_environment, find_toolchain, zig_target
from halotile.compiler.runtime.loader import load
from halotile.errors import OutputError, TargetError, ToolchainError
from halotile.targets.target import Target


def output_of(*command: object, cwd: Path | None = None) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(rounds, tmp_path_factory):
    return build_library(rounds, tmp_path_factory.mktemp("built") / "out", formats=("so", "a"))


def test_the_library_needs_libc_and_libm_alone(built):
    dynamic = output_of("readelf", "-dW", built.library)
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
    assert needed <= {"libc.so.6", "libm.so.6", "libpthread.so.0"}
    assert "TEXTREL" not in dynamic
    assert "BIND_NOW" in dynamic


def test_the_stack_is_not_executable(built):
    stack = next(
        line for line in output_of("readelf", "-lW", built.library).splitlines() if "GNU_STACK" in line
    )
    assert "RWE" not in stack and "RW" in stack


def test_only_the_api_is_exported(built, rounds):
    symbols = output_of("nm", "-D", "--defined-only", built.library).split("\n")
    assert {line.split()[-1] for line in symbols if line} == set(rounds.functions)


def test_no_path_of_the_build_and_no_symbol_table_is_left(built):
    content = built.library.read_bytes()
    assert os.fsencode(os.getcwd()) not in content and b"/tmp" not in content
    assert "no symbols" in subprocess.run(["nm", built.library], capture_output=True, text=True).stderr


def test_the_same_spec_gives_the_same_bytes(built, rounds, tmp_path):
    again = build_library(rounds, tmp_path / "somewhere" / "else", formats=("so", "a"))
    for kind in ("library", "header", "archive", "manifest"):
        assert getattr(again, kind).read_bytes() == getattr(built, kind).read_bytes(), kind


def test_what_all_libraries_share_is_compiled_once(rounds, make_spec, monkeypatch, tmp_path):
    """Once for the library in both of its forms, and once in a process; the bytes are those of a first build."""
    told, real = [], Toolchain.run
    monkeypatch.setattr(link, "_objects", {})

    def run(self, words, folder, what):
        told.append(what)
        real(self, words, folder, what)

    monkeypatch.setattr(Toolchain, "run", run)
    first = build_library(rounds, tmp_path / "first", formats=("so", "a"))
    assert len(told) == len(set(told)) and {"compiling runtime/pool.c", "compiling runtime/generated.c"} < set(told)
    told.clear()
    again = build_library(rounds, tmp_path / "again", formats=("so", "a"))
    assert sorted(told) == ["compiling runtime/generated.c", "joining librounds.a", "linking librounds.so"]
    for name in ("librounds.so", "librounds.a"):
        assert (first.directory / name).read_bytes() == (again.directory / name).read_bytes()
    told.clear()
    usual = find_toolchain(rounds.target)
    build_library(rounds, tmp_path / "other", toolchain=replace(usual, command=(*usual.command, "-O1")))
    assert "compiling runtime/pool.c" in told


def test_the_fingerprint_covers_code_weights_and_interface(built, rounds, tmp_path, make_spec):
    others = [
        replace(rounds, weights=[bytes(128)]),
        replace(rounds, object_bytes=rounds.object_bytes + b"\0"),
        replace(rounds, outputs=(replace(rounds.outputs[0], name="z"),)),
    ]
    prints = [build_library(s, tmp_path / str(i)).fingerprint for i, s in enumerate(others)]
    assert len({built.fingerprint, *prints}) == 4


def test_the_manifest_describes_the_library(built, rounds):
    manifest = json.loads(built.manifest.read_text())
    assert manifest["library"] == built.library.name and manifest["archive"] == built.archive.name
    assert manifest["inputs"] == [{"name": "x", "dtype": "float32", "shape": [64, 32]}]
    assert manifest["weight_bytes"] == 128 and manifest["report"] == rounds.report


def test_kernels_made_by_tvm_link_and_run(tvm_object, make_spec, tmp_path):
    weights = np.arange(4096, dtype=np.float32)
    spec = make_spec(
        name="by.tvm",
        object_bytes=tvm_object,
        inputs=(replace(make_spec().inputs[0], shape=(16, 4096)),),
        outputs=(replace(make_spec().outputs[0], shape=(16, 4096)),),
        weights=[weights.data],
        workspace_bytes=4096 * 4,
    )
    built = build_library(spec, tmp_path / "out")
    x = np.random.default_rng(0).random((16, 4096), np.float32)
    with load(built.directory) as model:
        for threads in (1, 2, 3, 16):
            assert np.array_equal(model({"x": x}, threads=threads)["y"], (x + weights)[:, ::-1] * 2)


def test_weights_keep_their_order_and_alignment_whatever_the_chunks(make_spec, tmp_path):
    source = """
    int32_t halotile_kernel_main(void *y, const void *w, void *a) {
        (void)a;
        if ((uintptr_t)w % 64) return 1;
        memcpy(y, w, 4000);
        return 0;
    }"""
    data = np.random.default_rng(1).integers(0, 256, 4000, np.uint8)
    chunks = [data[:1].tobytes(), b"", data[1:2001].data, np.empty((0, 4)), memoryview(data[2001:].tobytes())]
    y = replace(make_spec().outputs[0], dtype="uint8", shape=(4000,))
    spec = make_spec(source, name="chunks", inputs=(), outputs=(y,), weights=chunks)
    with load(build_library(spec, tmp_path / "out").directory) as model:
        assert np.array_equal(model({})["y"], data)


def test_kernels_in_further_objects_are_linked_hidden_and_fingerprinted(make_spec, tmp_path):
    main = """
    int32_t k0(void *x, void *y);
    int32_t halotile_kernel_main(void *x, void *y, const void *w, void *a) { return k0(x, y); }"""
    kernel = "int32_t k0(void *x, void *y) { for (int i = 0; i < 4; ++i) ((float *)y)[i] = %s; return 0; }"
    built = []
    for factor in ("((float *)x)[i] * 3", "((float *)x)[i] * 5"):
        further = (make_spec(kernel % factor).object_bytes,)
        built.append(
            build_library(make_spec(main, kernel_objects=further), tmp_path / factor[-1], formats=("so", "a"))
        )
    assert built[0].fingerprint != built[1].fingerprint
    for library, factor in zip(built, (3, 5), strict=True):
        with load(library.directory) as model:
            assert model({"x": np.ones(4, "f")})["y"].tolist() == [factor] * 4
        assert " T k0" not in output_of("nm", library.archive)


def test_an_earlier_library_is_replaced_and_its_files_go(rounds, make_spec, tmp_path):
    out = tmp_path / "out"
    build_library(rounds, out, formats=("so", "a"))
    (out / "notes.txt").write_text("mine")
    build_library(make_spec(), out)
    assert sorted(p.name for p in out.iterdir()) == ["empty.h", "libempty.so", "manifest.json", "notes.txt"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_failing_compiler_leaves_nothing_and_keeps_the_earlier_library(make_spec, tmp_path):
    out = tmp_path / "out"
    build_library(make_spec(), out)
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    broken = replace(make_spec(), object_bytes=b"not an object")
    with pytest.raises(ToolchainError) as caught:
        build_library(broken, out)
    assert "\n" not in str(caught.value) and "linking libempty.so" in str(caught.value)
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before
    with pytest.raises(ToolchainError):
        build_library(broken, tmp_path / "a" / "b")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_an_object_that_needs_a_foreign_function_is_refused(make_spec, tmp_path):
    source = """
    int TVMFFINobodyHasThis(void);
    int32_t halotile_kernel_main(void *x, void *y, const void *w, void *a) {
        (void)x, (void)y, (void)w, (void)a;
        return TVMFFINobodyHasThis();
    }"""
    with pytest.raises(ToolchainError, match="TVMFFINobodyHasThis"):
        build_library(make_spec(source), tmp_path / "out")
    assert not any(tmp_path.iterdir())


def test_a_destination_whose_name_no_folder_can_have_is_refused(make_spec, tmp_path):
    with pytest.raises(OutputError, match="no folder can have that name"):
        build_library(make_spec(), tmp_path / "a\0b")


def test_a_destination_that_is_a_file_or_below_one_is_refused(make_spec, tmp_path):
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(OutputError) as caught:
            build_library(make_spec(), place)
        assert "\n" not in str(caught.value)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(("planned", "shape"), [(2 << 30, (4,)), (0, (1 << 29,)), ((1 << 30) + 64, (1 << 28,))])
def test_what_no_32_bit_process_can_hold_is_refused(planned, shape, make_spec, tmp_path):
    """The arena alone, an input alone, both together with an output."""
    target = replace(make_spec().target, id="small", triple="armv7l-linux-gnueabihf")
    spec = make_spec(planned_bytes=planned, target=target)
    x, y = (replace(tensor, shape=shape) for tensor in (*spec.inputs, *spec.outputs))
    spec = replace(spec, inputs=(x,), outputs=(y,))
    with pytest.raises(TargetError, match="no 32-bit process of small can hold"):
        build_library(spec, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    replace(spec, target=make_spec().target).check_addresses()
    replace(spec, planned_bytes=0, inputs=spec.inputs[:0], outputs=spec.outputs[:0]).check_addresses()


def test_a_destination_that_is_not_writable_is_refused(make_spec):
    # /proc refuses even root, whom permission bits don't stop.
    with pytest.raises(OutputError, match="can't write to"):
        build_library(make_spec(), "/proc/out")


def test_without_a_compiler_the_error_says_what_to_install(make_spec, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match="no C compiler found; install gcc or clang"):
        find_toolchain(make_spec().target)
    board = Target("board", "aarch64-linux-gnu", "cortex-a72")
    with pytest.raises(ToolchainError, match="no C compiler for aarch64-linux-gnu found"):
        find_toolchain(board)


def test_a_compiler_of_the_users_choice_is_used_or_named(make_spec, cc):
    assert find_toolchain(make_spec().target, f"{cc} -g").command == (cc, "-g")
    with pytest.raises(ToolchainError, match="'no-such-cc' was not found"):
        find_toolchain(make_spec().target, "no-such-cc")


def test_a_failed_link_says_what_the_linker_said(tmp_path):
    cc = tmp_path / "cc"
    said = "ld: final link failed: No space left on device\ncollect2: error: ld returned 1 exit status"
    cc.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    cc.chmod(0o755)
    with pytest.raises(ToolchainError, match="No space left on device . collect2: error"):
        Toolchain((str(cc),), "gcc", "").run([], tmp_path, "linking x.so")


def test_the_package_ziglang_serves_where_there_is_no_system_compiler(make_spec, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    found = find_toolchain(make_spec().target)
    assert found.family == "zig" and "ziglang" in found.command


@pytest.mark.parametrize(
    ("triple", "expected"),
    [
        ("x86_64-unknown-linux-gnu", "x86_64-linux-gnu.2.28"),
        ("aarch64-linux-gnu", "aarch64-linux-gnu.2.28"),
        ("aarch64-unknown-linux-musl", "aarch64-linux-musl"),
        ("armv7-unknown-linux-gnueabihf", "arm-linux-gnueabihf.2.28"),
        ("armv7a-linux-gnueabihf", "arm-linux-gnueabihf.2.28"),
    ],
)
def test_zig_names_of_triples(triple, expected):
    assert zig_target(triple) == expected


def test_zig_has_a_place_for_its_libraries_even_without_a_home(monkeypatch, tmp_path):
    for name in ("ZIG_GLOBAL_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    own = str(tmp_path / "zig-cache")
    assert _zig_environment(tmp_path)["ZIG_GLOBAL_CACHE_DIR"] == own
    monkeypatch.setenv("HOME", "/proc")  # nobody can write there
    assert _zig_environment(tmp_path)["ZIG_GLOBAL_CACHE_DIR"] == own
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert _zig_environment(tmp_path) is None


def test_a_compiler_that_vanished_is_one_line(tmp_path):
    gone = Toolchain((str(tmp_path / "gone"),), "gcc", "x86_64")
    with pytest.raises(ToolchainError, match="can't start the C compiler"):
        gone.run(["-c"], tmp_path, "compiling")


def test_two_static_libraries_live_in_one_program(built, make_spec, tmp_path, cc):
    """Both hold a runtime and the same names of kernels; only the models' own functions may be global."""
    empty = build_library(make_spec(), tmp_path / "empty", formats=("so", "a"))
    (tmp_path / "main.c").write_text("""
    #include <stdio.h>
    #include "rounds.h"
    #include "empty.h"
    static float x[ROUNDS_INPUT_0_ELEMENTS], y[ROUNDS_OUTPUT_0_ELEMENTS], small[4] = {1, 2, 3, 4}, copy[4];
    int main(void) {
        const void *in[1] = {x}, *in2[1] = {small};
        void *out[1] = {y}, *out2[1] = {copy};
        rounds_instance *a;
        empty_instance *b;
        if (rounds_create(2, &a) || empty_create(1, &b)) return 1;
        if (rounds_run(a, in, out) || empty_run(b, in2, out2)) return 2;
        printf("%g %g %g\\n", y[0], y[31], copy[3]);
        rounds_destroy(a);
        empty_destroy(b);
        return 0;
    }""")
    command = [cc, "-Wall", "-Werror", "main.c", f"-I{built.directory}", f"-I{empty.directory}"]
    output_of(*command, built.archive, empty.archive, "-pthread", "-lm", "-o", "main", cwd=tmp_path)
    assert output_of(tmp_path / "main") == "31 0 4\n"
    names = output_of("nm", "-g", "--defined-only", built.archive).split("\n")
    defined = {line.split()[-1] for line in names if len(line.split()) == 3}
    assert defined == {name for name in defined if name.startswith("rounds_")} and len(defined) == 8


def test_weights_that_no_static_program_reaches_are_refused(make_spec, tmp_path):
    """glibc's loader code refers to the end of the program, which lies behind them."""
    target = replace(make_spec().target, triple="x86_64-linux-gnu")
    spec = replace(make_spec(target=target), weights=(np.broadcast_to(np.uint8(0), (2 << 30,)),))
    with pytest.raises(TargetError, match="leave it out with --format so,a"):
        build_library(spec, tmp_path / "out", formats=("so", "exe"))
    assert not (tmp_path / "out").exists()
    replace(spec, target=replace(target, triple="aarch64-linux-gnu")).check_program()
    replace(spec, weights=()).check_program()
