"""Of lists that take long, those cases run that reach what all of them reach."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from chosen import checksum, read_chosen, run_of, write_chosen
from reached import ROOT, VARIABLE, Case, by_table, choose, read_tests
from sampling import left_out

OWN = """
import pytest
from halotile.schedules.words.factors import product, times

@pytest.mark.parametrize("calls", [(product, times), (times,), ()], ids=["both", "one", "none"])
def test_it(calls):
    assert [call(*((3, 4) if call is times else ([(3, 4)],))) for call in calls] or not calls
"""


def case(name: str, seconds: float, *lines: int) -> Case:
    return Case(name, seconds, sum(1 << line for line in lines))


def test_every_line_is_reached_by_the_cheapest() -> None:
    dear, cheap, other = case("a", 9, 1, 2, 3), case("b", 1, 1, 2, 3), case("c", 5, 4)
    assert choose({"t": [dear, cheap, other]}) == {"t": [1, 2]}
    assert choose({"t": [case("a", 1, 1), case("b", 1, 1, 2), case("c", 1, 2)]}) == {"t": [1]}
    assert choose({"t": [dear, cheap, case("c", 1, 1)], "u": [case("d", 2, 1, 2, 3, 4), *[case("e", 2, 4)] * 2]}) == {
        "t": [1], "u": [0],
    }  # fmt: skip


def test_a_quarter_of_equal_ones_runs_from_all_over_the_list() -> None:
    assert choose({"t": [case(str(n), 1, 7) for n in range(12)]}) == {"t": [0, 1, 6]}
    assert len(choose({"t": [case(str(n), 1) for n in range(13)]})["t"]) == 4


def test_what_takes_no_time_runs_and_so_do_few() -> None:
    shared = [case("a", 9, 1), *(case(str(n), 0.01, 1) for n in range(6))]
    assert choose({"t": shared, "u": [case("a", 3, 1), case("b", 3, 1)]}) == {"t": [1, 2, 3, 4, 5, 6], "u": [0, 1]}


def test_tests_that_the_table_knows_keep_what_they_ran() -> None:
    tests = {"old": [case("old[a]", 9, 1), case("old[c]", 9, 2)], "new": [case(f"new[{n}]", 1, n) for n in range(5)]}
    assert choose(tests, {"old"}) == {"old": [0, 1], "new": [0, 3, 4]}
    names = ["old[a]", "old[b]", "old[c]"]
    entry = (checksum(names), [0, 2])
    assert by_table(tests["old"], entry) and not by_table(tests["old"], None)
    assert not by_table([case(name, 1) for name in names], entry)  # all of them ran: they are chosen anew
    assert not by_table(tests["old"], (checksum(["old[a]", "old[c]"]), [0, 1]))


def test_the_table_is_about_the_cases_that_it_was_made_for(tmp_path: Path) -> None:
    names = ["t[b]", "t[a]", "t[c]"]
    write_chosen({"t": (checksum(names), [1])}, tmp_path / "chosen.json")
    chosen = read_chosen(tmp_path / "chosen.json")
    assert run_of("t", names, chosen) == run_of("t", names[::-1], chosen) == {"t[b]"}
    assert run_of("t", [*names, "t[d]"], chosen) == {*names, "t[d]"}
    assert run_of("t", ["t[c]"], chosen) == {"t[c]"} and run_of("u", names, chosen) == set(names)


def test_what_the_table_leaves_out_does_not_run_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"test_x.py::test_x[{n}]" for n in range(5)]
    items: list[Any] = [
        SimpleNamespace(nodeid=name, callspec=SimpleNamespace(_idlist=(name,)), get_closest_marker=lambda mark: None)
        for name in names
    ]
    monkeypatch.setattr("sampling.read_chosen", lambda: {"test_x.py::test_x": (checksum(names), [0, 3])})
    monkeypatch.delenv("HALOTILE_CASES", raising=False)
    assert [item.nodeid for item in left_out(items)] == [names[1], names[2], names[4]]
    assert not left_out(items[:3])
    for item in items:
        item.get_closest_marker = lambda mark: mark == "every"
    assert not left_out(items)
    for wish in ("sampled", "all"):
        monkeypatch.setenv("HALOTILE_CASES", wish)
        assert not left_out(items)


def test_the_table_names_tests_that_are_there() -> None:
    for test in read_chosen():
        file, _, function = test.rpartition("::")
        file, _, owner = file.partition("::")
        assert re.search(rf"^\s*def {function}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), test


def test_lines_and_seconds_of_cases_are_measured(tmp_path: Path) -> None:
    support = str(Path(__file__).parent / "support")
    (tmp_path / "conftest.py").write_text(
        f"import sys; sys.path.insert(0, {support!r})\nfrom pathlib import Path\nimport reached\n"
        f"def pytest_configure(config): config.pluginmanager.register(reached.Reached(Path({str(tmp_path)!r})))\n"
    )
    (tmp_path / "test_own.py").write_text(OWN)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "."],
        cwd=tmp_path, env={k: v for k, v in os.environ.items() if k != VARIABLE}, capture_output=True, text=True,
    )  # fmt: skip
    ((test, cases),) = read_tests(tmp_path)
    assert test == "test_own.py::test_it", done.stdout + done.stderr
    both, none, one = cases
    assert [c.name for c in cases] == [f"{test}[{name}]" for name in ("both", "none", "one")]
    assert none.lines < one.lines < both.lines and both.lines & one.lines == one.lines
    assert choose({test: [replace(each, seconds=1.0) for each in cases]}) == {test: [0]}
