"""Formulas of heights hold at every height, not only where they were found."""

from __future__ import annotations

import pytest
from halotile.compiler.spec import Symbol
from halotile.compiler.stream.formulas import height_of
from halotile.schedules.words.dims import Dim, floor_div
from halotile.schedules.words.sizes import value_of


def pooled(h: Dim, multiple: int) -> Dim:
    """Pools behind pools: rates of 8 in 36 for heights of a multiple of 4, which look like 1 in 4 at some places."""
    fourth = floor_div(h, multiple)
    return floor_div(floor_div(2 * fourth, 3) + 2 * fourth + 2, 3) + 1


@pytest.mark.parametrize("multiple", [1, 4, 7])
def test_a_rate_that_is_nearly_right_is_not_taken(multiple: int) -> None:
    dim = pooled(Dim.symbol("h", multiple, multiple=multiple), multiple)
    found, least = height_of(dim, Symbol("h", low=multiple, multiple=multiple))
    assert (found.period, found.steps) == (9 * multiple, 8) and least <= 2 * multiple
    heights = range(least - least % multiple + multiple, 20_000, multiple)
    assert all(found.at(n) == value_of(dim, {"h": n}) for n in heights)
