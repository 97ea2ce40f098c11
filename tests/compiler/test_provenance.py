"""Kernels know the nodes of the model that they compute, through simplification, merging, fusion and tiling."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.errors import HalotileError
from halotile.schedules.words.provenance import names_of, span_of
from halotile.targets.detect import native
from onnx import TensorProto, helper, numpy_helper

node = helper.make_node


def weight(name: str, *shape: int) -> onnx.TensorProto:
    rng = np.random.default_rng(len(name))
    return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) + 0.1, name)


def model(
    nodes: Sequence[onnx.NodeProto], shape: Sequence[int], weights: Sequence[onnx.TensorProto] = (), **more: Any
) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(list(nodes), "g", [x], [y], list(weights))
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, **more)


def planned(proto: onnx.ModelProto, **options: Any) -> Any:
    return run_pipeline(proto, Options(native(), threads=2, stop_after="plan", **options))


def sources(proto: onnx.ModelProto, **options: Any) -> list[list[str]]:
    """The nodes of each group that has some, in order; without copies into other layouts."""
    groups = planned(proto, **options).report["groups"]
    return [g["nodes"] for g in groups if g["nodes"] and g["operators"] != ["halotile.copy"]]


def test_spans_keep_names() -> None:
    for names in ((), ("a",), ("/b.0/Conv", "c;d", "e f")):
        assert names_of(span_of(names)) == names
    assert names_of(span_of(["a", "b", "a"])) == ("a", "b")


def convolutions() -> onnx.ModelProto:
    scales = [numpy_helper.from_array(np.full(8, 0.5 + k, np.float32), f"n{k}") for k in range(4)]
    nodes = [
        node("Conv", ["x", "w0"], ["a"], "first", pads=[1] * 4),
        node("BatchNormalization", ["a", "n0", "n1", "n2", "n3"], ["b"], "norm"),
        node("Relu", ["b"], ["c"]),
        node("Dropout", ["c"], ["d"], "dropped"),
        node("Conv", ["d", "w1"], ["e"], "second", pads=[1] * 4),
        node("Add", ["e", "c"], ["f"], "sum"),
        node("MaxPool", ["f"], ["y"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    return model(nodes, (1, 3, 21, 19), [weight("w0", 8, 3, 3, 3), weight("w1", 8, 8, 3, 3), *scales])


def test_a_kernel_has_the_nodes_that_were_folded_and_fused_into_it() -> None:
    """A node without a name has that of its output."""
    assert sources(convolutions(), tile="off") == [["first", "norm", "c"], ["second", "sum"], ["pool"]]


def test_a_copy_into_another_layout_has_the_name_of_what_it_moves() -> None:
    """An input, or the node that computes it, also behind a view."""
    nodes = [
        node("Conv", ["x", "w0"], ["a"], "first", pads=[1] * 4),
        node("Sin", ["a"], ["b"], "wave"),
        node("Conv", ["b", "w1"], ["c"], "second", pads=[1] * 4),
        node("Transpose", ["c"], ["d"], "turned", perm=[0, 2, 3, 1]),
        node("ReduceSum", ["d", "axes"], ["y"], "sum", keepdims=0),
    ]
    axes = numpy_helper.from_array(np.int64([1]), "axes")
    proto = model(nodes, (1, 16, 21, 19), [weight("w0", 16, 16, 3, 3), weight("w1", 19, 16, 3, 3), axes])
    build = planned(proto, tile="off")
    copies = [g["nodes"] for g in build.report["groups"] if g["operators"] == ["halotile.copy"]]
    assert copies and copies[0] == ["x"] and all(copies)
    told = [note for note in build.notes["layout"] if "is converted" in note]
    assert told and not [note for note in told if note.startswith("lv")]


def test_what_a_rewrite_makes_of_several_has_the_names_of_all() -> None:
    root = [numpy_helper.from_array(np.float32(v), n) for n, v in (("r", 2**0.5), ("one", 1), ("half", 0.5))]
    nodes = [
        node("Div", ["x", "r"], ["a"], "divided"),
        node("Erf", ["a"], ["b"], "error"),
        node("Add", ["b", "one"], ["c"], "shifted"),
        node("Mul", ["x", "c"], ["d"], "times"),
        node("Mul", ["d", "half"], ["y"], "halved"),
    ]
    (found,) = sources(model(nodes, (3, 7), root))
    assert sorted(found) == ["divided", "error", "halved", "shifted", "times"]


def test_equal_nodes_are_one_with_both_names() -> None:
    nodes = [
        node("Softmax", ["x"], ["a"], "left"),
        node("Softmax", ["x"], ["b"], "right"),
        node("MatMul", ["a", "b"], ["y"], "product"),
    ]
    assert sources(model(nodes, (7, 7)))[0] == ["left", "right"]


def test_operators_that_pass_each_other_keep_their_own() -> None:
    """The transposes meet and vanish; the map, which was between them, is the kernel."""
    nodes = [
        node("Transpose", ["x"], ["a"], "there", perm=[0, 2, 1]),
        node("Exp", ["a"], ["b"], "map"),
        node("Transpose", ["b"], ["y"], "back", perm=[0, 2, 1]),
    ]
    assert sources(model(nodes, (2, 5, 3))) == [["map", "there", "back"]]


def test_bodies_of_functions_have_the_name_of_the_call() -> None:
    body = [node("Exp", ["u"], ["t"], "inner"), node("Softmax", ["t"], ["v"], "inner")]
    twice = helper.make_function("own", "Twice", ["u"], ["v"], body, [helper.make_opsetid("", 20)])
    calls = [node("Twice", ["x"], ["a"], "call", domain="own"), node("Twice", ["a"], ["y"], "again", domain="own")]
    found = sources(model(calls, (3, 5), functions=[twice]))
    assert {name for names in found for name in names} == {"call", "again"}


def test_merged_products_have_the_names_of_all() -> None:
    from halotile.benchmarks.models import MODELS

    proto = MODELS["bert_raw"].model(small=True)
    names = {n.name for n in proto.graph.node if n.op_type == "MatMul"}
    joined = [set(group) & names for group in sources(proto)]
    assert any(len(group) >= 3 for group in joined)
    assert set().union(*joined) == names


@pytest.mark.parametrize("name", ["light_squeezenet", "light_resnet50", "light_shufflenet"])
def test_every_node_of_a_real_model_is_in_a_kernel(name: str) -> None:
    """But those that vanish: concatenations and splits that lie in place, shapes, constants and dropped ones."""
    folder = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "light")
    proto = onnx.load(os.path.join(folder, f"{name}.onnx"))
    kinds = {n.name or n.output[0]: n.op_type for n in proto.graph.node}
    found = {n for names in sources(proto, tile="off") for n in names}
    gone = {"Concat", "Split", "Dropout", "Reshape", "Constant", "ConstantOfShape", "Identity"}
    assert found <= kinds.keys() and {kinds[n] for n in kinds.keys() - found} <= gone


def test_tile_groups_are_asked_for_by_nodes() -> None:
    wish = {"first": "first", "last": "sum", "shape": (4, 8), "modes": {"c": "recompute"}}
    build = planned(convolutions(), tile=wish)
    (plan,) = build.tiled.values()
    assert [g.sources for g in plan.members] == [("first", "norm", "c"), ("second", "sum")]
    assert "recompute" in plan.modes.values()
    (described,) = build.report["tile"]["groups"]
    assert [m["nodes"] for m in described["members"]] == [["first", "norm", "c"], ["second", "sum"]]
    assert [v["node"] for v in described["values"]] == ["c", "sum"]
    with pytest.raises(HalotileError, match="did you mean second"):
        planned(convolutions(), tile={"last": "secand"})
    with pytest.raises(HalotileError, match="the groups are"):
        planned(convolutions(), tile={"last": "unheard of"})


def test_reasons_name_nodes() -> None:
    nodes = [
        node("Conv", ["x", "w"], ["a"], "conv"),
        node("Transpose", ["a"], ["b"], "turned", perm=[0, 1, 3, 2]),
        node("Mul", ["a", "b"], ["y"], "times"),
    ]
    report = planned(model(nodes, (1, 8, 9, 9), [weight("w", 8, 8, 1, 1)])).report
    turned, times = report["notes"]["fuse"]
    assert turned == "relax.permute_dims (turned) not fused: it reads conv at other elements"
    assert "(times) not fused" in times and times.endswith("computed from conv elsewhere")
