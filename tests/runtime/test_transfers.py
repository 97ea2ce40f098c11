"""The reference transfers, by a C program of their own, with warnings as errors and under the sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from halotile.passes.tile.scratchpad.timeline import StripeCosts, predict
from halotile.schedules.scratchpad.double_buffer import double_buffered

ROOT = Path(__file__).parent.parent.parent
SOURCES = ROOT / "compiler" / "runtime" / "scratchpad"
CC = shutil.which("cc")
pytestmark = pytest.mark.skipif(CC is None, reason="NOT RUN: needs a C compiler")


@pytest.fixture(scope="module", params=["plain", "thread", "address,undefined"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, plain or under a sanitizer; every transfer waits 2 ms before it copies."""
    return _compiled(tmp_path_factory.mktemp("transfers") / request.param.partition(",")[0], 2_000_000, request.param)


def _compiled(out: Path, delay: int, sanitizer: str = "plain") -> Path:
    flags = ["-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-DHALOTILE_TRANSFER_DELAY_NS={delay}"]
    if sanitizer != "plain":
        flags.append(f"-fsanitize={sanitizer}")
    files = [str(SOURCES / "transfers.c"), str(Path(__file__).parent / "programs" / "transfers.c")]
    made = subprocess.run(
        [str(CC), *flags, f"-I{SOURCES}", *files, "-o", str(out), "-pthread"], capture_output=True, text=True
    )
    if made.returncode and sanitizer != "plain" and "cannot find" in made.stderr:
        pytest.skip(f"NOT RUN: no {sanitizer} sanitizer here")
    assert made.returncode == 0, made.stderr
    return out


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with transfers of 10 ms."""
    return _compiled(tmp_path_factory.mktemp("transfers") / "timed", 10_000_000)


def run(program: Path, *arguments: str) -> str:
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("stripes", [1, 2, 3, 5, 16])
def test_the_trace_is_the_sequence(program: Path, stripes: int) -> None:
    assert run(program, "sequence", str(stripes)).splitlines() == list(map(str, double_buffered(stripes)))


@pytest.mark.parametrize("computing", [0.005, 0.03])
def test_the_timeline_predicts_what_happens(timed: Path, computing: float) -> None:
    """Transfers of 10 ms on one engine; stripes of 5 ms, where transfers decide, and of 30 ms, where computing does.
    Sleeps stand for both, which may only take longer: the quickest of a few runs counts."""
    expected = predict([StripeCosts(0.01, computing, 0.01)] * 5, engines=1).seconds
    ends = []
    for _ in range(4):
        lines = run(timed, "sequence", "5", str(int(computing * 1e9))).splitlines()
        ends.append(max(float(line.split()[-1]) for line in lines))
    assert expected <= min(ends) * 1.001 and min(ends) == pytest.approx(expected, rel=0.15)


def test_reading_before_waiting_shows(program: Path) -> None:
    if program.name == "thread":
        pytest.skip("it is the very race that the thread sanitizer reports")
    run(program, "early")


def test_what_is_wrong_is_refused(program: Path) -> None:
    run(program, "errors")
