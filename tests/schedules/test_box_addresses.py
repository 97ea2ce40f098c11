"""Addresses of the input in boxes: 64 bits from what stays through the reduction, so that loads take the rest in."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from compiled import Compiled, native
from halotile.benchmarks.graph import Form, Graph
from halotile.benchmarks.layers import activation, conv
from halotile.compiler.pipeline import Options, run_pipeline
from halotile.schedules.group import Kernel
from halotile.schedules.tiled import TiledKernel

WIDE = 'T.Cast("int64"'


def model(kernel: int, stride: int) -> onnx.ModelProto:
    g = Graph("boxes", Form(opset=17))
    y = activation(g, conv(g, g.input("x", (2, 32, 23, 29)), 40, kernel), "relu")
    return g.finish(y=activation(g, conv(g, y, 48, kernel, stride=stride), "relu"))


def direct(kernels: list[Kernel]) -> list[Kernel]:
    return [k for k in kernels if k.schedule.startswith("direct")]


@pytest.mark.parametrize("shape", [(5, None), (7, 11)])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (3, 2)])
def test_the_reduction_adds_numbers_that_fit_an_address(kernel: int, stride: int, shape: tuple[int, Any]) -> None:
    x = np.random.default_rng(3).standard_normal((2, 32, 23, 29)).astype(np.float32)
    results = []
    for tile in ("off", {"shape": shape}):
        options = Options(native(), stop_after="plan", threads=2, tile=tile, winograd=False)
        build = run_pipeline(model(kernel, stride), options)
        tiled = [k for k in build.kernels if isinstance(k, TiledKernel)]
        parts = direct([p for k in tiled for p in k.parts]) or direct(build.kernels)
        assert len(parts) >= 2 and bool(tiled) is (tile != "off")
        assert [WIDE in str(p.function) for p in parts] == [tile != "off"] * len(parts)
        results.append(Compiled(build).run([x])[0])
    np.testing.assert_array_equal(*results)
