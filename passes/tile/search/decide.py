"""Which point of the curve a build takes, and the plans that make it real.

speed      the fastest; a tile group must promise GAIN of its time, since the model is only a model, and in its final
           shape SURE; all of them together WORTH of the whole run's, or nothing is tiled
memory     the smallest
a budget   the fastest whose arena, planned for real with the kernels' own scratch, does not exceed it; a tile group
           that is not needed for that must promise GAIN as well
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ....errors import BudgetError
from ....schedules.words.group import Group, Value
from ....schedules.words.tile_plan import TilePlan
from ..plan.form import RECOMPUTE, Form, Untileable
from ..plan.lower import lower
from .model import SearchModel, Segment, Shape
from .program import Program
from .refine import refined
from .search import CurvePoint, Live, Rooms, Search

GAIN = 0.05
SURE = 0.06  # so far off is the model: what promised 0.05 was 0.97 to 1.05 times as fast
WORTH = 0.01  # less can't be told from nothing
TRIES = 12
SMALLEST = 16  # points planned for real before a budget is refused: the smallest, and as many along each curve
FAR_OFF = 1.5  # times the bytes that a plan needs are the most that are predicted (1.15 was seen)
CLOSE = 4  # points of every curve that are, too
Plans = list[tuple[int, int, TilePlan]]
Arena = Callable[[Program, Plans, Rooms, bool], int]  # a run's bytes with these plans; the last: kernels aren't built


@dataclass(frozen=True)
class TileDecision:
    """The plans that a build takes. ``choice`` is the point of the curve that they make real, ``bytes`` the arena where
    it was planned for real, ``curve`` what there was to choose from."""

    program: Program
    choice: CurvePoint
    plans: Plans
    curve: tuple[CurvePoint, ...]
    bytes: int | None = None


def decide(variants: Sequence[SearchModel], optimize: str, budget: int | None, arena: Arena) -> TileDecision:
    """The best choice over ``variants`` of the program, with exact plans of its tile groups. ``optimize``: "speed" or
    "memory"; ``budget``: bytes that the arena must not exceed, or None; ``arena`` plans memory for real. Raises
    HalotileError that names the smallest arena which was found, if none fits the budget."""
    searches, count = [Search(v, GAIN) for v in variants], len(variants)
    if budget is not None or optimize == "memory":
        sizes = _Sizes([*searches, *(Search(v) for v in variants)], arena)
        if budget is None:
            return sizes.decision(*sizes.smallest(_reachable(sizes, 0)))
        own = range(count, 2 * count) if optimize == "memory" else range(count)
        return _within(sizes, own, budget, optimize)
    for _ in range(TRIES):
        curves = [s.curve() for s in searches]
        found = [(c[-1], s, c) for s, c in zip(searches, curves)]
        choice, search, curve = min(found, key=lambda f: f[0].weighed)
        better = sure(search.model, refined(search.model, choice, math.inf))
        whole = untiled(searches[0].model.program, searches[0].model)
        if better.cycles > (1 - WORTH) * whole.cycles:
            return TileDecision(searches[0].model.program, whole, [], tuple(found[0][2]))
        for chosen in (better, sure(search.model, choice)):
            plans = _lowered(search, chosen)
            if plans is not None:
                return TileDecision(search.model.program, chosen, plans, tuple(curve))
    return TileDecision(searches[0].model.program, whole, [], tuple(found[0][2]))  # none of those tried could be made


def _within(sizes: _Sizes, own: Sequence[int], budget: int, optimize: str) -> TileDecision:
    """First the fastest of ``own`` searches that should fit. If none does, a fixed set, whose smallest one is what an
    error names: so that any budget from there on can be met."""
    searches = sizes.searches
    more = 0.0  # real bytes beyond predicted ones, as far as they were seen
    curves = {i: searches[i].curve() for i in own}
    for _ in range(TRIES):
        left = [(c, i) for i, curve in curves.items() for c in curve if (i, c) not in sizes.found]
        fitting = [f for f in left if f[0].bytes + more <= budget] or [f for f in left if f[0].bytes <= budget]
        if not fitting:
            break
        choice, at = min(fitting, key=lambda f: f[0].bytes if optimize == "memory" else f[0].weighed)
        better = refined(searches[at].model, choice, budget - more)
        size = sizes.of(at, better) if better.cycles < choice.cycles and (at, better) not in sizes.found else None
        if size is not None:
            choice = better
        else:
            size = sizes.of(at, choice)
        if size is None:
            curves[at] = searches[at].curve()
        elif sizes.fits(at, choice, budget):
            return sizes.decision(choice, at)
        else:
            more = max(more, sizes.found[at, choice][0] - choice.bytes)
    able = _reachable(sizes, budget)
    for choice, at in sorted(able, key=lambda f: f[0].weighed):
        if sizes.fits(at, choice, budget):
            return sizes.decision(choice, at)
    choice, at = sizes.smallest(able)  # not of what was made better for this budget alone
    smallest, threads = sizes.exact(at, choice), searches[0].model.threads
    raise BudgetError(
        f"the memory budget of {budget} bytes can't be met: the smallest arena that Halotile finds for this model on "
        f"{threads} thread{'s' if threads > 1 else ''} is {smallest} bytes",
        smallest,
    )


def _reachable(sizes: _Sizes, budget: int) -> list[tuple[CurvePoint, int]]:
    """A fixed set of choices that are planned for real before a budget is refused, as (choice, index of its search):
    the smallest, the first of all curves, points all along them, and the untiled program. Gaps between buffers decide,
    too, so that choices whose tile groups gain no time are among them."""
    for _ in range(TRIES):
        curves = [s.curve() for s in sizes.searches]
        small = sorted(((c, i) for i, curve in enumerate(curves) for c in curve), key=lambda f: f[0].bytes)[:SMALLEST]
        small += [(c, i) for i, curve in enumerate(curves) for c in curve[:CLOSE]]
        small += [(c, i) for i, curve in enumerate(curves) for c in curve[:: max(1, len(curve) // SMALLEST)]]
        model = sizes.searches[0].model
        small.append((untiled(model.program, model), 0))
        limit = FAR_OFF * max(budget, small[0][0].bytes)  # what is planned for more is neither within nor the smallest
        tried = [(c, i) for c, i in dict.fromkeys(small) if c.bytes <= limit]
        able = [(c, i) for c, i in tried if sizes.of(i, c) is not None]
        if len(able) == len(tried):  # else once more, without what turned out to be impossible
            break
    return able if able or sizes.of(0, small[-1][0]) is None else small[-1:]  # nothing can be tiled


@dataclass
class _Sizes:
    """Real arena bytes of choices, each by (index of its search, choice). ``found`` are sizes for which no kernel of a
    tile group was built; those in ``built`` were planned with all kernels and are exact."""

    searches: Sequence[Search]
    arena: Arena
    found: dict[tuple[int, CurvePoint], tuple[int, Plans]] = field(default_factory=dict)
    built: set[tuple[int, CurvePoint]] = field(default_factory=set)

    def of(self, at: int, choice: CurvePoint) -> int | None:
        """Arena bytes of ``choice`` of search ``at``, without building tile groups' kernels; None if one of its tile
        groups can't be planned, whose segment the search then no longer offers."""
        if (at, choice) not in self.found:
            plans = _lowered(self.searches[at], choice)
            if plans is None:
                return None
            size = self.arena(self.searches[at].model.program, plans, choice.rooms, True)
            self.found[at, choice] = size, plans
        return self.found[at, choice][0]

    def exact(self, at: int, choice: CurvePoint) -> int:
        """Arena bytes of ``choice``, planned with the kernels that a build takes."""
        size, plans = self.found[at, choice]
        if (at, choice) not in self.built:
            size = self.arena(self.searches[at].model.program, plans, choice.rooms, False)
            self.found[at, choice] = size, plans
            self.built.add((at, choice))
        return size

    def fits(self, at: int, choice: CurvePoint, budget: int) -> bool:
        """True if the arena of ``choice``, with all kernels built, is at most ``budget`` bytes."""
        return self.found[at, choice][0] <= budget and self.exact(at, choice) <= budget

    def smallest(self, choices: Sequence[tuple[CurvePoint, int]]) -> tuple[CurvePoint, int]:
        """The choice of the fewest exact bytes among ``choices``."""
        while True:
            choice, at = min(choices, key=lambda f: self.found[f[1], f[0]][0])
            if (at, choice) in self.built:
                return choice, at
            self.exact(at, choice)

    def decision(self, choice: CurvePoint, at: int) -> TileDecision:
        size, plans = self.found[at, choice]
        return TileDecision(self.searches[at].model.program, choice, plans, tuple(self.searches[at].curve()), size)


def _lowered(search: Search, choice: CurvePoint) -> Plans | None:
    """The plans of all tiled segments; None (and it is forbidden) if one turns out to be impossible."""
    plans: Plans = []
    fine = True
    for segment in choice.tiled:
        try:
            plans.append((segment.first, segment.last, plan_segment(search.model, segment)))
        except Untileable:
            search.forbidden.add((segment.first, segment.last, segment.shape))
            fine = False
    return plans if fine else None


def plan_segment(model: SearchModel, segment: Segment) -> TilePlan:
    """The exact plan of one segment. Raises Untileable."""
    program, shape = model.program, segment.shape
    assert shape is not None
    why = program.joined(segment.first, segment.last)
    if why is not None:
        raise Untileable(why)
    groups = tuple(program.groups[segment.first : segment.last + 1])
    leaving = program.leaving(segment.first, segment.last)
    if (groups, shape, leaving) not in model.plans:
        model.plans[groups, shape, leaving] = _plan(model, groups, shape, leaving, segment.first)
    return model.plans[groups, shape, leaving]


def _plan(
    model: SearchModel, groups: Sequence[Group], shape: Shape, leaving: frozenset[Value], first: int
) -> TilePlan:
    modes = {v: RECOMPUTE for g in groups if shape.mode_of(g) == RECOMPUTE for v in g.outputs}
    quanta = {}
    if shape.units:
        quanta = {v: model.cost(first + i, shape.room).unit[0] for i, g in enumerate(groups) for v in g.outputs}
    if model.planner is not None:
        return model.planner(model.program, first, first + len(groups) - 1, shape, quanta)  # type: ignore[no-any-return]
    width, taken = groups[-1].outputs[0].shape[3], {}
    dying = model.program.dying(first, first + len(groups) - 1)
    if shape.saves or dying:
        taken = {g.outputs[0]: model.taken(first + i, width, shape.sharing) for i, g in enumerate(groups)}
    over = {v: read for v, read in taken.items() if read is not None}
    form = Form(
        shape.rows, shape.columns, shape.bands, modes, 1, quanta, shape.sharing, shape.saves, shape.room, over, dying
    )
    return lower(groups, model.program.layouts, form, leaving, model.needs)


def sure(model: SearchModel, choice: CurvePoint) -> CurvePoint:
    """``choice`` with those of its tile groups computed whole that promise less than SURE of their time."""
    parts: list[Segment] = []
    for part in choice.segments:
        members = [model.whole(i) for i in range(part.first, part.last + 1)]
        certain = part.shape is None or sum(m.cycles for m in members) >= (1 + SURE) * part.cycles
        parts += [part] if certain else members
    memory = Live(model)
    peak = max((memory.of(p) for p in parts), default=0.0)
    return replace(choice, bytes=peak, cycles=sum(p.cycles for p in parts), segments=tuple(parts))


def untiled(program: Program, model: SearchModel) -> CurvePoint:
    """The choice of computing every group whole."""
    memory = Live(model)
    parts = tuple(model.whole(i) for i in range(len(program.groups)))
    cycles = sum(s.cycles for s in parts)
    return CurvePoint(max(memory.of(s) for s in parts), cycles, parts, cycles)


def points(curve: Sequence[CurvePoint]) -> list[dict[str, float]]:
    """``curve`` as plain data for reports: bytes, cycles, groups and tile groups of each choice."""
    return [
        {"bytes": round(c.bytes), "cycles": round(c.cycles), "groups": len(c.segments), "tiled": len(c.tiled)}
        for c in curve
    ]
