"""A model of functions whose code is our own, and what NumPy says of it at the corners of float32."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto, helper

CORNERS = np.array(
    [0.0, -0.0, 1e-45, -1e-40, 1e-7, 0.3, -0.3, 0.5, 1.5, 2.5, -1.5, -2.5, 3.7, -3.7, 7.0, -9.1, 20.0, -20.0, 87.0,
     -87.0, 89.5, -104.0, 3e4, -3e4, 8388609.0, 1e30, -1e30, 3.4e38, np.inf, -np.inf, np.nan],
    "float32",
)  # fmt: skip
_FUNCTIONS = ("Exp", "Erf", "Tanh", "Sigmoid", "Relu", "Round", "Floor", "Ceil", "Sqrt", "Reciprocal")


def corners_model() -> onnx.ModelProto:
    """x of (31, 3) -> one output for each function, the largest of each row, and the order of its values."""
    nodes = [helper.make_node(f, ["x"], [f.lower()]) for f in _FUNCTIONS]
    nodes.append(helper.make_node("ReduceMax", ["x"], ["largest"], keepdims=0, axes=[1]))
    nodes.append(helper.make_node("ArgMax", ["x"], ["position"], keepdims=0, axis=1))
    shape = [len(CORNERS), 3]
    outputs = [helper.make_tensor_value_info(f.lower(), TensorProto.FLOAT, shape) for f in _FUNCTIONS]
    outputs.append(helper.make_tensor_value_info("largest", TensorProto.FLOAT, shape[:1]))
    outputs.append(helper.make_tensor_value_info("position", TensorProto.INT64, shape[:1]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "corners", [x], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def corners_input() -> np.ndarray:
    """Every corner, in three places of a row."""
    return np.stack([CORNERS, np.roll(CORNERS, 7), np.roll(CORNERS, 13)], axis=1)


def check_corners(got: dict[str, np.ndarray]) -> None:
    """Values, infinities, NaNs and signs as NumPy has them."""
    x = corners_input()
    wide = x.astype("float64")
    with np.errstate(all="ignore"):
        wanted = {
            "exp": np.exp(wide), "erf": np.vectorize(math.erf)(wide), "tanh": np.tanh(wide),
            "sigmoid": 1 / (1 + np.exp(-wide)), "relu": np.where(wide < 0, 0, wide), "round": np.rint(wide),
            "floor": np.floor(wide), "ceil": np.ceil(wide), "sqrt": np.sqrt(wide), "reciprocal": 1 / wide,
        }  # fmt: skip
        wanted = {name: value.astype("float32") for name, value in wanted.items()}
    for name, value in wanted.items():
        # a value below the normal ones may count as zero; e^-87 and 2^-126 are the least that are not
        np.testing.assert_allclose(got[name], value, rtol=2e-6, atol=2e-38, equal_nan=True, err_msg=name)
    for name in ("round", "floor", "ceil"):
        np.testing.assert_array_equal(got[name], wanted[name], err_msg=name)
    clean = ~np.isnan(x).any(axis=1)
    np.testing.assert_array_equal(got["largest"][clean], x.max(axis=1)[clean])
    np.testing.assert_array_equal(got["position"][clean], x.argmax(axis=1)[clean])
