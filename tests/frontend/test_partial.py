"""Lengths that depend on the data: ONNX Runtime's answers up to the count, zeros behind it, refusals of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import halotile
import numpy as np
import onnx
import pytest
from evaluate import peer
from halotile.compiler.frontend import import_model
from halotile.errors import ModelError, UnsupportedError
from halotile.schedules.reference import compile_reference
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(3)
KINDS = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "bool": TensorProto.BOOL}


def noise(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def boxes_of(batch: int, count: int) -> np.ndarray:
    """Overlapping boxes, as two corners in any order."""
    low = RNG.random((batch, count, 2))
    both = np.concatenate([low, low + RNG.random((batch, count, 2)) * 0.5 - 0.1], -1)
    return both.astype("float32")


def model_of(
    nodes: list[Any], feeds: dict[str, np.ndarray], outputs: tuple[str, ...], opset: int = 17, **known: Any
) -> Any:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, KINDS[a.dtype.name], a.shape) for n, a in feeds.items()],
        [helper.make_tensor_value_info(n, 0, None) for n in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in known.items()],
    )
    for output in graph.output:
        output.ClearField("type")
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def same(
    nodes: list[Any],
    feeds: dict[str, np.ndarray],
    *outputs: str,
    opset: int = 17,
    more: Sequence[Any] = (),
    **known: Any,
) -> None:
    """What is there of every output is ONNX Runtime's, and zeros follow; on ``feeds`` and on changes of them."""
    model = model_of(nodes, feeds, outputs, opset, **known)
    imported = import_model(model)
    run = compile_reference(imported.module)
    for changes in ({}, *more):
        given = {**feeds, **changes}
        ours = {o.name: r for o, r in zip(imported.outputs, run(*(given[i.name] for i in imported.inputs)))}
        for name, wanted in zip(outputs, peer(model, given), strict=True):
            close(ours[name], ours.get(f"{name}.length"), wanted)


def close(array: np.ndarray, length: np.ndarray | None, wanted: np.ndarray) -> None:
    assert array.dtype == wanted.dtype and array.ndim == wanted.ndim
    if length is not None:
        axis = next((a for a in range(array.ndim) if array.shape[a] != wanted.shape[a]), None)
        axis = array.shape.index(length[0]) if axis is None else axis
        assert array.shape[axis] >= length[0] == wanted.shape[axis]
        assert not array.take(range(length[0], array.shape[axis]), axis).any()
        array = array.take(range(length[0]), axis)
    np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-5)


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(operator, [i.strip("-") for i in inputs.split()], outputs.split(), **attributes)


KEEP = {"most": np.array([7]), "overlap": np.array([0.4], "float32"), "above": np.array([0.2], "float32")}


@pytest.mark.parametrize("centre", [0, 1])
@pytest.mark.parametrize(
    "given", ["boxes scores most overlap above", "boxes scores most overlap", "boxes scores most"]
)
def test_suppression(given: str, centre: int) -> None:
    feeds = {"boxes": boxes_of(2, 40), "scores": np.round(RNG.random((2, 3, 40)), 1).astype("float32")}  # with ties
    used = {n: a for n, a in KEEP.items() if n in given}
    same([node("NonMaxSuppression", given, "kept", center_point_box=centre)], feeds, "kept", **used)


@pytest.mark.parametrize("most", [0, 1, 1000])
def test_suppression_keeps_at_most_so_many(most: int) -> None:
    feeds = {"boxes": boxes_of(1, 20), "scores": RNG.random((1, 2, 20)).astype("float32")}
    known = {**KEEP, "most": np.array([most])}
    same([node("NonMaxSuppression", "boxes scores most overlap above", "kept")], feeds, "kept", **known)


def test_suppression_of_nothing() -> None:
    feeds = {"boxes": boxes_of(1, 20), "scores": np.zeros((1, 2, 20), "float32")}
    same([node("NonMaxSuppression", "boxes scores most overlap above", "kept")], feeds, "kept", **KEEP)


def test_a_detector_ends_in_suppression(tmp_path: Path) -> None:
    """Boxes, scores and classes that are kept in rows, as detectors are exported; compiled, on one thread and two."""
    feeds = {"boxes": boxes_of(2, 200), "scores": RNG.random((2, 3, 200)).astype("float32")}
    nodes = [
        node("NonMaxSuppression", "boxes scores most overlap above", "kept"),
        node("Gather", "kept first", "image", axis=1),
        node("Gather", "kept ends", "places", axis=1),
        node("GatherND", "boxes places", "best"),
        node("GatherND", "scores kept", "score"),
        node("Unsqueeze", "score one", "column"),
        node("Cast", "image", "number", to=TensorProto.FLOAT),
        node("Unsqueeze", "number one", "numbers"),
        node("Concat", "numbers best column", "found", axis=1),
        node("Softmax", "best", "soft", axis=1),
        node("ReduceMax", "best", "top", axes=[0], keepdims=0),
    ]
    known = {**KEEP, "first": np.array(0), "ends": np.array([0, 2]), "one": np.array([1])}
    model = model_of(nodes, feeds, ("found", "soft", "top"), **known)
    results = []
    for threads in (1, 2):
        compiled = halotile.compile(model, threads=threads)
        assert "loops" in [k["schedule"] for k in compiled.report["kernels"]]
        assert [o.name for o in compiled.outputs] == ["found", "soft", "top", "found.length", "soft.length"]
        assert any("found.length" in note for note in compiled.report["notes"]["import"])
        check = compiled.verify(feeds)
        assert check.ok, check.message()
        results.append(compiled(feeds))
        for name, wanted in zip(("found", "soft", "top"), peer(model, feeds), strict=True):
            assert results[-1][name].shape == wanted.shape
        room = {o.name: np.full(o.shape, 7, o.dtype) for o in compiled.outputs}
        loaded = halotile.load(compiled.save(tmp_path / str(threads)))
        loaded.bind(feeds, room)()
        for name in ("found", "soft"):
            close(room[name], room[f"{name}.length"], results[-1][name])
    for name, array in results[0].items():
        np.testing.assert_array_equal(array, results[1][name])
    wrong = compiled.verify({**feeds, "scores": feeds["scores"] * 0})
    assert wrong.ok, wrong.message()


def test_boxes_are_filtered_before_they_are_suppressed() -> None:
    """scores > t picks boxes; what is picked is suppressed by classes, and the first few are taken."""
    scores, kinds = RNG.random(60).astype("float32"), RNG.integers(0, 3, 60)
    feeds = {"boxes": boxes_of(1, 60)[0], "scores": scores, "kinds": kinds}
    nodes = [
        node("Greater", "scores above", "good"),
        node("NonZero", "good", "at"),
        node("Transpose", "at", "rows", perm=[1, 0]),
        *(node("GatherND", f"{n} rows", f"some_{n}") for n in feeds),
        node("ReduceMax", "some_boxes", "largest", keepdims=0),
        node("Cast", "some_kinds", "kind", to=TensorProto.FLOAT),
        node("Mul", "kind largest", "moved"),
        node("Unsqueeze", "moved one", "moves"),
        node("Add", "some_boxes moves", "apart"),
        node("Unsqueeze", "apart zero", "b"),
        node("Unsqueeze", "some_scores both", "s"),
        node("NonMaxSuppression", "b s many overlap", "kept"),
        node("Gather", "kept two", "which", axis=1),
        node("Slice", "which zero five zero", "few"),
        node("Gather", "some_boxes few", "best"),
        node("Gather", "some_kinds few", "kinds_kept"),
        node("NonZero", "good", "again"),
    ]
    known = {
        "above": np.array(0.4, "float32"), "overlap": KEEP["overlap"], "many": np.array([2**62]),
        "zero": np.array([0]), "one": np.array([1]), "both": np.array([0, 1]), "two": np.array(2),
        "five": np.array([5]),
    }  # fmt: skip
    same(nodes, feeds, "best", "kinds_kept", "again", opset=13, **known)
    model = model_of(nodes, feeds, ("best", "kinds_kept"), 13, **known)
    text = import_model(model).module.script()
    assert text.count("halotile.nonzero") == 1  # the same positions are found once


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
    "flat", "columns end to end", "columns regrouped", "softmax along", "mean", "summed over", "one hot", "squares",
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
            [node("Greater", "r z", "g"), node("NonZero", "g", "n"), node("Concat", "n r", "y", axis=1)],
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
    weights = RNG.integers(-90, 90, (6, 5)).astype("int8")
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
