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


@pytest.mark.parametrize("mode", ["asymmetric", "half_pixel"])
@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
@pytest.mark.parametrize("scales", [(2.5, 1.7), (0.7, 0.6), (3.1, 2.3)])
def test_nearest_resize_at_fractional_scales_picks_the_pixels_of_onnx_runtime(
    mode: str, rounding: str, scales: tuple[float, float]
) -> None:
    x = np.arange(2 * 17 * 23, dtype=np.float32).reshape(1, 2, 17, 23)
    factors = np.array([1, 1, *scales], np.float32)
    attributes = {"mode": "nearest", "coordinate_transformation_mode": mode, "nearest_mode": rounding}
    model, feeds = one_node("Resize", [x, None, factors], opset=18, **attributes)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)[0]
    np.testing.assert_array_equal(evaluate(model, feeds)["o0"], expected)
