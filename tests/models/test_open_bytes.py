"""Quantised models with open dimensions: sums of bytes, in vectors and on a matrix unit, at every size."""

from __future__ import annotations

from typing import Any

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.targets.resolve import resolve
from quantised_layers import Quantised
from uncompiled import reported

Sizes = dict[str, int]
CLOSE = 1e-6  # of the largest number of an output
UNIT = "x86_64-linux-gnu+sapphirerapids"


def images() -> onnx.ModelProto:
    """Bytes other than 0 around the data, three channels, strides, dilation, asymmetric pads."""
    g = Quantised(1)
    x = g("Relu", g.conv("x", 3, 40, (3, 3), 117, pads=[1] * 4, strides=[2, 2]))
    x = g("Relu", g.conv(x, 40, 150, (3, 3), 0, pads=[0, 2, 1, 1]))
    x = g.conv(x, 150, 33, (1, 1), 0)
    x = g.conv(x, 33, 64, (5, 3), 140, pads=[2, 2, 2, 2], dilations=[1, 2], strides=[2, 1])
    return g.model(g.conv(x, 64, 21, (3, 3), 128, pads=[1] * 4), "n", 3, "h", "w")


def batches() -> onnx.ModelProto:
    g = Quantised(2)
    x = g("Relu", g.conv("x", 32, 64, (3, 3), 121, pads=[1] * 4))
    x = g("Add", x, g.conv(x, 64, 64, (3, 3), 0, pads=[1] * 4, group=2))
    return g.model(g.linear(g("ReduceMax", x, axes=[2, 3], keepdims=0), 64, 10, 5), "n", 32, 13, 9)


def separable() -> onnx.ModelProto:
    """Depthwise layers: strides, asymmetric pads, one dilated axis, around bytes other than 0."""
    g = Quantised(5)
    x = g("Relu", g.conv("x", 19, 67, (3, 3), 117, pads=[1] * 4))
    x = g("Relu", g.conv(x, 67, 67, (3, 3), 3, pads=[1] * 4, group=67))
    x = g("Relu", g.conv(x, 67, 67, (5, 5), 2, pads=[2, 2, 2, 2], strides=[2, 1], group=67))
    x = g("Add", x, g.conv(x, 67, 67, (3, 3), 0, pads=[2, 1, 2, 1], dilations=[2, 1], group=67))
    x = g.conv(x, 67, 67, (3, 3), 9, pads=[1, 0, 2, 2], strides=[1, 2], group=67)
    return g.model(g.conv(x, 67, 21, (3, 3), 128, pads=[1] * 4), "n", 19, "h", "w")


def lengths() -> onnx.ModelProto:
    g = Quantised(3)
    x = g("Relu", g.conv("x", 24, 48, (3,), 128, pads=[1, 1], strides=[2]))
    return g.model(g.conv(x, 48, 33, (5,), 0, pads=[4, 4], dilations=[2]), "n", 24, "t")


def rows() -> onnx.ModelProto:
    """Depths of whole windows, and others."""
    g = Quantised(4)
    x = g("Relu", g.linear("x", 70, 192, 117))
    return g.model(g.linear(g("Relu", g.linear(x, 192, 131, 0)), 131, 17, 3), "b", "t", 70)


CASES: dict[str, tuple[onnx.ModelProto, Sizes, list[Sizes]]] = {
    "images": (
        images(), {"h": 60, "w": 70},
        [{"n": n, "h": h, "w": w} for n, h, w in
         ((1, 60, 70), (2, 131, 201), (1, 3, 301), (1, 301, 3), (3, 33, 49), (1, 7, 6), (1, 4, 4), (0, 8, 8))],
    ),
    "separable": (
        separable(), {"h": 60, "w": 70},
        [{"n": n, "h": h, "w": w} for n, h, w in
         ((1, 60, 70), (2, 131, 201), (1, 3, 301), (1, 301, 3), (3, 33, 49), (1, 7, 6), (2, 2, 2), (0, 8, 8))],
    ),
    "batches": (batches(), {}, [{"n": n} for n in (5, 1, 2, 0)]),
    "lengths": (lengths(), {"t": 200}, [{"n": n, "t": t} for n, t in ((1, 200), (3, 701), (2, 13), (1, 5), (1, 1))]),
    "rows": (
        rows(), {"t": 128},
        [{"b": b, "t": t} for b, t in
         ((3, 401), (1, 128), (2, 49), (1, 97), (1, 65), (1, 48), (1, 33), (1, 31), (1, 17), (1, 16), (5, 3), (1, 2),
          (1, 1), (2, 0))],
    ),
}  # fmt: skip


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


NAMED = {UNIT: "matrix unit", UNIT + "+-amx-int8": "of bytes", "x86-64-v3": "in pairs", "raspberry-pi-5": "of bytes"}


@pytest.mark.sampled
@pytest.mark.parametrize(("target", "text"), NAMED.items())
@pytest.mark.parametrize("name", CASES)
def test_sums_of_bytes_at_open_sizes(name, target, text):
    """As many kernels of bytes as in a build for fixed sizes. Each target's code is compiled for another network."""
    model, typical, sizes = CASES[name]
    whole = list(CASES).index(name) == list(NAMED).index(target)
    found = _kernels(halotile.compile(model, target, typical=typical).report if whole else
                     reported(model, target, typical=typical))
    fixed = _kernels(reported(model, target, shapes={"x": _shape(model, sizes[0])}))
    assert len(found) == len(fixed) > 0
    if name != "lengths":
        assert any(text in schedule for schedule in found), found


def _kernels(report: dict[str, Any]) -> list[str]:
    words = ("of bytes", "int16")  # the second ones by Winograd's algorithm, which is exact too
    return [k["schedule"] for k in report["kernels"] if any(word in k["schedule"] for word in words)]


def test_numbers_at_every_size(case, tmp_path):
    """In falling order too, so that what a larger size left in memory lies around a smaller one. All in bytes: where
    float32 by Winograd's algorithm is faster, its sums round, and bytes with them."""
    model, typical, sizes = case
    run_pipeline(model, Options(resolve("native"), typical=typical, threads=2, winograd=False), output=tmp_path)
    library = halotile.load(tmp_path)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for at in sizes:
        x = np.random.default_rng(len(str(at))).standard_normal(_shape(model, at)).astype(np.float32)
        (want,) = session.run(None, {"x": x})
        (got,), (one,) = (library({"x": x}, threads=n).values() for n in (2, 1))
        assert got.shape == want.shape and np.array_equal(got, one), at
        if want.size:
            assert np.abs(got - want).max() < CLOSE * np.abs(want).max(), at


def _shape(model: onnx.ModelProto, sizes: Sizes) -> tuple[int, ...]:
    (given,) = model.graph.input
    return tuple(sizes[d.dim_param] if d.dim_param else d.dim_value for d in given.type.tensor_type.shape.dim)
