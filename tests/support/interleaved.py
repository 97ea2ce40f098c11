"""Plans whose steps cores share, as one core would go through them: the cores' parts one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from halotile.schedules.tiled.core_sharing import Sharing
from halotile.schedules.words.tile_plan import Step, TilePlan


def interleaved(plan: TilePlan, last_first: bool) -> TilePlan:
    """``plan`` with the parts of its steps, phase by phase, all of one core's before another's: what any of them reads
    must be there in either order."""
    sharing = Sharing(plan)

    def stripe(steps: Sequence[Step]) -> tuple[Step, ...]:
        order: list[Step] = []
        for _, phase in groupby(sharing.stripe(steps), lambda part: part[0]):
            order += [part for _, _, part in sorted(phase, key=lambda p: -p[1] if last_first else p[1])]
        return tuple(order)

    tasks = tuple(replace(task, stripes=tuple(stripe(s) for s in task.stripes)) for task in plan.tasks)
    return replace(plan, tasks=tasks)


def phases(plan: TilePlan) -> list[int]:
    """By stripe of the first task: how often cores wait for each other."""
    sharing = Sharing(plan)
    return [len({phase for phase, _, _ in sharing.stripe(s)}) for s in plan.tasks[0].stripes]
