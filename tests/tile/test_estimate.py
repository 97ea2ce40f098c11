"""What the search believes of a tile group's bytes is what its exact plan takes: deep groups, small stripes, bands."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled import module_of, native, staged, weight
from halotile.benchmarks.models import MODELS
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.passes.tile.plan.checker import check_plan
from halotile.passes.tile.plan.form import RECOMPUTE, RING
from halotile.passes.tile.search.bandwidth import Rates
from halotile.passes.tile.search.decide import plan_segment
from halotile.passes.tile.search.model import SearchModel, Shape, shapes
from halotile.passes.tile.search.program import Program
from halotile.passes.tile.search.segments import segments_of
from halotile.schedules.words.group import Scratch
from halotile.schedules.words.tile_plan import Compute
from halotile.targets.resolve import resolve
from tvm import relax


@pytest.fixture(scope="module")
def edsr() -> SearchModel:
    """Some twenty convolutions, 3 x 3, whose rings take in six rows at a time (Winograd's tiles)."""
    build = run_pipeline(
        MODELS["edsr"].model(small=True, height=160, width=256), Options(target=native(), stop_after="layout")
    )
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    return SearchModel(program, native(), 2)


FORMS = [(6, 1, True), (6, 2, True), (12, 2, True), (8, 2, True), (3, 2, False), (8, 1, False)]
SAVING = [(24, 1, True), (36, 2, False), (16, 1, False)]


@pytest.mark.parametrize(
    ("rows", "bands", "units", "saves"), [*((*f, False) for f in FORMS), *((*f, True) for f in SAVING)]
)
def test_the_bytes_of_deep_groups_are_known_before_they_are_planned(
    edsr: SearchModel, rows: int, bands: int, units: bool, saves: bool
) -> None:
    """Each ring lags a whole unit behind the one before, and a band that begins inside the image fills at its pace: a
    row that appeared before anybody wants it once made every ring hold all that its readers' first stripe needs."""
    groups = edsr.program.groups
    first = next(i for i in range(len(groups)) if edsr.program.refusal(i) is None and groups[i].anchor is not None)
    last = max(i for i, g in enumerate(groups) if g.anchor is not None)
    shape = Shape(rows, groups[last].outputs[0].shape[3], bands, RING, units=units, saves=saves)
    (segment,) = segments_of(edsr, first, last, [shape])
    assert segment is not None
    plan = plan_segment(edsr, segment)
    assert check_plan(plan).problems == []
    assert len(plan.tasks) == bands and saves == any(v.name.endswith(".kept") for v in plan.windows)
    kernels = max(edsr.cost(i).scratch for i in range(first, last + 1))  # their own, beside the windows
    assert 0.98 * bands * plan.task_bytes <= segment.scratch <= 1.06 * bands * (plan.task_bytes + kernels)
    sizes = {
        step.rows[1] - step.rows[0]
        for task in plan.tasks
        for stripe in task.stripes
        for step in stripe
        if isinstance(step, Compute) and step.member != last - first
    }
    assert max(sizes) <= 3 * rows + 8


def test_many_shapes_at_once_are_each_as_alone(edsr: SearchModel) -> None:
    """Rings and windows, bands, blocks and units side by side, with one value in the other mode."""
    other = frozenset(edsr.program.groups[4].outputs)
    shapes = [
        Shape(rows, columns, bands, mode, units=units, others=others)
        for rows, columns, bands, mode, units, others in (
            (12, 256, 2, RING, True, frozenset()),
            (5, 64, 1, RING, False, other),
            (16, 96, 10, RECOMPUTE, False, other),
            (16, 96, 10, RECOMPUTE, False, frozenset()),
            (72, 256, 2, RING, False, frozenset()),
        )
    ]
    together = segments_of(edsr, 2, 7, shapes)
    assert all(s is not None for s in together)
    assert together == [segments_of(edsr, 2, 7, [shape])[0] for shape in shapes]
    assert len({s.cycles for s in together if s is not None}) == len(shapes)


def test_wide_blocks_are_equal_or_whole_tiles() -> None:
    """Eight blocks of 168 columns would leave 104 for the last, and are priced as eight."""
    assert {s.columns for s in shapes(720, 1280, 1)} == {1280, 640, 648, 320, 336, 160, 168, 80, 96}
    assert {s.columns for s in shapes(56, 56, 1)} == {56, 28, 14, 7}
    thirds = {s.columns for s in shapes(720, 1280, 1, period=3)} - {1280}
    assert thirds == {648, 324, 336, 168, 84, 96} and all(c % 3 == 0 for c in thirds)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_kernels_of_whole_layers_take_beside_is_known(threads: int) -> None:
    """The transform's scratch, by the plan that the kernel has: a U-Net's largest was thought to be twice as large."""
    model = MODELS["edsr"].model(small=True, height=48, width=64, features=64, blocks=1)
    build = run_pipeline(model, Options(target=native(), stop_after="schedule", tile="off", threads=threads))
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    costs = SearchModel(program, native(), threads)
    taken = [sum(o.bytes for o in k.operands if isinstance(o, Scratch)) for k in build.kernels]
    assert max(taken) > 64 * 1024
    assert [costs.whole(i).scratch for i in range(len(build.groups))] == taken


def test_rings_that_a_large_third_level_would_lose_cost_more_than_saved_rows(
    edsr: SearchModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saved rows leave windows that all members share; rings of their own are each come to again a stripe later."""
    groups = edsr.program.groups
    first = next(i for i in range(len(groups)) if edsr.program.refusal(i) is None and groups[i].anchor is not None)
    last = max(i for i, g in enumerate(groups) if g.anchor is not None)
    width = groups[last].outputs[0].shape[3]
    both = [Shape(24, width, 1, RING, units=True, saves=saves) for saves in (False, True)]
    cycles = {}
    for stays in (math.inf, 0):
        monkeypatch.setattr(Rates, "stays", property(lambda rates, stays=stays: stays))
        found = segments_of(edsr, first, last, both)
        assert all(f is not None for f in found)
        cycles[stays] = [f.cycles for f in found if f is not None]
    assert cycles[0][0] > 1.02 * cycles[math.inf][0]
    assert cycles[0][1] == cycles[math.inf][1]


def test_a_small_box_reads_all_weights() -> None:
    """Stripes of 24 and 4 rows read weights that come from memory twice, which were counted as read 28 / 24 times."""
    target = replace(resolve("x86_64-linux-gnu+znver3"), cores=1, l3_bytes=16 << 20)
    w = np.full((512, 512, 3, 3), 0.01, "float32")

    def body(x: Any) -> Any:
        for _ in range(3):
            x = relax.op.nn.relu(relax.op.nn.conv2d(x, weight(w), padding=1))
        return x

    build = staged(module_of([np.zeros((1, 512, 28, 28), "float32")], body), target, tiled=False)
    places = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    model = SearchModel(places, target, 1)
    convs = [i for i, g in enumerate(places.groups) if g.anchor is not None]
    (uneven,) = segments_of(model, convs[0], convs[-1], [Shape(24, 28, 1, RING, units=True)])
    assert uneven is not None
    read = model.cost(convs[-1]).weights / model.rates.memory
    assert uneven.cycles > sum(model.whole(i).cycles for i in convs) + 0.5 * read


def test_windows_that_layers_ask_for_take_no_time_of_their_own() -> None:
    """Only those that the second level can't hold together are asked for."""
    target = replace(resolve("x86_64-linux-gnu+icelake-server"), cores=1, l2_bytes=2 << 20, l3_bytes=64 << 20)
    w = np.full((64, 64, 3, 3), 0.01, "float32")

    def body(x: Any) -> Any:
        for _ in range(2):
            x = relax.op.nn.relu(relax.op.nn.conv2d(x, weight(w), padding=1))
        return x

    build = staged(module_of([np.zeros((1, 64, 144, 1280), "float32")], body), target, tiled=False)
    model = SearchModel(Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs)), target, 1)
    first, last = (i for i, g in enumerate(model.program.groups) if g.anchor is not None)
    assert model.cost(last).asks
    both = [Shape(24, 1280, 1, RING), Shape(12, 160, 1, RING)]  # windows of 8 MB, and of half a MB
    asked = segments_of(model, first, last, both)
    for key, cost in model.costs.items():
        model.costs[key] = replace(cost, asks=False)
    waited = segments_of(model, first, last, both)
    saved = [w.cycles - a.cycles for a, w in zip(asked, waited) if a is not None and w is not None]
    made = 144 * 1280 * 64 * 4
    assert saved[0] > 0.9 * made / model.rates.far and saved[1] == 0


def test_rows_that_move_pass_the_caches() -> None:
    """Two rows a stripe, read and written at no more than the third level's rate: windows are large."""
    target = replace(resolve("x86_64-linux-gnu+icelake-server"), cores=1, l2_bytes=1 << 20, l3_bytes=64 << 20)
    w = np.full((16, 64, 3, 3), 0.01, "float32")
    v = np.full((64, 3, 5, 5), 0.01, "float32")

    def body(x: Any) -> Any:
        x = relax.op.nn.relu(relax.op.nn.conv2d(x, weight(v), padding=2))
        return relax.op.nn.conv2d(x, weight(w), padding=1)

    build = staged(module_of([np.zeros((1, 3, 288, 1280), "float32")], body), target, tiled=False)
    model = SearchModel(Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs)), target, 1)
    first, last = (i for i, g in enumerate(model.program.groups) if g.anchor is not None)
    shape = [Shape(24, 1280, 1, RING)]
    (moving,) = segments_of(model, first, last, shape)
    fitted = target.fitted.with_values({("kernels", "copied"): 0.0})
    (free,) = segments_of(SearchModel(model.program, replace(target, fitted=fitted), 1), first, last, shape)
    assert moving is not None and free is not None
    moved = 2 * 2 * 1282 * 64 * 4 * (288 // 24)
    assert moving.cycles - free.cycles > moved / model.rates.far
