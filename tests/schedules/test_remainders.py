"""Remainders of float32 numbers: those of C's fmod to the bit, for numbers of every size."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Suite
from halotile.schedules.operators.registry import call as own

pytestmark = pytest.mark.filterwarnings("ignore:invalid value")

SPECIAL = np.array([0, 1, 2, 0.5, 3, 1e-40, 1e30, 3.4e38, 16777216, 0.75, 7, 2.5, 1e-45, np.inf, np.nan], "f4")


def test_remainders_are_exact_and_vectors() -> None:
    random = np.random.default_rng(0)
    x, y = (a.ravel() for a in np.meshgrid(*[np.concatenate([SPECIAL, -SPECIAL])] * 2))
    a, b = random.integers(0, 2**32, (2, 50_001), dtype=np.uint32).view(np.float32)
    c, d = random.standard_normal((2, 50_001)).astype(np.float32)
    whole, small = random.integers(-4000, 4000, 9_999), random.integers(-50, 50, 9_999)
    x = np.concatenate([x, a, c, c * 1000, whole]).astype(np.float32)
    y = np.concatenate([y, b, d, d, small]).astype(np.float32)
    exact = np.fmod(x, y)
    suite = Suite()
    suite.add("it", [x, y], lambda p, q: own("halotile.modulo", p, q, truncate=True), exact)
    suite.compile()
    got = suite.cases["it"].results[0]
    np.testing.assert_array_equal(got, exact)
    number = ~np.isnan(exact)
    np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(exact)[number])
    assert suite.compiled is not None and "fmodf" not in str(suite.compiled.build.kernels[0].function)
