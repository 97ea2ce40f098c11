"""Kernels keep within their operands: no lane past the last channel reads past a tensor's end, where nothing may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from accesses import outside
from compiled import Compiled, module_of, narrow, native, staged, weight
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Build, Options
from halotile.schedules.kernel.context import Context
from halotile.schedules.words.group import Packed
from halotile.targets.resolve import resolve
from onnx.backend.test.case.node import collect_testcases
from tvm import relax

R = relax.op
F = "float32"
RANDOM = np.random.default_rng(11)
LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def maps(channels: int, rank: int) -> tuple[np.ndarray, Any, np.ndarray]:
    """A depthwise layer and a map of constants, one for each element: an input, the network, and its result."""
    x = RANDOM.standard_normal((2, channels, 11, 13)).astype(F)
    taps = RANDOM.standard_normal((channels, 1, 3, 3)).astype(F)
    own = RANDOM.standard_normal((channels, 11, 13)).astype(F).reshape((1,) * (rank - 3) + (channels, 11, 13))

    def network(value: Any) -> Any:
        layer = R.nn.conv2d(value, weight(taps), padding=(1, 1), groups=channels)
        return R.add(layer, weight(own))

    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    layer = sum(wide[:, :, i : i + 11, j : j + 13] * taps[:, 0, i, j, None, None] for i in range(3) for j in range(3))
    return x, network, layer + own


def constants(build: Build, elements: int) -> list[Packed]:
    return [o for k in build.kernels for o in k.operands if isinstance(o, Packed) and o.elements == elements]


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("channels", [39, 21, 32, 5, 3])
def test_maps_of_constants(channels: int, rank: int, bits: int) -> None:
    """They were read up to the whole of their last block: 9 planes past the end of 39, in a page that need not be."""
    x, network, expected = maps(channels, rank)
    compiled = Compiled(staged(module_of([x], network), narrow(bits) if bits < native().vector_bits else native()))
    assert [words for k in compiled.build.kernels for words in outside(k)] == []
    np.testing.assert_allclose(compiled.run([x])[0], expected, rtol=1e-5, atol=1e-5)


def test_maps_lie_in_the_kernels_blocks() -> None:
    """One load a vector; where lanes past the end would more than double the constant, it stays as it is."""
    lanes = native().vector_bits // 32
    for channels, is_laid_out in ((3 * lanes - 1, True), (lanes + 1, True), (max(1, lanes // 2 - 1), False)):
        x, network, _ = maps(channels, 4)
        build = staged(module_of([x], network), native())
        found = constants(build, -(-channels // lanes) * lanes * 11 * 13)
        assert len(found) == is_laid_out, channels
        for packed in found:
            flat = packed.data.reshape(-(-channels // lanes), 11, 13, lanes).transpose(0, 3, 1, 2)
            own = network_constant(build)
            np.testing.assert_array_equal(flat.reshape(-1, 11, 13)[:channels], own)
            assert not flat.reshape(-1, 11, 13)[channels:].any()


def network_constant(build: Build) -> np.ndarray:
    """The map, as it is in the graph."""
    found = [v.constant for g in build.groups for v in g.inputs if v.constant is not None and v.shape[-2:] == (11, 13)]
    return np.asarray(found[0]).reshape(-1, 11, 13)


def test_the_oracle_sees_what_was_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HALOTILE_ACCESSES", raising=False)  # that would see it first
    monkeypatch.setattr(Context, "_in_blocks", lambda *_: None)
    monkeypatch.setattr(Context, "_past", lambda *_: 0)
    x, network, _ = maps(39, 4)
    wrong = [words for k in staged(module_of([x], network), native()).kernels for words in outside(k)]
    assert wrong and all("reads 0 to" in words for words in wrong)


@pytest.mark.parametrize(
    ("model", "target", "optimize"),
    [
        ("squeezenet", "native", "memory"),
        ("squeezenet", "x86-64-v3", "speed"),
        ("squeezenet", "raspberry-pi-4", "memory"),
        ("shufflenet", "native", "speed"),
    ],
)
def test_networks(model: str, target: str, optimize: str) -> None:
    options = Options(resolve(target), threads=2, stop_after="schedule", optimize=optimize)
    kernels = run_pipeline(onnx.load(LIGHT / f"light_{model}.onnx"), options).kernels
    assert kernels and [f"{k.schedule} {words}" for k in kernels for words in outside(k)] == []


def test_operators() -> None:
    """Every 16th of ONNX's own cases; those of operators that aren't supported are refused elsewhere."""
    seen = 0
    for case in collect_testcases(None)[::16]:
        try:
            build = run_pipeline(case.model, Options(native(), threads=3, stop_after="schedule"))
        except Exception:
            continue
        seen += len(build.kernels)
        assert [f"{case.name}: {k.schedule} {words}" for k in build.kernels for words in outside(k)] == []
    assert seen > 50
