"""The reference transfers, by a C program of their own, with warnings as errors and under the sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from halotile.schedules.sequence import double_buffered

ROOT = Path(__file__).parent.parent.parent
SOURCES = ROOT / "compiler" / "runtime" / "scratchpad"
CC = shutil.which("cc")
pytestmark = pytest.mark.skipif(CC is None, reason="needs a C compiler")


@pytest.fixture(scope="module", params=["plain", "thread", "address,undefined"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, plain or under a sanitizer; every transfer waits 2 ms before it copies."""
    out = tmp_path_factory.mktemp("transfers") / request.param.partition(",")[0]
    flags = ["-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-DHALOTILE_TRANSFER_DELAY_NS=2000000"]
    if request.param != "plain":
        flags.append(f"-fsanitize={request.param}")
    files = [str(SOURCES / "transfers.c"), str(Path(__file__).parent / "programs" / "transfers.c")]
    made = subprocess.run(
        [str(CC), *flags, f"-I{SOURCES}", *files, "-o", str(out), "-pthread"], capture_output=True, text=True
    )
    if made.returncode and request.param != "plain" and "cannot find" in made.stderr:
        pytest.skip(f"no {request.param} sanitizer here")
    assert made.returncode == 0, made.stderr
    return out


def run(program: Path, *arguments: str) -> str:
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("stripes", [1, 2, 3, 5, 16])
def test_the_trace_is_the_sequence(program: Path, stripes: int) -> None:
    assert run(program, "sequence", str(stripes)).splitlines() == list(map(str, double_buffered(stripes)))


def test_reading_before_waiting_shows(program: Path) -> None:
    if program.name == "thread":
        pytest.skip("it is the very race that the thread sanitizer reports")
    run(program, "early")


def test_what_is_wrong_is_refused(program: Path) -> None:
    run(program, "errors")
