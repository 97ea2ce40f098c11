"""Results of tile groups lie where an input lay that nobody reads afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from compiled import native
from halotile.benchmarks.graph import ExportForm as Style
from halotile.benchmarks.graph import ModelGraph
from halotile.benchmarks.layers import activation, conv, conv_transpose, max_pool
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Build, Options
from halotile.passes.tile.plan.checker import check_plan
from halotile.passes.tile.plan.form import RECOMPUTE, RING, Form
from halotile.passes.tile.plan.lower import lower
from halotile.passes.tile.search.model import SearchModel, Shape
from halotile.passes.tile.search.program import Program
from halotile.passes.tile.search.reinstate_concats import reinstated
from halotile.passes.tile.search.segments import segments_of
from halotile.schedules.tiled import core_sharing as sharing_module
from halotile.schedules.words.policy import Policy
from halotile.schedules.words.tile_plan import TilePlan
from interleaved import interleaved
from tile_forms import finished, given, taken, untiled


def plain(g: ModelGraph, x: str) -> str:
    for kernel in (3, 5, 3):
        x = activation(g, conv(g, x, 32, kernel), "relu")
    return x


def residual(g: ModelGraph, x: str) -> str:
    """What is added is read behind the first layer, but by a layer before the last."""
    y = g.op("Add", conv(g, activation(g, conv(g, x, 32, 3), "relu"), 32, 3), x)
    return conv(g, conv(g, y, 16, 3), 32, 3)


def decoder(g: ModelGraph, x: str) -> str:
    """A skip is copied beside what is enlarged."""
    y = conv_transpose(g, conv(g, max_pool(g, x, 2, 2), 32, 3), 32, 2, stride=2)
    return conv(g, conv(g, g.op("Concat", x, y, axis=1), 32, 3), 32, 3)


def bottleneck(g: ModelGraph, x: str) -> str:
    """Layers of half of the size in between."""
    y = conv_transpose(g, conv(g, conv(g, conv(g, x, 16, 3), 16, 3, stride=2), 24, 3), 32, 2, stride=2)
    return conv(g, conv(g, y, 32, 3), 32, 1)


def inverted(g: ModelGraph, x: str) -> str:
    """The last layer adds what the first one read, at the place that it writes."""
    y = activation(g, conv(g, x, 64, 1), "relu")
    return g.op("Add", conv(g, activation(g, conv(g, y, 64, 3, groups=64), "relu"), 32, 1), x)


MODELS = [plain, residual, decoder, bottleneck, inverted]


def built(
    make: Callable[[ModelGraph, str], str], width: int = 30, height: int = 44, batch: int = 1, winograd: bool = False
) -> Build:
    """A layer before, and one behind that reads what ``make`` adds; the values between lie in channel blocks."""
    g = ModelGraph("takes", Style(opset=17))
    x = conv(g, g.input("x", (batch, 3, height, width)), 32, 3, name="before")
    y = conv(g, make(g, activation(g, x, "relu")), 8, 1 if make is inverted else 3, name="behind")  # like ``make``
    options = Options(native(), stop_after="layout", winograd=winograd, threads=2)
    build = run_pipeline(g.finish(y=y), options)
    program = reinstated(program_of(build), build.vanished)
    build.groups, build.places = program.groups, program.places
    return build


def program_of(build: Build) -> Program:
    outer = frozenset((*build.graph.inputs, *build.graph.outputs))
    return Program(build.groups, build.layouts, build.places, outer)


def ends(build: Build) -> tuple[int, int]:
    """The groups between the layer before and the one behind."""
    able = [i for i, g in enumerate(build.groups) if g.anchor is not None]
    return able[0] + 1, able[-1] - 1


def planned(
    build: Build, rows: int, columns: int | None = None, dying: bool = True, over: bool = True, **form: object
) -> TilePlan:
    program, (first, last) = program_of(build), ends(build)
    groups = build.groups[first : last + 1]
    width = columns or groups[-1].outputs[0].shape[3]
    known = program.dying(first, last) if dying else frozenset()
    own = taken(build, groups, cores(form)) if over else {}
    made = Form(rows, width, dying=known, over=own, **form)  # type: ignore[arg-type]
    return lower(groups, build.layouts, made, program.leaving(first, last))


def cores(form: dict[str, object]) -> int:
    return int(str(form.get("sharing", 1)))


def arena(build: Build) -> int:
    assert build.memory is not None
    return build.memory.planned_bytes


@pytest.mark.sampled
@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize(
    ("rows", "form", "wide"),
    [
        (8, {}, 64),
        (7, {"saves": True}, 64),
        (13, {"quantum": 4}, 64),
        (44, {}, 64),
        (2, {}, 64),
        (6, {"sharing": 2}, 64),
        (6, {"sharing": 2}, 2),
        (10, {"sharing": 3, "saves": True}, 2),
    ],
)
def test_results_lie_over_what_they_are_made_from(
    make: Callable[[ModelGraph, str], str],
    rows: int,
    form: dict[str, object],
    wide: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sharing_module, "WIDE", wide)
    width = 32 if (wide, cores(form)) == (2, 2) else 30  # shares of 16 columns: whole register tiles
    build, apart = built(make, width), built(make, width)
    plan, without = planned(build, rows, **form), planned(apart, rows, dying=False, **form)
    ((output, value),) = plan.takes.items()
    assert not without.takes and output in plan.outputs and value in plan.inputs
    assert check_plan(plan).problems == []
    if plan.sharing > 1:
        assert all(check_plan(interleaved(plan, last_first)).problems == [] for last_first in (False, True))
    tiled, other = finished(build, plan), finished(apart, without)
    assert build.memory is not None and (output, value) in build.memory.inplace
    assert arena(build) <= arena(apart) - 0.7 * build.layouts[value].elements * 4  # other steps need the rest
    np.testing.assert_array_equal(tiled.run([given(build)])[0], untiled(built, make, width))
    np.testing.assert_array_equal(other.run([given(build)])[0], untiled(built, make, width))


def test_several_images_and_winograd() -> None:
    for batch, winograd in ((2, False), (1, True), (3, True)):
        build = built(plain, batch=batch, winograd=winograd)
        plan = planned(build, 12)
        assert len(plan.takes) == 1 and check_plan(plan).problems == []
        x = np.random.default_rng(batch).standard_normal(build.graph.inputs[0].shape).astype(np.float32)
        (got,) = finished(build, plan).run([x])
        (wanted,) = finished(built(plain, batch=batch, winograd=winograd)).run([x])
        assert build.memory is not None and len(build.memory.inplace) == 1
        np.testing.assert_allclose(got, wanted, atol=1e-4 * np.abs(wanted).max())


def narrower(g: ModelGraph, x: str) -> str:
    return conv(g, conv(g, x, 32, 3), 16, 3)


def moved(g: ModelGraph, x: str) -> str:
    """What is added lies a row further up."""
    padded = g.op("Pad", x, g.const([0, 0, 1, 0, 0, 0, 0, 0], "int64"))
    start, end, axis = (g.const([number], "int64") for number in (0, 44, 2))
    return g.op("Add", conv(g, conv(g, x, 32, 3), 32, 3), g.op("Slice", padded, start, end, axis))


def below(g: ModelGraph, x: str) -> str:
    """The last layer reads, a stripe further down than it writes, what its kernel knows nothing of."""
    y = conv(g, conv(g, x, 32, 3), 32, 3)
    start, end, axis = (g.const([number], "int64") for number in (20, 44, 2))
    lower = g.op("Pad", g.op("Slice", x, start, end, axis), g.const([0, 0, 0, 0, 0, 0, 20, 0], "int64"))
    return g.op("Add", y, lower)


def pointwise(g: ModelGraph, x: str) -> str:
    """Rows that the next stripe reads are those that the one before has written."""
    return conv(g, conv(g, x, 32, 3), 32, 1)


@pytest.mark.parametrize(
    ("make", "columns", "form"),
    [
        (inverted, None, {"over": False}),  # its kernel may write before it reads
        (narrower, None, {}),
        (pointwise, None, {}),
        (below, None, {}),
        (plain, None, {"bands": 2}),
        (plain, 12, {}),
    ],
)
def test_not_where_a_place_is_read_again(
    make: Callable[[ModelGraph, str], str], columns: int | None, form: dict[str, object]
) -> None:
    build = built(make)
    plan = planned(build, 8, columns, **form)
    assert not plan.takes and check_plan(plan).problems == []


def test_not_where_rows_are_computed_again() -> None:
    build = built(plain)
    modes = {v: RECOMPUTE for g in build.groups for v in g.outputs}
    assert not planned(build, 8, modes=modes).takes
    assert planned(build, 44, modes=modes).takes  # one stripe reads it all first


def test_not_what_others_read_nor_what_the_caller_has() -> None:
    g = ModelGraph("takes", Style(opset=17))
    x = g.input("x", (1, 16, 40, 28))
    y = activation(g, conv(g, x, 16, 3), "relu")
    z = conv(g, conv(g, conv(g, y, 16, 3), 16, 3), 16, 3)
    build = run_pipeline(g.finish(y=y, z=z), Options(native(), stop_after="layout", winograd=False))
    program = program_of(build)
    for first in range(len(build.groups)):
        for last in range(first, len(build.groups)):
            assert not program.dying(first, last) & {*build.graph.inputs, *build.graph.outputs}
    build = built(decoder)
    program, (first, last) = program_of(build), ends(build)
    (value,) = program.dying(first, last)
    reader = program.readers[value][-1]
    assert first < reader and not program.dying(first, reader - 1) and program.dying(first, reader) == {value}


def test_the_checker_knows_what_is_written_over() -> None:
    """It finds what is read after it was written over, in a later stripe and in the very same step."""
    plan = planned(built(plain), 8)
    assert plan.takes and check_plan(plan).problems == []
    for make in (pointwise, moved):
        other = planned(built(make), 8)
        (target,) = other.outputs
        (source,) = [v for v in other.inputs if v.shape == target.shape]
        problems = check_plan(replace(other, takes={target: source})).problems
        assert any("is written over it" in p for p in problems), make.__name__
    banded = planned(built(plain), 8, bands=2)
    (target,) = banded.outputs
    (source,) = [v for v in banded.inputs if v.shape == target.shape]
    assert check_plan(replace(banded, takes={target: source})).problems


@pytest.mark.sampled
@pytest.mark.parametrize("make", [*MODELS, pointwise, below])
@pytest.mark.parametrize("sharing", [1, 2])
def test_the_estimate_expects_what_plans_do(make: Callable[[ModelGraph, str], str], sharing: int) -> None:
    build = built(make)
    program, (first, last) = program_of(build), ends(build)
    model = SearchModel(program, native(), 2, Policy.of(exact=True), tight=True)
    width = build.groups[last].outputs[0].shape[3]
    for rows in (4, 8, 12, 21):
        (segment,) = segments_of(model, first, last, [Shape(rows, width, 1, RING, sharing=sharing)])
        assert segment is not None
        plan = planned(build, rows, sharing=sharing)
        taken = sum(build.layouts[v].elements * 4 for v in plan.takes.values())
        assert segment.taken == taken and segment.beside == segment.scratch - taken
    (banded,) = segments_of(model, first, last, [Shape(8, width, 2, RING)])
    assert banded is not None and banded.taken == 0


def test_budgets_are_met_that_way() -> None:
    """Of three layers with one size between them, two never lie in memory at a time."""
    g = ModelGraph("takes", Style(opset=17))
    x = activation(g, conv(g, g.input("x", (1, 3, 96, 96)), 32, 3), "relu")
    for _ in range(6):
        x = activation(g, conv(g, x, 32, 3), "relu")
    model = g.finish(y=g.op("GlobalAveragePool", x))
    one = 96 * 96 * 32 * 4
    found = run_pipeline(model, Options(native(), threads=1, stop_after="plan", memory_budget=int(1.4 * one)))
    assert arena(found) <= 1.4 * one
    assert found.report is not None
