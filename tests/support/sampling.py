"""Which cases of a crossing run: of tests marked ``sampled``, whose parameters are crossed by several decorators.

    @pytest.mark.sampled
    @pytest.mark.parametrize("model", MODELS)
    @pytest.mark.parametrize("rows", [5, 8, 40])

Of three parameters or more: cases that have every pair of values. Of two: every other, as the black fields of a
chessboard, so that each value meets half of the other's. Which ones is the same in every run, and the cases that are
left out are run by ``HALOTILE_CASES=all``. For tests that take seconds of the processor in a case.

Of what is left then, those cases run that a table names (chosen.py), unless ``HALOTILE_CASES=sampled`` says not to ask,
or a test is marked ``every``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import pytest
from chosen import read_chosen, run_of

MARK = "sampled"
EVERY = "every"
VARIABLE = "HALOTILE_CASES"

Case = tuple[int, ...]  # the number of a value in each parameter


def left_out(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Those items that do not run."""
    wish = os.environ.get(VARIABLE)
    if wish == "all":
        return []
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if hasattr(item, "callspec"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    out = [item for cases in tests.values() if cases[0].get_closest_marker(MARK) for item in _left_out(cases)]
    return out if wish == "sampled" else [*out, *_not_chosen(tests, {item.nodeid for item in out})]


def _not_chosen(tests: Mapping[str, Sequence[pytest.Item]], out: set[str]) -> Iterator[pytest.Item]:
    """What the table leaves out of those that are not ``out``."""
    chosen = read_chosen()
    for test in sorted(tests.keys() & chosen.keys()):
        if tests[test][0].get_closest_marker(EVERY):
            continue
        cases = [item for item in tests[test] if item.nodeid not in out]
        run = run_of(test, [item.nodeid for item in cases], chosen)
        yield from (item for item in cases if item.nodeid not in run)


def _left_out(items: list[pytest.Item]) -> list[pytest.Item]:
    chosen = chosen_cases([_case(item) for item in items]) if len(items) > 1 else {0}
    return [item for number, item in enumerate(items) if number not in chosen]


def _case(item: pytest.Item) -> tuple[str, ...]:
    """The name of the value of each decorator's parameters."""
    return tuple(item.callspec._idlist)  # type: ignore[attr-defined]


def chosen_cases(names: Sequence[tuple[str, ...]]) -> set[int]:
    """The numbers of those that run, of cases that are given by a name for the value of each parameter."""
    values: list[dict[str, int]] = [{} for _ in names[0]]
    for case in names:
        for known, name in zip(values, case, strict=True):
            known.setdefault(name, len(known))
    axes = [axis for axis, known in enumerate(values) if len(known) > 1]
    cases = [tuple(values[axis][case[axis]] for axis in axes) for case in names]
    if len(axes) < 2:
        return set(range(len(cases)))
    return _chessboard(cases) if len(axes) == 2 else _pairs(cases)


def _chessboard(cases: Sequence[Case]) -> set[int]:
    """The black fields, and the first case of a value that has none: where not all were crossed."""
    black = {number for number, case in enumerate(cases) if sum(case) % 2 == 0}
    for axis in range(2):
        seen = {cases[number][axis] for number in black}
        for number, case in enumerate(cases):
            if case[axis] not in seen:
                seen.add(case[axis])
                black.add(number)
    return black


def _pairs(cases: Sequence[Case]) -> set[int]:
    """So many that every pair of values which some case has is there: first those that bring only new pairs, in their
    order, then those that bring one fewer, and so on."""
    axes = list(combinations(range(len(cases[0])), 2))
    pairs = [{(a, case[a], b, case[b]) for a, b in axes} for case in cases]
    seen: set[tuple[int, int, int, int]] = set()
    chosen: set[int] = set()
    for least in range(len(axes), 0, -1):
        for number, own in enumerate(pairs):
            if len(own - seen) >= least:
                seen |= own
                chosen.add(number)
    return chosen
