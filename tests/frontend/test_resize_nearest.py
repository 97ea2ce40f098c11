"""Which pixel a nearest Resize takes is ONNX Runtime's choice to the last tie: one wrong one is a visible error."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from evaluate import evaluate, one_node, peer
from halotile.compiler.frontend.converters.resize import _ROUND, ResizedAxis, _positions, _scaled
from onnx import TensorProto, helper, numpy_helper

SCALES = (0.25, 0.3, 0.5, 0.6, 0.7, 0.9, 1.1, 1.25, 1.3, 1.5, 1.7, 1.9, 2.0, 2.3, 2.6, 3.3)
LENGTHS = (1, 3, 8, 13, 20, 41)
COORDINATES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]


def reference(length: int, scale: float, coordinate: str, rounding: str, by_size: bool) -> np.ndarray:
    """The positions that ONNX Runtime takes, read off an input that holds its own positions."""
    extra = (
        numpy_helper.from_array(np.array([1, int(length * scale)], "int64"), "s")
        if by_size
        else numpy_helper.from_array(np.array([1, scale], "float32"), "s")
    )
    node = helper.make_node(
        "Resize", ["x", "", "", "s"] if by_size else ["x", "", "s"], ["y"],
        mode="nearest", nearest_mode=rounding, coordinate_transformation_mode=coordinate,
    )  # fmt: skip
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, length])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [extra],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, {"x": np.arange(length, dtype="float32")[None]})[0][0]


@pytest.mark.parametrize("by_size", [False, True], ids=["scales", "sizes"])
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("coordinate", COORDINATES)
def test_every_position(coordinate: str, rounding: str, by_size: bool) -> None:
    for length in LENGTHS:
        for scale in SCALES:
            output = int(length * scale) if by_size else _scaled(length, scale)
            if output in (0, length):
                continue
            factor = output / length if by_size else float(np.float32(scale))
            axis = ResizedAxis(1, length, output, factor, (0.0, 1.0))
            ours = _ROUND[rounding](_positions(axis, coordinate, np.float32), factor).clip(0, length - 1)
            np.testing.assert_array_equal(
                ours, reference(length, scale, coordinate, rounding, by_size), f"{length} x {scale}"
            )


@pytest.mark.parametrize("scales", [(1.3, 0.7), (2.0, 0.5), (1.04, 1.1)])
@pytest.mark.parametrize("opset", [10, 19])
def test_whole_operator(scales: tuple[float, float], opset: int) -> None:
    """Also a tensor that keeps its shape under a scale (it is copied), and opset 10, where each axis rounds its way."""
    x = np.random.default_rng(0).standard_normal((2, 3, 20, 9)).astype("float32")
    factors = np.array([1, 1, *scales], "float32")
    inputs = [x, factors] if opset == 10 else [x, None, factors]
    model, feeds = one_node("Resize", inputs, opset=opset, mode="nearest")
    (ours,) = evaluate(model, feeds).values()
    np.testing.assert_array_equal(ours, peer(model, feeds)[0])


def test_a_length_is_rounded_in_float32() -> None:
    """10 * 0.7 is 7 in float32; in more digits, float32's 0.7 is a little less than 0.7 and the length would be 6."""
    model, feeds = one_node("Resize", [np.arange(10, dtype="float32")[None], None, np.array([1, 0.7], "float32")])
    (ours,) = evaluate(model, feeds).values()
    assert ours.shape == (1, 7)
    np.testing.assert_array_equal(ours, peer(model, feeds)[0])


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("scales", [(1.5, 0.7), (1.3, 1), (1.7, 2.3), (1, 0.5), (0.8, 0.37), (0.6, 0.95), (0.2, 1.05)])
def test_corners_aligned_by_scales(mode: str, scales: tuple[float, float]) -> None:
    """The last pixel is aligned with the last pixel that there is, also where the scale leaves a fraction of one."""
    x = np.random.default_rng(1).standard_normal((1, 2, 6, 10)).astype("float32")
    attributes = {"mode": mode, "coordinate_transformation_mode": "align_corners"}
    model, feeds = one_node("Resize", [x, None, np.array([1, 1, *scales], "float32")], **attributes)
    (ours,) = evaluate(model, feeds).values()
    np.testing.assert_allclose(ours, peer(model, feeds)[0], rtol=1e-5, atol=1e-5)

