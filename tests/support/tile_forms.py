"""Tile groups forced upon a build: random forms, and the build that takes a plan."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from compiled import Compiled
from halotile.compiler import pipeline
from halotile.compiler.state import Build
from halotile.passes.tile.plan.form import MATERIALISE, RECOMPUTE, RING, Form, Untileable
from halotile.passes.tile.plan.lower import lower
from halotile.passes.tile.search.program import Program
from halotile.passes.tile.tile import joined, replaced
from halotile.schedules.conv import overwritten_in_boxes
from halotile.schedules.tiled.core_sharing import by_rows, column_unit
from halotile.schedules.words.group import Group, Request, Value
from halotile.schedules.words.tile_plan import TilePlan
from halotile.targets.target import Target

MODES = (RING, RECOMPUTE, MATERIALISE)


def planned(
    build: Build, program: Program, first: int, last: int, rng: np.random.Generator, sharing: int = 1
) -> TilePlan | None:
    """A plan in a random form, whose steps so many cores may share."""
    groups = build.groups[first : last + 1]
    height, width = groups[-1].outputs[-1].shape[2:4]
    style = int(rng.integers(4))
    modes: dict[Value, str] = {}
    for value in (v for g in groups for v in g.outputs):
        modes[value] = MODES[int(rng.integers(3))] if style == 3 else MODES[style]
    columns = int(rng.integers(1, width + 3)) if rng.random() < 0.6 else width
    rows, bands, quantum = int(rng.integers(1, height + 3)), int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 4]))
    quanta: dict[Value, int] = {}
    if rng.random() < 0.3:  # rings that take in rows at paces of their own
        quanta = {v: int(rng.choice([1, 2, 3, 4])) for g in groups for v in g.outputs}
    saves = bool(rng.integers(2))
    dying = program.dying(first, last)
    over = taken(build, groups, sharing) if saves or dying else {}
    form = Form(rows, columns, bands, modes, quantum, quanta, saves=saves, over=over, dying=dying)
    try:
        return lower(groups, build.layouts, form, program.leaving(first, last))
    except Untileable as error:
        assert "\n" not in str(error)
        return None


def taken(build: Build, groups: Sequence[Group], sharing: int) -> dict[Value, Value]:
    """By output, the input whose window a member may take."""
    by_columns = sharing > 1 and not by_rows(groups[-1].outputs[0].shape[3], sharing)
    options = build.options
    found = {}
    for group in groups:
        alone = Request(group, build.layouts, replace(options.target, cores=1), options.policy)
        over = overwritten_in_boxes(alone, column_unit(group, sharing) if by_columns else None)
        if over:
            found[group.outputs[0]] = over[0]
    return found


def whole(plan: TilePlan, build: Build, target: Target) -> Request:
    """What asks for the kernel of ``plan`` in a build that was stopped before it had one."""
    return Request(joined(plan), build.layouts, target)


def finished(build: Build, plan: TilePlan | None = None) -> Compiled:
    """``build``, stopped before its plans, carried to its end, with ``plan`` in the place of the groups it covers."""
    return Compiled(placed(build, plan))


def given(build: Build) -> np.ndarray:
    """Random numbers for its one input, the same ones for one shape."""
    return np.random.default_rng(0).standard_normal(build.graph.inputs[0].shape).astype(np.float32)


@functools.cache
def untiled(make: Callable[..., Build], *arguments: Any, **options: Any) -> np.ndarray:
    """The result of the build that ``make`` makes of these, each group computed whole, on :func:`given` numbers."""
    build = make(*arguments, **options)
    return finished(build).run([given(build)])[0]


def placed(build: Build, plan: TilePlan | None = None) -> Build:
    """The same up to its memory plan."""
    if plan is not None:
        first, last = (build.groups.index(plan.members[i]) for i in (0, -1))
        result = replaced(build.groups, [(first, last, plan)])
        build.groups, build.tiled = result.groups, dict(result.plans)
    pipeline.schedule(build)
    pipeline.plan(build)
    return build
