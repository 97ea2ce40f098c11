from __future__ import annotations

import pytest
from halotile.benchmarks.summary import geometric_mean, paired_ratio, summarise, warnings


def test_median_and_mad_are_of_all_runs_together() -> None:
    summary = summarise([(1.0, 2.0, 3.0), (2.0, 4.0, 100.0)])
    assert (summary.median, summary.mad, summary.best, summary.runs) == (2.5, 1.0, 1.0, 6)
    assert summary.rounds == (2.0, 4.0)
    assert summary.drift == pytest.approx(2.0 / 2.5)


def test_no_runs_is_an_error() -> None:
    with pytest.raises(ValueError, match="no run was timed"):
        summarise([()])


def test_steady_runs_give_no_warning_and_doubtful_ones_say_why() -> None:
    assert warnings("x", summarise([(1.0, 1.01, 0.99)] * 3), 0.0, 2) == []
    noisy = warnings("x", summarise([(1.0, 2.0), (3.0, 5.0)]), 0.7, 2)
    assert [w.split(": ")[1].split(" ")[0] for w in noisy] == ["runs", "bursts", "other", "only"]


def test_ratios() -> None:
    assert paired_ratio((2.0, 4.0, 9.0), (1.0, 4.0, 3.0)) == (2.0, 1.0, 3.0)
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
