"""What exporters write of open dims beyond whole networks: each a small graph, at sizes around every corner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from ..support.open_models import Drawing, Sizes, feeds

CLOSE = 2e-5  # of the largest number of an output


class Graph(Drawing):
    """A drawing of any opset, with operators of ONNX Runtime and outputs of any type."""

    def __init__(self, opset: int) -> None:
        super().__init__(7)
        self.opset = opset

    def several(self, operator: str, count: int, *operands: str, **attributes: Any) -> list[str]:
        names = [f"v{len(self.nodes)}_{k}" for k in range(count)]
        self.nodes.append(helper.make_node(operator, operands, names, name=f"{operator}_{names[0]}", **attributes))
        return names

    def out(self, *values: str, kind: int = TensorProto.FLOAT) -> None:
        for value in values:
            self.output(value, 0)
            self.outputs[-1].type.tensor_type.ClearField("shape")
            self.outputs[-1].type.tensor_type.elem_type = kind

    def size(self, x: str, axis: int) -> str:
        return self("Gather", self("Shape", x), self.whole_scalar(axis))

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "open", self.inputs, self.outputs, self.weights)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


Draw = Callable[[Graph], None]
CASES: list[Any] = []


def case(opset: int, *sizes: Sizes) -> Callable[[Draw], Draw]:
    def enter(draw: Draw) -> Draw:
        CASES.append(pytest.param(opset, draw, sizes, id=draw.__name__))
        return draw

    return enter


@case(18, {"b": 1, "n": 1}, {"b": 2, "n": 3}, {"b": 3, "n": 17})
def one_element_beside_all(g: Graph) -> None:
    """The last: of an input, of a sum, behind a transpose."""
    x = g.input("x", "b", "n", 5)
    bounds = [g.whole(-1), g.whole(2**62), g.whole(1)]
    totals = g("CumSum", g("Abs", x), g.whole_scalar(1))
    g.out(g("Div", totals, g("Add", g("Slice", totals, *bounds), g.constant(1e-3))))
    turned = g("Transpose", x, perm=[0, 2, 1])
    g.out(g("Mul", turned, g("Slice", turned, g.whole(-1), g.whole(2**62), g.whole(2))))
    g.out(g("Concat", x, g("Expand", g("Slice", x, *bounds), g("Shape", x)), axis=1))


@pytest.mark.parametrize(("opset", "draw", "sizes"), CASES)
def test_numbers(opset: int, draw: Draw, sizes: tuple[Sizes, ...]) -> None:
    g = Graph(opset)
    draw(g)
    model = g.model()
    library = halotile.compile(model, threads=2)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for size in sizes:
        given = feeds(model, size)
        got, one = library(given), library(given, threads=1)
        for output, wanted in zip(session.get_outputs(), session.run(None, given), strict=True):
            found = got[output.name]
            assert found.shape == wanted.shape and np.array_equal(found, one[output.name]), (size, output.name)
            error = np.abs(found.astype(np.float64) - wanted).max(initial=0)
            assert error <= CLOSE * np.abs(wanted).max(initial=0), (size, output.name, error)
