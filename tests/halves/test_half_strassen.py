"""1x1 layers by seven products of halves in float16: their results, how far these are off, and where they are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from board_tools import needs, needs_zig
from half_models import Net, stack
from halotile.benchmarks.boards import emulator
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.quantise.halves import largest_of
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.state import Options
from halotile.passes.fuse import closing
from halotile.schedules.conv import strassen
from halotile.schedules.conv.strassen_steps import GROWTH, error_bound
from halotile.schedules.conv.winograd.transform import HALF4, HALF_S4
from halotile.targets.resolve import resolve

PI5 = "raspberry-pi-5"
FORM = "seven products of halves"

# batch, inputs, outputs, rows and columns, stride: sums of one run of half of the channels, of two, three and eight
SHAPES: dict[str, tuple[int, int, int, tuple[int, int], int]] = {
    "one run": (1, 128, 96, (7, 11), 1),
    "two": (2, 160, 176, (5, 6), 1),
    "three, the last shorter": (1, 272, 112, (13, 9), 2),
    "eight": (1, 1024, 64, (3, 17), 1),
}


def layer(name: str, coded: bool = False) -> tuple[onnx.ModelProto, dict[str, np.ndarray], np.ndarray]:
    """A layer with bias, a residual and ReLU, its inputs, and the exact result for what float16 makes of these.
    ``coded``: inputs and weights that tell their position instead of random ones, in quarters."""
    batch, cin, cout, size, stride = SHAPES[name]
    out = tuple(-(-n // stride) for n in size)
    net = Net((batch, cin, *size), (batch, cout, *out), seed=cin)
    if coded:
        w = (np.arange(cout * cin).reshape(cout, cin, 1, 1) * 7 % 5 - 2.0).astype(np.float32) / 4
        x = (np.arange(batch * cin * size[0] * size[1]).reshape(batch, cin, *size) * 11 % 7 - 3.0).astype(np.float32)
    else:
        w = (net.rng.standard_normal((cout, cin, 1, 1)) / np.sqrt(cin)).astype(np.float16).astype(np.float32)
        x = net.rng.standard_normal((batch, cin, *size)).astype(np.float16).astype(np.float32)
    bias = np.linspace(-1, 1, cout).astype(np.float16).astype(np.float32)
    r = np.cos(np.arange(batch * cout * out[0] * out[1])).reshape(batch, cout, *out).astype(np.float16)
    y = net.add("Conv", "x0", net.const(w), net.const(bias), strides=[stride] * 2)
    model = net.model(net.add("Relu", net.add("Add", y, "x1")))
    exact = np.einsum("oc,nchw->nohw", w[:, :, 0, 0].astype("float64"), x[:, :, ::stride, ::stride].astype("float64"))
    feeds = {"x0": x, "x1": r.astype(np.float32)}
    return model, feeds, np.maximum(exact + bias[:, None, None] + r, 0)


def built(model: onnx.ModelProto, **more: Any) -> Any:
    folder = more.pop("output", None)
    options = Options(
        resolve(PI5), precision="float16", halves=largest_of(model, "float16"), tile="off", **{"threads": 1, **more}
    )
    return run_pipeline(model, options, output=folder)


def forced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The emulator's command; layers are seven products wherever that is allowed, also the last one of a model."""
    run = emulator(resolve(PI5))
    needs(run[0])
    needs_zig()
    monkeypatch.setattr(closing, "closing_values", lambda *_: frozenset())
    for gain in ("GAIN", "SHARED_GAIN", "PANELS_GAIN"):
        monkeypatch.setattr(strassen, gain, 100.0)
    return run


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_results_are_within_the_bound(
    name: str, coded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = forced(monkeypatch)
    (model, feeds, exact), cin = layer(name, coded), SHAPES[name][1]
    build = built(model, formats=("exe",), output=tmp_path / "out")
    assert any(FORM in k["schedule"] for k in build.report["kernels"])
    with RemoteModel(tmp_path / "out", " ".join(run)) as remote:
        (found,) = remote(feeds).values()
    error = np.abs(found - exact)
    if coded:  # quarters below 512 all the way: nothing is rounded but what the residual brings
        assert error.max() <= 2.0**-10 * np.abs(exact).max()
        return
    w = onnx.numpy_helper.to_array(model.graph.initializer[0])
    assert 0 < error.max() <= error_bound(cin) * np.abs(feeds["x0"]).max() * np.abs(w).max() * cin
    assert np.sqrt((error**2).mean()) < 5e-3 * np.sqrt((exact**2).mean())


def test_the_results_have_the_same_bits_on_any_number_of_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = forced(monkeypatch)
    model, feeds, _ = layer("three, the last shorter")
    bits = set()
    for threads in (1, 3):
        build = built(model, formats=("exe",), threads=threads, output=tmp_path / str(threads))
        assert any(FORM in k["schedule"] for k in build.report["kernels"])
        with RemoteModel(tmp_path / str(threads), " ".join(run)) as remote:
            bits.add(next(iter(remote(feeds).values())).tobytes())
    assert len(bits) == 1


def pooled(layers: int, mean: bool) -> onnx.ModelProto:
    """1x1 layers of 256 channels in a row, and behind them the mean of each channel, or none."""
    net = Net((1, 256, 14, 14))
    x = "x0"
    for _ in range(layers):
        x = net.conv(x, 256, 256, 1, 1)
    return net.model(net.add("GlobalAveragePool", x) if mean else net.conv(x, 8, 256, 1, 1))


def sevens(model: onnx.ModelProto, **more: Any) -> int:
    return sum(FORM in k["schedule"] for k in built(model, stop_after="schedule", **more).report["kernels"])


def test_taken_where_a_mean_takes_the_errors_away() -> None:
    assert sevens(pooled(8, True)) >= 7
    assert sevens(pooled(8, False)) == 0
    assert sevens(pooled(1, False)) == 1  # whose error is small enough as it is


def test_declined_where_sums_keep_their_order_or_layers_have_an_error() -> None:
    assert sevens(pooled(8, True), winograd=False) == 0
    assert sevens(pooled(8, True), assigned={"layers": {f"n{2 * i}": "float16" for i in range(8)}}) == 0
    assert sevens(stack((32, 64, 64), (14, 14), 1)) == 0  # short sums


def test_the_errors_are_more_than_those_of_any_transform() -> None:
    """So that a model which may have them may have all transforms."""
    assert GROWTH > max(HALF4.growth, HALF_S4.growth)
