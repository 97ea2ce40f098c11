"""What is computed ahead means what it means at run time, and no file makes import compute more than it may."""

from __future__ import annotations

import resource
import time
from typing import Any

import numpy as np
import onnx
import pytest
from evaluate import agree, evaluate, one_node
from halotile.compiler.frontend import ahead, import_model
from halotile.errors import HalotileError
from halotile.passes.simplify import Simplify
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.ir import GenericConst

RNG = np.random.default_rng(7)
F, I64 = "float32", "int64"


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(F)


def left_of(model: onnx.ModelProto) -> list[str]:
    """The operators that are not computed."""
    blocks = import_model(model).module["main"].body.blocks
    return [b.value.op.name for block in blocks for b in block.bindings if hasattr(b.value, "op")]


STATISTICS = [f32(3), f32(3), f32(3), np.abs(f32(3)) + 0.5]
IMAGE, ROWS = f32(1, 3, 7, 5), f32(4, 3, 3)
LENGTHS = np.array([4, 1, 2], "int32")


def recurrent(gates: int) -> list[np.ndarray | None]:
    return [ROWS, f32(1, gates * 2, 3), f32(1, gates * 2, 2)]


#: Operators that the ONNX reference evaluator computes otherwise than ONNX says, or did in some release.
FROZEN: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("BatchNormalization", [f32(2, 3), *STATISTICS], {"opset": 13}),
    ("BatchNormalization", [f32(2, 3, 5), *STATISTICS], {"opset": 9, "epsilon": 0.1}),
    ("GlobalMaxPool", [f32(2, 3, 7)], {}),
    ("GlobalMaxPool", [f32(2, 3, 2, 3, 2)], {}),
    ("LRN", [f32(2, 11, 6, 1)], {"size": 5, "alpha": 0.3}),
    ("LRN", [f32(1, 4, 3, 3)], {"size": 1, "alpha": 0.3}),
    ("LpNormalization", [f32(3, 5)], {"p": 1, "axis": 0}),
    ("LSTM", [*recurrent(4), None, LENGTHS], {"hidden_size": 2}),
    ("LSTM", recurrent(4), {"hidden_size": 2, "clip": 0.1}),
    ("LSTM", recurrent(4), {"hidden_size": 2, "input_forget": 1}),
    ("GRU", [*recurrent(3), None, LENGTHS], {"hidden_size": 2}),
    ("GRU", recurrent(3), {"hidden_size": 2, "activations": ["Relu", "Tanh"]}),
    ("RNN", [*recurrent(1), None, LENGTHS], {"hidden_size": 2}),
    ("MaxPool", [f32(1, 1, 1, 7)], {"kernel_shape": [1, 2], "strides": [1, 2], "auto_pad": "SAME_LOWER"}),
    ("MaxPool", [f32(1, 2, 6, 5)], {"kernel_shape": [2, 2], "storage_order": 1, "outputs": 2}),
    ("LpPool", [f32(1, 2, 6, 8)], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "p": 3, "opset": 18}),
    ("ConvTranspose", [f32(1, 3, 3, 3), f32(3, 1, 2, 2), f32(3)], {"group": 3}),
    ("Resize", [f32(1, 1, 5, 7), None, np.array([1, 1, 0.6, 0.6], F)],
     {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
    ("Resize", [f32(1, 1, 5, 7), None, np.array([1, 1, 0.7, 0.7], F)],
     {"mode": "cubic", "coordinate_transformation_mode": "half_pixel_symmetric"}),
    ("Resize", [f32(1, 1, 5, 7), None, None, np.array([1, 1, 1, 1])],
     {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}),
    ("GridSample", [IMAGE, RNG.uniform(-1.3, 1.3, (1, 4, 5, 2)).astype(F)],
     {"mode": "cubic", "padding_mode": "border", "opset": 20}),
    ("Shape", [IMAGE], {"end": -5}),
    ("CumSum", [f32(2, 5), np.int64(1)], {"exclusive": 1, "reverse": 1}),
    ("Div", [np.array([7, -7, 7, -8], "int32"), np.array([2, 2, -2, 3], "int32")], {}),
    ("Mod", [np.array([7, -7, 7, -8], I64), np.array([2, 3, -2, 3], I64)], {}),
    ("Mod", [np.array([7, -7, 7, -8], "int8"), np.array([2, 3, -2, 3], "int8")], {"fmod": 1}),
    ("ArgMax", [np.array([[1, 3, 3, 2]], F)], {"axis": 1, "select_last_index": 1}),
    ("TopK", [f32(2, 9), np.array([3])], {"outputs": 2}),
    ("Softmax", [f32(3, 4)], {"axis": 0}),
    ("Gelu", [f32(9)], {"opset": 20}),
]  # fmt: skip


@pytest.mark.parametrize("case", FROZEN, ids=lambda c: f"{c[0]}-{'-'.join(map(str, c[2].values()))}")
def test_a_constant_is_what_a_run_gives(case: Any) -> None:
    operator, inputs, attributes = case
    agree(operator, inputs, run_time=(), rtol=1e-4, atol=1e-5, **attributes)
    assert not left_of(one_node(operator, inputs, run_time=(), **attributes)[0])


INTEGERS = ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_at_the_ends_of_their_type(dtype: str) -> None:
    """Frozen and at run time alike, one model: sums and products that wrap, quotients, remainders, powers, shifts."""
    limits = np.iinfo(dtype)
    a = np.array([limits.min, limits.max, limits.max // 3, 5, 0, limits.max], dtype)
    b = np.array([3, min(limits.max, 1 << 62), 7, 2, 3, 2], dtype)
    operators = [("Add", {}), ("Sub", {}), ("Mul", {}), ("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1}), ("Pow", {})]
    if dtype[0] == "u":
        operators += [("BitShift", {"direction": "LEFT"}), ("BitShift", {"direction": "RIGHT"})]
    nodes, outputs = [], []
    for i, (operator, attributes) in enumerate(operators):
        for kind in "rc":
            nodes.append(helper.make_node(operator, [f"a{kind}", f"b{kind}"], [f"{kind}{i}"], **attributes))
            outputs.append(onnx.ValueInfoProto(name=f"{kind}{i}"))
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [helper.make_tensor_value_info(f"{n}r", element, [6]) for n in "ab"]
    weights = [numpy_helper.from_array(v, f"{n}c") for n, v in (("a", a), ("b", b))]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    found = evaluate(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), {"ar": a, "br": b})
    for i, (operator, attributes) in enumerate(operators):
        np.testing.assert_array_equal(found[f"c{i}"], found[f"r{i}"], err_msg=f"{operator} {attributes}")


@pytest.mark.parametrize("kind", ["INT4", "UINT4", "FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT4E2M1"])
def test_types_that_only_files_have_are_moved_and_cast(kind: str) -> None:
    element = getattr(TensorProto, kind)
    values = np.array([[-7, 3, 0, 1], [6, 2, 5, 4]], F) if kind != "UINT4" else np.arange(8, dtype=F).reshape(2, 4)
    values[values == 5] = 4
    values[values == 7] = 6
    if kind == "FLOAT4E2M1":
        values = np.abs(values)
        values[values > 6] = 6
    nodes = [
        helper.make_node("Cast", ["c"], ["n"], to=element), helper.make_node("Transpose", ["n"], ["t"]),
        helper.make_node("Gather", ["t", "i"], ["g"]), helper.make_node("Cast", ["g"], ["y"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["y", "x"], ["z"]),
    ]  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [])
    weights = [numpy_helper.from_array(values, "c"), numpy_helper.from_array(np.array([3, 0]), "i")]
    graph = helper.make_graph(nodes, "g", [x], [onnx.ValueInfoProto(name="z")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    np.testing.assert_array_equal(evaluate(model, {"x": np.ones((), F)})["z"], values.T[[3, 0]])


def test_weights_that_come_through_operators_are_constants() -> None:
    """A kernel packs them; operators that numpy does not know are compiled for them."""
    w = f32(6, 4, 3, 3)
    nodes = [
        helper.make_node("Softmax", ["w"], ["s"], axis=1), helper.make_node("Erf", ["s"], ["e"]),
        helper.make_node("ReduceL2", ["e", "axes"], ["n"]), helper.make_node("Div", ["e", "n"], ["v"]),
        helper.make_node("Conv", ["x", "v"], ["y"]),
    ]  # fmt: skip
    weights = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.array([1, 2, 3]), "axes")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 5, 5])
    graph = helper.make_graph(nodes, "g", [x], [onnx.ValueInfoProto(name="y")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    assert left_of(model) == ["relax.nn.conv2d"]
    e = np.vectorize(__import__("math").erf)(np.exp(w) / np.exp(w).sum(1, keepdims=True))
    weight = e / np.sqrt((e**2).sum((1, 2, 3), keepdims=True))
    image = f32(1, 4, 5, 5)
    windows = np.lib.stride_tricks.sliding_window_view(image[0].astype("f8"), (3, 3), (1, 2))
    np.testing.assert_allclose(evaluate(model, {"x": image})["y"][0], np.einsum("cyxij,ocij->oyx", windows, weight),
                               rtol=1e-4, atol=1e-5)  # fmt: skip


@pytest.mark.parametrize("operators", ["Gemm", "Transpose, MatMul", "Cast, MatMul"])
def test_rounds_that_turn_one_weight_share_it(operators: str) -> None:
    """An unrolled layer's weights are turned or cast in every round, and stand once in the module."""
    known = {"w": f32(200, 200)}
    if operators.startswith("Cast"):
        known["w"] = known["w"].astype("float64")
    nodes, last = [], "x"
    for i in range(12):
        if operators == "Gemm":
            nodes.append(helper.make_node("Gemm", [last, "w"], [f"y{i}"], transB=1))
        else:
            first, second = operators.split(", ")
            nodes.append(helper.make_node(first, ["w"], [f"w{i}"], **({"to": 1} if first == "Cast" else {})))
            nodes.append(helper.make_node(second, [last, f"w{i}"], [f"y{i}"]))
        last = f"y{i}"
    module = import_model(graph_of(nodes, last, known, x=(1, (3, 200)))).module
    found: list[GenericConst] = []

    def collect(expr: Any) -> None:
        if isinstance(expr, GenericConst) and not any(expr.same_as(c) for c in found):
            found.append(expr)

    relax.analysis.post_order_visit(module["main"], collect)
    assert [tuple(c.value.shape) for c in found] == [(200, 200)]
    wanted = known["w"].astype("float64")
    turned = wanted if operators.startswith("Cast") else wanted.T
    (constant,) = found
    np.testing.assert_allclose(constant.value.numpy(), turned, rtol=1e-6)


def test_mel_weights_are_those_of_the_reference() -> None:
    from onnx.reference import ReferenceEvaluator

    for sizes in ((8, 16, 8192, 0.0, 4096.0), (80, 400, 16000, 0.0, 8000.0), (3, 7, 8000, 100.0, 3000.0)):
        operands = [np.array(s, F if isinstance(s, float) else I64) for s in sizes]
        model, _ = one_node("MelWeightMatrix", operands, run_time=(), opset=17)
        np.testing.assert_allclose(evaluate(model, {})["o0"], ReferenceEvaluator(model).run(None, {})[0], atol=1e-6)


# ---------------------------------------------------------------------- what is not computed


def graph_of(nodes: list[onnx.NodeProto], output: str, constants: dict[str, Any], **inputs: Any) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()]
    weights = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name=output)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def node(operator: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, [i.strip("-") for i in inputs.split()], [output], **attributes)


def doubled(times: int) -> list[onnx.NodeProto]:
    return [node("Concat", f"t{i} t{i}", f"t{i + 1}", axis=0) for i in range(times)]


def doubled_apart(times: int) -> list[onnx.NodeProto]:
    return [n for i in range(times) for n in (node("Neg", f"t{i}", f"n{i}"),
                                              node("Concat", f"t{i} n{i}", f"t{i + 1}", axis=0))]  # fmt: skip


X, LONG = np.ones((2, 3), F), 1 << 14
GRAPHS: dict[str, onnx.ModelProto] = {
    "concat": graph_of([*doubled(28), node("ReduceSum", "t28", "y")], "y", {"t0": X}),
    "concat of two": graph_of(doubled_apart(27), "t27", {"t0": X}),
    "constant of shape": graph_of(
        [node("ConstantOfShape", "s", "a"), node("Sin", "a", "y")], "y", {"s": [2 * LONG, 2 * LONG]}
    ),
    "tile": graph_of([node("Tile", "k r", "y")], "y", {"k": X, "r": [LONG, LONG]}),
    "pad": graph_of([node("Pad", "k p", "y")], "y", {"k": X, "p": [0, 0, LONG, LONG]}),
    "upsample": graph_of([node("Resize", "k - s", "y")], "y", {"k": X, "s": np.array([LONG, LONG / 2], F)}),
    "cumsum": graph_of(
        [node("ConstantOfShape", "s", "a"), node("CumSum", "a z", "y")], "y", {"s": [1 << 28], "z": np.int64(0)}
    ),
    "one hot": graph_of(
        [node("OneHot", "i d v", "y")], "y", {"d": np.int64(1 << 30), "v": np.array([0, 1], F)}, i=(7, [1])
    ),
    "range": graph_of(
        [node("Range", "a b c", "y")], "y", {"a": np.int64(0), "b": np.int64(10**9), "c": np.int64(1)}
    ),
    "eye": graph_of([node("EyeLike", "x", "y")], "y", {}, x=(1, [40000, 40000])),
    "triangle": graph_of([node("Trilu", "x", "y")], "y", {}, x=(1, [40000, 40000])),
    "hardmax": graph_of([node("Hardmax", "x", "y")], "y", {}, x=(1, [1, 1 << 30])),
    "average": graph_of(
        [node("AveragePool", "x", "y", kernel_shape=[3, 3], dilations=[2, 2])], "y", {}, x=(1, [1, 1, 40000, 40000])
    ),
    "reversed": graph_of(
        [node("ReverseSequence", "x l", "y")], "y", {"l": np.full(30000, 5)}, x=(1, [60000, 30000])
    ),
    "transposed convolution": graph_of(
        [node("ConvTranspose", "x w", "y", strides=[20000, 20000])], "y", {"w": np.ones((1, 1, 1, 1), F)},
        x=(1, [1, 1, 2, 2]),
    ),
    "casts": graph_of(
        [node("ConstantOfShape", "s", "c"), *(node("Cast", "c", f"d{i}", to=11) for i in range(60)),
         node("Sum", " ".join(f"d{i}" for i in range(60)), "y")], "y", {"s": [1400, 1400]},
    ),
    "products": graph_of(
        [node("ConstantOfShape", "s", "t0"), *(node("MatMul", f"t{i} t{i}", f"t{i + 1}") for i in range(200))],
        "t200", {"s": [1400, 1400]},
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are few here, so that the test of their limit takes a second."""
    monkeypatch.setattr(ahead, "STEPS", 1 << 29)


def resident() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)


@pytest.mark.parametrize("name", GRAPHS)
def test_what_a_file_claims_to_be_huge_stays_in_the_graph(name: str) -> None:
    before, started = resident(), time.process_time()
    module = import_model(GRAPHS[name]).module
    assert module["main"].body.blocks
    if name in ("concat", "concat of two"):  # simplification folds as well
        module = Simplify().apply(module, resolve("native")).module
    assert time.process_time() - started < 10
    assert resident() - before < 1.2  # GiB, of which the limits allow a quarter, twice


REFUSED: dict[str, tuple[onnx.ModelProto, str]] = {
    "concat": (graph_of(doubled(40), "t40", {"t0": X}), r"node #28 \(Concat.*more than 2147483647 elements"),
    "one hot": (
        graph_of([node("OneHot", "i d v", "y")], "y", {"d": np.int64(1 << 40), "v": np.array([0, 1], F)}, i=(7, [2])),
        r"\(OneHot.*more than 2147483647",
    ),
    "range": (
        graph_of([node("Range", "a b c", "y")], "y", {"a": np.int64(0), "b": np.int64(10**12), "c": np.int64(1)}),
        r"\(Range.*1000000000000\] has more than",
    ),
    "no end": (
        graph_of([node("Range", "a b c", "y")], "y", {"a": np.int64(0), "b": np.int64(9), "c": np.int64(0)}),
        "there is no end",
    ),
    "window": (graph_of([node("HannWindow", "l", "y")], "y", {"l": np.int64(1 << 40)}), "HannWindow|function body"),
    "grid": (
        graph_of([node("AffineGrid", "t s", "y")], "y", {"s": [1, 1, 30000, 30000]}, t=(1, [1, 2, 3])),
        "would be a table of 2700000000 numbers",
    ),
    "mirrored": (
        graph_of([node("Pad", "x p", "y", mode="reflect")], "y", {"p": [1 << 30] * 2}, x=(1, [5])),
        r"\(Pad.*mode reflect",
    ),
    "sequence": (
        graph_of([node("SplitToSequence", "x", "q"), node("SequenceLength", "q", "y")], "y", {}, x=(1, [1 << 30])),
        "a sequence of 1073741824 tensors",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_nothing_can_hold_is_refused_by_name(name: str) -> None:
    model, reason = REFUSED[name]
    with pytest.raises(HalotileError, match=reason):
        import_model(model)


def test_a_sparse_tensor_is_not_written_out_whatever_its_shape() -> None:
    model = graph_of([node("Relu", "s", "y")], "y", {})
    values = helper.make_tensor("s", TensorProto.FLOAT, [1], [1.0])
    places = helper.make_tensor("i", TensorProto.INT64, [1], [0])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [1 << 15, 1 << 15]))
    with pytest.raises(HalotileError, match="sparse tensor 's' of the shape .* too large"):
        import_model(model)
