"""Small files that ask for much: refused in one line, or done in time that grows with the file."""

from __future__ import annotations

import time

import numpy as np
import onnx
import pytest
from halotile.compiler import inspection
from halotile.compiler.frontend import import_model, origins
from halotile.compiler.frontend.check import in_order
from halotile.compiler.inspection import inspect_file
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.errors import ModelError, UnsupportedError
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper

X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
Y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]


def model(
    nodes: list[onnx.NodeProto], functions: list[onnx.FunctionProto] | None = None, **more: object
) -> onnx.ModelProto:
    initialisers = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in more.items()]
    graph = helper.make_graph(nodes, "hostile", [X], [Y], initialisers)
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=9, functions=functions or [])


def loops(depth: int) -> onnx.NodeProto:
    """``depth`` loops of ``n`` rounds in one another around a Relu, from ``x`` to ``y``."""
    state, made = (f"x{depth}", f"y{depth}")
    inner = loops(depth - 1) if depth else helper.make_node("Relu", [state], [made])
    if depth:
        inner.input[2], inner.output[0] = state, made
    body = helper.make_graph(
        [helper.make_node("Identity", [f"c{depth}"], [f"d{depth}"]), inner],
        "body",
        [
            helper.make_tensor_value_info(f"i{depth}", TensorProto.INT64, []),
            helper.make_tensor_value_info(f"c{depth}", TensorProto.BOOL, []),
            helper.make_tensor_value_info(state, TensorProto.FLOAT, [2, 3]),
        ],
        [
            helper.make_tensor_value_info(f"d{depth}", TensorProto.BOOL, []),
            helper.make_tensor_value_info(made, TensorProto.FLOAT, [2, 3]),
        ],
    )
    return helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)


def scan(rounds: int) -> onnx.ModelProto:
    """A Scan around a Scan, of ``rounds`` each."""
    part = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("s", "t", "u")]
    inner = helper.make_graph([helper.make_node("Add", ["s", "t"], ["u"])], "inner", part[:2], [part[2]])
    node = helper.make_node("Scan", ["v", "table"], ["w"], body=inner, num_scan_inputs=1)
    outer_in = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("v", "row")]
    outer = helper.make_graph(
        [node], "outer", outer_in, [helper.make_tensor_value_info("w", TensorProto.FLOAT, None)]
    )
    whole = helper.make_node("Scan", ["x", "table"], ["y"], body=outer, num_scan_inputs=1)
    return model([whole], table=np.ones((rounds, 2, 3), np.float32))


def doubling(depth: int) -> onnx.ModelProto:
    """Functions each of which calls the one before twice."""
    functions = []
    for i in range(depth):
        called = ("own", f"f{i - 1}") if i else ("", "Relu")
        nodes = [helper.make_node(called[1], [a], [b], domain=called[0]) for a, b in (("a", "m"), ("m", "b"))]
        functions.append(helper.make_function("own", f"f{i}", ["a"], ["b"], nodes, OPSETS))
    return model([helper.make_node(f"f{depth - 1}", ["x"], ["y"], domain="own")], functions)


HOSTILE = {
    "loops in loops": lambda: model([loops(2)], n=np.array(200)),
    "scans in a scan": lambda: scan(200),
    "functions that call others twice": lambda: doubling(40),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_multiplies_is_refused_in_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "WRITTEN_OUT", 2000)
    monkeypatch.setattr(inspection, "_INFER_SECONDS", 1)  # ONNX's inference has no end where functions multiply
    with pytest.raises(UnsupportedError, match="written out, come to more than 2000 operators") as caught:
        import_model(HOSTILE[name]())
    assert "\n" not in str(caught.value)
    report = inspect_file(HOSTILE[name]())
    assert not report["coverage"]["supported"] and len(report["coverage"]["refused"]) == 1


def test_a_sequence_of_a_million_pieces_is_refused() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1_000_000])
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], keepdims=0),
        helper.make_node("SequenceAt", ["s", "n"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "pieces", [x], [Y], [onnx.numpy_helper.from_array(np.array(5), "n")])
    with pytest.raises(UnsupportedError, match="a sequence of 1000000 tensors"):
        import_model(helper.make_model(graph, opset_imports=OPSETS, ir_version=9))


def test_loops_within_the_limit_are_written_out() -> None:
    imported = import_model(model([loops(1)], n=np.array(20)))
    assert imported.operators == {"Loop": 1}
    assert import_model(doubling(8)).outputs[0].shape == (2, 3)


def test_a_model_of_many_nodes_is_under_no_limit() -> None:
    nodes = [
        helper.make_node("Relu", [f"t{i}" if i else "x"], [f"t{i + 1}" if i < 299 else "y"])
        for i in range(300)
    ]
    before = origins.WRITTEN_OUT
    try:
        origins.WRITTEN_OUT = 0
        import_model(model(nodes))
    finally:
        origins.WRITTEN_OUT = before


def test_nodes_in_reverse_are_sorted_in_time_that_grows_with_them() -> None:
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(20_000)]
    graph = helper.make_graph(nodes[::-1], "reversed", [], [])
    began = time.process_time()
    order = in_order(graph)
    assert order == list(range(20_000))[::-1]
    assert time.process_time() - began < 10


def test_a_long_cycle_is_named_in_part() -> None:
    nodes = [helper.make_node("Relu", [f"t{(i + 1) % 3000}"], [f"t{i}"], name=f"n{i}") for i in range(3000)]
    with pytest.raises(ModelError, match="a cycle through node 'n.*and 2992 more"):
        in_order(helper.make_graph(nodes, "circle", [], []))


def test_names_with_line_breaks_are_told_in_one_line() -> None:
    with pytest.raises(ModelError) as caught:
        import_model(model([helper.make_node("Relu", ["x\ny"], ["y"], name="first\nsecond")]))
    assert "\n" not in str(caught.value) and r"first\nsecond" in str(caught.value)
    with pytest.raises(UnsupportedError) as refused:
        import_model(model([helper.make_node("RandomUniformLike", ["x"], ["y"], name="first\nsecond")]))
    assert "\n" not in str(refused.value)


def test_inspection_does_not_wait_for_an_inference_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "_INFER_SECONDS", 1)
    began = time.monotonic()
    report = inspect_file(model([helper.make_node("Einsum", ["x", "x"], ["y"], equation="a.b,c..->")]))
    assert time.monotonic() - began < 30 and not report["coverage"]["supported"]


def test_slices_of_one_tensor_by_the_hundred_are_told_apart_without_comparing_each_pair() -> None:
    names = [f"y{i}" for i in range(800)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [800, 2])
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names]
    graph = helper.make_graph(
        [helper.make_node("Split", ["x"], names, num_outputs=800)], "many", [x], outputs
    )
    whole = helper.make_model(graph, opset_imports=OPSETS, ir_version=9)
    began = time.process_time()
    build = run_pipeline(whole, Options(target=resolve("x86-64-v4"), stop_after="simplify"))
    assert time.process_time() - began < 10
    assert len(build.imported.outputs) == 800
