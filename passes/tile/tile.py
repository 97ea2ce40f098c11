"""Chains of groups are computed tile by tile.

g1 -> g2 -> g3, each whole      one entry in the list of groups, with a plan: windows of g1's and g2's results,
                                and the steps that compute them stripe by stripe (schedules/tileplan.py)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...schedules.group import Group, Value
from ...schedules.layout import Layout
from ...schedules.tileplan import TilePlan
from ...targets.target import Target
from ..memory.places import Places
from .candidates import Program
from .forced import forced
from .form import Untileable


@dataclass(frozen=True)
class TileResult:
    """Groups in order; those in ``plans`` stand for the members of their plan."""

    groups: tuple[Group, ...]
    plans: Mapping[Group, TilePlan] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tile:
    """``tile``: "off", or what a user asks for: {"last": name, "shape": (rows, columns)} (see forced.py)."""

    tile: str | Mapping[str, Any] = "off"
    threads: int | None = None
    name: str = "tile"

    def apply(
        self,
        groups: Sequence[Group],
        layouts: Mapping[Value, Layout],
        places: Places,
        outputs: Sequence[Value],
        target: Target,
    ) -> TileResult:
        """Raises halotile errors for wishes that can't be met."""
        program = Program(groups, layouts, places, frozenset(outputs))
        if isinstance(self.tile, str):
            return TileResult(tuple(groups), {}, ("every group is computed whole",))
        found = forced(program, self.tile, self.threads or target.cores)
        return replaced(groups, found)


def replaced(groups: Sequence[Group], plans: Sequence[tuple[int, int, TilePlan]]) -> TileResult:
    """``groups`` with ``first`` to ``last`` of each plan as one entry."""
    result: list[Group] = []
    by_group: dict[Group, TilePlan] = {}
    notes = []
    at = 0
    for first, last, plan in sorted(plans, key=lambda p: p[0]):
        result += groups[at:first]
        joint = joined(plan)
        result.append(joint)
        by_group[joint] = plan
        notes.append(note(plan))
        at = last + 1
    result += groups[at:]
    return TileResult(tuple(result), by_group, tuple(notes) or ("every group is computed whole",))


def joined(plan: TilePlan) -> Group:
    """One group that stands for the members of ``plan``."""
    members = plan.members
    name = f"tiles_{members[0].name.split('_')[0]}_{members[-1].name.split('_')[0]}"
    nodes = tuple(n for g in members for n in g.nodes)
    return Group(name, nodes, plan.inputs, plan.outputs, None, plan.notes)


def note(plan: TilePlan) -> str:
    """One line about a plan."""
    members = plan.members
    modes: dict[str, int] = {}
    for mode in plan.modes.values():
        modes[mode] = modes.get(mode, 0) + 1
    how = ", ".join(f"{n} {mode}" for mode, n in sorted(modes.items()))
    return (
        f"{members[0].name} to {members[-1].name}: {len(members)} groups in {len(plan.tasks)} tasks, {how}, "
        f"{plan.task_bytes} bytes a task, work x {plan.extra_work:.3f}"
    )


__all__ = ["Tile", "TileResult", "Untileable", "joined", "replaced"]
