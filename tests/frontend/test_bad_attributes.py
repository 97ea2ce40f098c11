"""Attributes and constants that make no sense are refused in a line that says which, before anything is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from halotile.compiler.frontend import import_model
from halotile.errors import HalotileError, ModelError, ShapeError
from onnx import TensorProto, helper, numpy_helper

F, I64 = "float32", "int64"
WEIGHTS, TURNED = np.ones((4, 3, 3, 3), F), np.ones((3, 4, 3, 3), F)


def one(
    operator: str, constants: list[Any], shape: tuple[int, ...], opset: int = 17, **attributes: Any
) -> onnx.ModelProto:
    names = ["x", *(f"c{i}" if c is not None else "" for i, c in enumerate(constants))]
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"], **attributes)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(c, f"c{i}") for i, c in enumerate(constants) if c is not None],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


CASES: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("MaxPool", [], {"kernel_shape": [0, 2]}, "kernel_shape [0, 2] are not 2 positive numbers"),
    ("AveragePool", [], {"kernel_shape": [2**31, 2]}, "kernel_shape holds 2147483648, which is out of range"),
    ("AveragePool", [], {"kernel_shape": [3, 3], "strides": [2, -1]}, "strides [2, -1]"),
    ("Conv", [WEIGHTS], {"strides": [0, 1]}, "strides [0, 1]"),
    ("Conv", [WEIGHTS], {"dilations": [0, 1]}, "dilations [0, 1]"),
    ("Conv", [WEIGHTS], {"dilations": [4, 1]}, "do not fit the input"),
    ("Conv", [WEIGHTS], {"pads": [2**40, 0, 0, 0]}, "pads holds 1099511627776"),
    ("Conv", [WEIGHTS], {"group": 0}, "in 0 groups"),
    ("ConvTranspose", [TURNED], {"pads": [9, 9, 9, 9]}, "would be [-8, -8] long"),
    ("ConvTranspose", [TURNED], {"group": 0}, "in 0 groups"),
    ("LRN", [], {"size": 0}, "size 0"),
    ("LpPool", [], {"kernel_shape": [2, 2], "p": 0}, "no norm of order 0"),
    ("Flatten", [], {"axis": 9}, "axis 9 is outside"),
    ("Transpose", [], {"perm": [0, 0, 1, 2]}, "repeated value"),
    ("DepthToSpace", [], {"blocksize": 0}, "Blocksize must be positive"),
    ("Tile", [np.array([1, 1, -1, 2], I64)], {}, "are negative"),
    ("Expand", [np.array([2**40, 1, 1, 1, 1], I64)], {}, "has more than 2147483647 elements"),
    ("Pad", [np.array([2**40, 0, 0, 0, 0, 0, 0, 0], I64)], {}, "has more than 2147483647 elements"),
    ("Resize", [None, np.array([1, 1, np.nan, 1], F)], {}, "are not positive numbers"),
    ("Resize", [None, np.array([1, 1, 1e30, 1], F)], {}, "are not positive numbers"),
    ("BatchNormalization", [np.ones(7, F)] * 4, {}, "7 and 3"),
    ("Where", [np.ones(1, F)] * 2, {}, "operand 0 (condition) can't be float"),
    ("GridSample", [np.ones((1, 2), F)], {}, "does not fit the image"),
    ("GridSample", [np.ones((1, 2, 2, 3), F)], {}, "does not fit the image"),
    ("RoiAlign", [np.ones((2, 4), F), np.ones(3, I64)], {"sampling_ratio": 1}, "do not fit"),
    ("Col2Im", [np.array([4, 4]), np.array([2, 2])], {}, "do not fit"),
    ("DeformConv", [WEIGHTS, np.ones((1, 4, 6, 6), F)], {}, "do not fit"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} {c[2]}")
def test_refused(case: Any) -> None:
    operator, constants, attributes, reason = case
    since = {"Col2Im": 18, "DeformConv": 19}.get(operator, 17)
    with pytest.raises(HalotileError) as error:
        import_model(one(operator, constants, (1, 3, 8, 8), since, **attributes))
    text = str(error.value)
    assert reason in text and f"node #0 ({operator}" in text and "\n" not in text and "Error:" not in text


@pytest.mark.parametrize("shape", [(2**40, 2**40), (2**31, 3), (70000, 70000)])
def test_an_input_beyond_what_kernels_can_count(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="input 'x' has the shape .* more than 2147483647 elements"):
        import_model(one("Relu", [], shape))


def test_text_that_is_not_utf8() -> None:
    data = one("Relu", [], (1, 3)).SerializeToString().replace(b"Relu", b"R\xe4lu")
    with pytest.raises(ModelError, match=r"text that is not UTF-8 \(op_type\)"):
        import_model(data)


def test_a_type_that_does_not_exist() -> None:
    model = one("Relu", [], (1, 3))
    model.graph.input[0].type.tensor_type.elem_type = 99
    with pytest.raises(HalotileError, match="input 'x' holds type 99 data"):
        import_model(model)


def test_an_initialiser_of_negative_length() -> None:
    model = one("Add", [np.ones(3, F)], (1, 3))
    model.graph.initializer[0].dims[0] = -3
    with pytest.raises(ModelError, match=r"Negative dimension value \(tensor name: c0\)"):
        import_model(model)


def test_an_output_of_another_type_than_stated() -> None:
    model = one("Relu", [], (1, 3))
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    with pytest.raises(ModelError, match="output 'y' is stated to hold INT64 data, but what makes it is float32"):
        import_model(model)


def test_an_output_of_another_shape_than_stated_is_noted() -> None:
    model = one("Relu", [], (1, 3))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [7, "n"]))
    imported = import_model(model)
    assert imported.outputs[0].shape == (1, 3)
    assert "output 'y' is [1, 3], not as the model states" in imported.notes
