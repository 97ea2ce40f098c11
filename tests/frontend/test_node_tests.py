"""A sample of the ONNX node tests, of ONNX's backend tests, and the light models. (All of them: make node-tests.)"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import onnx.backend.test
import pytest
from halotile.benchmarks import backend_tests, case_runner, node_tests
from halotile.compiler.frontend import import_model

EVERY = 29  # one in so many; prime, so that it does not run in step with families that come in twos or fours


@pytest.fixture(scope="module")
def cases() -> dict:
    return node_tests.load_cases()


def test_a_sample_of_the_node_tests(cases: dict) -> None:
    """None is wrong and none crashes; and most pass."""
    names = sorted(cases)[::EVERY]
    outcomes = [node_tests.run_case(cases[n], "te") for n in names]
    bad = [f"{o.name}: {o.verdict} {o.detail}" for o in outcomes if o.verdict in ("WRONG", "CRASH")]
    assert not bad, "\n".join(bad)
    tensors = [o for o in outcomes if o.verdict != node_tests.NOT_TENSORS]
    assert sum(o.verdict == "pass" for o in tensors) > 0.75 * len(tensors)


def test_a_sample_with_all_inputs_frozen(cases: dict) -> None:
    """What import computes is what the test expects. (All of them: node_tests --running 0.)"""
    names = sorted(cases)[EVERY // 2 :: 2 * EVERY]
    outcomes = [node_tests.run_case(cases[n], "te", running=0) for n in names]
    bad = [f"{o.name}: {o.verdict} {o.detail}" for o in outcomes if o.verdict in ("WRONG", "CRASH")]
    assert not bad, "\n".join(bad)
    assert sum(o.verdict == "pass" for o in outcomes) > 0.75 * len(outcomes)


def test_a_state_without_length_is_compiled(cases: dict) -> None:
    """Its tensor has no elements, so nothing can be said per element, of its cost neither."""
    outcome = node_tests.run_case(cases["test_causal_conv_with_state_kernel_size_one"], "aot")
    assert outcome.verdict == "pass", outcome.detail


@pytest.mark.parametrize("name", ["test_nonzero_example", "test_nonmaxsuppression_two_batches"])
def test_what_is_there_is_compared(cases: dict, name: str) -> None:
    """The room behind it is not; a length that is wrong is seen."""
    assert node_tests.run_case(cases[name], "te").verdict == "pass"
    inputs, outputs = cases[name].data_sets[0]
    shorter = dataclasses.replace(cases[name], data_sets=[(inputs, [outputs[0][..., :-1]])])
    assert node_tests.run_case(shorter, "te").verdict == "WRONG"


def test_a_wrong_answer_is_seen(cases: dict) -> None:
    case = cases["test_relu"]
    inputs, outputs = case.data_sets[0]
    broken = dataclasses.replace(case, data_sets=[(inputs, [outputs[0] + np.float32(0.01)])])
    assert node_tests.run_case(broken, "te").verdict == "WRONG"


def test_the_table_counts_every_outcome(cases: dict) -> None:
    outcomes = [node_tests.run_case(cases[n], "te") for n in ("test_relu", "test_bernoulli")]
    text = node_tests.table(outcomes)
    assert "1 pass, 1 are refused" in text and "do not edit" in text
    assert any(line.startswith("| Relu | 1 |") for line in text.splitlines())


LIGHT = Path(os.path.dirname(onnx.backend.test.__file__)) / "data" / "light"


@pytest.mark.parametrize("path", sorted(LIGHT.glob("*.onnx")), ids=lambda p: p.stem)
def test_light_models(path: Path) -> None:
    imported = import_model(path)
    assert len(imported.inputs) == 1 and imported.inputs[0].dtype == "float32"
    assert sum(imported.operators.values()) > 10


def test_parts_merge_into_one_table(cases: dict, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two parts make the whole; one of them alone is refused, since its table would claim too little."""
    outcomes = [dataclasses.asdict(node_tests.CaseOutcome(n, ("Relu",), "pass", "", 0.0)) for n in sorted(cases)]
    halves = [tmp_path / "a.json", tmp_path / "b.json"]
    for i, path in enumerate(halves):
        path.write_text(json.dumps(outcomes[i::2]))
    target = tmp_path / "table.md"
    assert node_tests.main(["--merge", str(halves[0]), "--table", str(target)]) == 2 and not target.exists()
    assert node_tests.main(["--merge", *map(str, halves), "--table", str(target)]) == 0
    assert f"{len(outcomes)} pass" in target.read_text()


@pytest.fixture(scope="module")
def suite() -> dict:
    """onnx.backend.test, on our backend."""
    return backend_tests.load_cases()


def test_a_sample_of_the_backend_tests(suite: dict) -> None:
    """Shapes that an input gives, an output as long as the data says, and graphs that PyTorch wrote."""
    for name in (
        "test_relu_cpu",
        "test_reshape_negative_dim_cpu",
        "test_nonzero_example_cpu",
        "test_hammingwindow_cpu",
        "test_operator_addmm_cpu",
        "test_Linear_cpu",
        "test_expand_shape_model1_cpu",
    ):
        outcome = backend_tests.run_case(suite[name])
        assert outcome.verdict == "pass", f"{name}: {outcome.detail}"
    refused = backend_tests.run_case(suite["test_bernoulli_cpu"])
    assert refused.verdict == "refused" and "random" in refused.detail


def test_a_wrong_answer_of_the_backend_is_seen(suite: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    from halotile.compiler.onnxruntime.session import InferenceSession

    run = InferenceSession.run
    monkeypatch.setattr(InferenceSession, "run", lambda *a: [y + y.dtype.type(1) for y in run(*a)])
    assert backend_tests.run_case(suite["test_relu_cpu"]).verdict == "WRONG"


def test_the_parts_of_the_table_leave_each_other_alone(tmp_path: Path) -> None:
    operators = node_tests.table([node_tests.CaseOutcome("test_relu", ("Relu",), "pass")])
    tests = backend_tests.table(
        [
            node_tests.CaseOutcome("test_dft_inverse_cpu", ("operators",), "differs"),
            node_tests.CaseOutcome("test_relu_cpu", ("operators",), "pass"),
            node_tests.CaseOutcome("test_x_cpu", ("operators",), "refused", "input 'x' holds STRING data"),
        ]
    )
    assert "of 3 tests 1 pass, 1 are refused" in tests and "`test_dft_inverse_cpu` | zeros" in tests
    assert "| an input holds STRING data | 1 |" in tests
    file = tmp_path / "SUPPORT.md"
    for text in (tests, operators, operators, tests):
        case_runner.write_part(file, text)
    assert file.read_text() == f"{operators}\n{tests}"
