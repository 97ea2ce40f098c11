"""Random tile groups of random models: a checker that shares nothing with the planner goes through their steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from compiled import native
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.passes.tile.plan.checker import check_plan
from halotile.passes.tile.plan.form import Form, Untileable
from halotile.passes.tile.plan.lower import lower
from halotile.passes.tile.search.program import Program
from halotile.schedules.words.tile_plan import Compute, Fill, Shift, TilePlan
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tile_forms import planned
from tile_models import random_model


def random_plan(seed: int, layers: int, choice: int) -> TilePlan | None:
    """A random run of groups of a random model in a random form; None if the form is impossible, with its reason."""
    rng = np.random.default_rng((seed, choice))
    build = run_pipeline(random_model(seed, layers), Options(target=native(), stop_after="layout"))
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    ends = [i for i in range(len(build.groups)) if program.refusal(i) is None]
    if not ends:
        return None
    first = last = int(rng.choice(ends))
    while first > 0 and program.refusal(first - 1) is None and program.reads(first - 1, last) and rng.random() < 0.9:
        first -= 1
    if program.joined(first, last) is not None:
        return None
    return planned(build, program, first, last, rng)


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(0, 3))
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_plans_are_right(seed: int, layers: int, choice: int) -> None:
    plan = random_plan(seed, layers, choice)
    assume(plan is not None)
    assert plan is not None
    assert check_plan(plan).problems == []


@given(st.integers(0, 10**6), st.integers(2, 8))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_rings_recompute_nothing_in_a_band(seed: int, layers: int) -> None:
    """One band and all columns: no member computes an element twice, whatever the stripes."""
    build = run_pipeline(random_model(seed, layers), Options(target=native(), stop_after="layout"))
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    last = next((i for i in reversed(range(len(build.groups))) if program.refusal(i) is None), None)
    assume(last is not None)
    assert last is not None
    first = last
    while first > 0 and program.refusal(first - 1) is None and program.reads(first - 1, last):
        first -= 1
    assume(first < last and program.joined(first, last) is None)
    groups = build.groups[first : last + 1]
    height, width = groups[-1].outputs[-1].shape[2:4]
    form = Form(1 + seed % height, width, 1)
    try:
        plan = lower(groups, build.layouts, form, program.leaving(first, last))
    except Untileable:
        assume(False)
    checked = check_plan(plan)
    assert checked.problems == []
    for group, count in zip(groups, checked.computed):
        assert count <= group.outputs[0].shape[2] * group.outputs[0].shape[3]
    assert plan.extra_work <= 1.0 + 1e-9


# -- a checker that finds nothing would prove nothing ------------------------------------------------


def chain() -> TilePlan:
    """A plan with computes, fills and shifts."""
    for seed in range(100):
        plan = random_plan(seed, 6, 0)
        if plan is None or not plan.windows:
            continue
        kinds = {type(s) for t in plan.tasks for stripe in t.stripes for s in stripe}
        if kinds == {Compute, Fill, Shift}:
            assert check_plan(plan).problems == []
            return plan
    raise AssertionError("no such plan")


@pytest.mark.parametrize("kind", [Compute, Fill, Shift])
def test_a_lacking_step_is_found(kind: type) -> None:
    plan = chain()
    for t, task in enumerate(plan.tasks):
        for s, stripe in enumerate(task.stripes):
            for n, step in enumerate(stripe):
                if not isinstance(step, kind):
                    continue
                less = (*task.stripes[:s], (*stripe[:n], *stripe[n + 1 :]), *task.stripes[s + 1 :])
                tasks = (*plan.tasks[:t], replace(task, stripes=less), *plan.tasks[t + 1 :])
                assert check_plan(replace(plan, tasks=tasks)).problems
                return
    raise AssertionError(f"the plan has no {kind.__name__}")


def test_a_step_done_twice_is_found() -> None:
    plan = chain()
    task = plan.tasks[-1]
    again = replace(task, stripes=(*task.stripes, (task.stripes[-1][-1],)))
    assert "written 2 times" in check_plan(replace(plan, tasks=(*plan.tasks[:-1], again))).problems[-1]


def test_windows_that_share_bytes_while_both_live_are_found() -> None:
    plan = chain()
    assert len(plan.windows) > 1
    moved = {v: replace(w, offset=0) for v, w in plan.windows.items()}
    assert check_plan(replace(plan, windows=moved)).problems


def test_a_window_that_is_too_small_is_found() -> None:
    plan = chain()
    value, window = next(iter(plan.windows.items()))
    n, c, h, w = window.layout.shape
    small = replace(window, layout=replace(window.layout, shape=(n, c, h - 1, w)))
    assert check_plan(replace(plan, windows={**plan.windows, value: small})).problems


def test_a_wrong_base_is_found() -> None:
    plan = chain()
    task = plan.tasks[0]
    stripe = list(task.stripes[-1])
    n = next(i for i, s in enumerate(stripe) if isinstance(s, Compute) and s.bases)
    step = stripe[n]
    assert isinstance(step, Compute)
    value, (row, column) = next(iter(step.bases.items()))
    stripe[n] = replace(step, bases={**step.bases, value: (row + 1, column)})
    tasks = (replace(task, stripes=(*task.stripes[:-1], tuple(stripe))), *plan.tasks[1:])
    assert check_plan(replace(plan, tasks=tasks)).problems
