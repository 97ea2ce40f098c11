"""What follows a sum of products is written out for each register of a tile while short; long chains are loops."""

from __future__ import annotations

from typing import Any

import halotile
import numpy as np
import onnx
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.schedules.operators.kind import MOST_WRITTEN_OUT
from halotile.targets.detect import native
from onnx import TensorProto, helper, numpy_helper

node = helper.make_node
RNG = np.random.default_rng(3)

ANCHORS: dict[str, tuple[str, list[int], list[int], dict[str, Any]]] = {
    "packed": ("MatMul", [37, 53], [53, 47], {}),
    "strassen": ("MatMul", [129, 258], [258, 352], {}),
    "direct": ("Conv", [2, 13, 11, 17], [19, 13, 3, 3], {"strides": [2, 2], "pads": [1] * 4}),
    "winograd": ("Conv", [1, 32, 29, 31], [32, 32, 3, 3], {"pads": [1] * 4}),
    "depthwise": ("Conv", [1, 19, 11, 17], [19, 1, 3, 3], {"pads": [1] * 4, "group": 19}),
}


def chain(anchor: str, operators: int) -> onnx.ModelProto:
    """An anchor, and ``operators`` behind it that no rule makes fewer."""
    kind, shape, weights, attributes = ANCHORS[anchor]
    scale = 1 / np.sqrt(np.prod(weights[1:]) if kind == "Conv" else weights[0])
    held = [numpy_helper.from_array((RNG.standard_normal(weights) * scale).astype(np.float32), "w")]
    nodes, last = [node(kind, ["x", "w"], ["v0"], "anchor", **attributes)], "v0"
    for i in range(operators):
        if i % 2:
            nodes.append(node("Abs", [last], [f"v{i + 1}"]))
        else:
            held.append(numpy_helper.from_array(np.float32(0.1 + 0.05 * i), f"c{i}"))
            nodes.append(node("Sub", [f"c{i}", last], [f"v{i + 1}"]))
        last = f"v{i + 1}"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "g", [x], [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def kernel(proto: onnx.ModelProto) -> tuple[str, str]:
    """Schedule and code of the kernel with the anchor."""
    build = run_pipeline(proto, Options(native(), threads=2, matrix=False, stop_after="schedule", tile="off"))
    (found,) = [k for g, k in zip(build.groups, build.kernels) if g.anchor is not None]
    return found.schedule, str(found.function)


@pytest.mark.parametrize("anchor", ["packed", "strassen", "direct"])
def test_only_a_long_chain_is_a_loop_over_the_tile(anchor: str) -> None:
    schedules = []
    for operators, loop in ((MOST_WRITTEN_OUT - 2, False), (MOST_WRITTEN_OUT + 2, True)):
        schedule, code = kernel(chain(anchor, operators))
        assert ("spill" in code) is loop
        schedules.append(schedule)
    assert schedules[0] == schedules[1]


@pytest.mark.parametrize("anchor", ANCHORS)
def test_a_long_chain_gives_the_right_numbers(anchor: str) -> None:
    model = halotile.compile(chain(anchor, 3 * MOST_WRITTEN_OUT), tile="off")
    assert len([k for k in model.report["kernels"] if "halotile.copy" not in k["operators"]]) == 1
    check = model.verify()
    assert check.ok, check
