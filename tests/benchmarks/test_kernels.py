from __future__ import annotations

import onnx
import pytest
from halotile.benchmarks.check_models import reference
from halotile.benchmarks.kernels import CASES, Case, Figure, _least_bytes, line
from halotile.benchmarks.models import random_inputs
from halotile.benchmarks.peak import Peak


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.family} {c.name}")
def test_every_case_is_a_valid_model(case: Case) -> None:
    onnx.checker.check_model(case.model(), full_check=True)


def test_a_case_runs() -> None:
    model = CASES[3].model()
    (y,) = reference(model, random_inputs(model)).values()
    assert y.shape == (1, 512, 7, 7)


def test_least_bytes_counts_inputs_weights_and_outputs_once() -> None:
    case = next(c for c in CASES if c.name == "61x127x251")
    assert _least_bytes(case.model()) == 4 * (61 * 127 + 127 * 251 + 251 + 61 * 251)


def test_line_uses_the_roof_of_the_working_set() -> None:
    peak = Peak(1, 1e11, ((2 << 20, 1e11), (1 << 30, 1e10)))
    text = line(CASES[0], Figure(1e-3, 5e7, 1e6, None), peak)
    assert "50.0 GFLOP/s" in text and " 50%" in text and "1.0 GB/s" in text and "  1%" in text
    assert " 10%" in line(CASES[0], Figure(3e-3, 0.0, 3e6, None), peak)
    assert line(CASES[0], Figure(1e-3, 0.0, 1e6, "y: differs"), peak).endswith("WRONG y: differs")
