"""Lengths that depend on the data: ONNX Runtime's answers up to the count, zeros behind it, refusals of the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from halotile.compiler.frontend import import_model
from halotile.errors import ModelError, UnsupportedError
from onnx import TensorProto, helper, numpy_helper
from partial_models import RNG, model_of, node, noise, same


@pytest.mark.parametrize("kind", ["float32", "int64", "bool"])
@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (2, 3, 4)])
def test_positions(shape: tuple[int, ...], kind: str) -> None:
    if shape:
        same([node("NonZero", "x", "y")], {"x": (noise(*shape) > 0.3).astype(kind)}, "y")


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_compress(axis: int | None) -> None:
    at = {} if axis is None else {"axis": axis}
    feeds = {"x": noise(4, 6), "c": np.array([True, False, True])}
    same([node("Compress", "x c", "y", **at)], feeds, "y")


#: How many rows there are: m in a vector, n as a scalar.
LENGTH = [node("Shape", "r", "m", end=1), node("Gather", "m zero", "n")]
SCALARS = {"zero": np.array(0), "one": np.array(1), "three": np.array(3)}
#: The rows whose first element is positive, of those that are there.
POSITIVE = [node("Greater", "v z", "g"), node("NonZero", "g", "n"), node("Transpose", "n", "rows2", perm=[1, 0])]
CASES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "elementwise": ([node("Sigmoid", "r", "a"), node("Mul", "a row", "b"), node("Add", "b r", "y")], {"row": noise(4)}),
    "division": (
        [node("Cast", "r", "n", to=7), node("Add", "n big", "d"), node("Div", "big d", "y")],
        {"big": np.array(9)},
    ),
    "transposed": ([node("Transpose", "r", "t", perm=[1, 0]), node("Softmax", "t", "y", axis=0)], {}),
    "softmax": ([node("Softmax", "r", "y", axis=1)], {}),
    "reshaped": ([node("Reshape", "r s", "y")], {"s": np.array([-1, 2, 2])}),
    "kept": ([node("Reshape", "r s", "y")], {"s": np.array([0, 2, -1])}),
    "flattened": ([node("Unsqueeze", "r two", "u"), node("Flatten", "u", "y")], {"two": np.array([2])}),
    "flattened to a row": ([node("Flatten", "r", "y", axis=0)], {}),
    "rows joined": ([node("Unsqueeze", "r two", "u"), node("Flatten", "u", "y", axis=2)], {"two": np.array([2])}),
    "all joined": ([node("Flatten", "r", "y", axis=2)], {}),
    "squeezed": ([node("Unsqueeze", "r o", "u"), node("Squeeze", "u o", "y")], {"o": np.array([0])}),
    "gemm": ([node("Gemm", "r w", "y", transB=1)], {"w": noise(5, 4)}),
    "matmul": ([node("MatMul", "r w", "y")], {"w": noise(4, 5)}),
    "split": ([node("Split", "r", "p q", axis=1), node("Sub", "p q", "y")], {}),
    "topk": ([node("TopK", "r k", "y p", axis=1)], {"k": np.array([2])}),
    "sum": ([node("ReduceSum", "r o", "y", keepdims=0)], {"o": np.array([0])}),
    "all": ([node("ReduceSum", "r", "y", keepdims=0)], {}),
    "others": ([node("ReduceMax", "r", "y", axes=[1], keepdims=0)], {}),
    "least": ([node("ReduceMin", "r", "y", axes=[0, 1])], {}),
    "argmax": ([node("ArgMax", "r", "y", axis=0)], {}),
    "norm": ([node("LayerNormalization", "r g", "y")], {"g": noise(4)}),
    "slice": ([node("Slice", "r b e a", "y")], {"b": np.array([1]), "e": np.array([3]), "a": np.array([0])}),
    "slice beyond": ([node("Slice", "r b e a", "y")], {"b": np.array([8]), "e": np.array([99]), "a": np.array([0])}),
    "slice others": ([node("Slice", "r b e a", "y")], {"b": np.array([-2]), "e": np.array([99]), "a": np.array([1])}),
    "end to end": ([node("Concat", "r w r", "y", axis=0)], {"w": noise(2, 4)}),
    "side by side": ([node("Concat", "r r", "y", axis=1)], {}),
    "again": (
        [node("Greater", "v z", "g"), node("Compress", "r g", "y", axis=0)],
        {"z": np.array(0.5, "float32")},
    ),
    "gathered": (
        [node("NonZero", "v", "n"), node("Squeeze", "n o", "m"), node("Gather", "r m", "y")],
        {"o": np.array([0])},
    ),
    "row by row": ([node("ArgMax", "r", "i", axis=1), node("GatherND", "r i", "y", batch_dims=1)], {}),
    "from the end": ([node("Gather", "r last", "y")], {}),
    "scattered": ([node("ScatterND", "x rows r", "y", reduction="add")], {}),
    "scattered back": (
        [*POSITIVE, node("GatherND", "r rows2", "p"), node("Exp", "p", "e"), node("ScatterND", "r rows2 e", "y")],
        {"z": np.array(0.1, "float32")},
    ),
    "elements back": (
        [
            *POSITIVE, node("GatherND", "r rows2", "p"), node("Exp", "p", "e"), node("Tile", "rows2 four", "places"),
            node("ScatterElements", "r places e", "y"),
        ],
        {"z": np.array(0.1, "float32"), "four": np.array([1, 4])},
    ),
    "length": (
        [node("Shape", "r", "n"), node("Shape", "r", "m", start=1), node("Concat", "n m", "y", axis=0)],
        {},
    ),
    "where": ([node("Greater", "r z", "g"), node("Where", "g r z", "y")], {"z": np.array(0.1, "float32")}),
    "tiled": ([node("Tile", "r t", "y")], {"t": np.array([1, 3])}),
    "flat": ([node("Reshape", "r s", "y")], {"s": np.array([-1])}),
    "columns end to end": (
        [node("Transpose", "r", "t", perm=[1, 0]), node("Reshape", "t s", "f"), node("Sigmoid", "f", "y")],
        {"s": np.array([-1])},
    ),
    "columns regrouped": (
        [node("Transpose", "r", "t", perm=[1, 0]), node("Reshape", "t s", "y")],
        {"s": np.array([2, -1])},
    ),
    "softmax along": ([node("Softmax", "r", "y", axis=0)], {}),
    "mean": ([node("ReduceMean", "r", "y", axes=[0, 1])], {}),
    "sums so far": ([node("CumSum", "r o", "y", reverse=1)], {"o": np.array(0)}),
    "last ones": ([node("Slice", "r b e", "y")], {"b": np.array([-3]), "e": np.array([99])}),
    "without the last": ([node("Slice", "r b e", "y")], {"b": np.array([1]), "e": np.array([-1])}),
    "summed over": ([node("Transpose", "r", "t", perm=[1, 0]), node("MatMul", "t r", "y")], {}),
    "squares": (
        [node("Transpose", "r", "t", perm=[1, 0]), node("MatMul", "w t", "y")],
        {"w": noise(3, 4)},
    ),
    "one hot": (
        [node("ArgMax", "r", "a", axis=1, keepdims=0), node("OneHot", "a four values", "y")],
        {"four": np.array([4]), "values": np.array([0, 1], "float32")},
    ),
    "counted": ([*LENGTH, node("Range", "zero n one", "y")], SCALARS),
    "counted from it": (
        [*LENGTH, node("Add", "n three", "k"), node("Range", "n k one", "p"), node("Gather", "wide p", "y")],
        {**SCALARS, "wide": noise(12)},
    ),
    "added to a count": (
        [*LENGTH, node("Range", "zero n one", "p"), node("Cast", "p", "f", to=1), node("Add", "v f", "y")],
        SCALARS,
    ),
    "zeros": ([node("Shape", "r", "s"), node("ConstantOfShape", "s", "o"), node("Add", "o r", "y")], {}),
    "expanded": (
        [node("Shape", "r", "s"), node("Expand", "row s", "e"), node("Mul", "e r", "y")],
        {"row": noise(1, 4)},
    ),
    "expanded itself": ([node("Expand", "r s", "y")], {"s": np.array([2, 1, 4])}),
    "tiled as often": ([*LENGTH, node("Concat", "m one1", "t", axis=0), node("Tile", "row t", "y")],
        {**SCALARS, "row": noise(1, 3), "one1": np.array([1])}),
    "the first so many": ([*LENGTH, node("Slice", "x begin m", "y")], {**SCALARS, "begin": np.array([0])}),
    "behind so many": ([*LENGTH, node("Slice", "x m end", "y")], {**SCALARS, "end": np.array([2**62])}),
    "the best so many": (
        [*LENGTH, node("Min", "m five", "k"), node("TopK", "v k", "y p")],
        {**SCALARS, "five": np.array([5])},
    ),
    "filled up": (
        [*LENGTH, node("Sub", "nine m", "d"), node("Concat", "begin d none", "p", axis=0), node("Pad", "r p v9", "y")],
        {**SCALARS, "nine": np.array([9]), "begin": np.array([0, 0]), "none": np.array([0]),
         "v9": np.array(2.5, "float32")},
    ),
    "in its own shape": (
        [node("Shape", "r", "s"), node("Relu", "r", "a"), node("Reshape", "a flat9", "b"), node("Reshape", "b s", "y")],
        {"flat9": np.array([-1])},
    ),
    "resized": (
        [node("Reshape", "r s", "i"), node("Resize", "i - scales", "y", mode="linear")],
        {"s": np.array([-1, 1, 2, 2]), "scales": np.array([1, 1, 2, 1.5], "float32")},
    ),
    "how many elements": ([node("Size", "r", "y")], {}),
    "convolved": (
        [node("Reshape", "r s", "i"), node("Conv", "i w", "y")],
        {"s": np.array([-1, 1, 2, 2]), "w": noise(3, 1, 2, 2)},
    ),
}  # fmt: skip


#: For which ONNX Runtime has no answer on nothing.
NEED_SOME = (
    "argmax", "from the end", "all", "sum", "least", "topk", "reshaped", "kept", "convolved",
    "flat", "columns end to end", "columns regrouped", "softmax along", "summed over", "one hot", "squares",
    "sums so far", "resized",
)


@pytest.mark.parametrize("case", CASES)
def test_rows_of_which_some_are_there(case: str) -> None:
    """r: the rows of x where c is true, v: their first column; some, all and none of nine."""
    nodes, known = CASES[case]
    feeds = {"x": noise(9, 4), "c": np.arange(9) % 2 == 0, "last": np.array([-1, 0])}
    more = [{"c": np.full(9, some)} for some in ((True,) if case in NEED_SOME else (True, False))]
    before = [
        node("Slice", "x b0 b1 b1", "column"),
        node("Reshape", "column flat", "first_column"),
        node("Compress", "x c", "r", axis=0),
        node("Compress", "first_column c", "v", axis=0),
        node("NonZero", "c", "at"),
        node("Transpose", "at", "rows", perm=[1, 0]),
    ]
    places = {"b0": np.array([0]), "b1": np.array([1]), "flat": np.array([9])}
    opset = 13 if any(n.op_type in ("ReduceMax", "ReduceMin") for n in nodes) else 17
    same([*before, *nodes], feeds, "y", opset=opset, more=more, **places, **known)


def test_a_mask_over_rows_has_its_count_times_their_length() -> None:
    """y[mask] = f(x[mask]), which PyTorch writes with positions of the mask and of the mask expanded over the rows."""
    nodes = [
        node("NonZero", "c", "at"), node("Transpose", "at", "rows", perm=[1, 0]), node("GatherND", "x rows", "r"),
        node("Exp", "r", "e"), node("Reshape", "e flat", "values"),
        node("Unsqueeze", "c two", "column"), node("Expand", "column shape", "mask"), node("NonZero", "mask", "n"),
        node("Transpose", "n", "places", perm=[1, 0]), node("Shape", "places", "m", end=1),
        node("Slice", "values zero m", "cut"), node("ScatterND", "x places cut", "y"),
    ]  # fmt: skip
    known = {"flat": np.array([-1]), "two": np.array([2]), "shape": np.array([3, 5, 4]), "zero": np.array([0])}
    some = RNG.random((3, 5)) > 0.5
    same(nodes, {"x": noise(3, 5, 4), "c": some}, "y", more=[{"c": ~some}, {"c": some | True}], **known)


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([node("Reshape", "r end", "y")], "may or may not fit"),
        ([node("Hardmax", "r", "y", axis=0)], "works along it"),
        ([node("ReduceLogSum", "r", "y", axes=[0])], "works along it"),
        ([node("Slice", "r end b b2 b", "y")], "in steps of -1"),
        ([node("MatMul", "w r", "y")], "sums along it"),
        ([node("Shape", "r", "n"), node("Expand", "x n", "y")], "may or may not be as long"),
        ([node("Cast", "r", "i", to=7), node("ReduceMax", "i", "n", axes=[0, 1]), node("ConstantOfShape", "n", "y")],
         "its shape is computed at run time"),
        ([node("Einsum", "r r", "y", equation="ij,kj->ik")], "does not take"),
        ([node("Add", "r x", "y")], "does not meet itself"),
        (
            [node("Greater", "r z", "g"), node("NonZero", "g", "n"), node("Cast", "n", "f", to=1),
             node("Concat", "f r", "y", axis=1)],
            "only some",
        ),
        ([node("Squeeze", "r", "y")], "may remove it"),
        ([node("SequenceConstruct", "r", "q"), node("SequenceAt", "q z", "y")], "which it does not take"),
    ],
)
def test_what_is_not_followed_is_refused(nodes: list[Any], reason: str) -> None:
    feeds = {"x": noise(9, 4), "c": np.ones(9, "bool")}
    known = {"s": np.array([-1]), "w": noise(4, 9), "b": np.array([-1]), "end": np.array([9])}
    known["b2"] = np.array([0])
    known["z"] = np.array(0.0, "float32")
    model = model_of([node("Compress", "x c", "r", axis=0), *nodes], feeds, ("y",), **known)
    with pytest.raises(UnsupportedError, match=reason):
        import_model(model)


@pytest.mark.parametrize("begin", [0, 2, 5, -3, 9, -2**62])
@pytest.mark.parametrize("end", [0, 3, 9, -1, 2**62])
def test_bounds_of_run_time(begin: int, end: int) -> None:
    feeds = {"x": noise(3, 7), "b": np.array([begin]), "e": np.array([1, end])}
    same([node("Slice", "e last stop", "f"), node("Slice", "x b f one", "y")], feeds, "y",
         last=np.array([-1]), stop=np.array([9]), one=np.array([1]))  # fmt: skip


@pytest.mark.parametrize("in_order", [0, 1])
@pytest.mark.parametrize(("shape", "axis"), [((9,), None), ((3, 4), None), ((2, 6), 1), ((5, 2, 2), 0), ((1,), 0)])
def test_unique(shape: tuple[int, ...], axis: int | None, in_order: int) -> None:
    x = RNG.integers(0, 3, shape)
    at = {} if axis is None else {"axis": axis}
    same([node("Unique", "x", "y first inverse times", sorted=in_order, **at)], {"x": x}, "y", "first", "inverse",
         "times", more=[{"x": np.zeros(shape, "int64")}])  # fmt: skip


def test_quantised_rows() -> None:
    """What quantisation leaves of a head that works on the rows that are there; zeros behind them change no range."""
    weights = RNG.integers(-60, 60, (6, 5)).astype("int8")  # sums of pairs within 16 bits
    nodes = [
        node("Compress", "x keep", "r", axis=0),
        node("DynamicQuantizeLinear", "r", "q scale zero"),
        node("MatMulInteger", "q w zero", "sums"),
        node("CastLike", "sums x", "floats"),
        node("Mul", "floats scale", "a"),
        node("QuantizeLinear", "r s z", "fixed"),
        node("QLinearMatMul", "fixed s z w s wz s z", "product"),
        node("DequantizeLinear", "product s z", "b"),
        helper.make_node("QLinearAdd", "product s z product s z s z".split(), ["twice"], domain="com.microsoft"),
        helper.make_node("DynamicQuantizeMatMul", "r w s".split(), ["c"], domain="com.microsoft"),
    ]
    feeds = {"x": noise(7, 6), "keep": np.arange(7) % 3 != 1}
    known = {"w": weights, "s": np.float32(0.05), "z": np.uint8(120), "wz": np.int8(0)}
    same(nodes, feeds, "a", "b", "twice", "c", more=[{"keep": np.zeros(7, "bool")}, {"x": noise(7, 6) + 3}], **known)


def test_branches_of_different_length() -> None:
    """As exported for "no boxes, no suppression": none, or as many as there are."""

    def branch(name: str, *nodes: Any) -> Any:
        return helper.make_graph(list(nodes), name, [], [onnx.ValueInfoProto(name=nodes[-1].output[0])])

    empty = helper.make_node("Constant", [], ["none"], value=numpy_helper.from_array(np.empty((0, 4), "float32")))
    found = node("Compress", "x c", "some", axis=0)
    nodes = [
        node("ReduceMax", "x", "top", keepdims=0),
        node("Less", "top limit", "low"),
        helper.make_node("If", ["low"], ["r"], then_branch=branch("t", empty), else_branch=branch("e", found)),
        node("Relu", "r", "y"),
        node("ReduceSum", "r o", "z", keepdims=0),
    ]
    feeds = {"x": noise(9, 4), "c": np.arange(9) % 3 == 0}
    known = {"limit": np.array(0.0, "float32"), "o": np.array([1])}
    same(nodes, feeds, "y", "z", opset=13, more=[{"x": -np.abs(noise(9, 4))}], **known)


def test_positions_of_what_a_condition_says_is_there() -> None:
    """Rounds over as many rows as there are, with a growing state, and the first and the last row if there are any."""

    def graph(name: str, inputs: list[Any], outputs: str, *nodes: Any) -> Any:
        return helper.make_graph(list(nodes), name, inputs, [onnx.ValueInfoProto(name=o) for o in outputs.split()])

    counter = [helper.make_tensor_value_info("i", TensorProto.INT64, []),
               helper.make_tensor_value_info("c", TensorProto.BOOL, [])]  # fmt: skip
    grown = helper.make_tensor_value_info("s", TensorProto.FLOAT, ["k", 4])
    body = graph(
        "body", [*counter, grown], "go s2 sum", node("Identity", "c", "go"), node("Gather", "r i", "row"),
        node("Unsqueeze", "row o", "up"), node("Neg", "up", "less"), node("Concat", "s less", "s2", axis=0),
        node("ReduceSum", "row", "sum", keepdims=0),
    )  # fmt: skip
    some = graph("some", [], "ends", node("Gather", "r ends_at", "ends"))
    none = graph("none", [], "zeros", node("Identity", "two", "zeros"))
    nodes = [
        node("Compress", "x keep", "r", axis=0),
        node("Shape", "r", "shape"),
        node("Gather", "shape zero", "n"),
        helper.make_node("Loop", ["n", "", "nothing"], ["negative", "sums"], body=body),
        node("Greater", "n zero", "any"),
        helper.make_node("If", ["any"], ["y"], then_branch=some, else_branch=none),
    ]
    feeds = {"x": noise(5, 4), "keep": np.array([False, True, True, False, True])}
    more = [{"keep": np.zeros(5, "bool")}, {"keep": np.ones(5, "bool")}]
    known = {"zero": np.array(0), "o": np.array([0]), "nothing": np.empty((0, 4), "float32"),
             "ends_at": np.array([0, -1]), "two": np.ones((2, 4), "float32")}  # fmt: skip
    same(nodes, feeds, "negative", "sums", "y", more=more, **known)


def test_an_output_of_the_lengths_own_name_is_refused() -> None:
    nodes = [node("NonZero", "x", "y"), node("Identity", "x", "y.length")]
    with pytest.raises(ModelError, match=r"y\.length"):
        import_model(model_of(nodes, {"x": noise(3)}, ("y", "y.length")))


def test_the_best_of_a_number_that_is_an_input() -> None:
    feeds = {"v": noise(3, 7), "k": np.array([4])}
    more = [{"k": np.array([n])} for n in (0, 1, 7)]
    same([node("TopK", "v k", "y p"), node("ReduceSum", "y axis", "s")], feeds, "y", "p", "s", more=more, axis=[1])


def test_many_partial_tensors_are_joined_in_groups() -> None:
    """As the detections of 90 classes are: one choice among all of their ends took LLVM 9 s."""
    feeds = {f"x{i}": (noise(3) > 0).astype("float32") for i in range(70)}
    nodes = [node("NonZero", f"x{i}", f"n{i}") for i in range(70)]
    nodes.append(node("Concat", " ".join(f"n{i}" for i in range(70)), "y", axis=1))
    same(nodes, feeds, "y")
    module = import_model(model_of(nodes, feeds, ("y",))).module
    calls = [b.value for block in module["main"].body.blocks for b in block.bindings]
    joined = [c for c in calls if getattr(getattr(c, "op", None), "name", "") == "relax.concat"]
    assert joined and max(len(c.args[0].fields) for c in joined) <= 64
