"""Networks whose weights are to take few bytes: products of every family, of odd sizes."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from uncompiled import reported

X = (1, 5, 13, 17)


def network(rounded: bool = False) -> onnx.ModelProto:
    """Convolutions 5x5, depthwise 3x3 and 1x1 of odd sizes, and a matrix product; biases of their own.

    ``rounded``: the weights of all but the depthwise one, which are too few, have float16's precision."""
    rng = np.random.default_rng(11)
    shapes = {"w": (37, 5, 5, 5), "d": (37, 1, 3, 3), "p": (67, 37, 1, 1), "m": (67, 29)}
    weights = {n: rng.standard_normal(s) / np.sqrt(np.prod(s[1:]) if n != "m" else s[0]) for n, s in shapes.items()}
    biases = {n: rng.standard_normal(s) for n, s in (("wb", 37), ("db", 37), ("pb", 67), ("mb", 29))}
    weights = {n: a.astype(np.float32) for n, a in weights.items()}
    if rounded:
        weights = {n: a if n == "d" else a.astype(np.float16).astype(np.float32) for n, a in weights.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w", "wb"], ["a"], pads=[2, 2, 2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "d", "db"], ["c"], group=37, pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),  # so that neighbours are not folded into one
        helper.make_node("Conv", ["r", "p", "pb"], ["e"]),
        helper.make_node("Relu", ["e"], ["s"]),
        helper.make_node("Transpose", ["s"], ["f"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["f", "m"], ["g"]),
        helper.make_node("Add", ["g", "mb"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "halves",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 13, 17, 29])],
        [numpy_helper.from_array(a, n) for n, a in weights.items()]
        + [numpy_helper.from_array(a.astype(np.float32), n) for n, a in biases.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def sample() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(3).standard_normal(X, np.float32)}


def stack(channels: tuple[int, ...], size: tuple[int, int], kernel: int) -> onnx.ModelProto:
    """Convolutions of one size of kernel, one behind the other, with ReLU between."""
    rng = np.random.default_rng(5)
    nodes, weights, name = [], [], "x"
    for i, (before, after) in enumerate(zip(channels, channels[1:])):
        weight = rng.standard_normal((after, before, kernel, kernel)) / np.sqrt(kernel**2 * before)
        weights.append(numpy_helper.from_array(weight.astype(np.float32), f"w{i}"))
        last = i == len(channels) - 2
        nodes.append(helper.make_node("Conv", [name, f"w{i}"], ["y" if last else f"c{i}"], pads=[kernel // 2] * 4))
        name = f"r{i}"
        nodes += [] if last else [helper.make_node("Relu", [f"c{i}"], [name])]
    graph = helper.make_graph(
        nodes, "stack",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels[0], *size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, channels[-1], *size])], weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def wide() -> onnx.ModelProto:
    return stack((64, 64, 64), (30, 34), 3)


def chain() -> onnx.ModelProto:
    """Of too few channels for Winograd's algorithm."""
    return stack((3, 13, 15, 5), (97, 101), 5)


def transposed() -> onnx.ModelProto:
    """A transposed convolution whose phases Winograd's algorithm would compute."""
    weight = np.random.default_rng(2).standard_normal((48, 40, 4, 4)).astype(np.float32) / 24
    graph = helper.make_graph(
        [helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1])], "transposed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 48, 24, 29])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 40, 48, 58])],
        [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def few() -> onnx.ModelProto:
    """Weights of fewer elements than float16 is worth."""
    return stack((16, 7, 16), (31, 37), 3)


def seven() -> onnx.ModelProto:
    """Convolutions that a matrix unit or Winograd's algorithm takes, of odd channels."""
    return stack((3, 32, 33, 32, 48, 32, 31, 8), (20, 19), 3)


def planned(model: onnx.ModelProto, target: str, weights: str, **options) -> dict:
    return reported(model, target, weights=weights, **options)
