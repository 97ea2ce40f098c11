"""Residual layers of tile groups write over what they add."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from compiled import native
from halotile.benchmarks.graph import ExportForm as Style
from halotile.benchmarks.graph import ModelGraph
from halotile.benchmarks.layers import activation, conv, max_pool
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Build, Options
from halotile.passes.tile.plan.checker import check_plan
from halotile.passes.tile.plan.form import RING, Form
from halotile.passes.tile.plan.lower import lower
from halotile.passes.tile.search.model import SearchModel, Shape
from halotile.passes.tile.search.program import Program
from halotile.passes.tile.search.segments import segments_of
from halotile.schedules.tiled import core_sharing as sharing_module
from halotile.schedules.words.group import Value
from halotile.schedules.words.tile_plan import TilePlan
from interleaved import interleaved
from tile_forms import finished, given, untiled

# Values that are taken over where two cores share 28 columns: a register tile of 16 lanes has 14, of fewer lanes other
# divisors.
BY_FOURTEEN = 3 if native().lanes("float32") == 16 else 0


def bottlenecks(count: int = 3, width: int = 28, kernel: int = 3, seed: int | None = None) -> Build:
    """x + 1x1(3x3(1x1(x))), several times; with a ``seed``, of random kernels, a layer more or fewer in each."""
    rng = np.random.default_rng(seed)
    g = ModelGraph("chain", Style(opset=17))
    x = activation(g, conv(g, g.input("x", (1, 16, 40, width)), 64, 1), "relu")
    for _ in range(count):
        y = activation(g, conv(g, x, 16, 1), "relu")
        for _ in range(1 if seed is None else int(rng.integers(3))):
            y = activation(g, conv(g, y, 16, kernel if seed is None else int(rng.choice([1, 3, 5]))), "relu")
        x = activation(g, g.op("Add", conv(g, y, 64, 1), x), "relu")
    x = conv(g, activation(g, conv(g, x, 16, 1), "relu"), 16, 3)
    return run_pipeline(g.finish(y=x), Options(native(), stop_after="layout", winograd=False, threads=2))


def blocks(count: int = 3, width: int = 28, winograd: bool = False) -> Build:
    """x + 3x3(3x3(x)), several times, and the first x once more: windows have places outside of the image."""
    g = ModelGraph("chain", Style(opset=17))
    x = first = conv(g, g.input("x", (1, 3, 40, width)), 32, 3)
    for _ in range(count):
        x = g.op("Add", conv(g, activation(g, conv(g, x, 32, 3), "relu"), 32, 3), x)
    x = conv(g, g.op("Add", conv(g, x, 32, 3), first), 16, 3)
    return run_pipeline(g.finish(y=x), Options(native(), stop_after="layout", winograd=winograd, threads=2))


def model_of(build: Build) -> SearchModel:
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    return SearchModel(program, native(), 2, build.options.policy, tight=True, saving=True)


def planned(build: Build, rows: int, bands: int = 1, sharing: int = 1, inplace: bool = True) -> TilePlan:
    model, groups = model_of(build), build.groups
    first = next(i for i, g in enumerate(groups) if g.anchor is not None)
    last = max(i for i, g in enumerate(groups) if g.anchor is not None)
    over: dict[Value, Value] = {}
    width = groups[last].outputs[0].shape[3]
    for i in range(first, last + 1):
        taken = model.taken(i, width, sharing)
        if taken is not None and inplace:
            over[groups[i].outputs[0]] = taken
    form = Form(rows, width, bands, saves=True, sharing=sharing, over=over)
    return lower(groups[first : last + 1], build.layouts, form, model.program.leaving(first, last))


def test_sums_take_the_window_of_what_they_add() -> None:
    build = bottlenecks()
    apart, plan = planned(build, 8, inplace=False), planned(build, 8)
    assert len(plan.inplace) == 3 and not apart.inplace
    for output, read in plan.inplace.items():
        one, other = plan.windows[output], plan.windows[read]
        assert one.offset == other.offset and one.layout == other.layout
    assert check_plan(plan).problems == check_plan(apart).problems == []
    assert plan.task_bytes < 0.85 * apart.task_bytes and plan.extra_work == apart.extra_work


@pytest.mark.parametrize(("make", "less"), [(bottlenecks, 0.9), (blocks, 0.97)])
def test_the_estimate_counts_one_window(make: Callable[[], Build], less: float) -> None:
    build = make()
    found = []
    for inplace in (False, True):
        model = model_of(build)
        if not inplace:
            model.over = {(g, None): () for g in build.groups}
        able = [i for i, g in enumerate(build.groups) if g.anchor is not None]
        for sharing in (1, 2):
            (segment,) = segments_of(model, able[0], able[-1], [Shape(8, 28, 1, RING, sharing=sharing, saves=True)])
            assert segment is not None
            found.append((segment.scratch, planned(build, 8, sharing=sharing, inplace=inplace).task_bytes))
    assert found[2][0] < less * found[0][0] and found[3][0] < less * found[1][0]
    assert all(0.85 <= scratch / real <= 1.25 for scratch, real in found)


def test_the_checker_knows_what_is_overwritten() -> None:
    """It finds windows that are one by mistake, and what is read after it was overwritten."""
    plan = planned(bottlenecks(), 8)
    assert any("writes over" in p for p in check_plan(replace(plan, inplace={})).problems)
    output, read = next(iter(plan.inplace.items()))
    window = plan.windows[output]
    step = window.layout.strides[2] * 4
    moved = {**plan.windows, output: replace(window, offset=window.offset + step)}
    assert check_plan(replace(plan, windows=moved, task_bytes=plan.task_bytes + step)).problems


def test_only_where_nobody_reads_it_afterwards() -> None:
    """Nor where a 3 x 3 layer needs a row in the next stripe that the sum, a 1 x 1 layer's, would be written over."""
    g = ModelGraph("chain", Style(opset=17))
    x = activation(g, conv(g, g.input("x", (1, 16, 40, 28)), 64, 1), "relu")
    y = activation(g, g.op("Add", conv(g, conv(g, x, 16, 3), 64, 1), x), "relu")
    z = activation(g, g.op("Add", conv(g, conv(g, y, 16, 1), 64, 1), x), "relu")
    z = conv(g, g.op("Add", conv(g, conv(g, z, 16, 3), 64, 1), z), 16, 3)
    build = run_pipeline(g.finish(y=z), Options(native(), stop_after="layout", winograd=False, threads=2))
    plan = planned(build, 8)
    assert check_plan(plan).problems == [] and not plan.inplace


def few(width: int) -> Build:
    """x + 1x1(3x3(1x1(x))) in few channels, whose sum is written plain, as the input is, before another layer."""
    g = ModelGraph("chain", Style(opset=17))
    x = g.input("x", (2, 4, 40, width))
    y = activation(g, conv(g, activation(g, conv(g, x, 8, 1), "relu"), 8, 3, groups=8), "relu")
    x = activation(g, conv(g, max_pool(g, g.op("Add", conv(g, y, 4, 1), x), 2, 2), 16, 3), "relu")
    return run_pipeline(g.finish(y=x), Options(native(), stop_after="layout", winograd=False, threads=2))


def test_plain_sums_of_few_channels_take_no_window() -> None:
    build = few(28)
    plan = planned(build, 4)
    assert any(m.outputs[0].shape[1] == 4 and "relax.add" in m.operators for m in plan.members) and not plan.inplace
    np.testing.assert_array_equal(finished(build, plan).run([given(build)])[0], untiled(few, 28))


@pytest.mark.parametrize(
    ("bands", "sharing", "wide", "width", "taken"),
    [
        (1, 1, 64, 28, 3),
        (2, 1, 64, 28, 3),
        (1, 2, 64, 28, 3),
        (1, 2, 1, 28, BY_FOURTEEN),
        (1, 2, 1, 76, 3),  # 36 and 40 columns
        (1, 2, 1, 66, 0),  # 32 and 34: tiles of two columns or one are too slow
        (1, 3, 1, 60, 3),
    ],
)
def test_the_bits_are_those_of_the_whole(
    bands: int, sharing: int, wide: int, width: int, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one core, in bands, and where cores share steps, by rows or by columns, of which they need not have as many:
    register tiles divide them all."""
    monkeypatch.setattr(sharing_module, "WIDE", wide)
    build = bottlenecks(width=width)
    plan = planned(build, 8, bands, sharing)
    assert len(plan.inplace) == taken
    if sharing > 1:
        assert all(check_plan(interleaved(plan, last_first)).problems == [] for last_first in (False, True))
    np.testing.assert_array_equal(finished(build, plan).run([given(build)])[0], untiled(bottlenecks, width=width))


@pytest.mark.sampled
@pytest.mark.parametrize("winograd", [False, True])
@pytest.mark.parametrize(
    ("rows", "bands", "sharing", "wide", "width", "taken"),
    [
        (8, 1, 1, 64, 28, 3),
        (7, 2, 1, 64, 28, 3),
        (12, 1, 2, 64, 28, 3),
        (3, 1, 1, 64, 28, 2),
        (12, 1, 2, 1, 28, BY_FOURTEEN),
        (12, 1, 2, 1, 204, 3),  # 96 and 108 columns
    ],
)
def test_windows_with_places_outside_are_taken(
    winograd: bool,
    rows: int,
    bands: int,
    sharing: int,
    wide: int,
    width: int,
    taken: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both values have zeros there, at the very same places. Cores share rows or columns."""
    monkeypatch.setattr(sharing_module, "WIDE", wide)
    build = blocks(width=width, winograd=winograd)
    plan = planned(build, rows, bands, sharing)
    assert len(plan.inplace) == (taken or 3 * winograd)  # whose tiles are as wide on every machine
    for output, read in plan.inplace.items():
        layout = plan.windows[output].layout
        assert layout.shape[3] == width + 2 and plan.windows[read].layout == layout
    assert check_plan(plan).problems == []
    if sharing > 1:
        assert all(check_plan(interleaved(plan, last_first)).problems == [] for last_first in (False, True))
    (got,), wanted = finished(build, plan).run([given(build)]), untiled(blocks, width=width, winograd=winograd)
    if winograd:
        np.testing.assert_allclose(got, wanted, atol=1e-4 * np.abs(wanted).max())
    else:
        np.testing.assert_array_equal(got, wanted)


def test_random_bottlenecks_have_the_bits_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, by_columns = 0, 0
    for seed in range(24):
        monkeypatch.setattr(sharing_module, "WIDE", 1 if seed % 4 == 3 else 64)
        rng = np.random.default_rng(seed + 100)
        count, width = int(rng.integers(2, 5)), int(rng.choice([14, 22, 28, 30]))
        build = bottlenecks(count, width, seed=seed)
        sharing = 1 + seed % 2
        plan = planned(build, int(rng.integers(3, 16)), 1 if sharing > 1 else int(rng.integers(1, 4)), sharing)
        assert check_plan(plan).problems == []
        if sharing > 1:
            assert all(check_plan(interleaved(plan, last_first)).problems == [] for last_first in (False, True))
        taken += len(plan.inplace)
        by_columns += len(plan.inplace) if seed % 4 == 3 else 0
        if plan.inplace and seed % 3 == 0:
            tiled, whole = finished(build, plan), finished(bottlenecks(count, width, seed=seed))
            x = np.random.default_rng(seed).standard_normal(build.graph.inputs[0].shape).astype(np.float32)
            np.testing.assert_array_equal(tiled.run([x])[0], whole.run([x])[0], err_msg=f"seed {seed}")
    assert taken >= 24 and by_columns >= (6 if BY_FOURTEEN else 3)
