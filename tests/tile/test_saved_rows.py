"""Rings that save the rows they keep share their bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from compiled import native
from halotile.benchmarks.graph import ExportForm as Style
from halotile.benchmarks.graph import ModelGraph
from halotile.benchmarks.layers import activation, conv
from halotile.benchmarks.models import MODELS
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Build, Options
from halotile.errors import HalotileError
from halotile.passes.tile import tile
from halotile.passes.tile.plan import windows
from halotile.passes.tile.plan.checker import check_plan
from halotile.passes.tile.plan.form import Form, Untileable
from halotile.passes.tile.plan.lower import lower
from halotile.passes.tile.search.decide import untiled
from halotile.passes.tile.search.model import SearchModel, shapes
from halotile.passes.tile.search.program import Program
from halotile.passes.tile.search.search import Search
from halotile.schedules.tiled import PartSizes, TiledKernel, sized_tiled
from halotile.schedules.tiled import core_sharing as sharing_module
from halotile.schedules.tiled.core_sharing import Sharing
from halotile.schedules.words.group import Scratch
from halotile.schedules.words.tile_plan import Copy, Shift, TilePlan
from interleaved import interleaved
from tile_forms import finished, whole


def chain(layers: int = 5, channels: int = 32, winograd: bool = False) -> Build:
    """3 x 3 layers, each of which reads two rows of the stripe before."""
    g = ModelGraph("chain", Style(opset=17))
    x = g.input("x", (1, channels, 40, 24))
    for _ in range(layers):
        x = activation(g, conv(g, x, channels, 3), "relu")
    return run_pipeline(g.finish(y=x), Options(native(), stop_after="layout", winograd=winograd, threads=2))


def planned(build: Build, rows: int, bands: int = 1, **form: object) -> TilePlan:
    convs = [g for g in build.groups if g.anchor is not None]
    width = convs[-1].outputs[0].shape[3]
    return lower(convs, build.layouts, Form(rows, width, bands, **form), frozenset())  # type: ignore[arg-type]


def copies(plan: TilePlan) -> list[Copy]:
    return [s for t in plan.tasks for stripe in t.stripes for s in stripe if isinstance(s, Copy)]


def test_rings_that_save_rows_share_bytes() -> None:
    build = chain()
    own, saving = planned(build, 10), planned(build, 10, saves=True)
    assert check_plan(own).problems == check_plan(saving).problems == []
    assert saving.task_bytes < 0.7 * own.task_bytes and saving.extra_work == own.extra_work
    kept = [w for v, w in saving.windows.items() if v.name.endswith(".kept")]
    assert len(kept) == 4 and {w.layout.shape[2] for w in kept} == {2}
    assert not any(isinstance(s, Shift) for t in saving.tasks for stripe in t.stripes for s in stripe)
    assert len(copies(saving)) == 2 * 4 * (len(saving.tasks[0].stripes) - 1)  # each goes and returns


def test_rows_are_not_saved_where_that_takes_as_much() -> None:
    """Of stripes of one row most is kept, and of two layers one ring lives at a time anyhow."""
    assert copies(planned(chain(), 1, saves=True)) == []
    assert copies(planned(chain(2), 10, saves=True)) == []


def test_a_lacking_copy_is_found() -> None:
    plan = planned(chain(), 10, saves=True)
    (task,) = plan.tasks
    for back in (False, True):
        stripes = [list(s) for s in task.stripes]
        stripe = stripes[1]
        stripe.remove(next(s for s in stripe if isinstance(s, Copy) and s.source.name.endswith(".kept") == back))
        less = replace(task, stripes=tuple(map(tuple, stripes)))
        assert check_plan(replace(plan, tasks=(less,))).problems


@pytest.mark.parametrize("wide", [1, 64])
def test_cores_share_saved_rows(wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By columns each copies those of its own; by rows the last core does, which makes the rows that are kept."""
    monkeypatch.setattr(sharing_module, "WIDE", wide)
    plan = planned(chain(), 10, saves=True, sharing=2)
    assert plan.sharing == 2 and check_plan(plan).problems == []
    assert plan.task_bytes < 0.7 * planned(chain(), 10, sharing=2).task_bytes
    for step in copies(plan):
        parts = [(core, part.columns) for core, part in Sharing(plan).parts(step) if isinstance(part, Copy)]
        if wide > 1:
            assert parts == [(1, None)]
            continue
        (_, left), (_, right) = parts
        assert left is not None and right is not None
        assert left[0] == step.base[1] and left[1] == right[0] == 12
        assert right[1] == step.base[1] + plan.windows[step.source].layout.shape[3]
    for last_first in (False, True):
        assert check_plan(interleaved(plan, last_first)).problems == []
    own = [s.saves for s in shapes(64, 256, 2, sharing=True, saving=1 << 16) if s.sharing > 1]
    assert True in own and False in own


def test_members_take_no_more_room_than_a_plan_has() -> None:
    """Smaller strips of the transform's tiles, and numbers within its error."""
    scratch = {}
    results = []
    for room in (None, 96 << 10):
        build = chain(channels=128, winograd=True)
        plan = planned(build, 16, saves=True, room=room)
        compiled = finished(build, plan)
        (kernel,) = (k for k in build.kernels if isinstance(k, TiledKernel))
        assert any("winograd" in part.schedule for part in kernel.parts)
        sized = sized_tiled(plan, whole(plan, build, native()), 1, PartSizes())
        for k in (kernel, sized):
            scratch[room] = sum(o.bytes for o in k.operands if isinstance(o, Scratch)) - plan.task_bytes
        x = np.random.default_rng(0).standard_normal(build.graph.inputs[0].shape).astype(np.float32)
        results.append(compiled.run([x])[0])
    assert 0 <= scratch[96 << 10] <= 96 << 10 < scratch[None]
    assert float(np.abs(results[1] - results[0]).max()) <= 2e-4 * float(np.abs(results[0]).max())


@pytest.mark.parametrize(("bands", "sharing"), [(1, 1), (2, 1), (1, 2)])
def test_the_bits_are_those_of_the_whole(bands: int, sharing: int) -> None:
    build = chain()
    plan = planned(build, 8, bands, saves=True, sharing=sharing)
    sized = sized_tiled(plan, whole(plan, build, native()), 2, PartSizes())
    tiled, plain = finished(build, plan), finished(chain())
    (kernel,) = (k for k in build.kernels if isinstance(k, TiledKernel))
    assert {p.schedule for p in kernel.parts} >= {"copy"} and len(plan.tasks) == bands
    for k in (kernel, sized):
        assert sum(o.bytes for o in k.operands if isinstance(o, Scratch)) == bands * plan.task_bytes
    x = np.random.default_rng(0).standard_normal(build.graph.inputs[0].shape).astype(np.float32)
    np.testing.assert_array_equal(tiled.run([x])[0], plain.run([x])[0])


@pytest.mark.parametrize("threads", [1, 2])
def test_half_of_the_arena_costs_resnet50_little(threads: int) -> None:
    """Stripes of the full width on one thread, whose weights come 15 times, where two blocks of columns had 30."""
    model = MODELS["resnet50"].model()
    wide = replace(native(), vector_bits=512, vector_registers=32)
    two_ports = replace(wide, fma_ports=2, fma_latency=4, l2_bytes=2 << 20, l3_bytes=480 << 20)
    off = run_pipeline(model, Options(two_ports, threads=threads, tile="off", stop_after="plan"))
    budget = off.memory.planned_bytes // 2
    build = run_pipeline(model, Options(two_ports, threads=threads, memory_budget=budget, stop_after="plan"))
    assert build.memory.planned_bytes <= budget
    (plan,) = build.tiled.values()
    assert copies(plan) and len(plan.tasks) == 1 and plan.sharing == threads and plan.extra_work < 1.001
    details = build.details["tile"]
    assert details["chosen"]["cycles"] <= 1.06 * details["untiled"]["cycles"]


def test_rows_are_saved_where_tiling_costs_time_alone() -> None:
    build = chain()
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    model = SearchModel(program, native(), 2, tight=True)
    whole, smallest = untiled(program, model), Search(model).curve()[0]
    assert smallest.bytes < whole.bytes and smallest.cycles > whole.cycles
    assert not tile.TilePass(memory_budget=int(whole.bytes))._slower(model)
    assert tile.TilePass(memory_budget=int(smallest.bytes))._slower(model)
    assert tile.TilePass(optimize="memory")._slower(model)


def test_the_smallest_arena_is_named_with_rows_that_are_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the others were thought to do: any budget from there on can be met."""
    model = MODELS["edsr"].model(small=True)
    seen: list[bool] = []
    decide = tile.decide

    def watched(variants: list[SearchModel], *others: object) -> object:
        seen.append(any(v.saving for v in variants))
        return decide(variants, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(tile, "decide", watched)
    said = []
    for slower in (True, False):
        monkeypatch.setattr(tile.TilePass, "_slower", lambda self, model, slower=slower: slower)
        with pytest.raises(HalotileError, match="smallest arena") as error:
            run_pipeline(model, Options(native(), threads=1, memory_budget=1, stop_after="plan"))
        said.append(str(error.value))
    assert said[0] == said[1] and seen == [True, False, True]


def random_chain(seed: int) -> tuple[Build, TilePlan | None]:
    """Layers of several heights, strides and skips, in a random form."""
    rng = np.random.default_rng(seed)
    g = ModelGraph("chain", Style(opset=17))
    x = before = g.input("x", (1, 16, int(rng.integers(30, 60)), 20))
    for _ in range(int(rng.integers(3, 8))):
        kind = int(rng.integers(5))
        if kind == 0:
            x = g.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
        elif kind == 1 and x != before and g.shape(x) == g.shape(before):
            x = g.op("Add", x, before)
        else:
            before, kernel = x, int(rng.choice([1, 3, 3, 5]))
            x = activation(g, conv(g, x, 16, kernel, stride=2 if rng.random() < 0.1 else 1), "relu")
    build = run_pipeline(g.finish(y=x), Options(native(), stop_after="layout", winograd=False, threads=2))
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    last = len(build.groups) - 1
    height, width = build.groups[-1].outputs[0].shape[2:4]
    rows, bands = int(rng.integers(4, max(5, height // 2))), int(rng.integers(1, 4))
    columns = width if rng.random() < 0.7 else int(rng.integers(width // 2, width + 1))
    sharing = 2 if columns == width and rng.random() < 0.5 else 1
    form = Form(rows, columns, bands, quantum=int(rng.choice([1, 1, 2])), saves=True, sharing=sharing)
    if program.joined(0, last) is not None or any(program.refusal(i) is not None for i in range(last + 1)):
        return build, None
    try:
        return build, lower(build.groups, build.layouts, form, program.leaving(0, last))
    except Untileable:
        return build, None


def test_random_chains_that_save_rows_have_the_bits_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a ring can, also where it is not worth it."""
    monkeypatch.setattr(windows, "WORTH", 10.0)
    saved = 0
    for seed in range(18):
        build, plan = random_chain(seed)
        if plan is None or not copies(plan):
            continue
        assert check_plan(plan).problems == []
        monkeypatch.setattr(sharing_module, "WIDE", 1 if seed % 2 else 64)  # by columns, or by rows
        if plan.sharing > 1:
            assert all(check_plan(interleaved(plan, last_first)).problems == [] for last_first in (False, True))
        saved += 1
        if saved % 3 == 0:
            tiled, whole = finished(build, plan), finished(random_chain(seed)[0])
            x = np.random.default_rng(seed).standard_normal(build.graph.inputs[0].shape).astype(np.float32)
            np.testing.assert_array_equal(tiled.run([x])[0], whole.run([x])[0], err_msg=f"seed {seed}")
    assert saved >= 9
