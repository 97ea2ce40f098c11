"""Sequences with constant positions are resolved at import, against ONNX Runtime; what is left is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from evaluate import evaluate, peer
from halotile.compiler.frontend import import_model
from halotile.errors import UnsupportedError
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(3)


def model(
    nodes: list[onnx.NodeProto], constants: dict[str, Any], outputs: list[str], dtype: int = TensorProto.FLOAT
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 7, 3])],
        [helper.make_tensor_value_info(o, dtype, None) for o in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def check(built: onnx.ModelProto) -> list[np.ndarray]:
    x = {"x": RNG.standard_normal((2, 7, 3)).astype("float32")}
    ours = list(evaluate(built, x).values())
    theirs = peer(built, x)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    return ours


@pytest.mark.parametrize("split", [[3, 4], [1, 1, 5], 3, 2, 7])
def test_split_to_sequence_and_take(split: Any) -> None:
    """Also a last piece that is shorter, and a position counted from the end."""
    nodes = [
        helper.make_node("SplitToSequence", ["x", "split"], ["s"], axis=1),
        helper.make_node("SequenceAt", ["s", "first"], ["a"]),
        helper.make_node("SequenceAt", ["s", "last"], ["b"]),
        helper.make_node("Neg", ["b"], ["c"]),
    ]
    check(model(nodes, {"split": np.int64(split), "first": np.int64(0), "last": np.int64(-1)}, ["a", "c"]))


@pytest.mark.parametrize("keep", [0, 1])
def test_split_into_rows(keep: int) -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=-2, keepdims=keep),
        helper.make_node("SequenceAt", ["s", "p"], ["a"]),
        helper.make_node("ConcatFromSequence", ["s"], ["b"], axis=0, new_axis=1 - keep),
    ]
    check(model(nodes, {"p": np.int64(4)}, ["a", "b"]))


def test_gated_linear_unit_becomes_slices() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x", "split"], ["s"], axis=1),
        helper.make_node("SequenceAt", ["s", "zero"], ["a"]),
        helper.make_node("SequenceAt", ["s", "one"], ["b"]),
        helper.make_node("Sigmoid", ["b"], ["g"]),
        helper.make_node("ConcatFromSequence", ["s"], ["again"], axis=1),
        helper.make_node("ReduceSum", ["g", "axes"], ["y"], keepdims=0),
    ]
    constants = {"split": np.int64([4, 3]), "zero": np.int64(0), "one": np.int64(1), "axes": np.int64([1])}
    built = model(nodes, constants, ["a", "y", "again"])
    check(built)
    operators = set(str(import_model(built).module).split()) & {"R.split(", "R.strided_slice("}
    assert not any("split(" in o for o in operators)


def test_built_up_and_taken_apart() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("SequenceEmpty", [], ["s0"]),
        helper.make_node("SequenceInsert", ["s0", "x"], ["s1"]),
        helper.make_node("SequenceInsert", ["s1", "n", "front"], ["s2"]),
        helper.make_node("Abs", ["x"], ["p"]),
        helper.make_node("SequenceInsert", ["s2", "p", "before_last"], ["s3"]),
        helper.make_node("Identity", ["s3"], ["s4"]),
        helper.make_node("SequenceErase", ["s4", "front"], ["s5"]),
        helper.make_node("ConcatFromSequence", ["s4"], ["y"], axis=-1, new_axis=1),
        helper.make_node("ConcatFromSequence", ["s5"], ["z"], axis=2),
        helper.make_node("SequenceConstruct", ["x", "n", "x"], ["t"]),
        helper.make_node("SequenceErase", ["t"], ["t2"]),
        helper.make_node("ConcatFromSequence", ["t2"], ["w"], axis=0),
    ]
    check(model(nodes, {"front": np.int64(0), "before_last": np.int64(-1)}, ["y", "z", "w"]))


def test_the_length_is_a_constant() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x", "two"], ["s"], axis=1),
        helper.make_node("SequenceLength", ["s"], ["n"]),
        helper.make_node("Expand", ["n", "shape"], ["y"]),
    ]
    (y,) = check(
        model(nodes, {"two": np.int64(2), "shape": np.int64([3])}, ["y"], TensorProto.INT64)
    )
    assert y.tolist() == [4, 4, 4]


def test_a_list_that_a_loop_appends_to() -> None:
    """What TorchScript makes of ``ys.append(...)`` in a loop, and ``torch.stack(ys)`` after it."""
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["x", "i"], ["row"], axis=1),
            helper.make_node("Add", ["row", "state"], ["next"]),
            helper.make_node("SequenceInsert", ["ys", "next"], ["more"]),
            helper.make_node("Identity", ["going"], ["go_on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [2, 3]),
            helper.make_tensor_sequence_value_info("ys", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [2, 3]),
            helper.make_tensor_sequence_value_info("more", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        helper.make_node("SequenceEmpty", [], ["none"]),
        helper.make_node("Loop", ["rounds", "yes", "start", "none"], ["last", "all"], body=body),
        helper.make_node("ConcatFromSequence", ["all"], ["y"], axis=1, new_axis=1),
    ]
    constants = {"rounds": np.int64(5), "yes": np.array(True), "start": np.zeros((2, 3), "float32")}
    check(model(nodes, constants, ["last", "y"]))


def test_a_position_of_run_time_is_refused() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x", "one"], ["s"], axis=1),
        helper.make_node("ArgMax", ["x"], ["m"], axis=1, keepdims=0),
        helper.make_node("ReduceMax", ["m"], ["p"], keepdims=0),
        helper.make_node("SequenceAt", ["s", "p"], ["y"], name="pick"),
    ]
    with pytest.raises(UnsupportedError, match="'pick'.*its position is computed at run time"):
        import_model(model(nodes, {"one": np.int64(1)}, ["y"]))


@pytest.mark.parametrize(
    ("operator", "operands", "attributes", "reason"),
    [
        ("SequenceAt", ["s", "far"], {}, "position 9 is outside a sequence of 7"),
        ("Relu", ["s"], {}, "an operand is a sequence"),
        ("ConcatFromSequence", ["x"], {"axis": 1}, "operand 0 is not a sequence"),
    ],
)
def test_misuse_is_refused(operator: str, operands: list[str], attributes: dict[str, int], reason: str) -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=1),
        helper.make_node(operator, operands, ["y"], name="it", **attributes),
    ]
    with pytest.raises(UnsupportedError, match=reason):
        import_model(model(nodes, {"far": np.int64(9)}, ["y"]))


def test_a_sequence_as_an_output_is_refused() -> None:
    built = model([helper.make_node("SplitToSequence", ["x"], ["s"], axis=1)], {}, [])
    built.graph.output.append(helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None))
    with pytest.raises(UnsupportedError, match="output 's' is a sequence"):
        import_model(built)
