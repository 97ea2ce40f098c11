"""What the import learns of open dimensions, in libraries: right at many sizes, refused by name at others."""

from __future__ import annotations

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from exports import END, Raw
from halotile.errors import RunError
from onnx import TensorProto, helper

SIZES = (1, 2, 3, 8, 13, 16, 31)


def model_of(g: Raw, output: str) -> onnx.ModelProto:
    info = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
    graph = helper.make_graph(g.nodes, "open", g.inputs, [info], g.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", g.opset)], ir_version=8)


def assert_right(model: onnx.ModelProto, library: halotile.Model, feeds: dict[str, np.ndarray]) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,), got = session.run(None, feeds), [*library(feeds).values()][0]
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def rotary(g: Raw) -> str:
    """Angles computed from the length, in kernels for full and for short rows."""
    x = g.input("x", (2, "n", 8))
    steps = g("Cast", g("Range", g.const(0), g.size(x, 1), g.const(1)), to=TensorProto.FLOAT)
    angles = g("Mul", g("Unsqueeze", steps, g.const([1])), g.weight(1, 8))
    return g("Add", g("Mul", x, g("Cos", angles)), g("Sin", angles))


def thinned(g: Raw) -> str:
    return g.slice(g.slice(g.input("x", (2, "n", 8)), 1, 0, END, 2), 1, 0, -1, 3)


def positioned(g: Raw) -> str:
    x = g.input("x", (2, "n", 8))
    table = g.slice(g.weight(1, 31, 8), 1, 0, g.unsqueeze(g.size(x, 1), 0))
    return g("Add", x, g("MatMul", table, g.weight(8, 8)))


@pytest.mark.parametrize("make", [rotary, thinned, positioned])
def test_lengths(make) -> None:
    g = Raw(17)
    model = model_of(g, make(g))
    library = halotile.compile(model, threads=1)
    for size in SIZES[1:]:
        assert_right(model, library, {"x": np.random.default_rng(size).standard_normal((2, size, 8)).astype("f")})
    if make is positioned:
        with pytest.raises(RunError, match=r"n is 32, and must be from 0 to 31 \(at most 31, since node .*Add"):
            library({"x": np.zeros((2, 32, 8), "f")})


def test_a_height_that_skips_ask_to_be_even() -> None:
    g = Raw(17)
    x = g.input("x", (1, 3, "h", 6))
    half = g("MaxPool", x, kernel_shape=[2, 1], strides=[2, 1])
    twice = g("Resize", half, "", g.f([1, 1, 2, 1]), mode="nearest", coordinate_transformation_mode="asymmetric",
              nearest_mode="floor")  # fmt: skip
    model = model_of(g, g("Concat", x, twice, axis=1))
    library = halotile.compile(model, threads=1)
    for size in (2, 4, 6, 14, 32):
        assert_right(model, library, {"x": np.random.default_rng(size).standard_normal((1, 3, size, 6)).astype("f")})
    with pytest.raises(RunError, match="h is 7, and must be a multiple of 2 that .*, since node '/Concat"):
        library({"x": np.zeros((1, 3, 7, 6), "f")})


def test_a_mask_over_cache_and_tokens() -> None:
    g = Raw(17)
    x, cache = g.input("x", ("b", "n", 4)), g.input("cache", ("b", "past", 4))
    mask = g.input("mask", ("b", "total"))
    model = model_of(g, g("Add", g("Concat", cache, x, axis=1), g.unsqueeze(mask, 2)))
    library = halotile.compile(model, threads=1)

    def feeds(b: int, n: int, past: int, total: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(n)
        shapes = {"x": (b, n, 4), "cache": (b, past, 4), "mask": (b, total)}
        return {name: rng.standard_normal(shape).astype("f") for name, shape in shapes.items()}

    for b, n, past in ((1, 1, 1), (2, 3, 5), (3, 1, 17)):
        assert_right(model, library, feeds(b, n, past, n + past))
    with pytest.raises(RunError, match=r"input 'mask' has shape \(2, 7\), expected \(b, n \+ past\)"):
        library(feeds(2, 3, 5, 7))
