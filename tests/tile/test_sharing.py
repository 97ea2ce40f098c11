"""Cores share each step of a tile group, where bands would compute halos twice and double the windows."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Compiled, native
from halotile.benchmarks.graph import ExportForm as Style
from halotile.benchmarks.graph import ModelGraph
from halotile.benchmarks.layers import activation, conv
from halotile.benchmarks.models import MODELS
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Build, Options
from halotile.passes.tile.plan.checker import check_plan
from halotile.passes.tile.plan.form import RING, Form
from halotile.passes.tile.plan.lower import lower
from halotile.passes.tile.search.decide import plan_segment
from halotile.passes.tile.search.model import SearchModel, Segment, Shape, shapes
from halotile.passes.tile.search.program import Program
from halotile.passes.tile.search.segments import segments_of
from halotile.schedules.tiled import core_sharing as sharing_module
from halotile.schedules.tiled.core_sharing import Sharing, column_cuts
from halotile.schedules.words.tile_plan import Compute, TilePlan
from interleaved import interleaved, phases
from tile_forms import taken


def edsr(budget: int | None = None, **options: str) -> Build:
    model = MODELS["edsr"].model(small=True, height=96, width=192, features=64, blocks=2)
    return run_pipeline(model, Options(target=native(), threads=2, memory_budget=budget, **options))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model() -> SearchModel:
    build = edsr(stop_after="layout")
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    return SearchModel(program, native(), 2, tight=True)


def chain(model: SearchModel, shape: Shape) -> tuple[TilePlan, Segment]:
    groups = model.program.groups
    able = [i for i in range(len(groups)) if model.program.refusal(i) is None and groups[i].anchor is not None]
    (segment,) = segments_of(model, able[0], able[-1], [shape])
    assert segment is not None
    return plan_segment(model, segment), segment


def test_a_shared_chain_repeats_no_work_and_has_its_windows_once(model: SearchModel) -> None:
    width = next(g for g in reversed(model.program.groups) if g.anchor is not None).outputs[0].shape[3]
    (ours, found), (bands, other) = (
        chain(model, Shape(8, width, b, RING, sharing=s)) for b, s in ((1, 2), (2, 1))
    )
    assert ours.sharing == 2 and len(ours.tasks) == 1 and ours.extra_work == 1.0
    assert bands.extra_work > 1.05
    assert ours.task_bytes < 1.1 * bands.task_bytes
    assert found.scratch < 0.7 * other.scratch and found.cycles < other.cycles


def test_cores_take_all_columns_once_and_the_same_in_each_step(model: SearchModel) -> None:
    width = next(g for g in reversed(model.program.groups) if g.anchor is not None).outputs[0].shape[3]
    plan, _ = chain(model, Shape(8, width, 1, RING, sharing=2))
    sharing = Sharing(plan)
    cuts = column_cuts(plan)
    for stripe in plan.tasks[0].stripes:
        for step in stripe:
            parts = sharing.parts(step)
            spans = [part.columns for _, part in parts]
            assert all(a is not None and b is not None and a[1] == b[0] for a, b in zip(spans, spans[1:]))
            if isinstance(step, Compute):
                assert [core for core, _ in parts] == [0, 1]
                assert spans[0] is not None and spans[-1] is not None
                assert (spans[0][0], spans[-1][1]) == step.columns
            value = step.member if isinstance(step, Compute) else sharing.producer[sharing._value(step)]
            for core, part in parts:
                assert core == 0 or part.columns is None or part.columns[0] >= cuts[value][0]


@pytest.mark.parametrize("wide", [1, 1 << 20])
def test_cores_may_be_ahead_of_each_other(model: SearchModel, wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one wait to the next, by columns and by rows."""
    monkeypatch.setattr(sharing_module, "WIDE", wide)
    width = next(g for g in reversed(model.program.groups) if g.anchor is not None).outputs[0].shape[3]
    plan, _ = chain(model, Shape(8, width, 1, RING, sharing=2))
    rows = {part.rows for s in plan.tasks[0].stripes[3] if isinstance(s, Compute) for _, part in Sharing(plan).parts(s)}
    assert len(rows) > 1 if wide > 1 else True
    for last_first in (False, True):
        assert check_plan(interleaved(plan, last_first)).problems == []


def test_a_wait_too_few_is_found(monkeypatch: pytest.MonkeyPatch, model: SearchModel) -> None:
    monkeypatch.setattr(sharing_module._Phase, "forbids", lambda *_: False)
    width = next(g for g in reversed(model.program.groups) if g.anchor is not None).outputs[0].shape[3]
    plan, _ = chain(model, Shape(8, width, 1, RING, sharing=2))
    assert phases(plan)[2] == 1
    assert all(check_plan(interleaved(plan, last_first)).problems for last_first in (False, True))


def bottlenecks() -> Build:
    g = ModelGraph("bottlenecks", Style(opset=17))
    x = g.input("x", (1, 64, 32, 28))
    for _ in range(3):
        y = activation(g, conv(g, x, 32, 1), "relu")
        y = activation(g, conv(g, y, 32, 3), "relu")
        x = activation(g, g.op("Add", conv(g, y, 64, 1), x), "relu")
    return run_pipeline(g.finish(y=x), Options(native(), stop_after="layout", winograd=False, threads=2))


def test_cores_do_not_wait_before_layers_that_read_their_own_part() -> None:
    """A bottleneck's 1x1 layer behind its 3x3 one needs what the same core has made."""
    build = bottlenecks()
    convs = [group for group in build.groups if group.anchor is not None]
    form = Form(8, 28, saves=True, sharing=2)
    plan = lower(convs, build.layouts, form, frozenset())
    steady = phases(plan)[1]
    assert len(convs) == 9 and steady <= 6
    for last_first in (False, True):
        assert check_plan(interleaved(plan, last_first)).problems == []


@pytest.mark.parametrize("cores", [2, 3, 4])
def test_cores_share_columns_of_steps_with_too_few_rows(cores: int) -> None:
    """Before the first stripe's last member there may be a row for one core only; not where outputs lie over inputs."""
    build = bottlenecks()
    convs = [group for group in build.groups if group.anchor is not None]
    plan = lower(convs, build.layouts, Form(8, 28, saves=True, sharing=cores), frozenset())
    form = Form(8, 28, saves=True, sharing=cores, over=taken(build, convs, cores))
    over = lower(convs, build.layouts, form, frozenset())
    few, kept = 0, 0
    for each in (plan, over):
        sharing = Sharing(each)
        for step in (s for stripe in each.tasks[0].stripes for s in stripe if isinstance(s, Compute)):
            rows = step.rows[1] - step.rows[0]
            parts = [part for _, part in sharing.parts(step) if isinstance(part, Compute)]
            if each.members[step.member].outputs[0] in each.inplace:
                kept += rows < cores
                assert all(part.columns == step.columns for part in parts)
            elif rows < cores <= 28 // 8:
                few += 1
                assert len(parts) == cores and all(part.rows == step.rows for part in parts)
                assert (parts[0].columns[0], parts[-1].columns[1]) == step.columns
        for last_first in (False, True):
            assert check_plan(interleaved(each, last_first)).problems == []
    assert kept and (few or cores > 28 // 8)


def test_a_budget_has_cores_share_and_the_result_is_that_of_the_whole() -> None:
    whole = edsr(tile="off")
    budget = whole.report["arena_bytes"] // 3
    tiled = edsr(budget)
    assert any(plan.sharing == 2 for plan in tiled.tiled.values())
    assert "2 cores share each step" in " ".join(k.schedule for k in tiled.kernels)
    assert tiled.report["arena_bytes"] == tiled.details["tile"]["arena"] <= budget
    inputs = [np.random.default_rng(1).standard_normal(v.shape).astype(v.dtype) for v in whole.graph.inputs]
    compiled = Compiled(tiled)
    (wanted,), (got,) = Compiled(whole).run(inputs), compiled.run(inputs)
    assert float(np.abs(got - wanted).max()) <= 2e-4 * float(np.abs(wanted).max())
    np.testing.assert_array_equal(compiled.run(inputs, poison=0)[0], got)


def test_shapes_share_only_where_memory_counts() -> None:
    assert not any(s.sharing > 1 for s in shapes(64, 256, 2))
    assert {s.columns for s in shapes(64, 256, 2, sharing=True) if s.sharing > 1} == {256}
    assert not any(s.sharing > 1 for s in shapes(64, 24, 2, sharing=True))  # too narrow
    assert not any(s.sharing > 1 for s in shapes(64, 256, 1, sharing=True))
