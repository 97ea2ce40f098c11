"""Sampling operators whose ONNX function body is wrong or too narrow, against ONNX Runtime."""

from __future__ import annotations

import halotile
import numpy as np
import onnxruntime
import pytest
from evaluate import evaluate, one_node
from onnx import helper, numpy_helper


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("size", [[1, 3, 4, 5], [2, 3, 5, 3], [1, 2, 3, 4, 5]])
def test_affine_grid_keeps_a_batch_of_one(size: list[int], align: int) -> None:
    rank = len(size) - 2
    theta = np.random.default_rng(0).standard_normal((size[0], rank, rank + 1)).astype("float32")
    model, feeds = one_node("AffineGrid", [theta, np.array(size)], opset=20, align_corners=align)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)[0]
    np.testing.assert_allclose(evaluate(model, feeds)["o0"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.sampled
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


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_positions_that_channels_in_blocks_share_are_read_right(mode: str) -> None:
    """Positions have no channels: stored, their rows were taken for blocks of channels."""
    random = np.random.default_rng(1)
    grid = random.uniform(-1.2, 1.2, (2, 3, 6, 2)).astype("float32")
    weights = random.standard_normal((32, 40, 1, 1)).astype("float32")
    nodes = [
        helper.make_node("GridSample", ["x", "grid"], ["a"], mode=mode, align_corners=1),
        helper.make_node("Conv", ["a", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "sampled",
        [helper.make_tensor_value_info("x", 1, [2, 40, 13, 13])], [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(grid, "grid"), numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    model = halotile.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    sampled = next(k for k in model.report["kernels"] if "halotile.grid_sample" in k["operators"])
    assert "lanes" in sampled["schedule"]
    check = model.verify()
    assert check.ok, check.message()


@pytest.mark.parametrize(
    ("channels", "points", "blocked"), [(37, 60, True), (64, 4, False), (3, 60, False)], ids=["many", "few", "colours"]
)
@pytest.mark.parametrize("ends", ["plain", "convolved"])
def test_images_are_read_by_vectors_of_channels(channels: int, points: int, blocked: bool, ends: str) -> None:
    """The image is laid out in channel blocks first, unless a few places of it are read, or it has few channels."""
    random = np.random.default_rng(channels)
    nodes = [
        helper.make_node("Abs", ["x"], ["b"]),
        helper.make_node("GridSample", ["b", "grid"], ["a"]),
        helper.make_node("Conv", ["a", "w"], ["y"]) if ends == "convolved" else helper.make_node("Relu", ["a"], ["y"]),
    ]
    weights = random.standard_normal((7, channels, 1, 1)).astype("float32")
    graph = helper.make_graph(
        nodes, "sampled",
        [
            helper.make_tensor_value_info("x", 1, [2, channels, 23, 17]),
            helper.make_tensor_value_info("grid", 1, [2, points, 5, 2]),
        ],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(weights, "w")] if ends == "convolved" else [],
    )  # fmt: skip
    model = halotile.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    (sampled,) = (k for k in model.report["kernels"] if "halotile.grid_sample" in k["operators"])
    if ends == "plain" or blocked:
        assert ("lanes" in sampled["schedule"]) == blocked
    grid = random.uniform(-1.3, 1.3, (2, points, 5, 2)).astype("float32")
    x = random.standard_normal((2, channels, 23, 17)).astype("float32")
    check = model.verify({"x": x, "grid": grid})
    assert check.ok, check.message()
