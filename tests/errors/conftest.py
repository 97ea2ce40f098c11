"""The real command line in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest
from commands import run_command
from small_models import tiny


@dataclass(frozen=True)
class Outcome:
    """What a command left: exit code, both streams, and the files that are there now and were not before."""

    code: int
    out: str
    err: str
    new_files: tuple[str, ...]

    def refused(self, code: str, *words: str) -> None:
        """Exit code 1, the error's code and every one of ``words`` in its message; no traceback, nothing left."""
        assert self.code == 1, self.err
        lines = [s for s in self.err.splitlines() if not s.startswith("note: ")]
        assert lines and lines[0].startswith(f"error[{code}]: "), self.err
        assert sum(s.startswith("error[") for s in lines) == 1
        assert all(s.startswith("  ") for s in lines[1:]), (
            self.err
        )  # a list of offenders may follow, nothing else
        assert "Traceback" not in self.err and self.out == ""
        for word in words:
            assert word in self.err, f"{word!r} is not in {self.err!r}"
        assert self.new_files == ()


@pytest.fixture
def halotile(tmp_path: Path) -> Callable[..., Outcome]:
    """Runs the command line in ``tmp_path`` and tells what came of it; modules in ``hide`` can't be imported."""
    folder = tmp_path

    def run(*arguments: object, hide: tuple[str, ...] = (), path: str | None = None) -> Outcome:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder / ".tmp")}
        (folder / ".tmp").mkdir(exist_ok=True)
        if path is not None:
            environment["PATH"] = path
        before = _files(folder)
        done = _without(hide, arguments, folder, environment) if hide else run_command(arguments, folder, environment)
        return Outcome(done.returncode, done.stdout, done.stderr, tuple(sorted(_files(folder) - before)))

    return run


def _without(
    hidden: tuple[str, ...], arguments: tuple[object, ...], folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    hiding = "".join(f"sys.modules[{name!r}] = None; " for name in hidden)
    code = f"import sys; {hiding}from halotile.compiler.cli.main import entry; entry()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL,
        errors="surrogateescape",
    )  # fmt: skip


def _files(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*")}


@pytest.fixture
def tiny_model() -> onnx.ModelProto:
    return tiny()


@pytest.fixture(scope="session")
def built_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model, built once through the command line."""
    folder = tmp_path_factory.mktemp("built")
    (folder / "tiny.onnx").write_bytes(tiny().SerializeToString())
    command = [sys.executable, "-m", "halotile.compiler.cli", "build", "tiny.onnx", "-o", "lib"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    return folder / "lib"
