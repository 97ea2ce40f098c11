"""Rows of an open length: sums, extremes, positions and maps along them at every length about a vector's."""

from __future__ import annotations

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest

from ..support.open_models import Drawing

LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 79, 127, 129, 200)


def _softmax(g: Drawing, x: str) -> str:
    return g("Softmax", x, axis=-1)


def _mean_and_largest(g: Drawing, x: str) -> str:
    mean, largest = g("ReduceMean", x, axes=[-1]), g("ReduceMax", x, axes=[-1])
    return g("Add", g("Mul", g("Sub", x, mean), largest), g("ReduceL2", x, axes=[-1]))


def _positions(g: Drawing, x: str) -> str:
    first = g("Cast", g("ArgMax", x, axis=-1), to=onnx.TensorProto.FLOAT)
    last = g("Cast", g("ArgMin", x, axis=-1, select_last_index=1), to=onnx.TensorProto.FLOAT)
    return g("Add", g("Mul", first, g.constant(1000)), last)


def _in_place(g: Drawing, x: str) -> str:
    """What maps overwrite they do not read again."""
    y = g("Mul", x, x)
    return g("Add", g("Sigmoid", g("ReduceSum", y, g.whole(0))), g("Mul", g("Add", y, g.constant(1)), g.constant(3)))


@pytest.mark.sampled
@pytest.mark.parametrize("of", [_softmax, _mean_and_largest, _positions, _in_place], ids=lambda f: f.__name__[1:])
@pytest.mark.parametrize("whole", [False, True], ids=["drawn", "equal"])
def test_every_length(of, whole):
    """``whole``: few different numbers, so that many are equal."""
    g = Drawing(3)
    x = g.input("x", 3, "m", "n")
    g.output(of(g, g("Add", x, g.constant(0.5))), 3)
    model = g.model()
    built = halotile.compile(model, threads=2, typical={"m": 5, "n": 100})
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(6)
    for n in LENGTHS:
        drawn = random.integers(-2, 3, (3, 5, n)) if whole else random.standard_normal((3, 5, n))
        x = drawn.astype("float32")
        (wanted,) = session.run(None, {"x": x})
        found = np.full(wanted.shape, np.nan, "float32")
        built.bind({"x": x}, {"y0": found})()
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=str(n))
        assert np.array_equal(built({"x": x}, threads=1)["y0"], found)


def test_places_behind_names_are_no_lines():
    """Blocks of channels read through reshapes whose divisors are open: the axes are not one line."""
    g = Drawing(5)
    x = g.conv(g.input("x", "n", 24, "h", "w"), 24, 24, 1)
    x = g("Transpose", g("Reshape", x, g.whole(3, 3, 8, 19, -1)), perm=[0, 2, 1, 3, 4])
    g.output(g("Reshape", x, g.whole(3, -1, 19, 23)), 4)
    model = g.model()
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    built = halotile.compile(model)
    for shape in ((3, 24, 19, 23), (3, 24, 23, 19)):
        x = np.random.default_rng(1).standard_normal(shape).astype("float32")
        (wanted,) = session.run(None, {"x": x})
        np.testing.assert_allclose(built({"x": x})["y0"], wanted, rtol=1e-4, atol=1e-5)
