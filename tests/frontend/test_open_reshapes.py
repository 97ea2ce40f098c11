"""Reshapes of open dimensions that leave one length to be found."""

from __future__ import annotations

import numpy as np
import pytest
from halotile.compiler.api import compile as halotile_compile
from halotile.errors import RunError
from onnx import TensorProto, helper, numpy_helper


def test_what_is_left_is_divided_by_no_dimension_that_both_have() -> None:
    """The batch, which may be nothing, is no divisor of 3 n elements over 3."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    shape = numpy_helper.from_array(np.array([0, 3, -1], np.int64), "shape")
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "c", "n"])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "left", [given], [made], [shape])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with halotile_compile(model) as built:
        for sizes in ((1, 3, 5), (2, 6, 7), (3, 1, 9), (0, 3, 4)):
            x = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)
            assert np.array_equal(built(x), x.reshape(sizes[0], 3, sizes[1] * sizes[2] // 3))
        with pytest.raises(RunError, match="b"):
            built(np.zeros((1, 2, 2), np.float32))
