"""Outputs that are also something else, through the whole compiler: memory of their own, right numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halotile
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

CONSTANT = np.arange(6, dtype=np.float32).reshape(2, 3) + 0.5


def model() -> Any:
    node = helper.make_node
    nodes = [
        node("Identity", ["x"], ["is_input"]),
        node("Reshape", ["x", "shape"], ["input_reshaped"]),
        node("Identity", ["c"], ["is_constant"]),
        node("Reshape", ["c", "shape"], ["constant_reshaped"]),
        node("Relu", ["x"], ["made"]),
        node("Identity", ["made"], ["made_again"]),
        node("Reshape", ["made", "shape"], ["made_reshaped"]),
        node("Exp", ["made"], ["after"]),
        node("Exp", ["x"], ["hidden"]),
        node("Reshape", ["hidden", "shape"], ["only_reshaped"]),
        node("Add", ["only_reshaped", "only_reshaped"], ["doubled"]),
        node("Neg", ["hidden"], ["negative"]),
    ]
    names = [n for step in nodes for n in step.output if n != "hidden"]
    shapes = {n: [3, 2] if "reshaped" in n or n == "doubled" else [2, 3] for n in names}
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shapes[n]) for n in names]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])]
    weights = [numpy_helper.from_array(CONSTANT, "c"), numpy_helper.from_array(np.array([3, 2]), "shape")]
    graph = helper.make_graph(nodes, "aliases", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


EXPECTED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "is_input": lambda x: x,
    "input_reshaped": lambda x: x.reshape(3, 2),
    "is_constant": lambda x: CONSTANT,
    "constant_reshaped": lambda x: CONSTANT.reshape(3, 2),
    "made": lambda x: np.maximum(x, 0),
    "made_again": lambda x: np.maximum(x, 0),
    "made_reshaped": lambda x: np.maximum(x, 0).reshape(3, 2),
    "after": lambda x: np.exp(np.maximum(x, 0)),
    "only_reshaped": lambda x: np.exp(x).reshape(3, 2),
    "doubled": lambda x: 2 * np.exp(x).reshape(3, 2),
    "negative": lambda x: -np.exp(x),
}


@pytest.fixture(scope="module")
def runs() -> list[tuple[np.ndarray, dict[str, np.ndarray]]]:
    compiled = halotile.compile(model(), threads=2)
    random = np.random.default_rng(3)
    inputs = [random.standard_normal((2, 3)).astype(np.float32) for _ in range(3)]
    return [(x, compiled({"x": x})) for x in inputs]


@pytest.mark.parametrize("name", EXPECTED)
def test_output(runs: list[tuple[np.ndarray, dict[str, np.ndarray]]], name: str) -> None:
    for x, outputs in runs:
        np.testing.assert_allclose(outputs[name], EXPECTED[name](x), 1e-6, 1e-6)


def test_all_outputs_are_tested(runs: list[tuple[np.ndarray, dict[str, np.ndarray]]]) -> None:
    assert set(runs[0][1]) == set(EXPECTED)


def test_outputs_share_no_memory(runs: list[tuple[np.ndarray, dict[str, np.ndarray]]]) -> None:
    x, outputs = runs[0]
    arrays = [x, *outputs.values()]
    for i, a in enumerate(arrays):
        assert not any(np.shares_memory(a, b) for b in arrays[i + 1 :])
