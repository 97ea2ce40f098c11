"""Which weights are bytes times a step for each column."""

from __future__ import annotations

import numpy as np
import pytest
from halotile.passes.dots.operands import whole_steps


@pytest.mark.parametrize(("k", "n"), [(1, 1), (2, 5), (3, 17), (67, 31), (521, 127)])
@pytest.mark.parametrize("most", [127, 128, 90, 1])
def test_steps_are_found_whatever_was_multiplied_in(k: int, n: int, most: int) -> None:
    rng = np.random.default_rng(k + most)
    whole = rng.integers(-most, min(most, 127) + 1, (k, n))
    whole[:, -1] = 0  # a column of zeros has any step
    steps = rng.uniform(1e-6, 3.0, n).astype(np.float32)
    weights = whole.astype(np.float32) * steps
    weights = (weights.astype(np.float64) * (0.0171 / 0.0314) * rng.uniform(0.1, 4, n)).astype(np.float32)
    found = whole_steps(weights.T)
    assert found is not None
    bytes_, scales = found
    assert bytes_.dtype == np.int8
    np.testing.assert_allclose(bytes_.T * scales, weights, rtol=1e-6, atol=0)


def test_whole_numbers_keep_a_step_of_one() -> None:
    whole = np.array([[2, -4, 127], [4, 8, -128]], np.float32)
    bytes_, scales = whole_steps(whole.T) or (None, None)
    assert np.array_equal(bytes_.T, whole) and np.array_equal(scales, np.ones(3))


@pytest.mark.parametrize(
    "weights",
    [
        np.random.default_rng(0).standard_normal((67, 5)).astype(np.float32),
        np.array([[200.0], [1.0]], np.float32),  # more than 128 steps
        np.array([[1.0], [np.inf]], np.float32),
        np.array([[1.0], [np.nan]], np.float32),
        np.array([[1.0], [np.pi]], np.float32),
        np.array([[127.0], [1.01]], np.float32),
    ],
)
def test_other_weights_have_none(weights: np.ndarray) -> None:
    assert whole_steps(weights.T) is None


def test_one_column_that_has_none_is_enough() -> None:
    rng = np.random.default_rng(1)
    weights = rng.integers(-127, 128, (67, 5)).astype(np.float32) * np.float32(0.013)
    assert whole_steps(weights.T) is not None
    weights[:, 3] = rng.standard_normal(67)
    assert whole_steps(weights.T) is None


def test_whole_numbers_have_whole_steps() -> None:
    """What sums of others round to may be one off as an integer."""
    assert whole_steps(np.array([[200.0, 199.0, 0.0]])) is None
    bytes_, scales = whole_steps(np.array([[240.0, -120.0, 0.0], [3.0, 1.0, 2.0]])) or (None, None)
    assert np.array_equal(scales, [2, 1]) and np.array_equal(bytes_, [[120, -60, 0], [3, 1, 2]])
