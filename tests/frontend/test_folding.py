"""What is known at import disappears; what would bloat the weights or draws random numbers does not."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from evaluate import evaluate, one_node
from halotile.compiler.frontend import ahead, import_model
from halotile.errors import UnsupportedError
from onnx import TensorProto, helper, numpy_helper
from small_models import model_of

node = helper.make_node


def operators(model: onnx.ModelProto) -> Counter[str]:
    """The operators left in the imported module."""
    block = import_model(model).module["main"].body.blocks[0]
    return Counter(b.value.op.name for b in block.bindings if hasattr(b.value, "op"))


def constant(name: str, value: object, dtype: str = "int64") -> onnx.NodeProto:
    return node("Constant", [], [name], value=numpy_helper.from_array(np.array(value, dtype)))


def test_shape_arithmetic_disappears() -> None:
    """x.view(x.size(0), x.size(1) // 2, -1) as torch exports it."""
    model = model_of(
        node("Shape", ["x"], ["s"]),
        constant("zero", 0),
        constant("one", 1),
        constant("two", 2),
        constant("axes", [0]),
        constant("rest", [-1]),
        node("Gather", ["s", "zero"], ["b"], axis=0),
        node("Gather", ["s", "one"], ["c"], axis=0),
        node("Div", ["c", "two"], ["half"]),
        node("Cast", ["half"], ["halff"], to=TensorProto.FLOAT),
        node("Floor", ["halff"], ["floor"]),
        node("Cast", ["floor"], ["halfi"], to=TensorProto.INT64),
        node("Unsqueeze", ["b", "axes"], ["bu"]),
        node("Unsqueeze", ["halfi", "axes"], ["hu"]),
        node("Concat", ["bu", "hu", "rest"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["r"]),
        node("Relu", ["r"], ["y"]),
    )
    model.graph.output[0].type.tensor_type.shape.dim.add().dim_value = 1
    assert operators(model) == {"relax.reshape": 1, "relax.nn.relu": 1}


def test_a_known_condition_is_taken() -> None:
    branches = {
        name: helper.make_graph(
            [node(op, ["x"], [out])], name, [], [helper.make_tensor_value_info(out, 1, [2, 4])]
        )
        for name, op, out in (("then_branch", "Neg", "a"), ("else_branch", "Abs", "b"))
    }
    model = model_of(
        node("Shape", ["x"], ["s"]),
        constant("at", [0]),
        constant("two", [2]),
        node("Gather", ["s", "at"], ["n"]),
        node("Equal", ["n", "two"], ["c"]),
        node("If", ["c"], ["y"], **branches),
    )
    assert operators(model) == {"relax.negative": 1}


def test_loop_with_a_known_number_of_rounds() -> None:
    body = helper.make_graph(
        [
            node("Add", ["v", "x"], ["w"]),
            node("Identity", ["going"], ["still"]),
            node("ReduceSum", ["w"], ["t"], keepdims=0),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", 7, []),
            helper.make_tensor_value_info("going", 9, []),
            helper.make_tensor_value_info("v", 1, [2, 4]),
        ],
        [
            helper.make_tensor_value_info("still", 9, []),
            helper.make_tensor_value_info("w", 1, [2, 4]),
            helper.make_tensor_value_info("t", 1, []),
        ],
    )
    model = model_of(constant("three", 3), node("Loop", ["three", "", "x"], ["y", "sums"], body=body))
    model.graph.output.append(helper.make_tensor_value_info("sums", 1, [3]))
    x = np.arange(8, dtype="float32").reshape(2, 4)
    result = evaluate(model, {"x": x})
    np.testing.assert_allclose(result["y"], 4 * x)
    np.testing.assert_allclose(result["sums"], [56, 84, 112])


def test_scan_backwards() -> None:
    body = helper.make_graph(
        [node("Add", ["s", "e"], ["n"]), node("Identity", ["n"], ["o"])],
        "body",
        [helper.make_tensor_value_info(n, 1, [4]) for n in "se"],
        [helper.make_tensor_value_info(n, 1, [4]) for n in "no"],
    )
    model = model_of(
        constant("start", np.zeros(4), "float32"),
        node("Scan", ["start", "x"], ["last", "y"], body=body, num_scan_inputs=1, scan_input_directions=[1]),
    )
    x = np.arange(8, dtype="float32").reshape(2, 4)
    np.testing.assert_allclose(evaluate(model, {"x": x})["y"], [x[1], x[1] + x[0]])


def test_a_giant_expansion_is_not_stored() -> None:
    rows = ahead.LARGEST // 16 + 1
    model = model_of(
        constant("shape", [rows, 4]),
        node("ConstantOfShape", ["shape"], ["big"]),
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Add", ["big", "s"], ["y"]),
    )
    assert operators(model)["relax.broadcast_to"] == 1


def test_random_operators_are_never_evaluated() -> None:
    constant_x = model_of(
        constant("shape", [2, 4]),
        node("RandomNormal", [], ["r"], name="r", shape=[2, 4], seed=1.0),
        node("Add", ["x", "r"], ["y"]),
    )
    with pytest.raises(UnsupportedError, match="random"):
        import_model(constant_x)


def test_an_initialiser_that_is_an_input_too() -> None:
    model = model_of(node("Add", ["x", "w"], ["y"]))
    model.graph.input.append(helper.make_tensor_value_info("w", 1, [4]))
    model.graph.initializer.append(numpy_helper.from_array(np.ones(4, "float32"), "w"))
    imported = import_model(model)
    assert [i.name for i in imported.inputs] == ["x"]
    assert any("'w'" in n for n in imported.notes)


def test_unused_inputs_and_nodes_are_dropped_with_a_note() -> None:
    model = model_of(node("Neg", ["x"], ["y"]), node("Abs", ["x"], ["nobody"]))
    model.graph.input.append(helper.make_tensor_value_info("idle", 1, [3]))
    imported = import_model(model)
    assert [i.name for i in imported.inputs] == ["x"]
    assert any("'idle'" in n for n in imported.notes) and any("1 node dropped" in n for n in imported.notes)
    assert operators(model) == {"relax.negative": 1}


def test_outputs_that_are_inputs_or_constants() -> None:
    model = model_of(constant("k", np.ones(3), "float32"), node("Neg", ["x"], ["y"]))
    model.graph.output.append(helper.make_tensor_value_info("x", 1, [2, 4]))
    model.graph.output.append(helper.make_tensor_value_info("k", 1, [3]))
    x = np.ones((2, 4), "float32")
    result = evaluate(model, {"x": x})
    assert list(result) == ["y", "x", "k"]
    np.testing.assert_array_equal(result["x"], x)
    np.testing.assert_array_equal(result["k"], np.ones(3))


def test_dropout_and_identity_vanish() -> None:
    model = model_of(node("Dropout", ["x"], ["d"]), node("Identity", ["d"], ["e"]), node("Neg", ["e"], ["y"]))
    assert operators(model) == {"relax.negative": 1}


def test_stale_value_info_is_ignored() -> None:
    model = model_of(node("Neg", ["x"], ["a"]), node("Abs", ["a"], ["y"]))
    model.graph.value_info.append(helper.make_tensor_value_info("a", 1, [7, 7, 7]))
    assert import_model(model).outputs[0].shape == (2, 4)


def test_a_tensor_without_elements() -> None:
    model, feeds = one_node("Concat", [np.empty((0, 3), "float32"), np.ones((2, 3), "float32")], axis=0)
    np.testing.assert_array_equal(evaluate(model, feeds)["o0"], np.ones((2, 3)))


def test_local_functions_with_attributes_and_defaults() -> None:
    function = onnx.FunctionProto(
        name="Scaled", domain="mine", input=["a"], output=["b"], attribute=["alpha"]
    )
    function.attribute_proto.append(helper.make_attribute("beta", 2.0))
    body = [node("LeakyRelu", ["a"], ["l"]), node("Elu", ["l"], ["b"])]
    for inner, name in zip(body, ("alpha", "beta")):
        reference = inner.attribute.add()
        reference.name, reference.ref_attr_name, reference.type = "alpha", name, onnx.AttributeProto.FLOAT
    function.node.extend(body)
    function.opset_import.add(domain="", version=17)
    model = model_of(node("Scaled", ["x"], ["y"], domain="mine", alpha=0.5), domains=("mine",))
    model.functions.append(function)
    x = np.linspace(-4, 4, 8, dtype="float32").reshape(2, 4)
    leaky = np.where(x < 0, 0.5 * x, x)
    expected = np.where(leaky < 0, 2 * np.expm1(leaky), leaky)
    np.testing.assert_allclose(evaluate(model, {"x": x})["y"], expected, rtol=1e-6)


def test_a_function_that_calls_itself_is_refused() -> None:
    function = onnx.FunctionProto(name="F", domain="mine", input=["a"], output=["b"])
    function.node.append(node("F", ["a"], ["b"], domain="mine"))
    function.opset_import.add(domain="mine", version=1)
    model = model_of(node("F", ["x"], ["y"], domain="mine", name="f"), domains=("mine",))
    model.functions.append(function)
    with pytest.raises(Exception, match="calls itself|recurs|cycl"):
        import_model(model)
