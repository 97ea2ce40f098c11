"""Pixel shuffles between convolutions: blocks move whole, activations behind them are read where they lie, and no
kernel falls back to loading single elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from halotile import compile as compile_model
from onnx import TensorProto, helper, numpy_helper
from uncompiled import reported

SIZE = (1, 7, 13, 11)
VECTORS = ("winograd", "matrix conv")  # which load vectors of channels


def network(depth: int, activation: str) -> Any:
    """conv -> conv -> shuffle -> activation -> conv, all 3 x 3, then a transposed convolution to one channel."""
    rng = np.random.default_rng(7)
    tensors = []

    def tensor(name: str, *shape: int) -> str:
        values = rng.standard_normal(shape).astype("f4") / np.sqrt(max(1, np.prod(shape[1:])))
        tensors.append(numpy_helper.from_array(values.astype("f4"), name))
        return name

    pads = {"pads": [1, 1, 1, 1]}
    last = [tensor("slope", depth, 1, 1)] if activation == "PRelu" else []
    nodes = [
        helper.make_node("Conv", ["x", tensor("w0", 32, 7, 3, 3), tensor("b0", 32)], ["c0"], **pads),
        helper.make_node("Conv", ["c0", tensor("w1", 4 * depth, 32, 3, 3), tensor("b1", 4 * depth)], ["c1"], **pads),
        helper.make_node("DepthToSpace", ["c1"], ["d"], blocksize=2, mode="CRD"),
        helper.make_node(activation, ["d", *last], ["a"]),
        helper.make_node("Conv", ["a", tensor("w2", 32, depth, 3, 3), tensor("b2", 32)], ["c2"], **pads),
        helper.make_node(
            "ConvTranspose", ["c2", tensor("w3", 32, 1, 6, 6), tensor("b3", 1)], ["y"],
            strides=[2, 2], pads=[2, 1, 2, 3],
        ),
    ]  # fmt: skip
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", SIZE), ("y", None))]
    graph = helper.make_graph(nodes, "shuffles", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.sampled
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("tile", ["off", "auto"])
@pytest.mark.parametrize(("depth", "activation"), [(64, "PRelu"), (64, "Relu"), (19, "PRelu")])
def test_numbers(depth: int, activation: str, tile: str, exact: bool) -> None:
    model = network(depth, activation)
    x = np.random.default_rng(1).standard_normal(SIZE).astype("f4")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    found = compile_model(model, tile=tile, exact=exact)({"x": x})["y"]
    np.testing.assert_allclose(found, wanted, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.parametrize(("depth", "activation"), [(64, "PRelu"), (64, "Relu"), (19, "PRelu")])
def test_no_kernel_loads_single_elements_of_a_map(depth: int, activation: str) -> None:
    """A map in a direct convolution's loads is computed for every tap and vector of outputs."""
    kernels = reported(network(depth, activation), tile="off")["kernels"]
    convolutions = [k for k in kernels if "relax.nn.conv2d" in k["operators"]]
    assert len(convolutions) == 4
    for kernel in convolutions:
        assert kernel["operators"][0] == "relax.nn.conv2d" or any(f in kernel["schedule"] for f in VECTORS), kernel
    names = [operator for kernel in kernels for operator in kernel["operators"]]
    assert "halotile.conv_transpose" not in names  # its one output would fill a lane of a vector
    plain = [k for k in kernels if k["schedule"] == "map, plain" and "relax.permute_dims" in k["operators"]]
    assert len(plain) <= (1 if depth == 64 else 2)  # the last one, whose one channel is the model's output
