"""Norms over channels whose results are stored in float16 stay in channel blocks: no gathers, no conversions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from board_tools import needs, needs_zig
from half_models import Net
from halotile.benchmarks.boards import emulator
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.quantise.halves import largest_of
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.state import Build, Options
from halotile.targets.resolve import resolve

PI5, SERVER = "raspberry-pi-5", "x86_64-linux-gnu+sapphirerapids"


def layer(channels: int, size: tuple[int, int], residual: bool) -> onnx.ModelProto:
    """A block of ConvNeXt: depthwise, norm over channels with weights, 1x1, sigmoid, 1x1, and a residual."""
    net = Net((1, channels, *size), seed=channels)
    x = net.conv("x0", channels, channels, 3, 3, pads=[1] * 4, group=channels, act="")
    centred = net.add("Sub", x, net.add("ReduceMean", x, axes=[1], keepdims=1))
    spread = net.add("ReduceMean", net.add("Mul", centred, centred), axes=[1], keepdims=1)
    x = net.add("Div", centred, net.add("Sqrt", net.add("Add", spread, net.const(np.float32(1e-6)))))
    gamma, beta = (net.const(net.rng.uniform(0.5, 1.5, (channels, 1, 1)).astype(np.float32)) for _ in range(2))
    x = net.add("Add", net.add("Mul", x, gamma), beta)
    a = net.conv(x, 2 * channels + 1, channels, 1, 1, act="Sigmoid")
    y = net.conv(a, channels, 2 * channels + 1, 1, 1, act="")
    return net.model(net.conv(net.add("Add", y, x) if residual else y, 5, channels, 1, 1, act=""))


def options(model: onnx.ModelProto, target: str, **more: Any) -> Options:
    halves = largest_of(model, "float16")
    given = {"precision": "float16", "halves": halves, "matrix": False, "tile": "off", **more}
    return Options(resolve(target), **given)


def schedules(build: Build) -> list[str]:
    return [k.schedule for k in build.kernels]


@pytest.mark.parametrize("target", [PI5, SERVER])
@pytest.mark.parametrize(("channels", "size"), [(96, (7, 9)), (37, (5, 6))])
def test_they_stay_in_blocks_of_float16(channels: int, size: tuple[int, int], target: str) -> None:
    model = layer(channels, size, True)
    build = run_pipeline(model, options(model, target, stop_after="schedule"))
    lanes = resolve(target).lanes("float16")
    assert schedules(build).count(f"norm over channels, lanes {lanes}") == 1
    assert not any("staged" in s for s in schedules(build))
    moved = [k["name"] for k in build.report["kernels"] if k["name"].startswith("convert")]
    assert len(moved) == 1, "the model's result alone"
    (norm,) = [k for k in build.kernels if "norm over" in k.schedule]
    assert [v.dtype for v in norm.outputs] == ["float16"]


@pytest.mark.parametrize("tile", ["off", "auto"])
@pytest.mark.parametrize(
    ("channels", "size", "residual"),
    [(96, (7, 9), True), (37, (5, 6), False), (13, (1, 3), True), (64, (23, 4), False)],
)
def test_a_board_computes_them(channels: int, size: tuple[int, int], residual: bool, tile: str, tmp_path: Path) -> None:
    """After a run on NaN, of which nothing is left; the same bits on one thread and on two."""
    run = emulator(resolve(PI5))
    needs(run[0])
    needs_zig()
    model = layer(channels, size, residual)
    build = run_pipeline(model, options(model, PI5, formats=("exe",), tile=tile), output=tmp_path / "out")
    assert any("norm over channels" in s or "tiled" in s for s in schedules(build))
    x = np.random.default_rng(2).standard_normal((1, channels, *size)).astype(np.float32)
    with RemoteModel(tmp_path / "out", " ".join(run)) as remote:
        assert all(np.isnan(v).all() for v in remote({"x0": np.full_like(x, np.nan)}).values())
        found = [next(iter(remote({"x0": x}, threads=n).values())) for n in (1, 2)]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x0": x})
    assert np.abs(found[0] - wanted).max() < 6e-3 * np.abs(wanted).max()
    np.testing.assert_array_equal(*found)
