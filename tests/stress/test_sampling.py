"""Sampling operators whose ONNX function body is wrong or too narrow, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from evaluate import evaluate, one_node


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("size", [[1, 3, 4, 5], [2, 3, 5, 3], [1, 2, 3, 4, 5]])
def test_affine_grid_keeps_a_batch_of_one(size: list[int], align: int) -> None:
    rank = len(size) - 2
    theta = np.random.default_rng(0).standard_normal((size[0], rank, rank + 1)).astype("float32")
    model, feeds = one_node("AffineGrid", [theta, np.array(size)], opset=20, align_corners=align)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)[0]
    np.testing.assert_allclose(evaluate(model, feeds)["o0"], expected, rtol=1e-5, atol=1e-6)
