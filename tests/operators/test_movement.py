"""Slices, pads and reshapes against NumPy at random bounds."""

from __future__ import annotations

import halotile
import numpy as np
import onnx
import pytest
from evaluate import agree, evaluate, one_node
from halotile.compiler.frontend import import_model
from halotile.errors import UnsupportedError
from hypothesis import given, settings
from hypothesis import strategies as st

X = np.arange(35, dtype="float32").reshape(5, 7)
BOUND = st.one_of(st.integers(-9, 9), st.sampled_from([2**62, -(2**62)]))


def ints(*values: int) -> np.ndarray:
    return np.array(values, "int64")


@given(BOUND, BOUND, st.integers(-3, 3).filter(bool), st.integers(0, 1))
@settings(max_examples=40, deadline=None)
def test_slice(start: int, end: int, step: int, axis: int) -> None:
    model, feeds = one_node("Slice", [X, ints(start), ints(end), ints(axis), ints(step)])
    size, index = X.shape[axis], [slice(None)] * 2
    index[axis] = slice(start, end, step)
    if step < 0:  # NumPy reads a small negative bound as a position, ONNX clamps it: to the first element, or before it
        index[axis] = slice(max(start, -size), None if end < -size else end, step)
    np.testing.assert_array_equal(evaluate(model, feeds)["o0"], X[tuple(index)])


@given(
    st.lists(st.integers(-2, 4), min_size=4, max_size=4),
    st.sampled_from(["constant", "edge", "reflect", "wrap"]),
)
@settings(max_examples=30, deadline=None)
def test_pad(pads: list[int], mode: str) -> None:
    cut = X[max(-pads[0], 0) : 5 - max(-pads[2], 0), max(-pads[1], 0) : 7 - max(-pads[3], 0)]
    width = [(max(pads[0], 0), max(pads[2], 0)), (max(pads[1], 0), max(pads[3], 0))]
    value = {"constant_values": 2.5} if mode == "constant" else {}
    inputs = [X, ints(*pads), np.float32(2.5)] if mode == "constant" else [X, ints(*pads)]
    model, feeds = one_node("Pad", inputs, mode=mode)
    expected = np.pad(cut, width, mode, **value)  # type: ignore[call-overload]
    np.testing.assert_array_equal(evaluate(model, feeds)["o0"], expected)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float16", "float64"])
def test_pad_in_every_type(dtype: str) -> None:
    x = np.array([[1, 0], [0, 1]], dtype)
    model, feeds = one_node("Pad", [x, ints(0, 1, 1, 0), np.array(1, dtype)], opset=21)
    expected = np.pad(x, [(0, 1), (1, 0)], constant_values=1)
    np.testing.assert_array_equal(evaluate(model, feeds)["o0"], expected)


def test_pad_with_infinity() -> None:
    model, feeds = one_node("Pad", [X, ints(1, 0, 0, 0), np.float32(-np.inf)])
    assert np.isneginf(evaluate(model, feeds)["o0"][0]).all()


@pytest.mark.parametrize("target", [(0, -1), (7, 5), (-1,), (1, 35, 1), (5, 0)])
def test_reshape(target: tuple[int, ...]) -> None:
    model, feeds = one_node("Reshape", [X, ints(*target)])
    shape = [X.shape[i] if d == 0 else d for i, d in enumerate(target)]
    np.testing.assert_array_equal(evaluate(model, feeds)["o0"], X.reshape(shape))


@pytest.mark.parametrize("target", [(3, -1), (4, 9)])
def test_reshape_that_does_not_fit(target: tuple[int, ...]) -> None:
    model, _ = one_node("Neg", [X])
    model.graph.node[0].op_type = "Reshape"
    model.graph.node[0].input.append("shape")
    model.graph.initializer.append(onnx.numpy_helper.from_array(ints(*target), "shape"))
    with pytest.raises(UnsupportedError, match="can't be reshaped"):
        import_model(model)


def test_split_into_uneven_pieces() -> None:
    model, feeds = one_node("Split", [X], 3, axis=1, num_outputs=3, opset=18)
    result = evaluate(model, feeds)
    for ours, theirs in zip(result.values(), (X[:, :3], X[:, 3:6], X[:, 6:]), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_concat_leaves_out_what_is_empty() -> None:
    model, feeds = one_node("Concat", [X, np.empty((0, 7), "float32"), X[:1]], axis=0)
    np.testing.assert_array_equal(evaluate(model, feeds)["o0"], np.concatenate([X, X[:1]]))


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("diagonal", [-20, -2, 0, 3, 20])
def test_a_triangle_from_a_diagonal_of_run_time(upper: int, diagonal: int) -> None:
    agree("Trilu", [X.reshape(1, 5, 7) + 1, np.array(diagonal)], run_time=(0, 1), upper=upper)


def test_a_fill_of_run_time() -> None:
    for fill in (np.array(2.5, "float32"), np.array(-np.inf, "float32")):
        model, feeds = one_node("Pad", [X, ints(1, 0, -1, 2), fill], run_time=(0, 2))
        expected = np.pad(X[:4], [(1, 0), (0, 2)], constant_values=fill)
        np.testing.assert_array_equal(evaluate(model, feeds)["o0"], expected)


def test_many_tensors_are_joined_in_groups() -> None:
    """A kernel that chooses among 300 took minutes to compile, or ended in Python's limit of recursion."""
    parts = [np.full((1, 1 + n % 3), n, "float32") for n in range(300)]
    model, feeds = one_node("Concat", parts, run_time=range(300), axis=1)
    joined = [o for o in halotile.inspect(model, "simplify")["operators"] if o["operator"] == "relax.concat"]
    assert len(joined) == 1 + -(-300 // 16)
    np.testing.assert_array_equal(halotile.compile(model)(feeds)["o0"], np.concatenate(parts, 1))
