"""Chains of groups are computed tile by tile.

g1 -> g2 -> g3, each whole      one entry in the list of groups, with a plan: windows of g1's and g2's results,
                                and the steps that compute them stripe by stripe (schedules/words/tile_plan.py)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...errors import BudgetError, HalotileError, several
from ...schedules.words.group import Group, Kernel, Value
from ...schedules.words.layout import Layout
from ...schedules.words.open_tile_plan import OpenTilePlan
from ...schedules.words.policy import Policy
from ...schedules.words.sizes import usual
from ...schedules.words.tile_plan import TilePlan
from ...targets.target import Target
from ..memory.places import Places
from ..memory.plan import plan_memory
from .search.decide import GAIN, TileDecision, decide, points, untiled
from .search.model import SearchModel
from .search.program import Program
from .search.reinstate_concats import with_concatenations
from .search.search import Rooms, Search
from .user_request import forced

if TYPE_CHECKING:
    from ...targets.plain import Json, JsonView

LITTLE = 0.05  # of the time: what tiles may be expected to take longer where they halve float16's arena
LARGE = 128 << 20  # bytes of an arena from which on half of it is taken where that is expected to cost no time

Build = Callable[[Group, TilePlan | None, int | None], Kernel]  # the last: a whole group's room
Size = Callable[[Group, TilePlan], Kernel]  # the same of a tile group, as far as its memory goes


@dataclass(frozen=True)
class TileResult:
    """Groups in order after tiling; a group in ``plans`` stands for the members of its plan. ``kernels`` were built on
    the way, to know their scratch, and need not be built again. ``rooms``: group computed whole -> scratch limit in
    bytes a core. ``places``: the aliases, None if they are as before."""

    groups: tuple[Group, ...]
    plans: Mapping[Group, TilePlan] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    details: JsonView = field(default_factory=dict)
    rooms: Mapping[Group, int] = field(default_factory=dict)  # of whole groups: the most bytes beside
    kernels: Mapping[Group, Kernel] = field(default_factory=dict)
    places: Places | None = None  # None: as they were


@dataclass(frozen=True)
class TilePass:
    """``tile``: "auto", "off", or what a user asks for: {"last": name, "shape": (rows, columns)} (see user_request.py).
    ``memory_budget``: bytes that the arena must not exceed. ``optimize``: "speed" or "memory". ``policy`` is the
    build's, and ``closing`` what the last sums of products before the outputs write. ``most``: cycles that a choice
    within the budget may be expected to take. ``aim``: bytes that the arena is to keep where that costs little time."""

    tile: str | JsonView = "auto"
    memory_budget: int | None = None
    optimize: str = "speed"
    policy: Policy = Policy()
    closing: frozenset[Value] = frozenset()
    most: float = math.inf
    aim: int | None = None
    name: str = "tile"

    def apply(
        self,
        groups: Sequence[Group],
        layouts: dict[Value, Layout],
        places: Places,
        placed: Sequence[Value],
        target: Target,
        build: Build,
        size: Size,
        vanished: Mapping[Value, Group] | None = None,
    ) -> TileResult:
        """``groups`` with those tiled that it pays to tile, or that a budget needs.

        ``placed`` are the model's inputs and outputs; ``build`` makes the kernel of a group, ``size`` says how much
        memory that of a tile group takes; ``vanished``: first result -> the concatenation or cut that became slices.
        ``layouts`` gains those of values that are computed again. Raises HalotileError if a budget or a wish can't be
        met.

        Where the fastest choice takes much memory, one of half of that, and half again, is taken if it is expected to
        take no longer. Where it takes more than the aim, one that keeps it is if it takes little longer.
        """
        program = Program(groups, layouts, places, frozenset(placed))

        def within(budget: int, most: float) -> TileResult | None:
            asked = replace(self, memory_budget=budget, most=most)
            try:
                lean = asked._applied(program, layouts, target, build, size, vanished or {})
            except BudgetError:
                return None
            return None if lean is None or lean.details["chosen"]["cycles"] > most else lean

        result = self._applied(program, layouts, target, build, size, vanished or {})
        assert result is not None
        fastest = chosen = result.details.get("chosen", {"bytes": 0, "cycles": 0.0})
        choosing = self.tile == "auto" and self._speed
        while choosing and chosen["bytes"] >= LARGE:
            lean = within(chosen["bytes"] // 2, fastest["cycles"])
            if lean is None:
                break
            result, chosen = lean, lean.details["chosen"]
        if choosing and self.aim is not None and chosen["bytes"] > self.aim:
            result = within(self.aim, (1 + LITTLE) * fastest["cycles"]) or result
        return result

    @property
    def _speed(self) -> bool:
        return self.optimize == "speed" and self.memory_budget is None

    def _applied(
        self, program: Program, layouts: dict[Value, Layout], target: Target, build: Build, size: Size,
        vanished: Mapping[Value, Group],
    ) -> TileResult | None:  # fmt: skip
        """The choice of this pass's options alone; None where none is expected to take as little time as it may."""
        threads = self.policy.threads or target.cores
        arena = Arena(tuple(program.outputs), threads, build, size, self.memory_budget)
        if self.tile == "off":
            return self._off(program, arena)
        if not isinstance(self.tile, str):
            return replaced(program.groups, forced(program, self.tile, threads))
        speed = self._speed
        model = SearchModel(program, target, threads, self.policy, self.closing, tight=not speed)
        variants = [model, *with_concatenations(model, vanished, self.memory_budget, speed)]
        if not speed:
            variants += with_concatenations(model, vanished, self.memory_budget, speed, again=True)
            if not math.isinf(self.most) and not self._promises(variants):
                return None
            for variant in variants:
                layouts.update(variant.program.layouts)  # of what is computed again
        decision = self._decision(variants, speed, arena)
        result = replaced(decision.program.groups, decision.plans, decision.choice.rooms)
        whole = untiled(program, model)
        details: Json = {
            "untiled": points([whole])[0],
            "chosen": points([decision.choice])[0],
            "curve": points(decision.curve),
        }
        if decision.bytes is not None:
            details["arena"] = decision.bytes
        return replace(result, details=details, kernels=arena.kernels_of(result), places=decision.program.places)

    def _decision(self, variants: Sequence[SearchModel], speed: bool, arena: Arena) -> TileDecision:
        """Rings that save rows are one more variant, so that they crowd no other's curve, where they can matter."""
        every = [*variants, replace(variants[0], saving=True, options=None)]
        if not speed and self._slower(variants[0]):
            return decide(every, self.optimize, self.memory_budget, arena)
        try:
            return decide(variants, self.optimize, self.memory_budget, arena)
        except HalotileError:
            return decide(every, self.optimize, self.memory_budget, arena)

    def _promises(self, variants: Sequence[SearchModel]) -> bool:
        """True where some choice is expected to keep the budget and to take no longer than it may."""
        budget = math.inf if self.memory_budget is None else self.memory_budget
        every = (c for variant in variants for c in Search(variant, GAIN).curve())
        return any(c.bytes <= budget and c.cycles <= self.most for c in every)

    def _slower(self, model: SearchModel) -> bool:
        """True where tiling costs time, or the fewest bytes count."""
        if self.memory_budget is None or self.optimize == "memory":
            return True
        most = untiled(model.program, model).cycles
        return not any(c.bytes <= self.memory_budget and c.cycles <= most for c in Search(model).curve())

    def _off(self, program: Program, arena: Arena) -> TileResult:
        if self.memory_budget is not None and (needed := arena(program, [], {}, False)) > self.memory_budget:
            raise BudgetError(
                f"the memory budget of {self.memory_budget} bytes can't be met with tile='off': the arena is "
                f"{needed} bytes",
                needed,
            )
        kernels = {g: kernel for (g, _), kernel in arena.whole.items()}
        return TileResult(tuple(program.groups), {}, ("every group is computed whole",), kernels=kernels)


@dataclass
class Arena:
    """Plans the arena that a run needs, in bytes, kernels' scratch and workspaces included. Each kernel is built
    once."""

    placed: Sequence[Value]
    threads: int
    build: Build
    size: Size
    budget: int | None = None
    whole: dict[tuple[Group, int | None], Kernel] = field(default_factory=dict)
    tiled: dict[TilePlan, Kernel] = field(default_factory=dict)
    sized: dict[TilePlan, Kernel] = field(default_factory=dict)

    def __call__(
        self, program: Program, plans: Sequence[tuple[int, int, TilePlan]], rooms: Rooms, sized: bool
    ) -> int:
        """Arena bytes of a program with ``plans`` and scratch limits ``rooms``. ``sized``: kernels of tile groups are
        not built, so that many plans can be looked at, and places are searched for long only where a budget depends on
        it."""
        result = replaced(program.groups, plans, rooms)
        kernels = [self._kernel(g, result.plans.get(g), result.rooms.get(g), sized) for g in result.groups]
        most = max((kernel.workspace for kernel in kernels), default=0)
        slots = self.threads * (-(-most // 64) * 64)
        enough = (math.inf if self.budget is None else self.budget - slots) if sized else 0
        memory = plan_memory(kernels, program.layouts, program.places, set(self.placed), enough)
        return memory.planned_bytes + slots

    def _kernel(self, group: Group, plan: TilePlan | None, room: int | None, sized: bool) -> Kernel:
        if plan is None:
            if (group, room) not in self.whole:
                self.whole[group, room] = self.build(group, None, room)
            return self.whole[group, room]
        if sized and plan not in self.tiled:
            if plan not in self.sized:
                self.sized[plan] = self.size(group, plan)
            return self.sized[plan]
        if plan not in self.tiled:
            self.tiled[plan] = self.build(group, plan, None)
        return self.tiled[plan]

    def kernels_of(self, result: TileResult) -> dict[Group, Kernel]:
        """Group -> kernel, for the groups of ``result`` whose kernels were built."""
        keys = [(g, result.rooms.get(g)) for g in result.groups]
        found = {key[0]: self.whole[key] for key in keys if key in self.whole}
        found.update({g: self.tiled[p] for g, p in result.plans.items() if p in self.tiled})
        return found


def replaced(
    groups: Sequence[Group], plans: Sequence[tuple[int, int, Any]], rooms: Rooms | None = None
) -> TileResult:
    """``groups`` with groups ``first`` to ``last`` of each (first, last, plan) as one group."""
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
    limits = {groups[i]: room for i, room in sorted((rooms or {}).items())}
    notes += [f"{group.name} holds at most {room} bytes a core beside" for group, room in limits.items()]
    return TileResult(tuple(result), by_group, tuple(notes) or ("every group is computed whole",), rooms=limits)


def joined(plan: TilePlan | OpenTilePlan) -> Group:
    """The group that stands for the members of ``plan``."""
    members = plan.groups if isinstance(plan, OpenTilePlan) else plan.members
    name = f"tiles_{members[0].name.split('_')[0]}_{members[-1].name.split('_')[0]}"
    nodes = tuple(n for g in members for n in g.nodes)
    return Group(name, nodes, plan.inputs, plan.outputs, None, plan.notes)


def note(plan: TilePlan | OpenTilePlan) -> str:
    """A line about ``plan`` for people."""
    members = plan.members
    if isinstance(plan, OpenTilePlan):
        columns = "all columns" if plan.columns is None else several(plan.columns, "column")
        return (
            f"{members[0].name} to {members[-1].name}: {several(len(members), 'group')} in tiles of "
            f"{several(plan.rows, 'row')} by {columns}, "
            f"{several(plan.bands, 'band')} of rows, {len(plan.windows)} ring, "
            f"{usual(plan.task_bytes)} bytes a tile at the typical shape, work x {plan.extra_work:.3f}"
        )
    modes: dict[str, int] = {}
    for mode in plan.modes.values():
        modes[mode] = modes.get(mode, 0) + 1
    how = ", ".join(f"{n} {mode}" for mode, n in sorted(modes.items()))
    return (
        f"{members[0].name} to {members[-1].name}: {several(len(members), 'group')} in "
        f"{several(len(plan.tasks), 'task')}, {how}, {plan.task_bytes} bytes a task, work x {plan.extra_work:.3f}"
    )
