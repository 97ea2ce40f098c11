"""What is cheap and read much later is computed again where memory counts: U-Net's first skip never lies whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from compiled import native
from halotile.benchmarks.models import MODELS
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Build, Options
from halotile.passes.tile.plan.checker import check_plan


@pytest.fixture(scope="module")
def unet() -> onnx.ModelProto:
    return MODELS["unet"].model(small=True, size=96, base=16)


def planned(model: onnx.ModelProto, **options: object) -> Build:
    return run_pipeline(model, Options(native(), stop_after="plan", threads=1, **options))  # type: ignore[arg-type]


def test_the_first_skip_is_made_twice_and_lies_nowhere(unet: onnx.ModelProto) -> None:
    off = planned(unet, tile="off")
    largest = max(b.bytes for b in off.memory.buffers if b.name != "scratch")
    build = planned(unet, optimize="memory")
    assert build.report["arena_bytes"] < 0.5 * off.report["arena_bytes"]
    copies = [m for p in build.tiled.values() for m in p.members if m.name.endswith("_again")]
    assert copies
    assert max((b.bytes for b in build.memory.buffers if b.name != "scratch"), default=0) < largest
    names = [v.name for p in build.tiled.values() for v in p.windows]
    skips = [m.outputs[0] for m in copies if m.outputs[0].shape[1:] == (16, 96, 96)]
    skip = skips[-1]  # both the value and its copy are windows
    assert skip.name in names and skip.name.removesuffix("_again") in names
    for plan in build.tiled.values():
        assert check_plan(plan).problems == []


def test_the_default_computes_nothing_again(unet: onnx.ModelProto) -> None:
    assert not any("_again" in m.name for p in planned(unet).tiled.values() for m in p.members)


def test_the_numbers_are_those_of_the_whole(unet: onnx.ModelProto, tmp_path: Path) -> None:
    feeds = MODELS["unet"].inputs(unet, 5)
    results = []
    size = planned(unet, tile="off", exact=True).report["arena_bytes"]
    for name, options in (("whole", {"tile": "off"}), ("tiled", {"memory_budget": int(0.45 * size)})):
        build = run_pipeline(unet, Options(native(), threads=1, exact=True, **options), output=tmp_path / name)
        results.append(load(tmp_path / name)(feeds))
    assert any(m.name.endswith("_again") for p in build.tiled.values() for m in p.members)
    for key, value in results[0].items():
        assert np.array_equal(value, results[1][key])


def test_no_more_is_made_twice_than_the_budget_asks_for(unet: onnx.ModelProto) -> None:
    """Two skips are large and cheap; at half the arena the larger one alone comes again."""
    build = planned(unet, memory_budget=int(0.5 * planned(unet, tile="off").report["arena_bytes"]))
    copies = {v.shape[2:] for p in build.tiled.values() for m in p.members for v in m.outputs if "_again" in v.name}
    assert copies == {(96, 96)}
