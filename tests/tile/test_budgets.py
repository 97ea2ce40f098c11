"""Five budgets on small models of every shape of network: kept, to the byte. At full size: benchmarks/budgets.py."""

from __future__ import annotations

import pytest
from halotile.benchmarks.budgets import BUDGETS, check


@pytest.mark.parametrize("name", ["espcn", "resnet18"])
def test_five_budgets_are_kept_and_the_library_uses_what_was_promised(name: str) -> None:
    outcome = check(name, threads=2, small=True, link=name == "espcn")
    assert outcome.problems == []
    assert len(outcome.met) == BUDGETS
    assert outcome.smallest <= outcome.untiled
    assert outcome.met[0] == (outcome.smallest, outcome.smallest)  # what a refusal names can be had, exactly
    arenas = [arena for _, arena in outcome.met]
    assert len(set(arenas)) > 1 or outcome.smallest > 0.9 * outcome.untiled
