"""Small models that several tests build on, or break."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WEIGHT = np.cos(np.arange(20, dtype=np.float32)).reshape(4, 5)


def tiny(dims: tuple[int | str, ...] = (2, 4), weight: np.ndarray | None = None) -> onnx.ModelProto:
    """y = relu(x @ w), the smallest model with a weight; ``dims`` may hold names of open dimensions."""
    weight = WEIGHT if weight is None else weight
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (*dims[:-1], weight.shape[1]))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="mm"),
        helper.make_node("Relu", ["h"], ["y"], name="act"),
    ]
    graph = helper.make_graph(nodes, "tiny", [x], [y], [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def model_of(*nodes: onnx.NodeProto, opset: int = 17, domains: tuple[str, ...] = ()) -> onnx.ModelProto:
    """A model from x to y, both float32[2, 4], of ``nodes``."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 4]) for n in "xy")
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=imports, ir_version=8)


def external(path: Path, location: str, **entries: int) -> None:
    """Writes the tiny model to ``path`` with its weight said to lie in the file ``location``."""
    model = tiny()
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        weight.external_data.add(key=key, value=str(value))
    path.write_bytes(model.SerializeToString())
