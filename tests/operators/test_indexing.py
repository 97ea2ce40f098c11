"""Reading and writing at computed positions, with positions known at import and at run time."""

from __future__ import annotations

import halotile
import numpy as np
import pytest
from evaluate import agree, evaluate, one_node, peer
from halotile.compiler.frontend import import_model
from halotile.errors import UnsupportedError
from onnx import helper, numpy_helper

RNG = np.random.default_rng(3)
BOTH = pytest.mark.parametrize("run_time", [(0,), (0, 1), (0, 1, 2)], ids=["known", "run-time", "all"])


@BOTH
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_elements(run_time: tuple, reduction: str) -> None:
    x = RNG.standard_normal((4, 5)).astype("float32")
    indices = (
        np.array([[0, -1, 2], [1, 1, -2]], "int64")
        if reduction == "none"
        else np.array([[0, 0, 2], [1, 0, -1]])
    )
    if reduction == "none":
        indices = np.array(
            [[0, -1, 2], [1, -4, 3]], "int64"
        )  # no position twice, where ONNX leaves the order open
    updates = RNG.standard_normal((2, 3)).astype("float32")
    agree("ScatterElements", [x, indices, updates], run_time=run_time, axis=0, reduction=reduction, opset=18)


@BOTH
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_nd(run_time: tuple, reduction: str) -> None:
    x = RNG.standard_normal((4, 5, 3)).astype("float32")
    places = [[0, 1], [3, -1], [-2, 2]] if reduction == "none" else [[0, 1], [3, -1], [0, 1]]
    updates = RNG.standard_normal((3, 3)).astype("float32")
    agree("ScatterND", [x, np.array(places), updates], run_time=run_time, reduction=reduction, opset=18)


@BOTH
def test_gather_nd_with_batches(run_time: tuple) -> None:
    x = RNG.standard_normal((2, 3, 4)).astype("float32")
    indices = np.array([[[1], [-1]], [[0], [2]]], "int64")
    agree("GatherND", [x, indices], run_time=run_time[:2], batch_dims=1)


@BOTH
def test_gather_elements(run_time: tuple) -> None:
    x = RNG.standard_normal((3, 4)).astype("float32")
    agree("GatherElements", [x, np.array([[0, -1], [3, 2]], "int64")], run_time=run_time[:2], axis=1)


def test_a_run_time_index_outside_reads_no_stray_memory() -> None:
    x = np.arange(4, dtype="float32")
    model, feeds = one_node("Gather", [x, np.array([9, -9, 1 << 40], "int64")], run_time=(0, 1))
    assert evaluate(model, feeds)["o0"].tolist() == [3, 0, 3]


def test_top_k_with_nan_and_ties() -> None:
    x = np.array([[2, np.nan, 1, 2, -np.inf]], "float32")
    model, feeds = one_node("TopK", [x, np.array([3], "int64")], 2)
    result = evaluate(model, feeds)
    assert result["o1"].tolist() == [[1, 0, 3]] and np.isnan(result["o0"][0, 0])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_running_sums(axis: int) -> None:
    x = RNG.standard_normal((3, 4, 5)).astype("float32")
    for exclusive in (0, 1):
        for reverse in (0, 1):
            agree("CumSum", [x, np.array(axis)], exclusive=exclusive, reverse=reverse)


EQUATIONS = {
    "bij,bjk->bik": [(2, 3, 4), (2, 4, 5)],
    "...ij,...jk->...ik": [(2, 3, 4), (2, 4, 2)],
    "bhid,bhjd->bhij": [(2, 3, 4, 5), (2, 3, 6, 5)],
    "bhwc,hkc->bhwk": [(1, 3, 4, 2), (3, 5, 2)],
    "abc,cd->dab": [(2, 3, 4), (4, 5)],
    "ij,jkl->k": [(2, 3), (3, 4, 5)],
    "bij,bij->b": [(2, 3, 4), (2, 3, 4)],
    "ab,bc": [(2, 3), (3, 4)],
    "i,j->ij": [(3,), (4,)],
    "ij->": [(3, 4)],
    "ii->i": [(4, 4)],
    "ij,jk,kl->il": [(2, 3), (3, 4), (4, 5)],
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation: str) -> None:
    operands = [RNG.standard_normal(s).astype("float32") for s in EQUATIONS[equation]]
    model, feeds = one_node("Einsum", operands, run_time=range(len(operands)), equation=equation)
    expected = np.einsum(equation, *operands)
    np.testing.assert_allclose(evaluate(model, feeds)["o0"], expected, rtol=1e-5, atol=1e-5)


def test_an_einsum_that_is_a_matrix_product_becomes_one() -> None:
    operands = [np.ones(s, "float32") for s in EQUATIONS["bhid,bhjd->bhij"]]
    model, _ = one_node("Einsum", operands, run_time=(0, 1), equation="bhid,bhjd->bhij")
    assert "R.matmul" in import_model(model).module.script()


@pytest.mark.parametrize("wanted", [None, (2, 3, 9, 11), (2, 3, 12, 11)])
def test_max_unpool_at_positions_of_run_time(wanted: tuple[int, ...] | None) -> None:
    """What MaxPool found goes back to where it was; an output shape says how large the image had been."""
    height = 8 if wanted is None else wanted[2]
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p", "at"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Neg", ["p"], ["n"]),
        helper.make_node("MaxUnpool", ["n", "at"] + ["shape"] * (wanted is not None), ["y"], kernel_shape=[2, 2],
                         strides=[2, 2]),
    ]  # fmt: skip
    x = np.random.default_rng(6).standard_normal((2, 3, height, 8 if wanted is None else 11)).astype("float32")
    shapes = [] if wanted is None else [numpy_helper.from_array(np.array(wanted), "shape")]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, x.shape)], [helper.make_tensor_value_info("y", 1, None)],
        shapes,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    built = halotile.compile(model)
    assert "loops" in [k["schedule"] for k in built.report["kernels"]]
    ours = built({"x": x})["y"]
    np.testing.assert_array_equal(ours, peer(model, {"x": x})[0])
    np.testing.assert_array_equal(np.sort(ours[ours != 0]), np.sort(-x[ours != 0]))


def test_max_unpool_into_less_than_its_window_needs_is_refused() -> None:
    inputs = [np.ones((1, 1, 2, 2), "float32"), np.zeros((1, 1, 2, 2), "int64"), np.array([1, 1, 3, 4])]
    model, _ = one_node("MaxUnpool", inputs, run_time=(0, 1), kernel_shape=[2, 2], strides=[2, 2])
    with pytest.raises(UnsupportedError, match="is less than"):
        halotile.compile(model)
