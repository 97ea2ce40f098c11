"""Windowed operators of our own against plain loops, at odd sizes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from evaluate import agree, evaluate, one_node
from hypothesis import given, settings
from hypothesis import strategies as st


@st.composite
def transposed(draw: st.DrawFn) -> dict:
    rank = draw(st.integers(1, 2))

    def each(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(rank)]

    stride, dilation, kernel = each(1, 4), each(1, 3), each(1, 4)
    size = each(1, 5)
    full = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(size, stride, kernel, dilation)]
    begin = [draw(st.integers(0, (f - 1) // 2)) for f in full]
    end = [draw(st.integers(0, (f - 1) // 2)) for f in full]
    extra = [draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation)]
    return dict(
        size=size, strides=stride, dilations=dilation, kernel=kernel, pads=begin + end, output_padding=extra,
        group=draw(st.sampled_from([1, 2])),
    )  # fmt: skip


def scattered(x: np.ndarray, w: np.ndarray, case: dict) -> np.ndarray:
    """The definition: every input element adds its multiple of the kernel to the output."""
    rank = len(case["size"])
    groups, per = case["group"], w.shape[1]
    full = [
        (n - 1) * s + (k - 1) * d + 1 + e
        for n, s, k, d, e in zip(
            case["size"], case["strides"], case["kernel"], case["dilations"], case["output_padding"]
        )
    ]
    y = np.zeros((x.shape[0], per * groups, *full))
    share = x.shape[1] // groups
    for c in range(x.shape[1]):
        outputs = slice((c // share) * per, (c // share + 1) * per)
        for i in itertools.product(*map(range, case["size"])):
            for k in itertools.product(*map(range, case["kernel"])):
                at = tuple(p * s + t * d for p, s, t, d in zip(i, case["strides"], k, case["dilations"]))
                y[(slice(None), outputs, *at)] += (
                    x[(slice(None), c, *i)][:, None] * w[(c, slice(None), *k)][None]
                )
    begin, end = case["pads"][:rank], case["pads"][rank:]
    return y[(..., *(slice(b, f - e) for b, f, e in zip(begin, full, end)))]


@pytest.mark.parametrize("size", [(7,), (5, 6), (3, 4, 5)])
def test_equal_elements_have_the_first_of_their_positions_in_columns_too(size: tuple[int, ...]) -> None:
    """The first in rows, counted in columns: ONNX Runtime looks through a window in rows, whatever it counts."""
    x = np.random.default_rng(3).integers(0, 3, (2, 3, *size)).astype("float32")
    agree("MaxPool", [x], 2, kernel_shape=[3] * len(size), strides=[2] * len(size), pads=[1] * 2 * len(size),
          storage_order=1, opset=12)  # fmt: skip


@given(transposed())
@settings(max_examples=25, deadline=None)
def test_conv_transpose_is_the_scatter_that_defines_it(case: dict) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1, 4, *case["size"])).astype("float32")
    w = rng.standard_normal((4, 2, *case["kernel"])).astype("float32")
    expected = scattered(x, w, case)
    attributes = {k: v for k, v in case.items() if k not in ("size", "kernel")}
    model, feeds = one_node("ConvTranspose", [x, w], **attributes)
    np.testing.assert_allclose(evaluate(model, feeds)["o0"], expected, rtol=1e-4, atol=1e-4)


@st.composite
def pooled(draw: st.DrawFn) -> dict:
    kernel, stride = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    dilation = draw(st.integers(1, 2))
    reach = (kernel - 1) * dilation
    begin, end = draw(st.integers(0, kernel - 1)), draw(st.integers(0, kernel - 1))
    size = draw(st.integers(max(reach + 1 - begin - end, 1), 9))
    return dict(
        size=size, kernel_shape=[kernel], strides=[stride], dilations=[dilation], pads=[begin, end],
        ceil_mode=draw(st.integers(0, 1)), include=draw(st.integers(0, 1)),
    )  # fmt: skip


def windows(x: np.ndarray, case: dict) -> list[tuple[list[float], int]]:
    """Per output position the elements in its window, and how many of its positions are real or asked-for padding."""
    (k,), (s,), (d,) = case["kernel_shape"], case["strides"], case["dilations"]
    begin, end = case["pads"]
    n = len(x)
    room = n + begin + end - (k - 1) * d - 1
    count = (-(-room // s) if case["ceil_mode"] else room // s) + 1
    if case["ceil_mode"] and (count - 1) * s >= n + begin:
        count -= 1
    found = []
    for o in range(count):
        at = [o * s - begin + t * d for t in range(k)]
        found.append(([x[p] for p in at if 0 <= p < n], sum(-begin <= p < n + end for p in at)))
    return found


@given(pooled())
@settings(max_examples=40, deadline=None)
def test_pooling_is_its_windows(case: dict) -> None:
    x = (np.random.default_rng(2).standard_normal(case["size"]) - 3).astype("float32")
    expected = windows(x, case)
    if any(not elements for elements, _ in expected):
        return  # a window of padding alone has no average
    attributes = {k: case[k] for k in ("kernel_shape", "strides", "dilations", "pads", "ceil_mode")}
    model, feeds = one_node("MaxPool", [x[None, None]], **attributes)
    np.testing.assert_array_equal(evaluate(model, feeds)["o0"][0, 0], [max(e) for e, _ in expected])
    model, feeds = one_node("AveragePool", [x[None, None]], count_include_pad=case["include"], **attributes)
    means = [sum(e) / (area if case["include"] else len(e)) for e, area in expected]
    np.testing.assert_allclose(evaluate(model, feeds)["o0"][0, 0], means, rtol=1e-5)
