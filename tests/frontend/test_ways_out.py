"""Refusals that name the input whose value would settle it, and files that are refused before anything takes long."""

from __future__ import annotations

import time

import halotile
import numpy as np
import onnx
import pytest
from halotile.compiler.frontend import import_model
from halotile.compiler.inspection import inspect_file
from halotile.errors import UnsupportedError
from onnx import TensorProto, helper, numpy_helper

SR = "--fix sr=VALUE (from Python fixed={'sr': VALUE})"


def info(name: str, element: int = TensorProto.FLOAT, shape: list | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)


def product(size: int) -> onnx.GraphProto:
    """x [2, 8] times a weight [size, 4], which only 8 fits."""
    weight = numpy_helper.from_array(np.ones((size, 4), np.float32), f"w{size}")
    node = helper.make_node("MatMul", ["x", f"w{size}"], [f"o{size}"])
    return helper.make_graph([node], "b", [], [info(f"o{size}")], [weight])


def made(nodes: list[onnx.NodeProto], *inputs: onnx.ValueInfoProto, **weights: object) -> onnx.ModelProto:
    arrays = [numpy_helper.from_array(np.array(v), n) for n, v in weights.items()]
    graph = helper.make_graph(nodes, "g", [info("x", shape=[2, 8]), *inputs], [info("y")], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def deciding(*condition: onnx.NodeProto, other: int = 6, **weights: object) -> onnx.ModelProto:
    choice = helper.make_node("If", ["c"], ["y"], then_branch=product(8), else_branch=product(other), name="which")
    return made([*condition, choice], info("sr", TensorProto.INT64, []), info("on", TensorProto.BOOL, [1]), **weights)


EQUAL = helper.make_node("Equal", ["sr", "rate"], ["c"])
RATE = {"rate": np.int64(16000)}


def test_an_if_names_the_input_that_decides() -> None:
    with pytest.raises(UnsupportedError) as caught:
        import_model(deciding(EQUAL, **RATE))
    assert SR in str(caught.value) and "else_branch" in str(caught.value) and "follows from 'sr'" in str(caught.value)
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    y = halotile.compile(deciding(EQUAL, **RATE), fixed={"sr": 16000})({"x": x})["y"]
    np.testing.assert_allclose(y, x @ np.ones((8, 4), np.float32), rtol=1e-6)


def test_by_way_of_other_nodes_and_of_several_inputs() -> None:
    wired = {"Mod": ["sr", "rate", "m"], "Greater": ["m", "rate", "g"], "Reshape": ["on", "none", "s"], "And": "gsc"}
    nodes = [helper.make_node(kind, [a, b], [c]) for kind, (a, b, c) in wired.items()]
    with pytest.raises(UnsupportedError, match="follows from 'sr', 'on', and --fix sr=VALUE --fix on=VALUE "):
        import_model(deciding(*nodes, none=np.zeros(0, np.int64), **RATE))


def test_what_data_decides_has_no_such_way() -> None:
    mean = helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0)
    greater = helper.make_node("Greater", ["m", "zero"], ["c"])
    with pytest.raises(UnsupportedError) as caught:
        import_model(deciding(mean, greater, zero=np.float32(0)))
    assert "do not fit" in str(caught.value) and "--fix" not in str(caught.value)


def test_branches_of_other_forms() -> None:
    one = helper.make_graph([helper.make_node("Relu", ["x"], ["a"])], "b", [], [info("a")])
    other = helper.make_graph([helper.make_node("ReduceSum", ["x"], ["b"], keepdims=0)], "b", [], [info("b")])
    nodes = [EQUAL, helper.make_node("If", ["c"], ["y"], then_branch=one, else_branch=other)]
    with pytest.raises(UnsupportedError) as caught:
        import_model(made(nodes, info("sr", TensorProto.INT64, []), **RATE))
    assert SR in str(caught.value) and "differ in rank" in str(caught.value)


def test_a_length_that_follows_from_an_input() -> None:
    nodes = [helper.make_node("Add", ["sr", "one"], ["k"]), helper.make_node("Reshape", ["k", "dims"], ["k1"]),
             helper.make_node("CumSum", ["x", "k"], ["y"])]  # fmt: skip
    model = made(nodes, info("sr", TensorProto.INT64, []), one=np.int64(0), dims=np.array([1], np.int64))
    with pytest.raises(UnsupportedError, match=r"follows from 'sr', and --fix sr=VALUE"):
        import_model(model)


# ---------------------------------------------------------------------- before it works


def forest(zipmap: bool, nodes: int = 1 << 17) -> onnx.ModelProto:
    """A classifier of many trees of one node each with two leaves, and the ZipMap that converters put behind it."""
    trees = nodes // 3
    ids = np.arange(trees)
    attributes = {
        "nodes_treeids": np.repeat(ids, 3).tolist(), "nodes_nodeids": [0, 1, 2] * trees,
        "nodes_featureids": [0] * 3 * trees, "nodes_values": [0.0] * 3 * trees,
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * trees, "nodes_truenodeids": [1, 0, 0] * trees,
        "nodes_falsenodeids": [2, 0, 0] * trees, "class_treeids": np.repeat(ids, 2).tolist(),
        "class_nodeids": [1, 2] * trees, "class_ids": [0, 1] * trees, "class_weights": [0.5] * 2 * trees,
        "classlabels_int64s": [0, 1, 2],
    }  # fmt: skip
    made = [helper.make_node("TreeEnsembleClassifier", ["x"], ["l", "p"], domain="ai.onnx.ml", **attributes)]
    outputs = [info("l", TensorProto.INT64)]
    if zipmap:
        names = {"domain": "ai.onnx.ml", "name": "zip"}
        made.append(helper.make_node("ZipMap", ["p"], ["z"], classlabels_int64s=[0, 1, 2], **names))
        table = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(1, []))
        outputs.append(helper.make_value_info("z", helper.make_sequence_type_proto(table)))
    graph = helper.make_graph(made, "g", [info("x", shape=[1, 4])], outputs)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def test_a_zipmap_is_refused_before_the_trees_are_looked_at(monkeypatch) -> None:
    from halotile.compiler.frontend.converters import trees

    monkeypatch.setattr(trees, "_numbered", lambda *_: pytest.fail("the trees were converted"))
    model, start = forest(True), time.process_time()
    with pytest.raises(UnsupportedError, match="'zip'.*ZipMap.*zipmap=False"):
        import_model(model)
    assert time.process_time() - start < 5


def test_small_nodes_beside_one_that_is_hopeless_are_still_named() -> None:
    wired = {"RandomUniformLike": [["x"], "a"], "MatMul": [["x", "x"], "b"], "Add": [["a", "b"], "y"]}
    nodes = [helper.make_node(kind, read, [made], name=made * 4) for kind, (read, made) in wired.items()]
    with pytest.raises(UnsupportedError, match="(?s)2 nodes.*'aaaa'.*'bbbb'"):
        import_model(made(nodes))


def test_no_compiler_is_found_out_before_compiling(monkeypatch, tmp_path) -> None:
    from halotile.compiler import pipeline
    from halotile.compiler.codegen import toolchain
    from halotile.errors import ToolchainError
    from halotile.targets.resolve import resolve

    monkeypatch.setattr(toolchain.shutil, "which", lambda *_: None)
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda *_: None)
    monkeypatch.setitem(pipeline._STAGE_FUNCTIONS, "import", lambda _: pytest.fail("it was compiled first"))
    for formats in (("so",), ("a", "extras"), ("exe",)):
        options = pipeline.Options(resolve("native"), formats=formats)
        with pytest.raises(ToolchainError, match="install|pip install"):
            pipeline.run_pipeline(made([EQUAL]), options, output=tmp_path / "out")


# ---------------------------------------------------------------------- inspect


def test_inspect_counts_what_is_inside() -> None:
    function = helper.make_function(
        "own", "F", ["a"], ["b"],
        [helper.make_node("Constant", [], ["k"], value_floats=[1.0, 2.0]), helper.make_node("Add", ["a", "k"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    body = helper.make_graph(
        [helper.make_node("If", ["go"], ["z"], then_branch=product(8), else_branch=product(6)),
         helper.make_node("Identity", ["go"], ["g"])], "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, [])], [info("g", TensorProto.BOOL), info("z")],
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["n", ""], ["s"], body=body), helper.make_node("F", ["s"], ["y"], domain="own")]
    model = made(nodes, n=np.int64(2))
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("own", 1))
    data = inspect_file(model)
    assert data["operators"] == {"MatMul": 2, "Loop": 1, "own.F": 1, "If": 1, "Identity": 1, "Constant": 1, "Add": 1}
    assert (data["nodes"], data["nodes_inside"]) == (8, 6)
    assert data["weights"] == {"tensors": 4, "elements": 1 + 32 + 24 + 2, "bytes": 8 + 4 * (32 + 24 + 2)}
    assert data["macs"] is None and len(data["macs_unknown_for"]) == 2  # how often they run is not counted


def test_inspect_counts_trees_and_says_what_is_refused() -> None:
    model = forest(True, 300)
    data = inspect_file(model)
    trees = 100
    floats, integers = 3 * trees + 2 * trees, 5 * 3 * trees + 3 * 2 * trees + 3 + 3
    texts = trees * (len("BRANCH_LEQ") + 2 * len("LEAF"))
    assert data["weights"]["bytes"] == 4 * floats + 8 * integers + texts
    assert not data["coverage"]["supported"] and "ZipMap" in data["coverage"]["refused"][0]


def test_inspect_of_open_dimensions_names_refused_operators_inside() -> None:
    inner = helper.make_graph([helper.make_node("RandomNormalLike", ["x"], ["a"])], "b", [], [info("a")])
    nodes = [helper.make_node("If", ["on"], ["y"], then_branch=inner, else_branch=inner)]
    model = made(nodes, info("on", TensorProto.BOOL, []))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    coverage = inspect_file(model)["coverage"]
    assert not coverage["supported"] and not coverage["exact"] and "RandomNormalLike" in coverage["refused"][0]
