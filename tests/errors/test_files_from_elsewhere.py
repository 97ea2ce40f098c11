"""Manifests, tuning files and board files that anybody may have written: no commands, no places outside of a folder, no
changed bytes, and one line for whatever is wrong with them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from halotile import load
from halotile.compiler.cli.main import run
from halotile.compiler.codegen.toolchain import is_known_name
from halotile.compiler.runtime import digest as digests
from halotile.compiler.runtime.seal import BYTES
from halotile.errors import HalotileError, OutputError, TargetError
from halotile.targets import boards
from halotile.targets.boards import read_board
from manifests import write_manifest, write_text
from mutated_data import mutated
from small_models import WEIGHT, external, tiny

NEWEST = sys.version_info >= (3, 11)
if NEWEST:
    import tomllib


@pytest.fixture
def library(tmp_path: Path, built_library: Path) -> Path:
    shutil.copytree(built_library, tmp_path / "lib")
    shutil.copy(built_library.parent / "tiny.onnx", tmp_path)
    return tmp_path / "lib"


def command(*words: object) -> tuple[int, str]:
    """Exit code and the lines of errors of a command line in this process."""
    err, out = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(out):
        code = run([str(w) for w in words])
    return code, "\n".join(line for line in err.getvalue().splitlines() if not line.startswith("note:"))


def changed(folder: Path, /, **fields: object) -> None:
    """The manifest with other fields; ``options__cc`` is cc of options."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name, value in fields.items():
        part, _, key = name.rpartition("__")
        (manifest[part] if part else manifest)[key] = value
    write_manifest(folder, manifest)


# ---------------------------------------------------------------------- commands


@pytest.mark.parametrize("cc", ["{ran} gcc", "./evil.sh", "gcc -wrapper ./evil.sh", "env ./evil.sh", "/usr/bin/gcc"])
def test_a_manifest_chooses_no_command(cc: str, library: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = tmp_path / "evil.sh"
    ran.write_text('#!/bin/sh\ntouch ran\nexec gcc "$@"\n')
    ran.chmod(0o755)
    changed(library, options__cc=cc.format(ran=ran))
    code, told = command("build", "tiny.onnx", "--from", "lib", "-o", "two")
    assert code == 1 and "--cc" in told and "\n" not in told
    assert not (tmp_path / "ran").exists() and not (tmp_path / "two").exists()


def test_the_user_may_give_what_the_manifest_may_not(library: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    changed(library, options__cc="./mine.sh", options__formats=["so"])
    (tmp_path / "mine.sh").write_text('#!/bin/sh\ntouch ran\nexec cc "$@"\n')
    (tmp_path / "mine.sh").chmod(0o755)
    code, told = command("build", "tiny.onnx", "--from", "lib", "-o", "two", "--cc", tmp_path / "mine.sh")
    assert code == 0, told
    assert (tmp_path / "two" / "libtiny.so").exists()
    changed(library, options__cc="cc")
    assert command("build", "tiny.onnx", "--from", "lib", "-o", "three")[0] == 0


def test_names_of_compilers() -> None:
    good = ["cc", "gcc", "clang", "gcc-12", "clang-19", "musl-gcc", "aarch64-linux-gnu-gcc", "arm-linux-gnueabihf-gcc"]
    bad = ["", "gcc ", " gcc", "gcc\n", "./gcc", "/bin/gcc", "gcc -v", "zig", "python", "sh", "gcc-12 -B.", "gcc-123",
           "x-linux-gnu-gcc", "../aarch64-linux-gnu-gcc", "cc\0"]  # fmt: skip
    assert all(map(is_known_name, good)) and not any(map(is_known_name, bad))


@pytest.mark.parametrize("triple", ["../../evil-linux-gnu", "/tmp/evil-linux-gnu", "evil -linux-gnu", "evil-linux-gnu"])
def test_a_triple_names_no_path(triple: str, library: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    changed(library, target__triple=triple)
    code, told = command("build", "tiny.onnx", "--from", "lib", "-o", "two")
    assert code == 1 and "triple" in told, told


# ---------------------------------------------------------------------- places


def test_a_manifest_names_files_of_its_folder(library: Path) -> None:
    original = (library / "manifest.json").read_text()
    for kind in ("library", "header", "archive", "executable", "example", "cmake", "pkgconfig"):
        for name in ("../secret.h", "/etc/hostname", "..", "a/b.so", "", "lib\n.so", "tiny.h\n"):
            (library / "manifest.json").write_text(original)
            changed(library, **{kind: name})
            with pytest.raises(OutputError, match=kind):
                load(library)


def test_nothing_is_saved_outside_and_nothing_else_is_deleted(library: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thesis.tex").write_text("mine")
    shutil.copy(tmp_path / "thesis.tex", library)
    for name in ("../thesis.tex", "thesis.tex"):
        changed(library, example=name)
        assert command("build", "tiny.onnx", "-o", "lib", "--format", "so")[0] == 0  # in the place of the old one
        assert (tmp_path / "thesis.tex").exists() and (library / "thesis.tex").exists()
    with load(library) as model:
        model.save(tmp_path / "a" / "b")
    assert {p.name for p in (tmp_path / "a").iterdir()} == {"b"}


# ---------------------------------------------------------------------- bytes


def test_a_flipped_bit_is_found(library: Path, tmp_path: Path, monkeypatch) -> None:
    """At 40 places all over the library, in what the file holds for the linker and in code and weights alike."""
    monkeypatch.chdir(tmp_path)
    file = library / "libtiny.so"
    whole = file.read_bytes()
    times = os.stat(file).st_mtime_ns
    for place in np.linspace(64, len(whole) - 1, 40).astype(int):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        file.write_bytes(damaged)
        os.utime(file, ns=(times, times))  # of the same size and age
        with pytest.raises(OutputError):
            load(library)
    code, told = command("run", "lib")
    assert code == 1 and "libtiny.so" in told
    file.write_bytes(whole)
    assert command("run", "lib")[0] == 0


def test_the_program_is_checked_too(library: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = library / "model_run"
    if not program.exists():
        pytest.skip("NOT RUN: nothing here links static programs")
    assert command("run", "lib", "--on", "env")[0] == 0
    program.write_bytes(program.read_bytes()[:-1] + b"x")
    code, told = command("run", "lib", "--on", "env")
    assert code == 1 and "model_run" in told and "SHA-256" in told


def counting(reads: list[int]) -> Callable[..., Any]:
    """SHA-256 that counts the files which are read in pieces."""

    def sha256(*data: bytes) -> Any:
        if not data:
            reads.append(1)
        return hashlib.new("sha256", *data)

    return sha256


def test_a_file_is_read_once_while_it_stays_as_it_is(library: Path, monkeypatch) -> None:
    file, reads = library / "libtiny.so", []
    monkeypatch.setattr(digests.hashlib, "sha256", counting(reads))
    clock = time.time_ns() + 10**10  # ten seconds after it was written
    monkeypatch.setattr(digests.time, "time_ns", lambda: clock)
    for _ in range(3):
        load(library).close()
    assert len(reads) == 1
    file.write_bytes(file.read_bytes())
    load(library).close()
    assert len(reads) == 2


def test_a_file_that_was_just_written_is_read_again(library: Path, monkeypatch) -> None:
    file, reads = library / "libtiny.so", []
    monkeypatch.setattr(digests.hashlib, "sha256", counting(reads))
    file.write_bytes(file.read_bytes())
    for _ in range(2):
        load(library).close()
    assert len(reads) == 2  # its time may not show a change that follows at once


def test_a_file_may_be_read_ahead(tmp_path: Path) -> None:
    """Once, by a thread that is waited for; one that fails leaves the error to who asks."""
    path = tmp_path / "file"
    for content in (b"one", b"another"):
        path.write_bytes(content)
        digests.begin(path)
        assert digests.digest(path) == hashlib.sha256(content).hexdigest() and path not in digests._ahead
    digests.begin(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError):
        digests.digest(tmp_path / "nothing")


# ---------------------------------------------------------------------- children


@pytest.mark.parametrize("ending", ["exit", "collect"])
def test_a_forked_child_leaves_the_folder_alone(ending: str, tmp_path: Path) -> None:
    import halotile

    model = halotile.compile(tiny())
    child = os.fork()
    if child == 0:  # what runs at the end of a process, or of an object
        try:
            if ending == "exit":
                import weakref

                weakref.finalize._exitfunc()  # type: ignore[attr-defined]
            else:
                del model
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    model.save(tmp_path / "saved")
    assert (tmp_path / "saved" / "manifest.json").exists()
    folder = Path(model._folder.name)
    x = np.ones((2, 4), np.float32)
    np.testing.assert_allclose(model({"x": x})["y"], np.maximum(x @ WEIGHT, 0), rtol=1e-5, atol=1e-6)
    del model
    assert not folder.exists()


# ---------------------------------------------------------------------- whatever is wrong with them


def test_mutated_manifests(library: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    manifest = json.loads((library / "manifest.json").read_text())
    manifest["options"]["formats"] = ["so"]
    codes = []
    for seed in range(70):
        text = mutated(manifest, seed)
        write_text(library, text)
        words = [["run", "lib"], ["run", "lib", "--on", "env"], ["build", "tiny.onnx", "--from", "lib", "-o", "two"]]
        for arguments in words[: 3 if seed % 2 else 2]:
            code, told = command(*arguments)
            assert code in (0, 1, 2) and "\n" not in told, (seed, arguments, told)
            assert code == 0 or re.match(r"error\[E\d{3}\]: |Usage", told), (seed, told)
            codes.append(code)
    assert codes.count(1) > 80 and codes.count(0) > 20


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_one_flipped_bit_of_a_manifest_is_refused(library: Path) -> None:
    """Wherever it is: what says nothing (the space between words) may stay."""
    path = library / "manifest.json"
    original = path.read_bytes()
    said, refused = json.loads(original), 0
    rng = np.random.default_rng(3)
    places = rng.integers(0, len(original), 120).tolist()
    for at in (*places, original.index(b"sha256"), original.rindex(b"sha256")):
        path.write_bytes(flipped(original, at))
        try:
            same = json.loads(path.read_bytes()) == said
        except ValueError:
            same = False
        if same:
            continue
        with pytest.raises(OutputError, match=r"manifest\.json"):
            load(library)
        refused += 1
    assert refused > 60


@pytest.mark.parametrize("alone", [False, True])
def test_one_flipped_bit_of_a_library_is_refused(alone: bool, library: Path, tmp_path: Path) -> None:
    """With its manifest beside it, and without."""
    path = library / "libtiny.so"
    if alone:
        path = Path(shutil.move(path, tmp_path))
    original = path.read_bytes()
    body = len(original) - BYTES if alone else len(original)
    with load(path) as model:
        assert model({"x": np.ones((2, 4), np.float32)})
    for at in np.random.default_rng(4).integers(0, body, 40).tolist():
        path.write_bytes(flipped(original, at))
        with pytest.raises(OutputError):
            load(path)
    path.write_bytes(flipped(original, body - 1))
    with pytest.raises(OutputError, match="damaged"):
        load(path)
    path.write_bytes(original[:body])  # as of a tool that leaves out what it does not know
    if alone:
        load(path).close()


def test_an_error_names_the_field(library: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    original = (library / "manifest.json").read_text()
    cases = {"report": 3, "report__lengths": {"y": "x"}, "inputs": {"x": 1}, "outputs": [3], "files": [1], "model": "m",
             "target": 7, "options": [], "report__dropped_shapes": {"q": [-1]}, "report__dropped_inputs": "q",
             "weight_bytes": "many", "model__sha256": "0" * 63, "name": 4}  # fmt: skip
    for field, value in cases.items():
        (library / "manifest.json").write_text(original)
        changed(library, **{field: value})
        for arguments in (["run", "lib"], ["build", "tiny.onnx", "--from", "lib", "-o", "two"]):
            code, told = command(*arguments)
            assert code == 1 and field.replace("__", ".") in told, (field, told)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2.5])
def test_a_fixed_value_comes_back(value: float, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    x, y = (onnx.helper.make_tensor_value_info(n, 1, [2]) for n in "xy")
    s = onnx.helper.make_tensor_value_info("s", 1, [])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Mul", ["x", "s"], ["y"])], "g", [x, s], [y])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), "m.onnx")
    words = ["--format", "so", "--no-verify"]
    assert command("build", "m.onnx", "--fix", f"s={value}", "-o", "one", *words)[0] == 0
    json.loads((tmp_path / "one/manifest.json").read_text(), parse_constant=pytest.fail)
    code, told = command("build", "m.onnx", "--from", "one", "-o", "two", "--no-verify")
    assert code == 0, told
    with load("one") as one, load("two") as two:
        given = {"x": np.array([1, -2], np.float32)}
        np.testing.assert_array_equal(one(given)["y"], np.array([1, -2], np.float32) * np.float32(value))
        np.testing.assert_array_equal(one(given)["y"], two(given)["y"])


def test_mutated_tuning_files(tmp_path: Path, library: Path) -> None:
    from halotile.compiler.tuning_file import choices, fingerprint
    from halotile.targets.resolve import resolve

    native = resolve("native")
    kernel = {"chosen": "a", "own": "b", "seconds": 0.1, "own_seconds": 0.2}
    machine = {"cpu": "x", "threads": 2, "kernels": {"key": kernel, "other": kernel}}
    data = {"format": "halotile-tuning", "version": 1, "machines": {fingerprint(native, None): machine}}
    refused = 0
    for seed in range(150):
        (tmp_path / "t.json").write_text(mutated(data, seed))
        try:
            found = choices(tmp_path / "t.json", native, None)
        except HalotileError as error:
            assert "\n" not in str(error) and "t.json" in str(error)
            refused += 1
        else:
            assert all(isinstance(k, str) and isinstance(v, str) for k, v in found.items())
    assert refused > 70
    with open(tmp_path / "t.json", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(HalotileError, match="more than"):
        choices(tmp_path / "t.json", native, None)


@pytest.mark.skipif(not NEWEST, reason="NOT RUN: needs tomllib")
def test_mutated_board_files(tmp_path: Path, monkeypatch) -> None:
    text = (Path(boards.__file__).parent / "boards" / "raspberry-pi-5.toml").read_text()
    data, refused = tomllib.loads(text), 0
    for seed in range(150):
        try:
            changed = json.loads(mutated(data, seed))
        except (ValueError, RecursionError):
            continue
        (tmp_path / "b.toml").write_text("")
        monkeypatch.setattr(boards.tomllib, "loads", lambda _, changed=changed: changed)
        try:
            read_board(tmp_path / "b.toml")
        except TargetError as error:
            assert "b.toml" in str(error) and "\n" not in str(error)
            refused += 1
    assert refused > 60


# ---------------------------------------------------------------------- external data


def test_external_data_that_is_a_hole_or_cannot_be_read(tmp_path: Path, monkeypatch) -> None:
    """A file of 4 TiB of nothing behind, before or in the place of the weights takes no time."""
    monkeypatch.chdir(tmp_path)
    with open("w.bin", "wb") as file:
        file.truncate(1 << 42)
    for offset in (0, (1 << 42) - 80):
        external(tmp_path / "m.onnx", "w.bin", offset=offset)
        code, told = command("build", "m.onnx", "-o", "out", "--format", "so", "--no-verify")
        assert code == 0, told
        code, told = command("build", "m.onnx", "--from", "out", "-o", "two", "--no-verify")
        assert code == 0, told
    model = onnx.load("m.onnx", load_external_data=False)
    model.graph.initializer[0].dims[:] = [4, 1 << 37]
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert command("build", "m.onnx", "-o", "three")[0] == 1

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "w.bin")

    external(tmp_path / "m.onnx", "w.bin")
    monkeypatch.setattr(np, "memmap", refuse)
    code, told = command("build", "m.onnx", "-o", "four")
    assert code == 1 and told.startswith("error[E100]") and "w.bin" in told and "Permission denied" in told
