from __future__ import annotations

import numpy as np
import pytest
from halotile.benchmarks.check_models import compare, main

Y = np.array([1.0, -2.0, 4.0], np.float32)


def test_equal_and_nearly_equal_outputs_pass() -> None:
    assert compare({"y": Y}, {"y": Y}, 1e-3) == []
    assert compare({"y": Y + np.float32(0.0035)}, {"y": Y}, 1e-3) == []
    special = np.array([np.nan, np.inf, -np.inf], np.float32)
    assert compare({"y": special}, {"y": special}, 1e-3) == []


@pytest.mark.parametrize(
    ("ours", "message"),
    [
        ({"y": Y + np.float32(0.005)}, "y: differs by 0.005"),
        ({"y": np.array([np.nan, -2.0, 4.0], np.float32)}, "y: differs by inf"),
        ({"y": np.array([1.0, np.inf, 4.0], np.float32)}, "y: differs by inf"),
        ({"y": Y[:2]}, r"y: float32\[2\] instead of float32\[3\]"),
        ({"y": Y.astype(np.float64)}, "y: float64"),
        ({}, "y: missing"),
    ],
)
def test_differences_are_named(ours: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        differences = compare(ours, {"y": Y}, 1e-3)
        assert not differences, differences[0]


def test_an_output_too_many_is_named() -> None:
    assert compare({"y": Y, "z": Y}, {"y": Y}, 1e-3) == ["z: not an output of the model"]


def test_unknown_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["resnet51"])
    assert "unknown model resnet51; known: " in capsys.readouterr().err
