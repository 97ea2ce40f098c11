"""Random groups around every kind of anchor: each is one kernel, and right against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
from halotile.schedules.conv.winograd import algorithm as winograd_algorithm
from halotile.schedules.conv.winograd import choose as choose
from random_groups import CONVS, random_case, run

ROUND = 12


def check(first: int, count: int, blocked: bool, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The schedules of ``count`` random groups, after their numbers were compared."""

    def plan(target: object, facts: object, **_: object) -> object:
        return choose.best_plan(target, facts) if choose.applies(facts) and facts.channels >= 3 else None

    monkeypatch.setattr(winograd_algorithm, "choose_plan", plan)
    cases = [random_case(seed) for seed in range(first, first + count)]
    build, results = run(cases, blocked)
    assert len(build.kernels) == len(cases), "a kernel for each group"
    for case, outputs, kernel in zip(cases, results, build.kernels, strict=True):
        if blocked and case.anchor in CONVS:
            assert any(f in kernel.schedule for f in ("conv", "winograd")), kernel.schedule
        for got, wanted in zip(outputs, case.expected, strict=True):
            text = f"seed {case.seed}, {case.anchor}, {kernel.schedule}"
            np.testing.assert_allclose(got, np.broadcast_to(wanted, got.shape), 2e-4, 2e-4, err_msg=text)
    return [k.schedule for k in build.kernels]


@pytest.mark.sampled
@pytest.mark.parametrize("blocked", [True, False])
@pytest.mark.parametrize("first", range(0, 2 * ROUND, ROUND))
def test_random_groups(first: int, blocked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(first, ROUND, blocked, monkeypatch)


def test_the_cases_have_what_they_promise() -> None:
    """Every anchor, second outputs, prologues and padding occur among the cases of a run."""
    cases = [random_case(seed) for seed in range(4 * ROUND)]
    assert {c.anchor for c in cases} >= {"conv", "winograd", "depthwise", "matmul", "max_pool", "softmax"}
    assert sum(len(c.expected) > 1 for c in cases) >= 5
    assert sum(len(c.arrays) > 1 for c in cases) >= 10
