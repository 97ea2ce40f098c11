"""Open dimensions on the matrix unit: strips that follow the image's width, blocks of any number of rows."""

from __future__ import annotations

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.schedules.instructions.amx import has_matrix_unit
from halotile.targets.resolve import resolve
from uncompiled import reported

from ..support.open_models import Drawing, Sizes

NAMED = "x86_64-linux-gnu+sapphirerapids"
CLOSE = 3e-5  # of the largest number of an output: products in parts
NEEDS = pytest.mark.skipif(
    not has_matrix_unit(resolve("native")), reason="NOT RUN: this machine has no matrix unit, or does not grant it"
)


def images() -> onnx.ModelProto:
    """Strides, dilation, asymmetric pads, channels that fill no register."""
    g = Drawing(1)
    x = g("Relu", g.conv(g.input("x", "n", 32, "h", "w"), 32, 150, 1))
    x = g("Relu", g.conv(x, 150, 170, 3, strides=[2, 2]))
    x = g("Relu", g.conv(x, 170, 80, 5, strides=[2, 1], pads=[2, 1, 2, 3]))
    x = g("Relu", g.conv(x, 80, 237, 1))
    g.output(g.conv(x, 237, 133, 3, dilations=[2, 3], strides=[1, 3], pads=[2, 3, 2, 3]), 4)
    return g.model()


def batches() -> onnx.ModelProto:
    g = Drawing(2)
    x = g("Relu", g.conv(g.input("x", "n", 64, 14, 14), 64, 64, 3))
    x = g("Add", x, g.conv(g("Relu", g.conv(x, 64, 256, 1)), 256, 64, 1))
    g.output(g.conv(x, 64, 96, 3, strides=[2, 2]), 4)
    return g.model()


def lengths() -> onnx.ModelProto:
    """Convolutions along one axis, and products behind them."""
    g = Drawing(3)
    x = g("Relu", g.conv(g.input("x", "n", 40, "t"), 40, 96, 3, rank=1, strides=[2]))
    x = g("Relu", g.conv(x, 96, 130, 5, rank=1, dilations=[2], pads=[4, 4]))
    x = g("Transpose", x, perm=[0, 2, 1])
    g.output(g.linear(g("Tanh", g.linear(x, 130, 200)), 200, 131), 3)
    return g.model()


def rows() -> onnx.ModelProto:
    g = Drawing(4)
    x = g.input("x", "n", 70)
    g.output(g.linear(g("Relu", g.linear(g("Relu", g.linear(x, 70, 200)), 200, 131)), 131, 17), 2)
    return g.model()


CASES: dict[str, tuple[onnx.ModelProto, Sizes, list[Sizes], str]] = {
    "images": (
        images(), {"h": 40, "w": 48},
        [{"n": n, "h": h, "w": w} for n, h, w in
         ((1, 100, 120), (2, 131, 401), (1, 2, 900), (1, 900, 2), (3, 33, 49), (2, 7, 5), (1, 1, 1), (0, 5, 5))],
        "open images: matrix conv",
    ),
    "batches": (batches(), {}, [{"n": n} for n in (5, 1, 2, 0)], "open images: matrix conv"),
    "lengths": (
        lengths(), {"t": 300}, [{"n": n, "t": t} for n, t in ((1, 300), (3, 1201), (2, 13), (1, 16), (1, 8))],
        "matmul on the matrix unit",
    ),
    "rows": (
        rows(), {"n": 300},
        [{"n": n} for n in (3001, 300, 129, 113, 97, 95, 65, 64, 63, 49, 48, 47, 33, 32, 31, 17, 16, 15, 2, 1, 0)],
        "matmul on the matrix unit",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_open_sizes_take_the_unit(name):
    model, typical, _, fired = CASES[name]
    library = halotile.compile(model, NAMED, typical=typical)
    schedules = [kernel["schedule"] for kernel in library.report["kernels"]]
    assert sum(fired in s for s in schedules) >= 2, schedules
    assert not any("on the matrix unit" in s or "matrix conv" in s for s in _without(model, typical))


def _without(model: onnx.ModelProto, typical: Sizes) -> list[str]:
    return [kernel["schedule"] for kernel in reported(model, NAMED, typical=typical, exact=True)["kernels"]]


@NEEDS
@pytest.mark.parametrize("name", CASES)
def test_numbers_at_every_size(name):
    """In falling order too, so that what a larger size left in memory lies around a smaller one."""
    model, typical, sizes, _ = CASES[name]
    library = halotile.compile(model, typical=typical, threads=2)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (given,) = model.graph.input
    for at in sizes:
        shape = [at[d.dim_param] if d.dim_param else d.dim_value for d in given.type.tensor_type.shape.dim]
        feeds = {given.name: np.random.default_rng(at["n"]).standard_normal(shape).astype(np.float32)}
        (want,) = session.run(None, feeds)
        (got,), (one,) = (library(feeds, threads=n).values() for n in (2, 1))
        assert got.shape == want.shape and np.array_equal(got, one), at
        if want.size:
            assert np.abs(got - want).max() < CLOSE * np.abs(want).max(), at
