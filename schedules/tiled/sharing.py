"""Steps that cores share: one task for all of them, whose windows lie in memory once.

    for stripe: for member:                     parallel for core: shift, compute and fill its own columns

Bands would each compute the halo of a whole chain at their ends and have windows of their own; here the cores wait for
each other after every member. A core's columns are the same in all steps of a member: it overwrites no rows that
another one has yet to move.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..tileplan import Compute, Copy, Shift, Span, Step, TilePlan
from .support import box_alignment

UNITS = (12, 4)  # columns that a core's share is a multiple of: tiles of transforms
PARTS = 16  # of so many units at least


def column_cuts(plan: TilePlan) -> list[list[int]]:
    """``[member][core]``: the first column of each core but the first."""
    found = []
    for member in plan.members:
        width, alignment = member.outputs[0].shape[3], box_alignment(member)[1]
        unit = next((u for u in UNITS if width >= PARTS * u), 1)
        unit = math.lcm(unit, alignment)
        found.append([round(width * i / plan.sharing / unit) * unit for i in range(1, plan.sharing)])
    return found


def shared(step: Step, plan: TilePlan, cuts: Sequence[Sequence[int]]) -> list[tuple[int, int, Step]]:
    """(member, core, part of the step) for all cores that have one."""
    assert not isinstance(step, Copy)  # no rows are saved where cores share
    if isinstance(step, Compute):
        member, columns = step.member, step.columns
    else:
        member = next(i for i, m in enumerate(plan.members) if step.value in m.outputs)
        if isinstance(step, Shift):
            first = step.base[1]
            columns = first, first + plan.windows[step.value].layout.shape[3]
        else:
            columns = step.columns
    return [(member, core, replace(step, columns=own)) for core, own in shares(columns, cuts[member])]


def shares(columns: Span, cuts: Sequence[int]) -> list[tuple[int, Span]]:
    """Which of ``columns`` each core has that has any."""
    inner = [min(max(c, columns[0]), columns[1]) for c in cuts]
    parts = zip([columns[0], *inner], [*inner, columns[1]])
    return [(core, own) for core, own in enumerate(parts) if own[0] < own[1]]
