"""Parts of concatenations in tile groups are computed in the concatenation's window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from compiled import native
from halotile.benchmarks.graph import ExportForm as Style
from halotile.benchmarks.graph import ModelGraph
from halotile.benchmarks.layers import activation, conv, conv_transpose, max_pool
from halotile.benchmarks.models import MODELS as MODELS_OF_THE_HARNESS
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Build, Options
from halotile.passes.tile.describe import plan_data, plan_text
from halotile.passes.tile.plan import lower as lower_module
from halotile.passes.tile.plan.checker import check_plan
from halotile.passes.tile.plan.concat_parts import Parts, parts_of
from halotile.passes.tile.plan.form import RING, Form
from halotile.passes.tile.plan.lower import lower
from halotile.passes.tile.search import segments as grow_module
from halotile.passes.tile.search.model import SearchModel, Shape
from halotile.passes.tile.search.program import Program
from halotile.passes.tile.search.reinstate_concats import reinstated
from halotile.passes.tile.search.segments import segments_of
from halotile.schedules.general.concat_order import NOTE
from halotile.schedules.tiled import build_tiled
from halotile.schedules.tiled import core_sharing as sharing_module
from halotile.schedules.words.policy import Policy
from halotile.schedules.words.tile_plan import Copy, Shift, TilePlan
from interleaved import interleaved
from tile_forms import finished, given, taken, untiled, whole


def joined(g: ModelGraph, *parts: str) -> str:
    return g.op("Concat", *parts, axis=1)


def two(g: ModelGraph, x: str) -> str:
    """Both made in the group."""
    x = conv(g, x, 16, 3)
    a, b = activation(g, conv(g, x, 32, 3), "relu"), conv(g, x, 16, 1)
    return conv(g, conv(g, joined(g, a, b), 32, 3), 16, 3)


def three(g: ModelGraph, x: str) -> str:
    """Of channels that are no whole block at the end."""
    x = conv(g, x, 16, 3)
    a, b, c = conv(g, x, 16, 1), conv(g, x, 32, 5), max_pool(g, conv(g, x, 20, 1), 3, 1, 1)
    return conv(g, joined(g, a, b, c), 16, 3)


def decoder(g: ModelGraph, x: str) -> str:
    """Boxes of a transposed convolution begin at even rows and columns; the skip is made outside of the group."""
    skip = conv(g, x, 32, 3)
    x = conv(g, max_pool(g, skip, 2, 2), 32, 3)
    x = joined(g, skip, conv_transpose(g, x, 32, 2, stride=2))
    return conv(g, conv(g, x, 32, 3), 16, 3)


def dense(g: ModelGraph, x: str) -> str:
    """Each layer reads all before: what others read as well is copied."""
    x = conv(g, x, 16, 3)
    for _ in range(3):
        x = joined(g, x, activation(g, conv(g, x, 16, 3), "relu"))
    return conv(g, x, 16, 3)


def strided(g: ModelGraph, x: str) -> str:
    """The last column and row are not read."""
    x = conv(g, x, 16, 3)
    x = joined(g, conv(g, x, 16, 3), conv(g, x, 16, 1))
    return conv(g, conv(g, x, 16, 1, stride=2), 16, 3)


def residual(g: ModelGraph, x: str) -> str:
    """The second part could take the window of what it adds."""
    x = y = conv(g, x, 16, 3)
    y = g.op("Add", conv(g, conv(g, y, 16, 3), 16, 1), x)
    return conv(g, joined(g, conv(g, x, 16, 3), y), 16, 3)


MODELS: dict[Callable[[ModelGraph, str], str], tuple[int, int]] = {  # concatenations that have parts, and copies
    two: (1, 0),
    three: (1, 0),
    decoder: (1, 1),
    dense: (3, 3),
    strided: (1, 0),
    residual: (1, 0),
}


def built(make: Callable[[ModelGraph, str], str], width: int = 28, height: int = 40, batch: int = 1) -> Build:
    g = ModelGraph("parts", Style(opset=17))
    y = make(g, g.input("x", (batch, 16, height, width)))
    options = Options(native(), stop_after="layout", winograd=False, threads=2)
    build = run_pipeline(g.finish(y=y), options)
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    program = reinstated(program, build.vanished)
    build.groups, build.places = program.groups, program.places
    return build


def planned(build: Build, rows: int, first: int | None = None, columns: int | None = None, **form: object) -> TilePlan:
    """All from the first layer on, or from another one."""
    groups = list(build.groups)
    start = next(i for i, g in enumerate(groups) if g.anchor is not None) if first is None else first
    last = max(i for i, g in enumerate(groups) if g.anchor is not None)
    program = Program(groups, build.layouts, build.places, frozenset(build.graph.outputs))
    members = groups[start : last + 1]
    over = taken(build, members, 1) if form.get("saves") else {}
    made = Form(rows, columns or members[-1].outputs[0].shape[3], over=over, **form)  # type: ignore[arg-type]
    return lower(members, build.layouts, made, program.leaving(start, last))


def copies(plan: TilePlan) -> int:
    return sum(m.operators == ("halotile.copy",) for m in plan.members)


def of_whole(build: Build, plan: TilePlan, make: Callable[[ModelGraph, str], str], *shape: int) -> None:
    np.testing.assert_array_equal(finished(build, plan).run([given(build)])[0], untiled(built, make, *shape))


@pytest.mark.sampled
@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize(
    ("rows", "columns", "form", "wide"),
    [
        (8, None, {}, 64),
        (7, None, {"bands": 2}, 64),
        (6, None, {"saves": True}, 64),
        (40, None, {}, 64),
        (5, 12, {"bands": 2}, 64),
        (6, None, {"sharing": 2}, 64),
        (6, None, {"sharing": 2}, 2),
        (9, None, {"sharing": 3, "saves": True}, 2),
    ],
)
def test_the_bits_are_those_of_the_whole(
    make: Callable[[ModelGraph, str], str],
    rows: int,
    columns: int | None,
    form: dict[str, object],
    wide: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In stripes, bands, blocks of columns, and where cores share rows or columns."""
    monkeypatch.setattr(sharing_module, "WIDE", wide)
    build = built(make)
    plan = planned(build, rows, columns=columns, **form)
    assert (len(set(plan.wholes.values())), copies(plan)) == MODELS[make]
    assert check_plan(plan).problems == []
    if plan.sharing > 1:
        assert all(check_plan(interleaved(plan, last_first)).problems == [] for last_first in (False, True))
    of_whole(build, plan, make)


@pytest.mark.parametrize("form", [{}, {"bands": 2}, {"sharing": 2}, {"saves": True}])
def test_what_is_made_elsewhere_is_copied(form: dict[str, object]) -> None:
    """Of a skip that lies whole, in memory."""
    build = built(decoder)
    first = next(i for i, g in enumerate(build.groups) if "relax.nn.max_pool2d" in g.operators)
    plan = planned(build, 8, first, **form)
    (copy,) = [m for m in plan.members if m.operators == ("halotile.copy",)]
    assert copy.inputs[0] in plan.inputs and plan.wholes.keys() >= set(copy.outputs)
    assert check_plan(plan).problems == []
    if plan.sharing > 1:
        assert all(check_plan(interleaved(plan, last_first)).problems == [] for last_first in (False, True))
    of_whole(build, plan, decoder)


def test_parts_take_no_bytes_and_no_copies() -> None:
    build = built(two)
    plan = planned(build, 8)
    (joint,) = set(plan.wholes.values())
    a, b = (plan.windows[v] for v in plan.wholes)
    assert a.offset == plan.windows[joint].offset and b.offset == a.offset + a.layout.elements * 4
    assert a.layout.elements + b.layout.elements == plan.windows[joint].layout.elements
    parts = build_tiled(plan, whole(plan, build, native())).parts
    assert not any(p.outputs == (joint,) and "relax.concat" in p.schedule or NOTE in p.notes for p in parts)
    apart = lowered_apart(build, 8)
    assert not apart.wholes and plan.task_bytes < 0.85 * apart.task_bytes
    assert any(NOTE in p.notes for p in build_tiled(apart, whole(apart, build, native())).parts)


def lowered_apart(build: Build, rows: int) -> TilePlan:
    """As if the parts could not be computed where they belong."""
    with patch.object(lower_module, "parts_of", lambda groups, *_: Parts(tuple(groups))):
        return planned(build, rows)


def deep(g: ModelGraph, x: str) -> str:
    """Some of the sums take the window of what they add; those that are parts have one already."""
    x = conv(g, x, 32, 3)
    for _ in range(3):
        x = conv(g, joined(g, conv(g, x, 32, 3), g.op("Add", conv(g, conv(g, x, 16, 3), 32, 3), x)), 32, 3)
        x = g.op("Add", conv(g, conv(g, x, 16, 3), 32, 3), x)
    return conv(g, x, 16, 3)


@pytest.mark.parametrize("sharing", [1, 2])
def test_saved_rows_taken_windows_and_parts_go_together(sharing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    build = built(deep)
    plan = planned(build, 10, saves=True, sharing=sharing)
    assert len(plan.wholes) == 6 and len(plan.inplace) >= 2 and not set(plan.wholes) & set(plan.inplace)
    saved = [s.source for stripe in plan.tasks[0].stripes for s in stripe if isinstance(s, Copy)]
    assert set(plan.wholes.values()) <= set(saved)
    assert check_plan(plan).problems == []
    if sharing > 1:
        assert all(check_plan(interleaved(plan, last_first)).problems == [] for last_first in (False, True))
    of_whole(build, plan, deep)


def test_the_checker_knows_where_parts_lie() -> None:
    plan = planned(built(two), 8)
    assert any("writes over" in p for p in check_plan(replace(plan, wholes={})).problems)
    first, second = plan.wholes
    swapped = {
        **plan.windows,
        first: replace(plan.windows[first], offset=plan.windows[second].offset),
        second: replace(plan.windows[second], offset=plan.windows[first].offset),
    }
    assert any("does not lie where" in p for p in check_plan(replace(plan, windows=swapped)).problems)
    (whole,) = set(plan.wholes.values())
    problems = check_plan(replace(plan, wholes={first: whole})).problems
    assert any("not all" in p for p in problems)
    late = [[s for s in stripe if not (isinstance(s, Shift) and s.value is whole)] for stripe in plan.tasks[0].stripes]
    moved = replace(plan.tasks[0], stripes=tuple(map(tuple, late)))
    assert check_plan(replace(plan, tasks=(moved,))).problems


@pytest.mark.parametrize(("make", "saves"), [*((m, False) for m in MODELS), (deep, False), (deep, True)])
@pytest.mark.parametrize("sharing", [1, 2])
def test_the_estimate_counts_no_windows_of_parts(
    make: Callable[[ModelGraph, str], str], saves: bool, sharing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = built(make)
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    able = [i for i, g in enumerate(build.groups) if g.anchor is not None]
    shape = Shape(10, 28, 1, RING, sharing=sharing, saves=saves)
    real = planned(build, 10, saves=saves, sharing=sharing)
    found = []
    for apart in (False, True):
        if apart:
            monkeypatch.setattr(grow_module, "joins_blocks", lambda *_: False)
        model = SearchModel(program, native(), 2, Policy.of(exact=True), tight=True, saving=True)
        (segment,) = segments_of(model, able[0], able[-1], [shape])
        assert segment is not None
        found.append(segment)
    with_parts, without = found
    assert real.wholes and 0.85 <= with_parts.scratch / real.task_bytes <= 1.25
    assert with_parts.scratch <= without.scratch and with_parts.cycles < without.cycles


def odd(g: ModelGraph, x: str) -> str:
    """The second part would begin in the middle of a block."""
    x = conv(g, x, 16, 3)
    return conv(g, joined(g, conv(g, x, 20, 3), conv(g, x, 12, 1)), 16, 3)


def rows_joined(g: ModelGraph, x: str) -> str:
    x = conv(g, x, 16, 3)
    return conv(g, g.op("Concat", conv(g, x, 16, 3), conv(g, x, 16, 1), axis=2), 16, 3)


def twice(g: ModelGraph, x: str) -> str:
    x = conv(g, conv(g, x, 16, 3), 16, 3)
    return conv(g, joined(g, x, x), 16, 3)


@pytest.mark.parametrize(("make", "batch"), [(two, 2), (odd, 1), (rows_joined, 1), (twice, 1)])
def test_others_are_copied(make: Callable[[ModelGraph, str], str], batch: int) -> None:
    """Images of a batch lie apart; blocks are whole; rows are no channels; one value can't lie in two places."""
    build = built(make, 28, 40, batch)
    assert any("relax.concat" in g.operators for g in build.groups)
    first = next(i for i, g in enumerate(build.groups) if g.anchor is not None)
    assert not parts_of(build.groups[first:], build.layouts, frozenset(), Form(8, 28)).wholes


def test_values_that_leave_have_memory_of_their_own() -> None:
    build = built(two)
    first = next(i for i, g in enumerate(build.groups) if g.anchor is not None)
    groups, form = build.groups[first:], Form(8, 28)
    made = parts_of(groups, build.layouts, frozenset(), form)
    (whole,) = set(made.wholes.values())
    part = next(iter(made.wholes))
    assert not parts_of(groups, build.layouts, frozenset({whole}), form).wholes
    leaving = parts_of(groups, build.layouts, frozenset({part}), form)
    assert len(leaving.wholes) == 2 and part not in leaving.wholes  # copied


def test_a_budget_is_met_with_less() -> None:
    """A whole build: U-Net's plan has parts, its numbers are those of the untiled one, and the arena is exact."""
    model = MODELS_OF_THE_HARNESS["unet"].model(small=True, size=64, base=16)
    build = run_pipeline(model, Options(native(), stop_after="plan", optimize="memory", threads=2))
    assert any(p.wholes for p in build.tiled.values())
    assert all(check_plan(p).problems == [] for p in build.tiled.values())
    text = [plan_text(plan_data("g", p)) for p in build.tiled.values() if p.wholes]
    assert all("a part of" in t and "_concat: its parts are computed in its window" in t for t in text)
