"""Booleans that are computed, compared and combined within one kernel, in vectors, as exporters write ``a // b``."""

from __future__ import annotations

import halotile
import numpy as np
import onnx
import pytest
from halotile.compiler.frontend import import_model
from halotile.errors import UnsupportedError
from onnx import TensorProto, helper, numpy_helper

node = helper.make_node
BOOL, FLOAT, INT64 = TensorProto.BOOL, TensorProto.FLOAT, TensorProto.INT64

CASES = {
    "equal to a constant": ([node("Equal", ["less", "no"], ["out"])], BOOL),
    "equal to true": ([node("Equal", ["less", "yes"], ["out"])], BOOL),
    "equal to another": ([node("Equal", ["less", "more"], ["out"])], BOOL),
    "equal to an input": ([node("Equal", ["flags", "less"], ["out"])], BOOL),
    "not equal": ([node("Equal", ["less", "more"], ["e"]), node("Not", ["e"], ["out"])], BOOL),
    "different": ([node("Xor", ["less", "more"], ["out"])], BOOL),
    "a number's truth": ([node("Cast", ["x"], ["b"], to=BOOL), node("Equal", ["b", "less"], ["out"])], BOOL),
    "as a number": ([node("Equal", ["less", "no"], ["e"]), node("Cast", ["e"], ["out"], to=INT64)], INT64),
    "NaN": ([node("IsNaN", ["x"], ["n"]), node("Equal", ["n", "less"], ["out"])], BOOL),
    "side by side": ([node("Concat", ["less", "more"], ["out"], axis=1)], BOOL),
}


@pytest.fixture(scope="module")
def results() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """All cases in one model: what Halotile and what ONNX Runtime make of it."""
    import onnxruntime

    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 35)).astype("float32")
    x[0, :4], x[1, ::3] = np.nan, 0
    inputs = {"x": x, "flags": rng.random(x.shape) < 0.5}
    nodes, outputs = [node("Less", ["x", "y"], ["less"]), node("Greater", ["x", "z"], ["more"])], []
    for i, (made, dtype) in enumerate(CASES.values()):
        own = {n for m in made for n in m.output}
        for m in made:
            names = [[f"{n}{i}" if n in own else n for n in side] for side in (m.input, m.output)]
            copy = helper.make_node(m.op_type, *names)
            copy.attribute.extend(m.attribute)
            nodes.append(copy)
        outputs.append(helper.make_tensor_value_info(f"out{i}", dtype, None))
    graph = helper.make_graph(
        nodes, "booleans",
        [helper.make_tensor_value_info("x", FLOAT, x.shape), helper.make_tensor_value_info("flags", BOOL, x.shape)],
        outputs,
        [numpy_helper.from_array(rng.standard_normal(x.shape).astype("float32"), "y"),
         numpy_helper.from_array(rng.standard_normal((1, 35)).astype("float32"), "z"),
         numpy_helper.from_array(np.array(False), "no"), numpy_helper.from_array(np.array(True), "yes")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    theirs = dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs)))
    return halotile.compile(model)(inputs), theirs


@pytest.mark.parametrize("case", CASES)
def test_agrees(case: str, results: tuple[dict[str, np.ndarray], dict[str, np.ndarray]]) -> None:
    name = f"out{list(CASES).index(case)}"
    ours, theirs = (r[name] for r in results)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("operator", ["Add", "Mul", "Max", "Relu", "MatMul", "Softmax"])
def test_arithmetic_of_booleans_is_refused(operator: str) -> None:
    """ONNX has none; it got as far as LLVM."""
    x = np.array([[True, False], [False, True]])
    pair = operator in ("Add", "Mul", "MatMul")
    wrong = helper.make_node(operator, ["x"] * (2 if pair else 1), ["y"], name="it")
    info = helper.make_tensor_value_info("x", TensorProto.BOOL, x.shape)
    graph = helper.make_graph([wrong], "g", [info], [onnx.ValueInfoProto(name="y")])
    with pytest.raises(UnsupportedError, match=r"'it' .*operand 0 \(.*\) can't be bool"):
        import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
