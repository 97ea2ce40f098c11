"""Measures which lines of the product each case of a test reaches, and chooses the cases that run.

    .venv/bin/python tests/support/reached.py [--new] [pytest's arguments]    two hours of two cores for all tests

Of a folder's tests those cases are chosen that take less than ``SHORT``, then those that together reach every line
that the folder's tests reach, the ones that bring most lines a second first, and of each test a quarter of its cases
at least. Tests with fewer cases than ``FEW`` keep all. What is chosen is written to tests/chosen.json, where tests that
did not run keep what they had; so run all of a folder.

With ``--new``, for after tests were written, those that the table knows run the cases that it names and keep them, and
of the others those are chosen that reach what these leave. Of some files of a folder, cases are chosen that reach all
that these files do.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from chosen import checksum, read_chosen, write_chosen

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("compiler", "passes", "schedules", "targets", "benchmarks")
VARIABLE = "HALOTILE_REACHED"  # in the environment of a run that is measured: a folder
SHORT = 0.2  # seconds of a case
FEW = 3
OBJECT = 0.1  # seconds that LLVM takes for an object, in the mean: what the cache had costs a run without one
_PLACES = 1 << 10  # for the lines of a file, which are fewer


@dataclass(frozen=True)
class Case:
    """What a case of a test costs, in seconds of the processor, and the lines that it reaches, as bits."""

    name: str
    seconds: float
    lines: int


class Reached:
    """A pytest plugin that notes lines and seconds of each test, in each worker, in ``folder``."""

    def __init__(self, folder: Path) -> None:
        import coverage

        self.folder = folder
        rooms = [str(ROOT / room) for room in ROOMS]
        data = str(folder / f"lines.{os.getpid()}")
        self.coverage = coverage.Coverage(data_file=data, source=rooms, config_file=False, messages=False)
        self.coverage.start()

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        from halotile.compiler.cache.store import COUNTS

        self.coverage.switch_context(item.nodeid)
        seconds, found = sum(os.times()[:4]), COUNTS["found"]
        yield
        seconds = sum(os.times()[:4]) - seconds + OBJECT * (COUNTS["found"] - found)
        with (self.folder / f"seconds.{os.getpid()}").open("a", encoding="utf-8") as file:
            file.write(json.dumps([item.nodeid, seconds]) + "\n")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        self.coverage.save()


def read_tests(folder: Path) -> Iterator[tuple[str, list[Case]]]:
    """Each test that ran and its cases, as the plugin noted them in ``folder``."""
    seconds: dict[str, float] = {}
    for file in sorted(folder.glob("seconds.*")):
        seconds.update(map(json.loads, file.read_text(encoding="utf-8").splitlines()))
    names: dict[str, list[str]] = defaultdict(list)
    for name in sorted(seconds):
        names[name.partition("[")[0]].append(name)
    bases = [sqlite3.connect(data) for data in sorted(folder.glob("lines.*"))]
    starts: dict[str, int] = {}
    for test, rows in groupby(merge(*map(_rows, bases)), key=lambda row: row[0].partition("[")[0]):
        lines: dict[str, int] = defaultdict(int)
        for case, file_name, bits in rows:
            start = starts.setdefault(file_name, len(starts) * _PLACES)
            lines[case] |= int.from_bytes(bits, "little") << start
        if test in names:  # and no module's import
            yield test, [Case(name, seconds[name], lines[name]) for name in names[test]]
    for base in bases:
        base.close()


def _rows(base: sqlite3.Connection) -> Iterator[tuple[str, str, bytes]]:
    """(test's case, file, its lines that were reached, as bits) from what coverage.py wrote, by cases."""
    return base.execute(
        "select context.context, file.path, numbits from line_bits"
        " join context on context.id = context_id join file on file.id = file_id order by 1, 2"
    )


def choose(tests: Mapping[str, Sequence[Case]], kept: Container[str] = ()) -> dict[str, list[int]]:
    """The numbers of the cases that run, by test, of a folder: all of tests that are ``kept``, what takes no time, as
    where cases share what the first one builds, what reaches the lines that these leave, and every fourth of each test
    at least."""
    run = {test: set(range(len(cases))) if test in kept else _always(cases) for test, cases in tests.items()}
    rest = {(test, n): case for test, cases in tests.items() for n, case in enumerate(cases) if n not in run[test]}
    missing = _lines(case for cases in tests.values() for case in cases)
    missing &= ~_lines(tests[test][n] for test, numbers in run.items() for n in numbers)
    while missing:
        best = max(rest, key=lambda key: (rest[key].lines & missing).bit_count() / rest[key].seconds)
        missing &= ~rest.pop(best).lines
        run[best[0]].add(best[1])
    for test, cases in tests.items():
        others = [n for n in range(len(cases)) if n not in run[test]]
        more = min(len(others), max(0, -(-len(cases) // 4) - len(run[test])))
        run[test].update(others[i * len(others) // more] for i in range(more))
    return {test: sorted(numbers) for test, numbers in run.items()}


def _always(cases: Sequence[Case]) -> set[int]:
    return {n for n, case in enumerate(cases) if len(cases) < FEW or case.seconds < SHORT}


def _lines(cases: Iterable[Case]) -> int:
    found = 0
    for case in cases:
        found |= case.lines
    return found


def by_table(cases: Sequence[Case], known: tuple[int, Sequence[int]] | None) -> bool:
    """Whether these are what ``known``, a test's entry in the table, lets run of it, and not all that there are."""
    return known is not None and len(cases) == len(known[1]) and checksum(c.name for c in cases) != known[0]


def update(folder: Path) -> str:
    """The table of the tests that ran anew, from what a run left in ``folder``; returns a line about it."""
    table, number, whole, left = dict(read_chosen()), 0, 0.0, 0.0
    for _, group in groupby(read_tests(folder), key=lambda each: each[0].partition("::")[0].rpartition("/")[0]):
        tests = dict(group)
        kept = {test for test, cases in tests.items() if by_table(cases, table.get(test))}
        for test, run in choose(tests, kept).items():
            if test in kept:
                continue
            cases = tests[test]
            table.pop(test, None)
            if len(run) < len(cases):
                table[test] = checksum(case.name for case in cases), run
            number += 1
            whole += sum(case.seconds for case in cases)
            left += sum(case.seconds for n, case in enumerate(cases) if n not in run)
    write_chosen(table)
    return f"{number} tests of {whole:.0f} s, of which {left:.0f} s are left out"


def main(arguments: Sequence[str]) -> int:
    more = [word for word in arguments if word != "--new"]
    with tempfile.TemporaryDirectory(prefix="halotile-reached-") as folder:
        cases = "table" if "--new" in arguments else "sampled"
        environment = {**os.environ, VARIABLE: folder, "HALOTILE_CASES": cases}
        command = [sys.executable, "-m", "pytest", *(more or ["tests", "-n", "2", "--dist", "worksteal"])]
        code = subprocess.run(command, cwd=ROOT, env=environment).returncode
        print(update(Path(folder)))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
