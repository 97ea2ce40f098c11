"""If with a condition of run time: both branches are computed and one is taken, where their results have one form."""

from __future__ import annotations

import halotile
import numpy as np
import onnx
import pytest
from evaluate import peer
from halotile.compiler.frontend import import_model
from halotile.errors import UnsupportedError
from onnx import TensorProto, helper


def model(then: list[onnx.NodeProto], otherwise: list[onnx.NodeProto]) -> onnx.ModelProto:
    def branch(name: str, nodes: list[onnx.NodeProto]) -> onnx.GraphProto:
        return helper.make_graph(nodes, name, [], [onnx.ValueInfoProto(name=o) for o in nodes[-1].output])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["whole"], to=TensorProto.INT32),
        helper.make_node("Cast", ["whole"], ["c"], to=TensorProto.BOOL),
        helper.make_node(
            "If", ["c"], ["y"], name="if", then_branch=branch("a", then), else_branch=branch("b", otherwise)
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_both_ways() -> None:
    built = model([helper.make_node("Neg", ["x"], ["t"])], [helper.make_node("Log", ["x"], ["e"])])
    compiled = halotile.compile(built)
    for scale in (1.0, -1.0, 0.0):  # the last takes the other branch
        x = {"x": np.full((3, 5), scale, "float32")}
        np.testing.assert_allclose(compiled(x)["y"], peer(built, x)[0], rtol=1e-6)


def test_branches_of_two_forms_are_refused() -> None:
    built = model(
        [helper.make_node("Transpose", ["x"], ["t"])], [helper.make_node("Identity", ["x"], ["e"])]
    )
    with pytest.raises(UnsupportedError, match=r"'if'.*computed at run time.*\[5, 3\].*\[3, 5\]"):
        import_model(built)
