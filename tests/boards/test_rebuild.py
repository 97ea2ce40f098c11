"""The same build gives the same bytes, in any folder; a manifest is enough to make it again."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from board_tools import cache_of_ones_own, halotile, needs_zig
from manifests import write_manifest, write_text

FILES = {"libnet.so", "libnet.a", "net.h", "net.cmake", "net.pc", "main.c", "manifest.json", "model_run"}


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return cache_of_ones_own(tmp_path / "cache")


@pytest.mark.parametrize("arguments", [(), ("-t", "raspberry-pi-5"), ("-t", "raspberry-pi-3-32", "--static")])
def test_two_builds_in_different_folders_are_identical(arguments, model: Path, tmp_path: Path) -> None:
    if arguments:
        needs_zig()
    for number, place in enumerate(("a", "some/where/else")):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        shutil.copy(model, folder / "net.onnx")
        # Another hash seed, as another process has it: nothing may hang on the order of a set.
        done = halotile("build", "net.onnx", "-o", f"out{number}", *arguments, cwd=folder, PYTHONHASHSEED=str(number))
        assert done.returncode == 0, done.stderr
    one, two = contents(tmp_path / "a" / "out0"), contents(tmp_path / "some/where/else" / "out1")
    assert one == two and set(one) == (FILES - {"libnet.so"} if "--static" in arguments else FILES)
    assert str(tmp_path).encode() not in b"".join(one.values())


def test_a_manifest_builds_the_same_again(model: Path, tmp_path: Path, home) -> None:
    needs_zig()
    shutil.copy(model, tmp_path / "net.onnx")
    words = ["-t", "jetson-orin", "--exact", "--threads", "3", "--name", "other", "--format", "so,exe"]
    words += ["--glibc", "2.33"]
    assert halotile("build", "net.onnx", "-o", "one", *words, cwd=tmp_path, **home).returncode == 0
    done = halotile("build", "--from", "one/manifest.json", "-o", "two", cwd=tmp_path, **home)
    assert done.returncode == 0 and "not the recorded bytes" not in done.stderr, done.stderr
    assert contents(tmp_path / "one") == contents(tmp_path / "two") and "libother.so" in contents(tmp_path / "one")
    manifest = json.loads((tmp_path / "two" / "manifest.json").read_text())
    assert manifest["target"]["glibc"] == "2.33" and manifest["options"]["exact"] and manifest["default_threads"] == 3


def test_a_model_elsewhere_is_remembered_or_named(model: Path, tmp_path: Path, home) -> None:
    far = tmp_path / "far" / "away"
    far.mkdir(parents=True)
    shutil.copy(model, far / "net.onnx")
    words = ("--format", "a", "--no-verify")
    assert halotile("build", far / "net.onnx", "-o", "one", *words, cwd=tmp_path, **home).returncode == 0
    assert halotile("build", "--from", "one", "-o", "two", cwd=tmp_path, **home).returncode == 0
    other = {"XDG_CACHE_HOME": str(tmp_path / "other")}
    refused(halotile("build", "--from", "one", "-o", "three", cwd=tmp_path, **other), "net.onnx", "was not found")
    named = halotile("build", far / "net.onnx", "--from", "one", "-o", "three", cwd=tmp_path, **other)
    assert named.returncode == 0 and contents(tmp_path / "one") == contents(tmp_path / "three")


def test_another_model_is_refused(model: Path, tmp_path: Path, home) -> None:
    shutil.copy(model, tmp_path / "net.onnx")
    assert halotile("build", "net.onnx", "-o", "one", "--format", "a", cwd=tmp_path, **home).returncode == 0
    (tmp_path / "net.onnx").write_bytes(model.read_bytes() + b"\0\0")
    refused(halotile("build", "net.onnx", "--from", "one", "-o", "two", cwd=tmp_path, **home), "not the model")
    assert not (tmp_path / "two").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", ["not a manifest"]),
        ("not json", ["not a manifest"]),
        ('{"format": "halotile", "model": {"sha256": "%s"}}', ["records no options"]),
        ('{"format": "halotile", "options": {"warp": 9}, "model": {"sha256": "%s"}}', ["'warp'", "this one lacks"]),
        ('{"format": "halotile", "options": {}, "model": {"sha256": "%s"}}', ["what target"]),
    ],
)
def test_a_wrong_manifest_is_refused(text: str, words: list[str], model: Path, tmp_path: Path, home) -> None:
    shutil.copy(model, tmp_path / "net.onnx")
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    write_text(tmp_path, text % digest if "%s" in text else text)
    done = halotile("build", "net.onnx", "--from", "manifest.json", "-o", "two", cwd=tmp_path, **home)
    refused(done, *words)


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("options", "threads", "many"),
        ("options", "exact", "maybe"),
        ("options", "formats", ["dll"]),
        ("options", "float_mode", "loose"),
        ("options", "memory_budget", -1),
        ("options", "weights", "float8"),
        ("target", "cores", 0),
        ("target", "l2_bytes", "512K"),
        ("target", "features", [1]),
        ("target", "cpu", None),
        ("target", "cpu", "cortex-a77x"),
    ],
)
def test_a_manifest_with_a_wrong_value_is_refused(part, key, value, here: Path, model: Path, tmp_path: Path) -> None:
    manifest = json.loads((here / "manifest.json").read_text())
    manifest[part][key] = value
    write_manifest(tmp_path, manifest)
    done = halotile("build", model, "--from", "manifest.json", "-o", "two", cwd=tmp_path)
    refused(done, key if value != "cortex-a77x" else "cortex-a77")
    assert not (tmp_path / "two").exists()


@pytest.mark.parametrize("option", [("-t", "native"), ("--exact",), ("--format", "so"), ("--shape", "x=1,3,13,17")])
def test_what_the_manifest_says_is_not_said_twice(option, here: Path, tmp_path: Path) -> None:
    done = halotile("build", "--from", here / "manifest.json", *option, "-o", "two", cwd=tmp_path)
    assert done.returncode == 2 and "in the manifest already" in done.stderr


def test_the_manifest_names_every_file_with_its_digest(here: Path) -> None:
    manifest = json.loads((here / "manifest.json").read_text())
    assert set(manifest["files"]) == FILES - {"manifest.json"}
    for name, facts in manifest["files"].items():
        data = (here / name).read_bytes()
        assert facts == {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    scratch = manifest["default_threads"] * manifest["workspace_bytes"]
    assert manifest["arena_bytes"] == manifest["planned_bytes"] + scratch


@pytest.mark.parametrize("text", ["dll", "so,elf", ""])
def test_a_format_that_is_none(text: str, model: Path, tmp_path: Path) -> None:
    done = halotile("build", model, "--format", text, "-o", "out", cwd=tmp_path)
    assert done.returncode == 2 and "--format" in done.stderr and list(tmp_path.iterdir()) == []


def refused(done, *words: str) -> None:
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("note:", "["))]
    assert done.returncode == 1 and len(lines) == 1 and lines[0].startswith("error[E"), done.stderr
    assert all(word in lines[0] for word in words), lines[0]
