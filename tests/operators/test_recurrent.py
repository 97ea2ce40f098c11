"""LSTM, GRU and RNN against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from evaluate import agree, evaluate, one_node
from halotile.errors import UnsupportedError

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@pytest.mark.sampled
@pytest.mark.parametrize("operator", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lengths", [None, [3, 1, 2]])
def test_recurrence(operator: str, direction: str, lengths: list[int] | None) -> None:
    rng = np.random.default_rng(5)
    d, g, h, n, b, t = 2 if direction == "bidirectional" else 1, GATES[operator], 4, 3, 3, 3

    def noise(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype("float32")

    inputs = [
        noise(t, b, n), noise(d, g * h, n), noise(d, g * h, h), noise(d, 2 * g * h),
        None if lengths is None else np.array(lengths, "int32"), noise(d, b, h),
    ]  # fmt: skip
    outputs = 2
    if operator == "LSTM":
        inputs += [noise(d, b, h), noise(d, 3 * h)]
        outputs = 3
    agree(operator, inputs, outputs, hidden_size=h, direction=direction, opset=14, rtol=1e-4)


@pytest.mark.parametrize("name", ["Softplus", "Elu", "ThresholdedRelu"])
def test_activations_where_the_steps_are_written_out(name: str) -> None:
    rng = np.random.default_rng(6)
    inputs = [rng.standard_normal(s).astype("float32") for s in ((4, 2, 3), (1, 2, 3), (1, 2, 2))]
    agree("RNN", inputs, 2, hidden_size=2, activations=[name], activation_alpha=[0.3], opset=14, rtol=1e-4)


def test_gru_that_resets_after_the_product() -> None:
    rng = np.random.default_rng(6)
    inputs = [rng.standard_normal(s).astype("float32") for s in ((4, 2, 3), (1, 6, 3), (1, 6, 2), (1, 12))]
    agree("GRU", inputs, 2, hidden_size=2, linear_before_reset=1, opset=14, rtol=1e-4)


def weights(operator: str, directions: int = 1) -> list[np.ndarray]:
    rng, gates = np.random.default_rng(6), GATES[operator]
    shapes = (4, 2, 3), (directions, 4 * gates, 3), (directions, 4 * gates, 4)
    return [rng.standard_normal(s).astype("float32") for s in shapes]


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("operator", GATES)
@pytest.mark.parametrize("clip", [0.0, -1.0, float("nan")])
def test_a_clip_that_is_no_limit(operator: str, clip: float, frozen: bool) -> None:
    """In the kernel and where steps are written out, alike."""
    x, w, r = weights(operator)
    free = (0,) if frozen else (0, 2)
    model, feeds = one_node(operator, [x, w, r], 1, hidden_size=4, clip=clip, opset=14, run_time=free)
    with pytest.raises(UnsupportedError, match="clip is .*above 0"):
        evaluate(model, feeds)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(
    ("operator", "names", "wanted"),
    [
        ("RNN", ["Tanh"], "has 1 activations and needs 2: 1 for"),
        ("GRU", ["Sigmoid", "Tanh"], "has 2 activations and needs 4: 2 for"),
        ("GRU", ["Sigmoid", "Tanh", "Tanh"], "has 3 activations"),
        ("LSTM", ["Sigmoid", "Tanh", "Tanh"], "has 3 activations and needs 6: 3 for"),
        ("LSTM", ["Sigmoid"] * 7, "has 7 activations"),
    ],
)
def test_another_number_of_activations(operator: str, names: list[str], wanted: str, frozen: bool) -> None:
    own = {"hidden_size": 4, "direction": "bidirectional", "activations": names, "opset": 14}
    model, feeds = one_node(operator, weights(operator, 2), 1, **own, run_time=(0,) if frozen else (0, 2))
    with pytest.raises(UnsupportedError, match=wanted):
        evaluate(model, feeds)


def test_more_activations_than_one_direction_of_an_rnn_has() -> None:
    """ONNX's default is two, whatever the directions."""
    agree("RNN", weights("RNN"), 2, hidden_size=4, activations=["Relu", "Tanh"], opset=14, rtol=1e-4)


@pytest.mark.parametrize("name", ["Elu", "HardSigmoid", "LeakyRelu", "Softsign", "Softplus"])
def test_activations_without_alpha_and_beta(name: str) -> None:
    agree("RNN", weights("RNN"), 2, hidden_size=4, activations=[name], opset=14, rtol=1e-4)
