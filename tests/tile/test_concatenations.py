"""Concatenations that vanished into memory come back as members of tile groups, and the numbers stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from compiled import native
from halotile.benchmarks.graph import ModelGraph
from halotile.benchmarks.layers import activation, conv
from halotile.benchmarks.models import MODELS
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Options
from halotile.passes.tile.plan import lower
from halotile.passes.tile.plan.checker import check_plan
from halotile.passes.tile.plan.concat_parts import Parts, joins_blocks
from halotile.schedules.general.concat_order import NOTE
from halotile.schedules.tiled import build_tiled
from local_models import local_model
from tile_forms import whole


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
        parts = build_tiled(plan, whole(plan, build, native())).parts
        assert any(NOTE in part.notes for part in parts)
    for plan in build.tiled.values():
        if plan not in plans:
            assert not any(NOTE in part.notes for part in build_tiled(plan, whole(plan, build, native())).parts)


def test_the_numbers_are_those_of_the_whole(unet: onnx.ModelProto, tmp_path: Path) -> None:
    feeds = MODELS["unet"].inputs(unet, 5)
    results = []
    for name, options in (("whole", {"tile": "off"}), ("tiled", {"optimize": "memory"})):
        run_pipeline(unet, Options(target=native(), threads=2, exact=True, **options), output=tmp_path / name)
        results.append(load(tmp_path / name)(feeds))
    for key, value in results[0].items():
        assert np.array_equal(value, results[1][key])


def kept_half(g: ModelGraph, x: str) -> str:
    """YOLO's cross-stage block: one half goes on, and all is joined again."""
    y = activation(g, conv(g, x, 64, 1), "silu")
    parts = [*g.ops("Split", y, g.const([32, 32], "int64"), outputs=2, axis=1)]
    for _ in range(2):
        parts.append(g.op("Add", activation(g, conv(g, parts[-1], 32, 3), "silu"), parts[-1]))
    return conv(g, g.op("Concat", *parts, axis=1), 32, 1)


def halves(g: ModelGraph, x: str) -> str:
    """Cut, and joined by a sum: there is no concatenation."""
    y = activation(g, conv(g, x, 64, 3), "relu")
    a, b = g.ops("Split", y, g.const([32, 32], "int64"), outputs=2, axis=1)
    return conv(g, g.op("Add", conv(g, a, 32, 3), conv(g, b, 32, 5)), 16, 3)


def first_channels(g: ModelGraph, x: str) -> str:
    """Cut twice at other places, which overlap."""
    y = activation(g, conv(g, x, 80, 3), "relu")
    first = g.op("Slice", y, *(g.const([v], "int64") for v in (0, 48, 1)))
    last = g.op("Slice", y, *(g.const([v], "int64") for v in (32, 80, 1)))
    return conv(g, g.op("Concat", conv(g, first, 32, 3), conv(g, last, 16, 3), axis=1), 16, 3)


@pytest.mark.sampled
@pytest.mark.parametrize("layers", [kept_half, halves, first_channels])
@pytest.mark.parametrize("size", [(48, 40), (37, 23)])
def test_cuts_come_back_too(layers: Callable[[ModelGraph, str], str], size: tuple[int, int], tmp_path: Path) -> None:
    g = ModelGraph("cuts")
    model = g.finish(y=layers(g, conv(g, g.input("x", (1, 3, *size)), 32, 3)))
    off = run_pipeline(model, Options(target=native(), stop_after="plan", tile="off"))
    cuts = {"relax.split", "relax.strided_slice"}
    assert any(cuts & set(g.operators) for g in off.vanished.values())
    tiled = run_pipeline(model, Options(target=native(), stop_after="plan", optimize="memory"))
    inside = [m for p in tiled.tiled.values() for m in p.members if m.operators[0] in cuts]
    assert inside and not any(v in tiled.places.slices for m in inside for v in m.outputs)
    assert tiled.report["arena_bytes"] < 0.5 * off.report["arena_bytes"]
    assert all(check_plan(p).problems == [] for p in tiled.tiled.values())
    x, results = np.random.default_rng(0).standard_normal((1, 3, *size)).astype(np.float32), []
    for name, options in (("whole", {"tile": "off"}), ("tiled", {"optimize": "memory"})):
        run_pipeline(model, Options(target=native(), threads=2, exact=True, **options), output=tmp_path / name)
        results.append(load(tmp_path / name)({"x": x})["y"])
    assert np.array_equal(*results)


def test_a_concatenation_that_lies_plain_is_no_part_of_blocks() -> None:
    """Of a few channels, it has no layout of its own where its parts have one."""
    model = local_model(103, whole_numbers=True, sides=(64, 72))
    build = run_pipeline(model, Options(target=native(), stop_after="plan", shapes={"x": (1, 2, 64, 72)}))
    joined = [g for g in build.groups if "relax.concat" in g.operators]
    assert joined and not any(joins_blocks(g, build.layouts) for g in joined)
