"""Operators that are loops over time: running sums, the k largest, scatters; linear work, whatever the axis."""

from __future__ import annotations

import time
from typing import Any

import halotile
import numpy as np
import pytest
from evaluate import one_node, peer
from halotile.schedules.operators import scan
from halotile.schedules.operators.loops import PARALLEL_WORK
from halotile.schedules.operators.radix import radix_pays
from onnx import helper, numpy_helper

RNG = np.random.default_rng(11)


def noise(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def check(operator: str, inputs: list[np.ndarray], outputs: int = 1, **kwargs: Any) -> halotile.Model:
    """Compiled for one and for two threads: near ONNX Runtime, and the same bits."""
    model, feeds = one_node(operator, inputs, outputs, **kwargs)
    one, two = (halotile.compile(model, threads=n) for n in (1, 2))
    assert [k["schedule"] for k in one.report["kernels"]] == ["loops"]
    ours, again = one(feeds), two(feeds)
    for (name, a), b in zip(ours.items(), peer(model, feeds), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(a, again[name])
    return one


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_running_sums(axis: int, exclusive: int, reverse: int) -> None:
    check("CumSum", [noise(5, 23, 37), np.array(axis)], exclusive=exclusive, reverse=reverse)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float64"])
def test_running_sums_of_other_types(dtype: str) -> None:
    check("CumSum", [(noise(3, 19) * 9).astype(dtype), np.array(1)])


@pytest.mark.parametrize("length", [1, 4000])
def test_running_sum_of_one_row(length: int) -> None:
    check("CumSum", [noise(1, length), np.array(1)])


@pytest.mark.parametrize(("length", "k"), [(1, 1), (7, 7), (33, 1), (1000, 13), (700, 700)])
def test_the_largest(length: int, k: int) -> None:
    check("TopK", [noise(3, length), np.array([k])], 2)


@pytest.mark.sampled
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_equals_keep_their_order(largest: int, axis: int, dtype: str) -> None:
    x = np.round(noise(9, 40, 11) * 2).astype(dtype)
    check("TopK", [x, np.array([7])], 2, axis=axis, largest=largest)


@pytest.mark.sampled
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(("shape", "axis"), [((3, 40), 1), ((2, 999), 0), ((3, 9, 21), 1), ((4, 5, 3), 1), ((2, 1), 1)])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_the_first_alone_needs_no_heap(
    shape: tuple[int, ...], axis: int, largest: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ties go to the earlier one, in whichever lane it is."""
    monkeypatch.setattr(scan, "Heap", None)
    monkeypatch.setattr(scan, "RankHeap", None)
    x = np.round(noise(*shape) * 2).astype(dtype)
    check("TopK", [x, np.array([1])], 2, axis=axis, largest=largest)


RANKED = ["float32", "float16", "int32", "int16", "int8", "uint16", "uint8"]


@pytest.mark.sampled
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("k", [2, 3, 16, 50, 99])
@pytest.mark.parametrize("dtype", [*RANKED, "float64", "int64", "uint32"])
def test_ends_of_the_range_and_equals_in_order(
    dtype: str, k: int, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Types of up to 32 bits are ranked, a position in the low half; -0 equals 0 and NaNs equal each other."""
    monkeypatch.setattr(scan, "Heap" if dtype in RANKED else "RankHeap", None)
    x = RNG.integers(0, 9, (5, 99)).astype(dtype)
    if x.dtype.kind == "f":
        ends = [np.inf, -np.inf, 0.0, -0.0, np.nan, -np.nan, np.finfo(dtype).max, np.finfo(dtype).min, 6e-8, -6e-8]
    else:
        ends = [np.iinfo(dtype).max, np.iinfo(dtype).min, np.iinfo(dtype).max - 1]
    x[:, RNG.permutation(99)[:40]] = np.resize(np.array(ends, dtype), 40)
    missing = np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)
    numbers, sign = np.where(missing, 0, x).astype("longdouble"), -1 if largest else 1
    order = np.stack([np.lexsort((sign * row, sign * nan.astype(int))) for row, nan in zip(numbers, missing)])
    graph = helper.make_graph(
        [helper.make_node("TopK", ["x", "k"], ["v", "i"], largest=largest)], "g",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_tensor_value_info("v", helper.np_dtype_to_tensor_dtype(x.dtype), [5, k]),
         helper.make_tensor_value_info("i", 7, [5, k])], [numpy_helper.from_array(np.array([k]), "k")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    got = halotile.compile(model)({"x": x})
    np.testing.assert_array_equal(got["i"], order[:, :k])
    np.testing.assert_array_equal(got["v"], np.take_along_axis(x, order[:, :k], 1))


@pytest.mark.sampled
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(("shape", "axis", "k"), [((3, 400), 1, 400), ((300, 5), 0, 120), ((2, 170, 9), 1, 170)])
@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_most_of_a_row_is_sorted_by_bytes(
    shape: tuple[int, ...], axis: int, k: int, largest: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of wide types, whose numbers have the same bytes at most places here."""
    monkeypatch.setattr(scan, "RankHeap", None)
    monkeypatch.setattr(scan, "Heap", None)
    x = np.round(noise(*shape) * 50).astype(dtype)
    check("TopK", [x, np.array([k])], 2, axis=axis, largest=largest)


def test_a_few_of_a_row_come_from_a_heap() -> None:
    """As do those of rows too long for the stack, and of rows so short that counting bytes takes longer."""
    assert not any(radix_pays(*case) for case in ((1000, 13), (8400, 8400), (12, 12), (33554432, 1000)))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_nan_is_the_largest(axis: int) -> None:
    x = noise(40, 37)
    x[11, :], x[:, 5] = np.nan, np.nan
    for largest in (0, 1):
        given = [x, np.array([1])]
        model, feeds = one_node("TopK", given, 2, axis=axis, largest=largest)
        values, places = halotile.compile(model)(feeds).values()
        several, _ = one_node("TopK", [x, np.array([2])], 2, axis=axis, largest=largest)
        for ours, heap in zip((values, places), halotile.compile(several)(feeds).values()):
            np.testing.assert_array_equal(ours, heap.take([0], axis=axis))


def test_only_the_positions_are_wanted() -> None:
    """What is not read of an operator with several outputs still needs memory to be written to."""
    model, feeds = one_node("TopK", [noise(4, 30), np.array([5])], 2)
    expected = peer(model, feeds)[1]
    del model.graph.output[0]
    np.testing.assert_array_equal(halotile.compile(model)(feeds)["o1"], expected)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_elements(reduction: str) -> None:
    """A corner of the tensor, positions from the end, several updates of one element, the last of which wins."""
    inputs = [noise(5, 9, 7), RNG.integers(-9, 9, (4, 12, 5)), noise(4, 12, 5)]
    check("ScatterElements", inputs, axis=1, reduction=reduction, opset=18, run_time=(0, 1, 2))


def test_sums_over_the_edges_of_a_graph() -> None:
    nodes, edges, width = 200, 900, 70
    assert edges * width >= PARALLEL_WORK
    indices = np.repeat(RNG.integers(0, nodes, (edges, 1)), width, 1)
    inputs = [noise(nodes, width), indices, noise(edges, width)]
    check("ScatterElements", inputs, axis=0, reduction="add", opset=18, run_time=(0, 1, 2))


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max"])
@pytest.mark.parametrize("shape", [(6, 7, 21), (6, 7), (6, 7, 3, 33)])
def test_scatter_nd(reduction: str, shape: tuple[int, ...]) -> None:
    inputs = [noise(*shape), RNG.integers(-6, 6, (5, 2)), noise(5, *shape[2:])]
    check("ScatterND", inputs, reduction=reduction, opset=18, run_time=(0, 1, 2))


def test_large_scatter_nd_side_by_side() -> None:
    inputs = [noise(300, 75), RNG.integers(0, 300, (500, 1)), noise(500, 75)]
    assert 500 * 75 >= PARALLEL_WORK
    model, feeds = one_node("ScatterND", inputs, reduction="add", opset=18, run_time=(0, 1, 2))
    expected = inputs[0].astype("float64")
    np.add.at(expected, inputs[1][:, 0], inputs[2])  # ONNX Runtime's threads may lose updates of one place
    for threads in (1, 2):
        np.testing.assert_allclose(halotile.compile(model, threads=threads)(feeds)["o0"], expected, atol=1e-5)


@pytest.mark.parametrize(("operator", "inputs"), [("CumSum", [np.array(1)]), ("TopK", [np.array([3])])])
def test_work_grows_with_the_axis_and_not_with_its_square(operator: str, inputs: list[np.ndarray]) -> None:
    """400,000 elements take milliseconds; the square of that would take minutes."""
    model, feeds = one_node(operator, [noise(1, 400_000), *inputs], 1 if operator == "CumSum" else 2)
    built = halotile.compile(model)
    start = time.perf_counter()
    ours = built(feeds)
    assert time.perf_counter() - start < 5
    expected = np.cumsum(feeds["i0"].astype("float64")) if operator == "CumSum" else np.sort(feeds["i0"])[0, :-4:-1]
    np.testing.assert_allclose(ours["o0"][0], expected, atol=2e-2)
