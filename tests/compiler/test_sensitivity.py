"""Differences that rounding makes in the reference itself are allowed, and said; all others still end a build.

The libraries of these tests are ONNX Runtime on a model whose constants are moved: by what rounding does, as any right
build is, or by more, as a wrong one is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from halotile.compiler import sensitivity
from halotile.compiler.distances import Distance, distance
from halotile.compiler.explain import plain_limits
from halotile.compiler.ordered import Change, change, ordered_outputs, row_axis
from halotile.compiler.spec import TensorSpec
from halotile.compiler.verify import Reference, Verification, verify
from onnx import TensorProto, helper, numpy_helper

Arrays = dict[str, np.ndarray]
FLOAT = TensorProto.FLOAT


def built(
    nodes: list[onnx.NodeProto], shape: tuple[int, ...], outs: list[str], held: Arrays
) -> onnx.ModelProto:
    kinds = {"labels": TensorProto.INT64, "places": TensorProto.INT64}
    outputs = [helper.make_tensor_value_info(o, kinds.get(o, FLOAT), None) for o in outs]
    graph = helper.make_graph(
        nodes, "moved", [helper.make_tensor_value_info("x", FLOAT, shape)], outputs,
        [numpy_helper.from_array(a, n) for n, a in held.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def rounded() -> onnx.ModelProto:
    """The like of it in floats, whose scales nobody knows for such."""
    random, nodes, held, x = np.random.default_rng(1), [], {"step": np.full((1, 96), 80, np.float32)}, "x"
    for i in range(6):
        held[f"w{i}"] = (random.standard_normal((96, 96)) * 0.2).astype(np.float32)
        nodes += [
            helper.make_node("Mul", [x, "step"], [f"m{i}"]), helper.make_node("Round", [f"m{i}"], [f"r{i}"]),
            helper.make_node("Div", [f"r{i}", "step"], [f"q{i}"]),
            helper.make_node("MatMul", [f"q{i}", f"w{i}"], [f"p{i}"]), helper.make_node("Tanh", [f"p{i}"], [f"y{i}"]),
        ]  # fmt: skip
        x = f"y{i}"
    return built(nodes, (64, 96), [x], held)


def quantised(layers: int = 8, width: int = 96) -> onnx.ModelProto:
    """Dynamically quantised layers one behind the other: a tie that flips moves all that follows."""
    random, nodes, held, x = np.random.default_rng(1), [], {}, "x"
    for i in range(layers):
        held[f"w{i}"] = random.integers(-127, 128, (width, width), np.int8)
        held[f"s{i}"] = np.array(0.03 / np.sqrt(width), np.float32)
        held[f"b{i}"] = random.standard_normal(width).astype(np.float32)
        nodes += [
            helper.make_node("DynamicQuantizeLinear", [x], [f"q{i}", f"qs{i}", f"qz{i}"]),
            helper.make_node("MatMulInteger", [f"q{i}", f"w{i}", f"qz{i}"], [f"m{i}"]),
            helper.make_node("Cast", [f"m{i}"], [f"c{i}"], to=FLOAT),
            helper.make_node("Mul", [f"qs{i}", f"s{i}"], [f"t{i}"]),
            helper.make_node("Mul", [f"c{i}", f"t{i}"], [f"p{i}"]),
            helper.make_node("Add", [f"p{i}", f"b{i}"], [f"a{i}"]),
            helper.make_node("Tanh", [f"a{i}"], [f"y{i}"]),
        ]
        x = f"y{i}"
    return built(nodes, (64, width), [x], held)


def detector(queries: int = 60, width: int = 24) -> onnx.ModelProto:
    """The 40 best of 60 boxes, a third of which have the score of another one but for its last bits."""
    random = np.random.default_rng(2)
    scores = random.standard_normal((width, queries)).astype(np.float32)
    scores[:, 40:] = scores[:, :20] * (1 + random.choice([-3e-7, 3e-7], (1, 20))).astype(np.float32)
    held = {
        "ws": scores, "wb": (random.standard_normal((width, queries * 4)) * 20).astype(np.float32),
        "k": np.array([40]), "shape": np.array([1, queries, 4]), "column": np.array([1, 40, 1]),
        "five": np.array([1, 1, 4]), "names": random.integers(0, 80, queries),
    }  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "ws"], ["s"]),
        helper.make_node("Sigmoid", ["s"], ["p"]),
        helper.make_node("TopK", ["p", "k"], ["scores", "i"], axis=1),
        helper.make_node("MatMul", ["x", "wb"], ["flat"]),
        helper.make_node("Reshape", ["flat", "shape"], ["all"]),
        helper.make_node("Reshape", ["i", "column"], ["at"]),
        helper.make_node("Expand", ["at", "five"], ["at4"]),
        helper.make_node("GatherElements", ["all", "at4"], ["boxes"], axis=1),
        helper.make_node("Gather", ["names", "i"], ["labels"]),
    ]
    return built(nodes, (1, width), ["boxes", "scores", "labels"], held)


def labels() -> onnx.ModelProto:
    """The largest of twelve, of which two pairs differ in the last bits, at 400 places."""
    random = np.random.default_rng(3)
    w = random.standard_normal((16, 12)).astype(np.float32)
    w[:, 10:] = w[:, :2] * np.float32(1 + 2e-7)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["s"]),
        helper.make_node("ArgMax", ["s"], ["places"], axis=1),
    ]
    return built(nodes, (400, 16), ["places"], {"w": w})


def library(
    model: onnx.ModelProto, wrong: Callable[[Arrays], None] = lambda out: None
) -> Callable[[Arrays], Arrays]:
    def run(arrays: Arrays) -> Arrays:
        found = {n: a.copy() for n, a in Reference(model)(arrays, 0).items()}
        wrong(found)
        return found

    return run


def near(model: onnx.ModelProto, size: float = 2e-6) -> onnx.ModelProto:
    return sensitivity.moved(model, size, np.random.default_rng(99))


def scaled(model: onnx.ModelProto, name: str, factor: float, part: slice = slice(None)) -> onnx.ModelProto:
    """``model`` with some columns of one of its weights times ``factor``."""
    found = near(model)
    tensor = next(t for t in found.graph.initializer if t.name == name)
    array = np.array(numpy_helper.to_array(tensor))
    at = (..., part) if array.ndim else ...
    array[at] = (array[at] * factor).astype(array.dtype)
    tensor.CopyFrom(numpy_helper.from_array(array, name))
    return found


def judged(model: onnx.ModelProto, run: Callable[[Arrays], Arrays], **options: object) -> Verification:
    shape = tuple(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim)
    return verify(run, model, (TensorSpec("x", "float32", shape),), **options)


RIGHT = {"quantised": quantised, "rounded": rounded, "detector": detector, "labels": labels}


@pytest.mark.parametrize("name", RIGHT)
def test_right_builds_that_the_plain_comparison_refuses(name: str) -> None:
    model = RIGHT[name]()
    result = judged(model, library(near(model)))
    assert result.ok, result.message()
    allowed = [o for o in result.outputs if o.moved]
    if name == "quantised":  # its scales alone explain it
        assert result.outputs[0].ties > 0
        return
    assert allowed and "as far off as its own answer" in result.message()
    assert all("when its constants and inputs move by" in o.verdict for o in allowed)
    if name == "detector":
        assert all(o.rows > 0 and "rows in other places" in o.verdict for o in allowed)
        assert {"boxes", "labels"} <= {o.name for o in allowed}
        assert all(o.max_error <= 1e-3 * o.max_reference + 1e-5 for o in allowed if o.name == "boxes")


def spoilt(name: str, change: Callable[[np.ndarray], None]) -> Callable[[Arrays], None]:
    return lambda out: change(out[name])


def _shift(at: object, by: float) -> Callable[[np.ndarray], None]:
    def change(array: np.ndarray) -> None:
        array[at] += by

    return change


def _turned(array: np.ndarray) -> None:
    array[...] = array[:, ::-1]


def _all_turned(out: Arrays) -> None:
    for array in out.values():
        _turned(array)


WRONG: dict[str, tuple[Callable[[], onnx.ModelProto], Callable[[onnx.ModelProto], Callable[[Arrays], Arrays]]]] = {
    "one weight of a quantised layer": (quantised, lambda m: library(scaled(m, "s3", 1.3))),
    "columns of quantised weights": (quantised, lambda m: library(scaled(m, "w5", 0.5, slice(8, 40)))),
    "a bias is left out": (quantised, lambda m: library(scaled(m, "b7", 0.0))),
    "one element of a quantised model": (quantised, lambda m: library(near(m), spoilt("y7", _shift((1, 5), 1.0)))),
    "an infinity in a quantised model": (quantised, lambda m: library(near(m), spoilt("y7", _shift((1, 5), np.inf)))),
    "a NaN in a quantised model": (quantised, lambda m: library(near(m), spoilt("y7", _shift((1, 5), np.nan)))),
    "one box": (detector, lambda m: library(near(m), spoilt("boxes", _shift((0, 7, 2), 5.0)))),
    "one label": (detector, lambda m: library(near(m), spoilt("labels", _shift((0, 9), 1)))),
    "boxes without their scores": (detector, lambda m: library(near(m), spoilt("boxes", _turned))),
    "the order": (detector, lambda m: library(near(m), _all_turned)),
    "weights of boxes": (detector, lambda m: library(scaled(m, "wb", 1.02))),
    "weights of scores": (detector, lambda m: library(scaled(m, "ws", 1.02, slice(3, 9)))),
    "a weight between roundings": (rounded, lambda m: library(scaled(m, "w2", 1.02))),
    "one element between roundings": (rounded, lambda m: library(near(m), spoilt("y5", _shift((1, 5), 1.0)))),
    "places": (labels, lambda m: library(scaled(m, "w", 1.1, slice(2, 5)))),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_builds_are_refused_still(name: str) -> None:
    make, wrong = WRONG[name]
    model = make()
    result = judged(model, wrong(model))
    assert not result.ok
    assert "differs from ONNX Runtime" in result.message()


def test_nothing_is_moved_where_the_plain_comparison_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensitivity, "moved", None)
    model = quantised(1)
    assert judged(model, library(model)).ok


def test_what_does_not_move_excuses_nothing() -> None:
    """A model of floats that rounds nothing: errors of 1% are no rounding, whatever is moved."""
    random = np.random.default_rng(4)
    held = {f"w{i}": random.standard_normal((32, 32)).astype(np.float32) / 6 for i in range(3)}
    nodes = [
        helper.make_node("MatMul", [a, w], [b])
        for a, w, b in (("x", "w0", "a"), ("a", "w1", "b"), ("b", "w2", "y"))
    ]
    model = built(nodes, (5, 32), ["y"], held)
    result = judged(model, library(scaled(model, "w1", 1.01)))
    assert not result.ok and not result.outputs[0].moved
    assert not judged(model, library(scaled(model, "w1", 1.0003)), exact=True).ok


def test_constants_of_all_graphs_move_and_small_ones_stay() -> None:
    big, small = np.ones(16, np.float32), np.ones(15, np.float32)
    inner = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(big, "v"))], "inner", [],
        [helper.make_tensor_value_info("c", FLOAT, [16])], [numpy_helper.from_array(big, "deep")],
    )  # fmt: skip
    nodes = [
        helper.make_node("If", ["f"], ["y"], then_branch=inner, else_branch=inner),
        helper.make_node("QuantizeLinear", ["x", "scale", "z"], ["q"]),
    ]
    held = {"big": big, "small": small, "whole": np.ones(20, np.int64), "scale": np.ones((), np.float32)}
    graph = helper.make_graph(nodes, "g", [], [], [numpy_helper.from_array(a, n) for n, a in held.items()])
    model = helper.make_model(graph)
    found = sensitivity.moved(model, 1e-6, np.random.default_rng(0)).graph
    arrays = {t.name: numpy_helper.to_array(t) for t in found.initializer}
    arrays |= {"deep": numpy_helper.to_array(found.node[0].attribute[0].g.initializer[0])}
    arrays |= {"c": numpy_helper.to_array(found.node[0].attribute[1].g.node[0].attribute[0].t)}
    for name in ("big", "deep", "c", "scale"):
        apart = np.abs(arrays[name].astype(np.float64) - 1)
        assert (apart > 5e-7).all() and (apart < 2e-6).all(), name
    assert (arrays["small"] == 1).all() and (arrays["whole"] == 1).all()
    assert numpy_helper.to_array(model.graph.initializer[0]).max() == 1, "the model itself stays"


def test_distances() -> None:
    a = np.float32([1, 2, np.nan, np.inf])
    assert distance(a, [a]).largest == 0
    assert distance(a, [np.float32([1, 4, np.nan, np.inf])]) == Distance(2.0, 0.5)
    for b in ([1, 2, 3, np.inf], [1, 2, np.nan, -np.inf], [1, np.inf, np.nan, np.inf], [1, 2, np.nan]):
        assert distance(a, [np.float32(b)]).largest == np.inf
    assert distance(np.int8([1, 2]), [np.int8([1, 5])]) == Distance(3.0, 1.5)
    assert distance(np.int64([1, 2]), [np.int64([1, 50])]) == Distance(1.0, 0.5)
    assert distance(np.int64([1, 2]), [np.int64([1, 50]), np.int64([7, 2])]).largest == 0
    assert distance(a, [a.astype(np.float64)]).largest == np.inf
    assert distance(a[:0], [a[:0]]).largest == 0


def test_rows_are_found_again() -> None:
    random = np.random.default_rng(5)
    theirs = {
        "boxes": random.standard_normal((2, 9, 4)).astype(np.float32),
        "labels": random.integers(0, 9, (2, 9)),
    }
    limits = plain_limits(theirs, 1e-3, 1e-5)
    order = [0, 2, 1, 3, 4, 5, 8, 7, 6]
    ours = {n: a[:, order].copy() for n, a in theirs.items()}
    ours["boxes"][0, 3, 1] += 5e-4

    def changed(ours: Arrays, *more: Arrays) -> Change:
        found = change(list(theirs), 1, ours, theirs, limits, more)
        assert found is not None
        return found

    found = changed(ours)
    assert (found.moved, found.farthest, found.strange) == (8, 2, 0)
    assert 4e-4 < found.errors["boxes"] < 6e-4 and found.errors["labels"] == 0
    other = {n: a.copy() for n, a in theirs.items()}
    for array in (ours["labels"], other["labels"]):
        array[1, 3] += 1
    assert changed(ours).strange == 1, "a row of nobody's"
    assert changed(ours, other).strange == 0, "one of another answer's"
    ours["boxes"][1, 4], ours["labels"][1, 4] = ours["boxes"][1, 5], ours["labels"][1, 5]
    assert changed(ours, other, theirs).strange == 1, "a row that is there twice"
    fewer = {n: a[:, :8] for n, a in theirs.items()}
    assert changed(fewer).strange == 2
    assert change(list(theirs), 1, {**theirs, "labels": fewer["labels"]}, theirs, limits, []) is None
    assert [row_axis(s) for s in ((), (5,), (1, 300), (300, 4), (2, 300, 4), (1, 1))] == [None, 0, 1, 0, 1, 1]


def test_what_is_in_order() -> None:
    assert ordered_outputs(detector()) == {"boxes", "scores", "labels"}
    assert ordered_outputs(quantised(1)) == set()
