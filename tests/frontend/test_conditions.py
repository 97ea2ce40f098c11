"""If with a condition of run time: both branches are computed and one is taken, where their results have one form."""

from __future__ import annotations

import halotile
import numpy as np
import onnx
import pytest
from evaluate import peer
from halotile.compiler.frontend import import_model
from halotile.errors import UnsupportedError
from halotile.schedules.operators.reference import compile_reference
from onnx import TensorProto, helper, numpy_helper


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


def loop_of(limit: str, *body: onnx.NodeProto) -> onnx.ModelProto:
    """x is doubled or otherwise changed as long as ``body`` says; what every round leaves is kept."""
    graph = helper.make_graph(
        [*body, helper.make_node("Identity", ["after"], ["kept"])],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            helper.make_tensor_value_info("before", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [5]),
        ],
        [onnx.ValueInfoProto(name=n) for n in ("again", "after", "kept")],
    )
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["positive"]),
        helper.make_node("NonZero", ["positive"], ["places"]),
        helper.make_node("Shape", ["places"], ["count"], start=1),
        helper.make_node("Squeeze", ["count"], ["positives"]),
        helper.make_node("Loop", [limit, "yes", "x"], ["y", "rounds"], body=graph),
    ]
    known = {"zero": np.float32(0), "ten": np.float32(10), "yes": np.bool_(True)}
    known |= {"seven": np.int64(7), "none": np.int64(0)}
    return helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5])],
            [onnx.ValueInfoProto(name=n) for n in ("y", "rounds")],
            [numpy_helper.from_array(np.asarray(a), n) for n, a in known.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )


DOUBLE = helper.make_node("Add", ["state", "state"], ["after"])
STEADY = [DOUBLE, helper.make_node("Identity", ["before"], ["again"])]
SMALL = [
    DOUBLE,
    helper.make_node("ReduceMax", ["after"], ["top"], keepdims=0),
    helper.make_node("Less", ["top", "ten"], ["again"]),
]


@pytest.mark.parametrize(("limit", "body"), [("seven", SMALL), ("positives", STEADY), ("positives", SMALL)])
def test_rounds_of_run_time(limit: str, body: list[onnx.NodeProto]) -> None:
    """As long as a condition holds, as often as there are positive elements, or both."""
    built = loop_of(limit, *body)
    imported = import_model(built)
    run = compile_reference(imported.module)
    for x in ([1, 2, 3, -4, 5], [0.1, 0.2, -1, -1, -1], [20, 1, 1, 1, 1]):
        given = np.array(x, "float32")
        y, rounds, count = run(given)
        expected = peer(built, {"x": given})
        np.testing.assert_array_equal(y, expected[0])
        np.testing.assert_array_equal(rounds[: count[0]], expected[1])
        assert len(expected[1]) == count[0] and not rounds[count[0] :].any()


def test_rounds_that_nothing_bounds_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="nothing bounds the number of its rounds"):
        import_model(loop_of("", *SMALL))


def test_no_rounds_leave_no_rows() -> None:
    """The state passes through, and what the rounds would have kept has their shape."""
    built = loop_of("none", *STEADY)
    given = np.arange(5, dtype="float32")
    found = halotile.compile(built)({"x": given})
    for ours, wanted in zip((found["y"], found["rounds"]), peer(built, {"x": given}), strict=True):
        assert ours.shape == wanted.shape and ours.dtype == wanted.dtype
        np.testing.assert_array_equal(ours, wanted)
