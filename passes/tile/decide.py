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
from dataclasses import dataclass, replace

from ...errors import HalotileError
from ...schedules.tileplan import TilePlan
from .candidates import Program
from .estimate import Model, Segment
from .form import RECOMPUTE, Form, Untileable
from .lower import lower
from .refine import refined
from .search import Choice, Live, Rooms, Search

GAIN = 0.05
SURE = 0.06  # so far off is the model: what promised 0.05 was 0.97 to 1.05 times as fast
WORTH = 0.01  # less can't be told from nothing
TRIES = 12
SMALLEST = 16  # points planned for real before a budget is refused: the smallest, and as many along each curve
CLOSE = 8  # points planned for real where the smallest is wanted
Plans = list[tuple[int, int, TilePlan]]
Arena = Callable[[Program, Plans, Rooms], int]  # bytes of the arena that a run needs with these plans


@dataclass(frozen=True)
class Decision:
    """``bytes``: the arena where it was planned for real. ``curve``: what there was to choose from."""

    program: Program
    choice: Choice
    plans: Plans
    curve: tuple[Choice, ...]
    bytes: int | None = None


def decide(variants: Sequence[Model], optimize: str, budget: int | None, arena: Arena) -> Decision:
    """The best over ``variants`` of the program. Raises HalotileError, naming the smallest arena that can be reached,
    if none fits the budget."""
    searches = [Search(v, 0.0 if optimize == "memory" else GAIN) for v in variants]
    if budget is not None:
        return _within(searches, budget, arena, optimize)
    if optimize == "memory":
        return _smallest(searches, arena)
    for _ in range(TRIES):
        curves = [s.curve() for s in searches]
        found = [(c[-1], s, c) for s, c in zip(searches, curves)]
        choice, search, curve = min(found, key=lambda f: f[0].weighed)
        better = sure(search.model, refined(search.model, choice, math.inf))
        whole = untiled(searches[0].model.program, searches[0].model)
        if better.cycles > (1 - WORTH) * whole.cycles:
            return Decision(searches[0].model.program, whole, [], tuple(found[0][2]))
        for chosen in (better, sure(search.model, choice)):
            plans = _lowered(search, chosen)
            if plans is not None:
                return Decision(search.model.program, chosen, plans, tuple(curve))
    return Decision(searches[0].model.program, whole, [], tuple(found[0][2]))  # none of those tried could be made


def _smallest(searches: Sequence[Search], arena: Arena) -> Decision:
    """The smallest arena of those that should be small, planned for real: gaps between buffers decide, too."""
    best: Decision | None = None
    for _ in range(TRIES):
        small = sorted(((c, s) for s in searches for c in s.curve()), key=lambda f: (f[0].bytes, f[0].cycles))
        for choice, search in small[:CLOSE]:
            plans = _lowered(search, choice)
            if plans is None:
                continue
            size = arena(search.model.program, plans, choice.rooms)
            if best is None or best.bytes is None or size < best.bytes:
                best = Decision(search.model.program, choice, plans, tuple(search.curve()), size)
        if best is not None:
            return best
    raise HalotileError("tile: no plan could be made; use tile='off'")


def _within(searches: Sequence[Search], budget: int, arena: Arena, optimize: str) -> Decision:
    """First the fastest that should fit. If none does, a fixed set, whose smallest one is what an error names: so that
    any budget from there on can be met."""
    real: dict[tuple[int, Choice], tuple[int, Plans]] = {}

    def measured(at: int, choice: Choice) -> tuple[int, Plans] | None:
        if (at, choice) not in real:
            plans = _lowered(searches[at], choice)
            if plans is None:
                return None
            real[at, choice] = arena(searches[at].model.program, plans, choice.rooms), plans
        return real[at, choice]

    more = 0.0  # real bytes beyond predicted ones, as far as they were seen
    curves = [s.curve() for s in searches]
    for _ in range(TRIES):
        left = [(c, i) for i, curve in enumerate(curves) for c in curve if (i, c) not in real]
        fitting = [f for f in left if f[0].bytes + more <= budget] or [f for f in left if f[0].bytes <= budget]
        if not fitting:
            break
        choice, at = min(fitting, key=lambda f: f[0].bytes if optimize == "memory" else f[0].weighed)
        better = refined(searches[at].model, choice, budget - more)
        found = measured(at, better) if better.cycles < choice.cycles and (at, better) not in real else None
        if found is not None:  # made better at once: kernels of what is made better afterwards are built in vain
            choice = better
        else:
            found = measured(at, choice)
        if found is None:
            curves[at] = searches[at].curve()
        elif found[0] <= budget:
            return Decision(searches[at].model.program, choice, found[1], tuple(curves[at]), found[0])
        else:
            more = max(more, found[0] - choice.bytes)
    for _ in range(TRIES):
        small = sorted(((c, i) for i, curve in enumerate(curves) for c in curve), key=lambda f: f[0].bytes)[:SMALLEST]
        small += [(c, i) for i, curve in enumerate(curves) for c in curve[:: max(1, len(curve) // SMALLEST)]]
        small.append((untiled(searches[0].model.program, searches[0].model), 0))
        able = [(c, i, f) for c, i in dict.fromkeys(small) if (f := measured(i, c)) is not None]
        if len(able) == len(dict.fromkeys(small)):
            break
        curves = [s.curve() for s in searches]  # without what turned out to be impossible
    fits = [a for a in able if a[2][0] <= budget]
    if fits:
        choice, at, found = min(fits, key=lambda f: f[0].weighed)
        return Decision(searches[at].model.program, choice, found[1], tuple(curves[at]), found[0])
    smallest = min(size for _, _, (size, _) in able)  # not of what was made better for this budget alone
    threads = searches[0].model.threads
    raise HalotileError(
        f"the memory budget of {budget} bytes can't be met: the smallest arena that Halotile finds for this model on "
        f"{threads} thread{'s' if threads > 1 else ''} is {smallest} bytes"
    )


def _lowered(search: Search, choice: Choice) -> Plans | None:
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


def plan_segment(model: Model, segment: Segment) -> TilePlan:
    """The exact plan of one segment. Raises Untileable."""
    program, shape = model.program, segment.shape
    assert shape is not None
    why = program.joined(segment.first, segment.last)
    if why is not None:
        raise Untileable(why)
    groups = program.groups[segment.first : segment.last + 1]
    modes = {v: RECOMPUTE for g in groups if shape.mode_of(g) == RECOMPUTE for v in g.outputs}
    quanta = {}
    if shape.units:
        quanta = {v: model.cost(segment.first + i).unit[0] for i, g in enumerate(groups) for v in g.outputs}
    form = Form(shape.rows, shape.columns, shape.bands, modes, quanta=quanta)
    return lower(groups, program.layouts, form, program.leaving(segment.first, segment.last), model.needs)


def sure(model: Model, choice: Choice) -> Choice:
    """``choice`` without the tile groups that don't promise SURE of their time: their members are computed whole."""
    parts: list[Segment] = []
    for part in choice.segments:
        members = [model.whole(i) for i in range(part.first, part.last + 1)]
        certain = part.shape is None or sum(m.cycles for m in members) >= (1 + SURE) * part.cycles
        parts += [part] if certain else members
    memory = Live(model)
    peak = max((memory.of(p) for p in parts), default=0.0)
    return replace(choice, bytes=peak, cycles=sum(p.cycles for p in parts), segments=tuple(parts))


def untiled(program: Program, model: Model) -> Choice:
    """Every group whole."""
    memory = Live(model)
    parts = tuple(model.whole(i) for i in range(len(program.groups)))
    cycles = sum(s.cycles for s in parts)
    return Choice(max(memory.of(s) for s in parts), cycles, parts, cycles)


def points(curve: Sequence[Choice]) -> list[dict[str, float]]:
    """The curve as plain data."""
    return [
        {"bytes": round(c.bytes), "cycles": round(c.cycles), "groups": len(c.segments), "tiled": len(c.tiled)}
        for c in curve
    ]
