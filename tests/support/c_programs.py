"""Test programs in C, built strictly against a library and run; or instrumented, and run under a sanitizer."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from halotile.benchmarks.open_memory import SOURCE, counter

MAIN = Path(__file__).parent.parent / "runtime" / "programs"
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")


def run(*command: object, cwd: Path | None = None) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=cwd, timeout=300)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def link(cc: str, built: Any, program: str, folder: Path, *flags: str) -> Path:
    """A strict C89 build of a test program against the shared library."""
    command = [cc, "-std=c89", *STRICT, MAIN / program, *flags, f"-I{built.directory}", "-o", folder / "main"]
    run(*command, built.library, f"-Wl,-rpath,{built.directory}", "-pthread", "-lm")
    return folder / "main"


def counting(folder: Path) -> tuple[str, ...]:
    """Flags of a program that counts calls of the allocator, as halotile.benchmarks.open_memory does."""
    library = counter(folder)
    return (f"-I{SOURCE.parent}", str(library), f"-Wl,-rpath,{library.parent}")


def run_sanitized(*command: object) -> subprocess.CompletedProcess[str]:
    """Runs an instrumented program, without address randomisation where the sanitizer can't live with the kernel's."""
    words = [str(c) for c in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    if "unexpected memory mapping" in done.stderr:
        done = subprocess.run(["setarch", "-R", *words], capture_output=True, text=True, timeout=300)
    return done
