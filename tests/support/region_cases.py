"""Graphs of one or a few ONNX nodes, and their nodes as regions see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from evaluate import one_node
from halotile.compiler.frontend import import_model
from halotile.passes.fuse.graph import ProgramGraph, build_graph
from onnx import helper, numpy_helper


def graph_of(operator: str, inputs: Sequence[np.ndarray | None], outputs: int = 1, **kwargs: Any) -> ProgramGraph:
    """The imported graph of one ONNX node."""
    model, _ = one_node(operator, inputs, outputs, **kwargs)
    return build_graph(import_model(model).module)


def chain_of(shape: Sequence[int], *layers: tuple[str, list[np.ndarray], dict[str, Any]]) -> ProgramGraph:
    """The imported graph of layers behind one another, each (operator, constants, attributes); opset 18."""
    nodes, weights = [], []
    name = "x"
    for index, (operator, constants, attributes) in enumerate(layers):
        names = [f"w{index}_{i}" for i in range(len(constants))]
        weights += [numpy_helper.from_array(c, n) for c, n in zip(constants, names)]
        nodes.append(helper.make_node(operator, [name, *names], [f"y{index}"], name=f"n{index}", **attributes))
        name = f"y{index}"
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, list(shape))],
        [onnx.ValueInfoProto(name=name)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return build_graph(import_model(onnx.shape_inference.infer_shapes(model, strict_mode=True)).module)


def build(
    shape: Sequence[int], *steps: tuple[str, str, str, dict[str, Any]], weights: Mapping[str, np.ndarray]
) -> ProgramGraph:
    """A graph of (operator, "inputs", "outputs", attributes); the input is x and the last output y."""
    nodes = [helper.make_node(o, i.split(), r.split(), name=r.split()[0], **a) for o, i, r, a in steps]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return build_graph(import_model(onnx.shape_inference.infer_shapes(model, strict_mode=True)).module)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, "float32")
