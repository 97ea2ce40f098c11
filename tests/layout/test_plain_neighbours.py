"""Kernels of plain memory beside padded convolutions of few channels, whose image has margins: it is a copy then."""

from __future__ import annotations

import halotile
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

CONV = helper.make_node("Conv", ["a", "w"], ["y"], pads=[1, 1, 1, 1])
MAP = helper.make_node("Sigmoid", ["x"], ["a"])
SCAN, MATMUL, SORT = ("CumSum", "axis"), ("MatMul", "m"), ("TopK", "k")


def network(way: str, operator: str, second: str) -> onnx.ModelProto:
    """x -> operator -> conv, or x -> map -> conv and operator."""
    extra = ["i"] if operator == "TopK" else []
    if way == "before":
        nodes = [helper.make_node(operator, ["x", second], ["a", *extra]), CONV]
    else:
        nodes = [MAP, CONV, helper.make_node(operator, ["a", second], ["z", *extra])]
    rng = np.random.default_rng(1)
    weights = {
        "w": rng.standard_normal((5, 3, 3, 3)).astype("float32"), "axis": np.array(2), "k": np.array([13]),
        "m": rng.standard_normal((13, 13)).astype("float32"),
    }  # fmt: skip
    outputs = [o for node in nodes for o in node.output if o not in ("a", "i")]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, [1, 3, 9, 13])],
        [helper.make_tensor_value_info(o, 1, None) for o in outputs],
        [numpy_helper.from_array(weights[n], n) for n in ("w", second)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize(("operator", "second"), [SCAN, MATMUL, SORT])
@pytest.mark.parametrize("way", ["before", "beside"])
def test_what_knows_no_margins_gets_none(way: str, operator: str, second: str) -> None:
    """Loops read and wrote such an image as if it had none, and products fell back to the general generator."""
    model = halotile.compile(network(way, operator, second), threads=1)
    check = model.verify()
    assert check.ok, check.message()
    schedules = [k["schedule"].split(",")[0] for k in model.report["kernels"]]
    assert ("matmul packed" if operator == "MatMul" else "loops") in schedules
    assert any(s.startswith("direct conv") for s in schedules)
