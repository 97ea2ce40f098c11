"""``--on``: behind an emulator and over a real ssh server, by the same code; and each way in which it can fail."""

from __future__ import annotations

import json
import os
import shutil
import struct
import time
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from board_tools import PI5, halotile, needs
from manifests import write_text


@pytest.fixture(autouse=True)
def _emulator() -> None:
    needs("qemu-aarch64-static")


@pytest.fixture(params=["emulator", "ssh"])
def place(request: pytest.FixtureRequest) -> tuple[str, dict[str, str]]:
    """(what to give to --on, environment): the emulator here, or over there."""
    if request.param == "emulator":
        return PI5, {}
    server = request.getfixturevalue("sshd")
    return f"{server.url} {PI5}", {"PATH": server.path}


def temporary_files() -> set[str]:
    return {name for name in os.listdir("/tmp") if name.startswith(("tmp.", "ht-", "halotile-"))}


def test_run_gives_the_outputs_of_this_machine(place, pi5: Path, here: Path, tmp_path: Path) -> None:
    on, environment = place
    np.save(tmp_path / "x.npy", np.random.default_rng(3).standard_normal((1, 3, 13, 17), np.float32))
    for folder, name, extra in ((here, "a", ()), (pi5, "b", ("--on", on, "--threads", "3"))):
        words = ("-i", "x.npy", "-o", f"y={name}.npy", "-o", f"total={name}t.npy", *extra)
        done = halotile("run", folder, *words, cwd=tmp_path, **environment)
        assert done.returncode == 0, done.stderr
    for name in ("", "t"):
        a, b = np.load(tmp_path / f"a{name}.npy"), np.load(tmp_path / f"b{name}.npy")
        assert a.shape == b.shape and np.abs(a - b).max() < 1e-5 and np.ptp(a) > 0.1


def test_verify_finds_the_model_and_agrees(place, pi5: Path, tmp_path: Path) -> None:
    on, environment = place
    done = halotile("verify", pi5, "--on", on, "--json", cwd=tmp_path, **environment)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["ok"] and {o["name"] for o in result["outputs"]} == {"y", "total"}
    assert all(not o["constant"] for o in result["outputs"])


def test_bench_measures_over_there(place, pi5: Path, tmp_path: Path) -> None:
    on, environment = place
    words = ("--on", on, "--threads", "1,2", "--runs", "7", "--warmup", "1", "-o", "times.json")
    done = halotile("bench", pi5, *words, cwd=tmp_path, **environment)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "times.json").read_text())["runs"]
    assert [f["threads"] for f in found] == [1, 2] and all(f["runs"] == 7 for f in found)
    times = found[0]["milliseconds"]
    assert 0 < times["min"] <= times["p50"] <= times["p90"] <= times["p99"] <= times["max"]
    assert "raspberry-pi-5" in done.stdout


def test_nothing_is_left_behind(place, pi5: Path, tmp_path: Path) -> None:
    on, environment = place
    before = temporary_files()
    assert halotile("run", pi5, "--on", on, cwd=tmp_path, **environment).returncode == 0
    assert halotile("run", pi5, "--on", on.replace("a76", "a53"), cwd=tmp_path, **environment).returncode == 1
    left = {n for n in temporary_files() - before if (Path("/tmp", n) / "model_run").exists()}
    end = time.monotonic() + 30  # other tests run beside this one, and take their own away; ours would stay
    while left and time.monotonic() < end:
        time.sleep(0.1)
        left = {n for n in left if Path("/tmp", n).exists()}
    assert not left


FAILURES = {
    "wrong CPU": ("qemu-aarch64-static -cpu cortex-a53", ["lacks instructions", "raspberry-pi-5"]),
    "wrong architecture": ("qemu-arm-static", ["wrong architecture", "raspberry-pi-5", "aarch64"]),
    "no emulator": ("", ["wrong architecture", "raspberry-pi-5", "x86_64"]),
    "killed": ("sh -c 'kill -KILL $$'", ["was killed", "memory", "MB"]),
}


@pytest.mark.parametrize("how", ["here", "ssh"])
@pytest.mark.parametrize("what", FAILURES)
def test_a_failure_is_one_plain_line(what: str, how: str, pi5: Path, tmp_path: Path, request) -> None:
    prefix, words = FAILURES[what]
    if os.uname().machine == "aarch64" and what == "no emulator":
        pytest.skip("this machine runs the board's code itself")
    environment = {}
    if how == "ssh":
        server = request.getfixturevalue("sshd")
        prefix, environment = f"{server.url} {prefix}", {"PATH": server.path}
    done = halotile("run", pi5, "--on", prefix, cwd=tmp_path, **environment)
    refused(done, *words)


def test_a_glibc_that_is_too_old(here: Path, tmp_path: Path, sshd) -> None:
    """A program whose symbols ask for a glibc of the future: the loader over there refuses it."""
    broken = tmp_path / "out"
    shutil.copytree(here, broken)
    (tmp_path / "main.c").write_text('#include <stdio.h>\nint main(void) { return printf("%d", 1) < 0; }\n')
    assert os.system(f"cc -O1 {tmp_path}/main.c -o {tmp_path}/dynamic") == 0
    future, was = of_the_future((tmp_path / "dynamic").read_bytes()), (broken / "model_run").read_bytes()
    (broken / "model_run").write_bytes(future)
    manifest = (broken / "manifest.json").read_text()
    for old, new in ((sha256(was).hexdigest(), sha256(future).hexdigest()), (f": {len(was)}", f": {len(future)}")):
        assert old in manifest
        manifest = manifest.replace(old, new)
    write_text(broken, manifest)
    refused(
        halotile("run", broken, "--on", sshd.url, cwd=tmp_path, PATH=sshd.path), "older than glibc 2.99", "--static"
    )


def of_the_future(program: bytes) -> bytes:
    """The program with its highest glibc version replaced by GLIBC_2.99, name and hash."""
    versions = [v for v in (b"GLIBC_2.34", b"GLIBC_2.2.5", b"GLIBC_2.17") if v + b"\0" in program]
    new = b"GLIBC_2.99" + b"\0" * (len(versions[0]) - 10)
    for text in (versions[0],):
        program = program.replace(text + b"\0", new + b"\0")
        program = program.replace(struct.pack("<I", _hash(text)), struct.pack("<I", _hash(new.rstrip(b"\0"))))
    return program


def _hash(name: bytes) -> int:
    """The hash of symbol versions in ELF."""
    value = 0
    for letter in name:
        value = (value << 4) + letter
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value


@pytest.mark.parametrize(
    ("on", "words"),
    [
        ("ssh://pi@127.0.0.1:1", ("can't reach ssh://pi@127.0.0.1:1", "refused")),
        ("ssh://pi@no-such-board.invalid", ("can't reach", "no-such-board.invalid")),
        ("ssh://pi@host:notaport", ("ssh://user@host[:port]",)),
        ("ssh://", ("ssh://user@host[:port]",)),
        ("ssh://-oProxyCommand=touch", ("ssh://user@host[:port]",)),
        ("http://board", ("only ssh://",)),
        ("no-such-emulator -cpu x", ("'no-such-emulator' was not found",)),
        ("qemu 'unbalanced", ("can't be read",)),
    ],
)
def test_a_place_that_can_not_be(on: str, words: tuple[str, ...], pi5: Path, tmp_path: Path) -> None:
    needs("ssh")
    refused(halotile("run", pi5, "--on", on, cwd=tmp_path), *words)


def test_a_key_that_is_not_let_in(pi5: Path, tmp_path: Path, sshd) -> None:
    url = sshd.url.split("@")[0] + "nobody@" + sshd.url.split("@")[1]
    refused(halotile("run", pi5, "--on", url, cwd=tmp_path, PATH=sshd.path), "can't reach", "ermission denied")


def test_a_prefix_that_is_not_there(pi5: Path, tmp_path: Path, sshd) -> None:
    refused(
        halotile("run", pi5, "--on", f"{sshd.url} no-such-emulator", cwd=tmp_path, PATH=sshd.path), "'no-such-emulator'"
    )


def test_a_build_without_a_program_is_refused(pi5: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    shutil.copytree(pi5, folder)
    (folder / "model_run").unlink()
    refused(halotile("run", folder, "--on", PI5, cwd=tmp_path), "has no model_run", "--format", code="E600")


def refused(done, *words: str, code: str = "E750") -> None:
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("note:", "["))]
    assert done.returncode == 1 and done.stdout == "", (done.stdout, done.stderr)
    assert len(lines) == 1 and lines[0].startswith(f"error[{code}]"), done.stderr
    assert all(word in lines[0] for word in words), lines[0]
