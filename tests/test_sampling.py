"""Of crossed parameters, those cases run that have every pair of values, or every other."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sampling import chosen_cases, left_out

CROSSED = """
import pytest

@pytest.mark.sampled
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(("kind", "more"), [("a", 1), ("b", 1)])
@pytest.mark.parametrize("exact", [False, True])
def test_three(size, kind, more, exact): pass

@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("kind", ["a", "b"])
def test_two(size, kind): pass
"""


def crossed(*sizes: int) -> list[tuple[str, ...]]:
    return list(product(*([f"{axis}{value}" for value in range(size)] for axis, size in zip("abcde", sizes))))


@pytest.mark.parametrize("sizes", [(2, 2, 2), (3, 1, 4, 2), (110, 5, 2), (7, 2, 2, 2), (3, 3, 3, 3)])
def test_every_pair_of_values_is_there(sizes: tuple[int, ...]) -> None:
    cases = crossed(*sizes)
    run = [cases[number] for number in chosen_cases(cases)]
    pairs = {pair for case in run for pair in combinations(case, 2)}
    assert pairs == {pair for case in cases for pair in combinations(case, 2)}
    least = sorted(sizes)[-1] * sorted(sizes)[-2]
    assert least <= len(run) <= max(1.7 * least, least + 4) and len(run) < len(cases)


@pytest.mark.parametrize("sizes", [(2, 2), (6, 8), (1, 3, 5), (2, 1, 7)])
def test_every_other_of_two_parameters(sizes: tuple[int, ...]) -> None:
    cases = crossed(*sizes)
    run = [cases[number] for number in chosen_cases(cases)]
    assert len(run) == (len(cases) + 1) // 2
    assert {name for case in run for name in case} == {name for case in cases for name in case}


def test_where_not_all_were_crossed_no_value_is_lost() -> None:
    assert chosen_cases([("a0", "b0"), ("a1", "b0"), ("a0", "b1")]) == {0, 1, 2}


def test_one_parameter_is_no_crossing() -> None:
    assert chosen_cases(crossed(5)) == set(range(5)) and chosen_cases(crossed(1, 4)) == set(range(4))


def items_of(names: list[tuple[str, ...]], marked: bool = True) -> list[Any]:
    return [
        SimpleNamespace(
            nodeid=f"test_x.py::test_x[{'-'.join(case)}]", callspec=SimpleNamespace(_idlist=case),
            get_closest_marker=lambda name: marked and name == "sampled",
        )
        for case in names
    ]  # fmt: skip


def test_those_that_are_not_marked_and_one_by_its_name_always_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HALOTILE_CASES", raising=False)
    out = left_out(items_of(crossed(2, 4)))
    assert len(out) == 4 and not left_out(items_of(crossed(2, 4), marked=False))
    assert not left_out([out[0]]) and not left_out([SimpleNamespace(nodeid="test_y.py::test_y")])
    monkeypatch.setenv("HALOTILE_CASES", "all")
    assert not left_out(items_of(crossed(2, 4)))


def test_pytests_own_cases_have_the_names_of_their_values(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent / 'support')!r})\nfrom sampling import left_out\n"
        "def pytest_collection_modifyitems(items):\n"
        "    out = left_out(items); items[:] = [item for item in items if item not in out]\n"
    )
    (tmp_path / "test_crossed.py").write_text(CROSSED)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "--collect-only"],
        cwd=tmp_path, env={**os.environ, "HALOTILE_CASES": ""}, capture_output=True, text=True,
    )  # fmt: skip
    found = [line.partition("::")[2].partition("[")[0] for line in done.stdout.splitlines()]
    assert found.count("test_three") == 6 and found.count("test_two") == 6, done.stdout + done.stderr
