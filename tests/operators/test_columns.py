"""Convolutions whose weights are known at run time only are products of these with what the taps read, transposed ones
products added where the taps fall; Col2Im."""

from __future__ import annotations

from typing import Any

import halotile
import numpy as np
import onnx
import pytest
from compiled import native
from evaluate import one_node, peer
from onnx.reference import ReferenceEvaluator

CASES: list[tuple[tuple[int, ...], tuple[int, ...], int, dict[str, Any], int]] = [
    ((1, 16, 9, 11), (8, 16, 1, 1), 1, {}, 1),  # one tap: the image itself
    ((2, 12, 9, 11), (8, 6, 3, 2), 2, {"strides": [2, 3], "pads": [2, 1, 0, 3], "dilations": [2, 1]}, 2),
    ((3, 8, 13), (5, 8, 4), 1, {"strides": [2], "pads": [1, 2]}, 2),
    ((1, 8, 5, 6, 7), (6, 8, 3, 2, 3), 1, {"pads": [1, 0, 1, 2, 1, 1], "dilations": [2, 1, 1]}, 2),
    ((1, 8, 3, 40), (4, 8, 7, 5), 1, {"pads": [6, 4, 6, 4]}, 2),  # windows that lie in the padding altogether
    ((1, 16, 5, 5), (4, 16, 3, 3), 1, {"auto_pad": "SAME_LOWER", "strides": [2, 2]}, 2),
    ((1, 24, 64, 32), (16, 24, 3, 3), 1, {"pads": [1, 1, 1, 1]}, 2),  # enough for two cores
]


def schedules_of_equals(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[str]:
    """How each kernel is computed, after its output was compared with ONNX Runtime's, and two threads' with one's."""
    one, two = (halotile.compile(model, threads=n, target=native()) for n in (1, 2))
    ours = one(feeds)["o0"]
    np.testing.assert_allclose(ours, peer(model, feeds)[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(ours, two(feeds)["o0"])
    return [k["schedule"].split(",")[0] for k in one.report["kernels"]]


@pytest.mark.parametrize(("shape", "weights", "groups", "window", "kernels"), CASES)
def test_a_product(
    shape: tuple[int, ...], weights: tuple[int, ...], groups: int, window: dict[str, Any], kernels: int
) -> None:
    rng = np.random.default_rng(3)
    inputs = [rng.standard_normal(s).astype("float32") for s in (shape, weights, weights[:1])]
    model, feeds = one_node("Conv", inputs, 1, run_time=(0, 1, 2), group=groups, **window)
    schedules = schedules_of_equals(model, feeds)
    assert schedules[:-1] == ["loops"] * (kernels - 1) and schedules[-1].startswith("matmul")


@pytest.mark.parametrize(("weights", "groups"), [((8, 1, 3, 3), 8), ((1, 8, 3, 3), 1)])
def test_few_outputs_for_each_input_are_summed_as_they_stand(weights: tuple[int, ...], groups: int) -> None:
    rng = np.random.default_rng(4)
    inputs = [rng.standard_normal(s).astype("float32") for s in ((1, 8, 12, 12), weights)]
    model, feeds = one_node("Conv", inputs, 1, run_time=(0, 1), group=groups)
    built = halotile.compile(model)
    assert [k["schedule"].split(",")[0] for k in built.report["kernels"]] == ["staged"]
    np.testing.assert_allclose(built(feeds)["o0"], peer(model, feeds)[0], rtol=1e-4, atol=1e-4)


TRANSPOSED: list[tuple[tuple[int, ...], tuple[int, ...], int, dict[str, Any]]] = [
    ((1, 16, 7, 9), (16, 5, 3, 3), 1, {"strides": [2, 2]}),
    ((2, 24, 5, 6), (24, 4, 4, 3), 2, {"strides": [2, 3], "pads": [1, 0, 2, 1], "output_padding": [1, 0]}),
    ((3, 8, 13), (8, 5, 4), 1, {"strides": [3], "pads": [5, 2], "dilations": [2]}),
    ((1, 8, 3, 4, 5), (8, 6, 3, 2, 3), 1, {"pads": [1, 0, 1, 2, 1, 1], "dilations": [2, 1, 1]}),
    ((1, 96, 16, 16), (96, 8, 3, 3), 3, {"strides": [2, 2], "pads": [1, 1, 1, 1]}),  # enough for two cores
    ((2, 16, 4, 4), (16, 3, 2, 2), 1, {"strides": [3, 3]}),  # gaps that no tap reaches
    ((1, 8, 4, 2), (8, 4, 3, 3), 1, {"pads": [2, 2, 3, 1]}),  # taps that fall outside altogether
    ((1, 8, 2501), (8, 2, 7), 1, {"strides": [2], "dilations": [3], "pads": [3, 1]}),  # a line in parts
    ((1, 8, 1201), (8, 2, 3), 1, {"strides": [7]}),  # in parts of whole strides, most of them gaps
    ((1, 8, 3, 4), (8, 2, 2, 19), 1, {"strides": [1, 23], "pads": [0, 5, 0, 7]}),  # taps and phases in loops
    ((1, 8, 5), (8, 2, 37), 1, {"strides": [17], "dilations": [3], "pads": [11, 20]}),
    ((2, 8, 3), (8, 2, 3), 1, {"strides": [20011]}),  # a line that is too large for the stack
    ((1, 8, 1, 1), (8, 2, 3, 5), 1, {"strides": [70000, 2**31 - 1]}),  # strides that nothing takes
]


@pytest.mark.parametrize(("shape", "weights", "groups", "window"), TRANSPOSED)
def test_a_transposed_product(
    shape: tuple[int, ...], weights: tuple[int, ...], groups: int, window: dict[str, Any]
) -> None:
    rng = np.random.default_rng(3)
    sizes = (shape, weights, (weights[1] * groups,))
    inputs = [rng.standard_normal(s).astype("float32") for s in sizes]
    model, feeds = one_node("ConvTranspose", inputs, 1, run_time=(0, 1, 2), group=groups, **window)
    schedules = schedules_of_equals(model, feeds)
    assert sum(s.startswith("matmul") for s in schedules) == 1 and "loops" in schedules


def test_little_depth_stays_a_transposed_convolution() -> None:
    rng = np.random.default_rng(4)
    inputs = [rng.standard_normal(s).astype("float32") for s in ((1, 8, 6, 6), (8, 1, 3, 3))]
    model, feeds = one_node("ConvTranspose", inputs, 1, run_time=(0, 1), group=8)
    built = halotile.compile(model)
    assert [k["schedule"].split(",")[0] for k in built.report["kernels"]] == ["staged"]
    np.testing.assert_allclose(built(feeds)["o0"], peer(model, feeds)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_col2im(dtype: str) -> None:
    """Overlaps, gaps and pads."""
    rng = np.random.default_rng(5)
    sizes = np.array([9, 11]), np.array([3, 2])
    window: dict[str, Any] = {"strides": [2, 3], "pads": [1, 0, 2, 1], "dilations": [1, 2]}
    inputs = [rng.standard_normal((2, 5 * 6, 5 * 4)).astype(dtype), *sizes]
    model, feeds = one_node("Col2Im", inputs, 1, **window)
    built = halotile.compile(model)
    assert [k["schedule"] for k in built.report["kernels"]] == ["loops"]
    expected = peer(model, feeds)[0] if dtype == "float32" else ReferenceEvaluator(model).run(None, feeds)[0]
    np.testing.assert_allclose(built(feeds)["o0"], expected, rtol=1e-5, atol=1e-5)


SHUFFLED: list[tuple[tuple[int, ...], tuple[int, ...], int, dict[str, Any]]] = [
    ((1, 21, 5, 7), (21, 21, 16, 16), 1, {"strides": [8, 8], "pads": [4, 4, 4, 4]}),  # FCN-8s
    ((2, 6, 4, 3), (6, 5, 13, 7), 3, {"strides": [6, 5], "pads": [1, 0, 3, 2], "output_padding": [2, 1]}),
    ((3, 8, 9), (8, 5, 33), 1, {"strides": [17], "pads": [20, 3]}),
    ((1, 4, 2, 3, 2), (4, 3, 3, 4, 5), 1, {"strides": [3, 3, 3]}),
    ((1, 4, 3, 3), (4, 3, 3, 2), 1, {"strides": [5, 5]}),  # gaps that no tap reaches
]


@pytest.mark.parametrize(("shape", "weights", "groups", "window"), SHUFFLED)
def test_many_phases_are_a_convolution_and_a_shuffle(
    shape: tuple[int, ...], weights: tuple[int, ...], groups: int, window: dict[str, Any]
) -> None:
    """Each phase would have loops of its own: 64 took minutes to compile."""
    rng = np.random.default_rng(7)
    sizes = (shape, weights, (weights[1] * groups,))
    inputs = [rng.standard_normal(s).astype("float32") for s in sizes]
    model, feeds = one_node("ConvTranspose", inputs, 1, group=groups, **window)
    assert not any("transposed" in s for s in schedules_of_equals(model, feeds))


def test_few_phases_stay_a_transposed_convolution() -> None:
    rng = np.random.default_rng(8)
    inputs = [rng.standard_normal(s).astype("float32") for s in ((1, 8, 6, 6), (8, 8, 8, 8))]
    model, feeds = one_node("ConvTranspose", inputs, 1, strides=[4, 4])
    built = halotile.compile(model)
    assert any("16 phases" in k["schedule"] for k in built.report["kernels"])
    np.testing.assert_allclose(built(feeds)["o0"], peer(model, feeds)[0], rtol=1e-4, atol=1e-4)
