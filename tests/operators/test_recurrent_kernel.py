"""The time loop in one kernel: sizes that lanes do not divide, every variant, long sequences, and what is emitted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import halotile
import numpy as np
import pytest
from evaluate import evaluate, one_node, peer
from halotile.compiler.frontend import import_model
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.errors import UnsupportedError
from halotile.schedules.operators.recurrent import LANES, _tile
from halotile.targets.resolve import resolve

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def case(
    operator: str, sizes: tuple[int, int, int, int] = (5, 2, 3, 17), directions: int = 1, dtype: str = "float32",
    states: bool = False, peepholes: bool = False, lengths: list[int] | None = None,
) -> list[np.ndarray | None]:  # fmt: skip
    """Operands for (steps, batch, inputs, hidden)."""
    rng = np.random.default_rng(5)
    (t, b, n, h), d, g = sizes, directions, GATES[operator]

    def noise(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.5).astype(dtype)

    inputs: list[np.ndarray | None] = [
        noise(t, b, n), noise(d, g * h, n), noise(d, g * h, h), noise(d, 2 * g * h),
        None if lengths is None else np.array(lengths, "int32"), noise(d, b, h) if states else None,
    ]  # fmt: skip
    if operator == "LSTM":
        inputs += [noise(d, b, h) if states else None, noise(d, 3 * h) if peepholes else None]
    return inputs


def check(operator: str, inputs: list[np.ndarray | None], rtol: float = 1e-4, **attributes: Any) -> halotile.Model:
    """Through the whole compiler, for one and two threads, against ONNX Runtime."""
    hidden = inputs[2].shape[2]  # type: ignore[union-attr]
    outputs = 3 if operator == "LSTM" else 2
    model, feeds = one_node(operator, inputs, outputs, hidden_size=hidden, opset=14, **attributes)
    expected = peer(model, feeds)
    for threads in (1, 2):
        built = halotile.compile(model, threads=threads)
        for a, b in zip(built(feeds).values(), expected, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol / 10)
    return built


@pytest.mark.sampled
@pytest.mark.parametrize("operator", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("hidden", [1, 5, 16, 17, 32, 43])
@pytest.mark.parametrize("batch", [1, 2, 3])
def test_sizes(operator: str, hidden: int, batch: int) -> None:
    built = check(operator, case(operator, (4, batch, 3, hidden), states=True))
    assert sum(k["schedule"] == "loops" for k in built.report["kernels"]) == 1


@pytest.mark.sampled
@pytest.mark.parametrize("operator", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lengths", [None, [3, 5]])
def test_directions(operator: str, direction: str, lengths: list[int] | None) -> None:
    d = 2 if direction == "bidirectional" else 1
    inputs = case(operator, directions=d, states=True, peepholes=True, lengths=lengths)
    check(operator, inputs, direction=direction)


def test_a_step_large_enough_to_be_shared_by_threads() -> None:
    built = check("LSTM", case("LSTM", (3, 2, 8, 200)))
    assert built.report["kernels"][-1]["schedule"] == "loops"


@pytest.mark.parametrize("variant", [0, 1])
@pytest.mark.parametrize("clip", [None, 0.4])
def test_variants_of_gru(variant: int, clip: float | None) -> None:
    extra = {} if clip is None else {"clip": clip}
    check("GRU", case("GRU", states=True), linear_before_reset=variant, **extra)


def test_clipped_lstm_with_coupled_gates() -> None:
    check("LSTM", case("LSTM", states=True, peepholes=True), clip=0.3)
    check("LSTM", case("LSTM", states=True), input_forget=1)


@pytest.mark.parametrize(
    ("name", "alpha", "beta"),
    [("Relu", None, None), ("Affine", 0.7, 0.1), ("LeakyRelu", 0.2, None), ("HardSigmoid", 0.3, 0.4),
     ("Softsign", None, None), ("ScaledTanh", 0.8, 1.2), ("Sigmoid", None, None), ("Softplus", None, None),
     ("Elu", 0.6, None), ("Elu", None, None), ("ThresholdedRelu", 0.3, None)],
)  # fmt: skip
def test_activations(name: str, alpha: float | None, beta: float | None) -> None:
    extra = {k: [v] for k, v in (("activation_alpha", alpha), ("activation_beta", beta)) if v is not None}
    check("RNN", case("RNN"), activations=[name], **extra)


@pytest.mark.parametrize("operator", ["RNN", "GRU", "LSTM"])
def test_a_long_sequence_is_as_many_kernels_as_a_short_one(operator: str) -> None:
    built = []
    for steps in (3, 400):
        inputs = case(operator, (steps, 1, 4, 20))
        inputs[2] *= 0.3  # larger weights make a chaotic system, in which no two engines agree after 400 steps
        built.append(check(operator, inputs))
    short, long = built
    assert len(long.report["kernels"]) == len(short.report["kernels"]) <= 4


@pytest.mark.parametrize("operator", ["RNN", "GRU", "LSTM"])
def test_weights_of_run_time_are_written_out(operator: str) -> None:
    outputs = 3 if operator == "LSTM" else 2
    inputs = case(operator, (3, 2, 3, 5), states=True)
    model, feeds = one_node(operator, inputs, outputs, run_time=(0, 2), hidden_size=5, opset=14)
    assert "halotile.recurrent" not in str(import_model(model).module)
    for a, b in zip(evaluate(model, feeds).values(), peer(model, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    model, _ = one_node(
        operator, case(operator, (300, 1, 2, 2)), outputs, run_time=(0, 2), hidden_size=2, opset=14
    )
    with pytest.raises(UnsupportedError, match="300 steps.*computed at run time"):
        import_model(model)


@pytest.mark.parametrize("operator", ["RNN", "GRU", "LSTM"])
def test_half_precision_keeps_its_state_in_single(operator: str) -> None:
    """ONNX Runtime has no float16 cells: the reference is its float32 on the same numbers."""
    inputs = case(operator, (12, 2, 3, 17), states=True)
    inputs[2] = inputs[2] * np.float32(0.3)  # type: ignore[operator]
    half = [None if i is None else i.astype("float16") for i in inputs]
    model, feeds = one_node(operator, half, 1, hidden_size=17, opset=14)
    wide = [None if i is None else i.astype("float32") for i in half]
    reference = peer(*one_node(operator, wide, 1, hidden_size=17, opset=14))[0]
    (ours,) = evaluate(model, feeds).values()
    assert ours.dtype == np.float16
    np.testing.assert_allclose(ours.astype("float32"), reference, atol=3e-3)


def test_rows_that_share_the_weights() -> None:
    """As many as fit the registers with the weights of a gate and broadcasts; of all gates, or of some at a time."""
    assert _tile(16, 4, 16, 32 * 16, 0) == (4, 4) and _tile(12, 4, 16, 32 * 16, 0) == (6, 4)
    assert _tile(16, 3, 16, 32 * 16, 0) == (8, 3) and _tile(5, 4, 16, 32 * 16, 0) == (5, 4)
    avx2 = 16 * 8, 8
    assert _tile(16, 4, 16, *avx2) == (4, 1) and _tile(6, 4, 16, *avx2) == (6, 1) and _tile(2, 4, 16, *avx2) == (2, 2)
    assert _tile(2, 3, 16, *avx2) == (2, 3) and _tile(1, 4, 16, *avx2) == _tile(7, 4, 16, *avx2) == (1, 4)
    assert _tile(12, 4, 16, 32 * 4, 4) == (3, 2)
    check("LSTM", case("LSTM", (3, 12, 3, 17), states=True, peepholes=True))
    check("GRU", case("GRU", (3, 5, 3, 17), lengths=[3, 1, 2, 3, 0]))
    for batch in (2, 4, 6, 7, 16):
        check("LSTM", case("LSTM", (3, batch, 5, 37), states=True))
        check("GRU", case("GRU", (3, batch, 5, 37), states=True))


def test_rows_that_an_open_batch_leaves_over() -> None:
    """Seven rows at a time, then three, two or one: of two rows none waits alone for its sums and all weights."""
    model, feeds = one_node("LSTM", case("LSTM", (3, 2, 5, 32)), 1, hidden_size=32, opset=14)
    options = Options(resolve("x86-64-v4"), shapes={"i0": (3, "b", 5)}, threads=1, stop_after="schedule")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "b"
    model.graph.output[0].type.tensor_type.shape.Clear()
    (kernel,) = [k for k in run_pipeline(model, options).kernels if k.schedule == "loops"]
    assert len(re.findall(r"for b\d* in range", kernel.function.script())) == 4
    built = halotile.compile(model, threads=1)
    for batch in range(1, 16):
        inputs = case("LSTM", (3, batch, 5, 32))
        wanted = peer(*one_node("LSTM", [inputs[0], *case("LSTM", (3, 2, 5, 32))[1:]], 1, hidden_size=32, opset=14))[0]
        (got,) = built({"i0": inputs[0]}).values()
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("operator", ["RNN", "GRU", "LSTM"])
def test_a_sequence_without_steps_has_no_state(operator: str) -> None:
    """ONNX Runtime gives zeros, not the initial state; the others' states stay."""
    check(operator, case(operator, directions=2, states=True, lengths=[0, 4]), direction="bidirectional")


@pytest.mark.parametrize("operator", ["GRU", "LSTM"])
def test_no_store_spans_several_vectors(operator: str, tmp_path: Path) -> None:
    """LLVM would take a store of three vectors apart, and carry the sums of a GRU from step to step as scalars."""
    variant = {"linear_before_reset": 1} if operator == "GRU" else {}
    model, _ = one_node(operator, case(operator, (3, 3, 4, 32)), 1, hidden_size=32, opset=14, **variant)
    run_pipeline(model, Options(resolve("native"), threads=1, stop_after="schedule", dump_ir=tmp_path))
    text = next(tmp_path.glob("*-schedule.txt")).read_text()
    kernel = text[text.index("recurrent: loops") :].split("\n# g")[0]
    assert set(re.findall(r"T\.vectorized\((\d+)\)", kernel)) == {str(LANES)}
