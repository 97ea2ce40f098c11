"""Attributes and constants that make no sense are refused in a line that says which, before anything is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from halotile.compiler.frontend import attributes, import_model
from halotile.compiler.frontend.registry import converter
from halotile.errors import HalotileError, ModelError, ShapeError
from onnx import TensorProto, helper, numpy_helper

F, I64 = "float32", "int64"
PLACE, ONE, SCALES = np.zeros((1, 1, 1, 1), I64), np.ones((1, 1, 1, 1), F), np.array([1, 1, 2, 2], F)
WEIGHTS, TURNED = np.ones((4, 3, 3, 3), F), np.ones((3, 4, 3, 3), F)


def one(
    operator: str, constants: list[Any], shape: tuple[int, ...], opset: int = 17, **given: Any
) -> onnx.ModelProto:
    names = ["x", *(f"c{i}" if c is not None else "" for i, c in enumerate(constants))]
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"], **given)], "g",
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
    ("LRN", [], {"size": 0}, "size is 0; it must be one of 1, 3, 5 ..."),
    ("LRN", [], {"size": 4}, "size is 4"),
    ("LpPool", [], {"kernel_shape": [2, 2], "p": 0}, "no norm of order 0"),
    ("Flatten", [], {"axis": 9}, "axis 9 is outside"),
    ("Transpose", [], {"perm": [0, 0, 1, 2]}, "is no order of the axes"),
    ("Transpose", [], {"perm": [0, 1]}, "is no order of the axes"),
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
    ("ScatterElements", [PLACE, ONE], {"reduction": "bogus"}, "is 'bogus'; it must be none, add, mul, max or min"),
    ("ScatterND", [PLACE[0, 0], ONE[0]], {"reduction": "mean"}, "reduction is 'mean'"),
    ("LpNormalization", [], {"p": 3}, "p is 3; it must be 1 or 2"),
    ("DepthToSpace", [], {"blocksize": 1, "mode": "DRC"}, "mode is 'DRC'; it must be DCR or CRD"),
    ("LSTM", [ONE[0], ONE[0]], {"direction": "back"}, "is 'back'; it must be forward, reverse or bidirectional"),
    ("GRU", [ONE[0], ONE[0]], {"layout": 2}, "layout is 2; it must be 0 or 1"),
    ("RoiAlign", [np.ones((1, 4), F), np.zeros(1, I64)], {"mode": "min"}, "mode is 'min'; it must be avg or max"),
    ("RoiAlign", [np.ones((1, 4), F), np.zeros(1, I64)], {"coordinate_transformation_mode": "x"}, "_mode is 'x'"),
    ("Gelu", [], {"approximate": "erf"}, "approximate is 'erf'; it must be none or tanh"),
    ("MaxPool", [], {"kernel_shape": [2, 2], "storage_order": 7}, "storage_order is 7; it must be 0 or 1"),
    ("AveragePool", [], {"kernel_shape": [2, 2], "auto_pad": "SAME"}, "auto_pad is 'SAME'"),
    ("ReverseSequence", [np.ones(3, I64)], {"batch_axis": 2}, "batch_axis is 2; it must be 0 or 1"),
    ("ReverseSequence", [np.ones(3, I64)], {"batch_axis": 1, "time_axis": 1}, "do not fit"),
    ("ReverseSequence", [np.ones(4, I64)], {}, "do not fit"),
    ("Resize", [None, SCALES], {"mode": "square"}, "mode is 'square'"),
    ("Resize", [None, SCALES], {"nearest_mode": "up"}, "nearest_mode is 'up'"),
    ("Resize", [None, SCALES], {"coordinate_transformation_mode": "x"}, "coordinate_transformation_mode is 'x'"),
    ("GridSample", [np.ones((1, 2, 2, 2), F)], {"padding_mode": "wrap"}, "padding_mode is 'wrap'"),
    ("Pad", [np.zeros(8, I64)], {"mode": "mirror"}, "mode is 'mirror'"),
    ("ReduceSum", [], {"keepdims": 5}, "keepdims is 5; it must be 0 or 1"),
    ("Clip", [np.array(0.0), np.array(1.0, F)], {}, "operand 1 is float64 and operand 0 float32"),
    ("Add", [np.array(0)], {}, "operand 1 is int64 and operand 0 float32"),
    ("Concat", [np.ones((1, 3, 8, 8))], {"axis": 0}, "operand 1 is float64"),
    ("Slice", [np.array([0]), np.array([1, 2])], {}, "do not belong together"),
    ("Gemm", [np.ones((8, 8), F)], {}, "are not matrices"),
    ("Cast", [], {"to": 999}, "a cast to type 999 is not supported"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} {c[2]}")
def test_refused(case: Any) -> None:
    operator, constants, given, reason = case
    since = {"Col2Im": 18, "DeformConv": 19, "Gelu": 20}.get(operator, 17)
    with pytest.raises(HalotileError) as error:
        import_model(one(operator, constants, (1, 3, 8, 8), since, **given))
    text = str(error.value)
    assert reason in text and f"node #0 ({operator}" in text and "\n" not in text and "Error:" not in text


#: Words that are names, text or formulas, or lists that their converters look through.
FREE = frozenset("activations equation nodes_modes to".split())


def test_every_word_that_a_converter_reads_has_its_values() -> None:
    """An operator of a newer ONNX with a word that nobody entered is seen here."""
    kinds = (onnx.defs.OpSchema.AttrType.STRING, onnx.defs.OpSchema.AttrType.STRINGS)
    missing = {
        f"{schema.name}.{name}"
        for schema in onnx.defs.get_all_schemas_with_history()
        if converter(schema.domain, schema.name, schema.since_version) is not None
        for name, attribute in schema.attributes.items()
        if attribute.type in kinds and "string" not in name and name not in FREE
        and (name, schema.name) not in attributes.CLOSED
    }  # fmt: skip
    assert not missing


def test_every_value_that_is_allowed_is_in_the_text_of_onnx() -> None:
    texts: dict[tuple[str, str], str] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        for name, attribute in schema.attributes.items():
            texts[name, schema.name] = texts.get((name, schema.name), "") + attribute.description
    for (name, operator), values in attributes.CLOSED.items():
        if isinstance(values, tuple) and (name, operator) in texts:
            assert all(word in texts[name, operator] for word in values), (name, operator)


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
