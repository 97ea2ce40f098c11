"""Addresses in boxes: what stays through a reduction, or a tile, is added up once, so that loads take the rest in."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest
from compiled import Compiled, native
from halotile.benchmarks.graph import ExportForm, ModelGraph
from halotile.benchmarks.layers import activation, conv
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.schedules.tiled import TiledKernel
from halotile.schedules.words.group import Kernel

WIDE = 'T.Cast("int64"'


def model(kernel: int, stride: int) -> onnx.ModelProto:
    g = ModelGraph("boxes", ExportForm(opset=17))
    y = activation(g, conv(g, g.input("x", (2, 32, 23, 29)), 40, kernel), "relu")
    return g.finish(y=activation(g, conv(g, y, 48, kernel, stride=stride), "relu"))


def direct(kernels: list[Kernel]) -> list[Kernel]:
    return [k for k in kernels if k.schedule.startswith("direct")]


@pytest.mark.sampled
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


@pytest.mark.parametrize("shape", [(12, None), (24, 40)])
def test_transforms_add_up_what_stays_once_a_tile(shape: tuple[int, Any]) -> None:
    """Where a window begins is a number of run time: no place of a tile may subtract it anew."""
    g = ModelGraph("residual", ExportForm(opset=17))
    x = activation(g, conv(g, g.input("x", (1, 32, 61, 67)), 32, 3), "relu")
    y = activation(g, conv(g, x, 32, 3), "relu")
    model = g.finish(y=conv(g, g.op("Add", conv(g, y, 32, 3), x), 32, 3))
    data = np.random.default_rng(5).standard_normal((1, 32, 61, 67)).astype(np.float32)
    results = []
    for tile in ("off", {"shape": shape}):
        build = run_pipeline(model, Options(native(), stop_after="plan", threads=1, tile=tile))
        parts = [p for k in build.kernels if isinstance(k, TiledKernel) for p in k.parts if "winograd" in p.schedule]
        assert len(parts) >= 3 or tile == "off", [k.schedule for k in build.kernels]
        for part in parts:
            code = str(part.function.body)
            for number in range(1, len(part.scalars) + 1):
                assert len(re.findall(rf"\bbase{number}\b", code)) <= 4, code
        results.append(Compiled(build).run([data])[0])
    np.testing.assert_allclose(*results, rtol=1e-3, atol=1e-3)
