"""Graphs of layers between scales, as quantisers write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Quantised:
    """A graph of layers between scales, as quantisers write it. Scales, steps and biases are such that float32 holds
    every sum: no byte may round otherwise than ONNX Runtime's."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def __call__(self, operator: str, *operands: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, list(operands), [f"v{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def constant(self, value: Any, dtype: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def bytes(self, x: str, zero: int) -> str:
        scale = self.constant(2.0**-5, np.float32), self.constant(zero, np.uint8)
        return self("DequantizeLinear", self("QuantizeLinear", x, *scale), *scale)

    def weight(self, *shape: int, axis: int) -> str:
        """A step for each output, by which sums stay of order one."""
        count, depth = shape[axis], np.prod(shape) / shape[axis]
        power = np.ceil(np.log2(16 * np.sqrt(depth))) + self.random.integers(0, 2, count)
        steps = self.constant(2.0**-power, np.float32)
        numbers = self.constant(self.random.integers(-31, 32, shape), np.int8)
        return self("DequantizeLinear", numbers, steps, self.constant(np.zeros(count), np.int8), axis=axis)

    def conv(self, x: str, inputs: int, outputs: int, kernel: tuple[int, ...], zero: int, **given: Any) -> str:
        weight = self.weight(outputs, inputs // given.get("group", 1), *kernel, axis=0)
        bias = self.constant(self.random.integers(-30, 30, outputs) / 256, np.float32)
        return self("Conv", self.bytes(x, zero), weight, bias, kernel_shape=list(kernel), **given)

    def linear(self, x: str, inputs: int, outputs: int, zero: int) -> str:
        bias = self.constant(self.random.integers(-30, 30, outputs) / 256, np.float32)
        return self("Add", self("MatMul", self.bytes(x, zero), self.weight(inputs, outputs, axis=1)), bias)

    def model(self, result: str, *dims: int | str) -> onnx.ModelProto:
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
        made = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "bytes", [given], [made], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
