"""Pixel shuffle, space to depth and channel shuffle behind a convolution are one map from image to image."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from halotile import compile as compile_model
from onnx import TensorProto, helper, numpy_helper


def model(shapes: list[list[int]], perm: list[int], size: tuple[int, ...], channels: int, also: bool) -> Any:
    """conv -> reshape -> transpose -> reshape; ``also``: the convolution's result leaves the model as well."""
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((channels, size[1], 3, 3)).astype("f4")
    bias = rng.standard_normal(channels).astype("f4")
    tensors = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")]
    tensors += [numpy_helper.from_array(np.array(s, np.int64), f"s{i}") for i, s in enumerate(shapes)]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "s0"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=perm),
        helper.make_node("Reshape", ["t", "s1"], ["y"]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, shapes[1])]
    if also:
        outputs.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, [size[0], channels, *size[2:]]))
    graph = helper.make_graph(
        nodes, "moves", [helper.make_tensor_value_info("x", TensorProto.FLOAT, size)], outputs, tensors
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


CASES = {
    "pixel shuffle": ([[1, 3, 2, 2, 11, 13], [1, 3, 22, 26]], [0, 1, 4, 2, 5, 3], (1, 5, 11, 13), 12),
    "depth first": ([[2, 3, 3, 2, 7, 5], [2, 2, 21, 15]], [0, 3, 4, 1, 5, 2], (2, 4, 7, 5), 18),
    "space to depth": ([[1, 17, 4, 2, 6, 2], [1, 68, 4, 6]], [0, 3, 5, 1, 2, 4], (1, 3, 8, 12), 17),
    "channel shuffle": ([[1, 2, 29, 9, 7], [1, 58, 9, 7]], [0, 2, 1, 3, 4], (1, 8, 9, 7), 58),
}


@pytest.mark.parametrize("also", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_one_map(name: str, also: bool) -> None:
    shapes, perm, size, channels = CASES[name]
    made = model(shapes, perm, size, channels, also)
    library = compile_model(made, exact=True)
    x = np.random.default_rng(1).standard_normal(size).astype("f4")
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for output, wanted in zip(library({"x": x}).values(), session.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-5)
    operators = [kernel["operators"] for kernel in library.report["kernels"]]
    assert ["relax.reshape", "relax.permute_dims", "relax.reshape"] in operators
