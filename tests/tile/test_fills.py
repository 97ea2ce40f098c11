"""Places outside of an image are filled once, and stay so for the stripes and the windows that follow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from compiled import module_of, native, staged, weight
from halotile.passes.tile.plan.checker import check_plan
from halotile.passes.tile.plan.lower import plan_group
from halotile.schedules.words.tile_plan import Compute, Fill, TilePlan
from tvm import relax

R = relax.op
SIZE, ROWS = 41, 4


def chain(layers: int) -> TilePlan:
    """So many 3x3 convolutions with a pad of one, in stripes of whole rows."""
    x, w = np.zeros((1, 16, SIZE, SIZE), "float32"), np.full((16, 16, 3, 3), 0.1, "float32")

    def body(x: relax.Var) -> relax.Expr:
        for _ in range(layers):
            x = R.nn.relu(R.nn.conv2d(x, weight(w), padding=1))
        return x

    target = replace(native(), cores=1)
    build = staged(module_of([x], body), target, tiled=False)
    groups = [g for g in build.groups if g.anchor is not None]
    assert len(groups) == layers
    return plan_group(groups, build.layouts, target, ROWS)


def sides(plan: TilePlan) -> list[int]:
    """By stripe, how many fills lie beside rows of the image."""
    (task,) = plan.tasks
    return [sum(isinstance(s, Fill) and 0 <= s.rows[0] < SIZE for s in stripe) for stripe in task.stripes]


def test_columns_beside_the_image_are_filled_once() -> None:
    plan = chain(4)
    assert check_plan(plan).problems == []
    found = sides(plan)
    assert len(found) > 8 and found[0] > 0
    assert sum(found[2:-1]) == 0, found
    assert all(any(isinstance(s, Compute) for s in stripe) for stripe in plan.tasks[0].stripes)


def test_the_checker_sees_a_fill_that_is_missing() -> None:
    plan = chain(3)
    (task,) = plan.tasks
    tried = 0
    for stripe, steps in enumerate(task.stripes):
        for number, step in enumerate(steps):
            if not isinstance(step, Fill):
                continue
            less = (*task.stripes[:stripe], (*steps[:number], *steps[number + 1 :]), *task.stripes[stripe + 1 :])
            assert check_plan(replace(plan, tasks=(replace(task, stripes=less),))).problems
            tried += 1
    assert tried > 4
