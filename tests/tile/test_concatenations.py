"""Concatenations that vanished into memory come back as members of tile groups, and the numbers stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from compiled import native
from halotile.benchmarks.models import MODELS
from halotile.compiler.pipeline import Options, run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.passes.tile import lower
from halotile.passes.tile.checker import check_plan
from halotile.passes.tile.parts import Parts
from halotile.schedules.joined import NOTE
from halotile.schedules.tiled import build_tiled


@pytest.fixture(scope="module")
def unet() -> onnx.ModelProto:
    return MODELS["unet"].model(small=True, size=64, base=16)


def test_the_memory_plan_reads_concatenations_from_windows(unet: onnx.ModelProto) -> None:
    off = run_pipeline(unet, Options(target=native(), stop_after="plan", tile="off"))
    assert off.vanished and not any("relax.concat" in g.operators for g in off.groups)
    build = run_pipeline(unet, Options(target=native(), stop_after="plan", optimize="memory"))
    inside = [m for p in build.tiled.values() for m in p.members if m.operators == ("relax.concat",)]
    assert inside
    for group in inside:
        assert group.outputs[0] not in build.places.slices
        assert not any(p in build.places.slices for p in group.inputs)
    assert build.report["arena_bytes"] < 0.85 * off.report["arena_bytes"]
    for plan in build.tiled.values():
        assert check_plan(plan).problems == []


def test_boxes_copy_all_blocks_of_a_place(unet: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where parts can't be computed in the concatenation's window."""
    monkeypatch.setattr(lower, "parts_of", lambda groups, *_: Parts(tuple(groups)))
    build = run_pipeline(unet, Options(target=native(), stop_after="plan", optimize="memory"))
    plans = [p for p in build.tiled.values() if any(m.operators == ("relax.concat",) for m in p.members)]
    assert plans
    for plan in plans:
        parts = build_tiled(plan, build.layouts, native()).parts
        assert any(NOTE in part.notes for part in parts)
    for plan in build.tiled.values():
        if plan not in plans:
            assert not any(NOTE in part.notes for part in build_tiled(plan, build.layouts, native()).parts)


def test_the_numbers_are_those_of_the_whole(unet: onnx.ModelProto, tmp_path: Path) -> None:
    feeds = MODELS["unet"].inputs(unet, 5)
    results = []
    for name, options in (("whole", {"tile": "off"}), ("tiled", {"optimize": "memory"})):
        run_pipeline(unet, Options(target=native(), threads=2, exact=True, **options), output=tmp_path / name)
        results.append(load(tmp_path / name)(feeds))
    for key, value in results[0].items():
        assert np.array_equal(value, results[1][key])
