"""Functions of a model that import another opset than the model: each body is read by its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import halotile
import numpy as np
import onnx
import pytest
from halotile.errors import ModelError
from onnx import helper, numpy_helper

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("float32") * 3
OWN = helper.make_opsetid("own", 1)


def function(name: str, version: int, nodes: Sequence[onnx.NodeProto], attributes: Sequence[str] = ()) -> Any:
    """Of one operand a and one result b."""
    imports = [helper.make_opsetid("", version), OWN]
    return helper.make_function("own", name, ["a"], ["b"], nodes, imports, attributes=attributes)


def referring(operator: str, *names: str, **attributes: Any) -> onnx.NodeProto:
    """b = operator(a) with attributes of the function's own."""
    node = helper.make_node(operator, ["a"], ["b"], **attributes)
    kinds = {"axis": onnx.AttributeProto.INT, "min": onnx.AttributeProto.FLOAT}
    for name in names:
        node.attribute.append(onnx.AttributeProto(name=name, ref_attr_name=name, type=kinds[name]))
    return node


def model_of(functions: Sequence[Any], name: str, version: int = 17, **attributes: Any) -> onnx.ModelProto:
    nodes = [helper.make_node(name, ["x"], ["y"], domain="own", **attributes)]
    ends = [helper.make_tensor_value_info("x", 1, X.shape)], [helper.make_tensor_value_info("y", 1, None)]
    graph = helper.make_graph(nodes, "g", *ends)
    imports = [helper.make_opsetid("", version), OWN]
    return helper.make_model(graph, functions=functions, opset_imports=imports, ir_version=8)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def flat(x: np.ndarray) -> np.ndarray:
    """Softmax of axis 1 before opset 13: of all axes from there on."""
    return softmax(x.reshape(len(x), -1), 1).reshape(x.shape)


SOFT = function("Soft", 11, [helper.make_node("Softmax", ["a"], ["b"], axis=1)])
CLIP = function("Limit", 6, [referring("Clip", "min", max=1.5)], ["min"])
CHOSEN = function("Chosen", 11, [referring("Softmax", "axis")])
CHOSEN.attribute_proto.append(helper.make_attribute("axis", 2))


def nested() -> Any:
    nodes = [
        helper.make_node("Limit", ["a"], ["t"], domain="own", min=-0.5),
        helper.make_node("Soft", ["t"], ["s"], domain="own"),
        helper.make_node("Softmax", ["s"], ["b"], axis=1),
    ]
    return function("Nested", 13, nodes)


def squeezed() -> Any:
    """Axes are attributes up to opset 12, and operands from then on."""
    nodes = [helper.make_node("Unsqueeze", ["a"], ["t"], axes=[0]),
             helper.make_node("ReduceSum", ["t"], ["b"], axes=[1], keepdims=0)]  # fmt: skip
    return function("Sum", 11, nodes)


def newer() -> Any:
    nodes = [helper.make_node("Constant", [], ["k"], value_ints=[1]),
             helper.make_node("ReduceMean", ["a", "k"], ["b"], keepdims=0)]  # fmt: skip
    return function("Mean", 18, nodes)


def branching() -> Any:
    """Branches belong to the body."""
    p = [helper.make_tensor_value_info("p", 1, None)]
    yes = helper.make_graph([helper.make_node("Softmax", ["a"], ["p"], axis=1)], "yes", [], p)
    no = helper.make_graph([helper.make_node("Squeeze", ["q"], ["p"], axes=[0])], "no", [], p)
    nodes = [
        helper.make_node("Unsqueeze", ["a"], ["q"], axes=[0]),
        helper.make_node("Constant", [], ["z"], value=numpy_helper.from_array(np.float32(0))),
        helper.make_node("ReduceMax", ["a"], ["m"], keepdims=0),
        helper.make_node("Greater", ["m", "z"], ["c"]),
        helper.make_node("If", ["c"], ["b"], then_branch=yes, else_branch=no),
    ]
    return function("Branch", 11, nodes)


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        (model_of([SOFT], "Soft"), flat(X)),
        (model_of([CLIP], "Limit", min=-1.0), np.clip(X, -1, 1.5)),
        (model_of([CHOSEN], "Chosen"), softmax(X, 2)),
        (model_of([CHOSEN], "Chosen", axis=1), flat(X)),
        (model_of([CLIP, SOFT, nested()], "Nested"), softmax(flat(np.clip(X, -0.5, 1.5)), 1)),
        (model_of([squeezed()], "Sum"), X[None].sum(1)),
        (model_of([newer()], "Mean", 11), X.mean(1)),
        (model_of([branching()], "Branch"), flat(X)),
        (model_of([SOFT], "Soft", 11), flat(X)),
    ],
    ids=["softmax", "clip", "default", "given", "nested", "axes", "newer", "branch", "same"],
)
def test_each_body_is_read_by_its_own_opset(model: onnx.ModelProto, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(halotile.compile(model)({"x": X})["y"], wanted, rtol=1e-5, atol=1e-6)


def test_such_a_body_is_checked() -> None:
    wrong = function("Wrong", 11, [helper.make_node("Softmax", ["a"], ["b"], axes=[1])])
    with pytest.raises(ModelError, match=r"function 'Wrong' of 'own'.*axes"):
        halotile.compile(model_of([wrong], "Wrong"))
