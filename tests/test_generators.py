"""Tests draw the numbers that they draw alone, whichever ran before (tests/support/generators.py)."""

from __future__ import annotations

import random

import numpy as np
import pytest

NUMBERS, PLAIN = np.random.default_rng(3), random.Random(3)
FIRST, PLAIN_FIRST = np.random.default_rng(3).random(), random.Random(3).random()


@pytest.fixture(scope="module")
def once() -> float:
    return float(NUMBERS.random())


@pytest.mark.parametrize("time", [1, 2])
def test_a_module_s_generator_begins_anew(time: int) -> None:
    assert NUMBERS.random() == FIRST, time
    assert PLAIN.random() == PLAIN_FIRST, time


@pytest.mark.parametrize("time", [1, 2])
def test_what_a_fixture_drew_is_the_same_for_all(time: int, once: float) -> None:
    assert once == FIRST, time
