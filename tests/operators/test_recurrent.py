"""LSTM, GRU and RNN against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from evaluate import agree

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


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
