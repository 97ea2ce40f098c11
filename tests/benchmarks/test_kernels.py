from __future__ import annotations

import onnx
import pytest
from halotile.benchmarks.cases import CASES, Case, layers_of, matmul_case, network_layers
from halotile.benchmarks.check_models import reference
from halotile.benchmarks.kernels import (
    Figure,
    _least_bytes,
    _slices,
    both_shares,
    limits,
    line,
    measure,
    share_of_limit,
    summary,
)
from halotile.benchmarks.models import MODELS, random_inputs
from halotile.compiler.page.peak import Meter, Peak


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.family} {c.name}")
def test_every_case_is_a_valid_model(case: Case) -> None:
    onnx.checker.check_model(case.model(), full_check=True)


def test_a_case_runs() -> None:
    model = CASES[3].model()
    (y,) = reference(model, random_inputs(model)).values()
    assert y.shape == (1, 512, 7, 7)


def test_least_bytes_counts_inputs_weights_and_outputs_once() -> None:
    case = next(c for c in CASES if c.name == "61x127x251")
    assert _least_bytes(case.model()) == (4 * (61 * 127 + 127 * 251 + 251), 4 * 61 * 251)


def test_line_uses_the_roof_of_the_working_set() -> None:
    peak = Peak(1, 1e11, ((2 << 20, 1e11), (1 << 30, 1e10)))
    text = line(CASES[0], Figure(1e-3, 5e7, 1e6, None), peak)
    assert "50.0 GFLOP/s" in text and " 50%" in text and "1.0 GB/s" in text and "  1%" in text
    assert " 10%" in line(CASES[0], Figure(3e-3, 0.0, 3e6, None), peak)
    assert line(CASES[0], Figure(1e-3, 0.0, 1e6, "y: differs"), peak).endswith("WRONG y: differs")


def test_there_are_ten_ordinary_shapes_and_odd_ones_of_each_anchor() -> None:
    for family in ("conv", "matmul"):
        assert sum(c.family == family and not c.odd for c in CASES) >= 10
        assert sum(c.family == family and c.odd for c in CASES) >= 3


def test_the_dense_layers_of_a_network_are_all_there_once() -> None:
    found = network_layers(["resnet50"])
    names = [case.name for case in found]
    assert len(set(names)) == len(names) == 23 and {case.family for case in found} == {"conv"}
    assert {"7x7/2 3->64 at 224", "3x3/2 128->128 at 56", "1x1/2 256->512 at 56", "1x1/1 2048->512 at 7"} <= set(names)
    assert not any(case.odd for case in found)


@pytest.mark.parametrize("name", ["swin", "convnext", "bert", "edsr"])
def test_layers_of_a_network_are_valid_models(name: str) -> None:
    """Products among them; a convolution of one group a channel, or a classifier of one row, is none."""
    cases = list(layers_of(MODELS[name].model(small=True)))
    assert any(case.family == ("conv" if name == "edsr" else "matmul") for case in cases)
    assert {case.family for case in cases} <= {"conv", "matmul"}
    for case in cases:
        onnx.checker.check_model(case.model(), full_check=True)


def test_the_summary_counts_shapes_at_their_mark() -> None:
    peak = Peak(1, 1e11, ((1 << 30, 1e10),))
    plain, odd = matmul_case(8, 8, 8), matmul_case(7, 7, 7, odd=True)
    assert share_of_limit(plain, Figure(1e-3, 9.6e7, 1.0, None), peak) == pytest.approx(0.96)
    relu = next(c for c in CASES if c.family == "elementwise")
    assert share_of_limit(relu, Figure(1e-3, 0.0, 8.5e6, None), peak) == pytest.approx(0.85)
    depthwise = next(c for c in CASES if c.family == "depthwise")
    assert share_of_limit(depthwise, Figure(1e-3, 9e7, 1e6, None), peak) == pytest.approx(0.9)
    assert share_of_limit(depthwise, Figure(1e-3, 1e6, 8e6, None), peak) == pytest.approx(0.8)
    first, second = summary([(plain, 0.96), (plain, 0.9), (odd, 0.9), (plain, None)])
    assert first == "matmul: 1 of 2 shapes reach 95%; 8x8x8 90%"
    assert second == "matmul (odd): 1 of 1 shapes reach 88%"


def test_both_limits_are_counted() -> None:
    peak = Peak(1, 1e11, ((1 << 30, 1e10),))
    gelu = next(c for c in CASES if c.operations)
    busy = Figure(1e-3, 0.0, 3e6, None, operations=4.5e7)
    assert both_shares(busy, peak) == (pytest.approx(0.3), pytest.approx(0.9))
    assert line(gelu, busy, peak).endswith("arithmetic  90%, arithmetic first")
    lines = limits([(gelu, (0.3, 0.9)), (gelu, (0.85, 0.2)), (gelu, (0.3, 0.2)), (CASES[0], (0.1, 1.0))])
    assert lines == [f"{gelu.family}: 1 of 3 at 80% of bandwidth, 2 at 80% of the limit met first"]


def test_a_share_is_of_the_peak_of_its_moment() -> None:
    """The clock falls to two thirds in the middle: each run takes as much longer, and the share stays."""
    clock = iter([3e11] * 6 + [2e11] * 100)
    now = [3e11]

    def pulse() -> float:
        now[0] = next(clock)
        return now[0]

    taken, peak = _slices(lambda: 2.4e8 / now[0], 0.0, pulse)
    assert taken * peak == pytest.approx(2.4e8) and peak in (2e11, 3e11)
    assert _slices(lambda: 1e-3, 0.0, None) == (1e-3, 0.0)


def test_a_pulse_is_near_the_peak() -> None:
    with Meter() as meter:
        for threads in (1, 2):
            assert meter.pulse(threads) > 1e9


def test_a_kernel_is_timed_by_itself() -> None:
    figure = measure(matmul_case(31, 64, 48), threads=1, seconds=0.01)
    assert figure.wrong is None and 0 < figure.seconds < 1 and figure.flops == 2 * 31 * 64 * 48
