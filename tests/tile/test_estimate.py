"""What the search believes of a tile group's bytes is what its exact plan takes: deep groups, small stripes, bands."""

from __future__ import annotations

import pytest
from compiled import native
from halotile.benchmarks.models import MODELS
from halotile.compiler.pipeline import Options, run_pipeline
from halotile.passes.tile.candidates import Program
from halotile.passes.tile.checker import check_plan
from halotile.passes.tile.decide import plan_segment
from halotile.passes.tile.estimate import Model, Shape, segment_of
from halotile.passes.tile.form import RING
from halotile.schedules.tileplan import Compute


@pytest.fixture(scope="module")
def edsr() -> Model:
    """Some twenty convolutions, 3 x 3, whose rings take in six rows at a time (Winograd's tiles)."""
    build = run_pipeline(
        MODELS["edsr"].model(small=True, height=160, width=256), Options(target=native(), stop_after="layout")
    )
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    return Model(program, native(), 2)


FORMS = [(6, 1, True), (6, 2, True), (12, 2, True), (8, 2, True), (3, 2, False), (8, 1, False)]


@pytest.mark.parametrize(("rows", "bands", "units"), FORMS)
def test_the_bytes_of_deep_groups_are_known_before_they_are_planned(
    edsr: Model, rows: int, bands: int, units: bool
) -> None:
    """Each ring lags a whole unit behind the one before, and a band that begins inside the image fills at its pace: a
    row that appeared before anybody wants it once made every ring hold all that its readers' first stripe needs."""
    groups = edsr.program.groups
    first = next(i for i in range(len(groups)) if edsr.program.refusal(i) is None and groups[i].anchor is not None)
    last = max(i for i, g in enumerate(groups) if g.anchor is not None)
    shape = Shape(rows, groups[last].outputs[0].shape[3], bands, RING, units=units)
    segment = segment_of(edsr, first, last, shape)
    assert segment is not None
    plan = plan_segment(edsr, segment)
    assert check_plan(plan).problems == []
    assert len(plan.tasks) == bands
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
