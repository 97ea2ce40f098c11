"""NV12 and YUYV frames of other matrices and ranges: the definition in floats, to the rounding of whole numbers."""

from __future__ import annotations

import halotile
import numpy as np
import pytest
from halotile.errors import HalotileError
from onnx import TensorProto, helper


def _identity():
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (2, 3, 10, 14)) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "given", infos[:1], infos[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _defined(y, u, v, matrix, limited):
    """R, G and B from the definition: luma is Kr R + Kg G + Kb B, chroma what blue and red differ from it by."""
    red, blue = (0.299, 0.114) if matrix == "BT.601" else (0.2126, 0.0722)
    y = (np.maximum(y - 16.0, 0)) / 219 if limited else y / 255.0
    u, v = ((c - 128.0) / (224 if limited else 255) for c in (u, v))
    r, b = y + 2 * (1 - red) * v, y + 2 * (1 - blue) * u
    g = (y - red * r - blue * b) / (1 - red - blue)
    return np.clip(255 * np.stack([r, g, b], 1), 0, 255)


@pytest.mark.parametrize("matrix", ["BT.601", "BT.709"])
@pytest.mark.parametrize("span", ["limited", "full"])
@pytest.mark.parametrize("colour", ["NV12", "YUYV"])
def test_frames_are_converted_by_the_definition(matrix, span, colour):
    image = halotile.Image(colour, matrix=matrix, range=span)
    model = halotile.compile(_identity(), inputs={"x": image}, cache=False, threads=1)
    frame = np.random.default_rng(3).integers(0, 256, model.inputs[0].shape).astype(np.uint8)
    if colour == "NV12":
        y, chroma = frame[:, :10, :, 0], frame[:, 10:, :, 0].reshape(2, 5, 7, 2).repeat(2, 1).repeat(2, 2)
        u, v = chroma[..., 0], chroma[..., 1]
    else:
        y, (u, v) = frame[..., 0], (frame[:, :, i::2, 1].repeat(2, 2) for i in (0, 1))
    wanted = _defined(y.astype(float), u.astype(float), v.astype(float), matrix, span == "limited")
    found = model({"x": frame})["y"]
    # OpenCV's own numbers, of BT.601 and the limited range, are those of three digits, and off by as much more
    assert np.abs(found - wanted).max() <= (1.01 if (matrix, span) != ("BT.601", "limited") else 1.5)
    assert np.array_equal(found, np.round(found)) and model.verify().ok


def test_other_colours_have_no_matrix():
    for fields in ({"matrix": "BT.709"}, {"range": "full"}, {"colour": "NV12", "matrix": "BT.2020"}):
        with pytest.raises(HalotileError, match="matrix"):
            halotile.Image(**fields)
