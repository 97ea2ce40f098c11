"""Which point of the curve a build takes, and the plans that make it real.

speed      the fastest; a tile group must promise GAIN of its time, since the model is only a model
memory     the smallest
a budget   the fastest whose arena, planned for real with the kernels' own scratch, does not exceed it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...errors import HalotileError
from ...schedules.tileplan import TilePlan
from .candidates import Program
from .estimate import Model, Segment
from .form import RECOMPUTE, Form, Untileable
from .lower import lower
from .search import Choice, Search

GAIN = 0.05
TRIES = 12
Plans = list[tuple[int, int, TilePlan]]
Arena = Callable[[Program, Plans], int]  # bytes of the arena that a run needs with these plans


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
    searches = [Search(v, 0.0 if optimize == "memory" or budget is not None else GAIN) for v in variants]
    if budget is not None:
        return _within(searches, budget, arena, optimize)
    for _ in range(TRIES):
        curves = [s.curve() for s in searches]
        found = [(c[0] if optimize == "memory" else c[-1], s, c) for s, c in zip(searches, curves)]
        choice, search, curve = min(found, key=lambda f: f[0].bytes if optimize == "memory" else f[0].weighed)
        plans = _lowered(search, choice)
        if plans is not None:
            return Decision(search.model.program, choice, plans, tuple(curve))
    raise HalotileError("tile: no plan could be made; use tile='off'")


def _within(searches: Sequence[Search], budget: int, arena: Arena, optimize: str) -> Decision:
    smallest: int | None = None
    tried: set[tuple[int, Choice]] = set()
    factor = 1.0  # real bytes over predicted ones, as far as they were seen
    curves = [s.curve() for s in searches]
    for _ in range(TRIES):
        left = [(c, i) for i, curve in enumerate(curves) for c in curve if (i, c) not in tried]
        fitting = [f for f in left if f[0].bytes * factor <= budget]
        if not left:
            break
        if optimize == "memory" or not fitting:
            choice, at = min(left, key=lambda f: f[0].bytes)
        else:
            choice, at = min(fitting, key=lambda f: f[0].cycles)
        plans = _lowered(searches[at], choice)
        if plans is None:
            curves[at] = searches[at].curve()
            continue
        tried.add((at, choice))
        real = arena(searches[at].model.program, plans)
        smallest = real if smallest is None else min(smallest, real)
        if real <= budget:
            return Decision(searches[at].model.program, choice, plans, tuple(curves[at]), real)
        if not fitting:
            break  # not even the smallest one
        if choice.bytes < real:
            factor = max(factor, real / max(1.0, choice.bytes))
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
    modes = {v: RECOMPUTE for g in groups for v in g.outputs} if shape.mode == RECOMPUTE else {}
    form = Form(shape.rows, shape.columns, shape.bands, modes)
    return lower(groups, program.layouts, form, program.leaving(segment.first, segment.last), model.needs)


def untiled(program: Program, model: Model) -> Choice:
    """Every group whole."""
    from .search import Live

    memory = Live(model)
    parts = tuple(model.whole(i) for i in range(len(program.groups)))
    return Choice(max(memory.peak(s.first, s.last, 0.0) for s in parts), sum(s.cycles for s in parts), parts)


def points(curve: Sequence[Choice]) -> list[dict[str, float]]:
    """The curve as plain data."""
    return [
        {"bytes": round(c.bytes), "cycles": round(c.cycles), "groups": len(c.segments), "tiled": len(c.tiled)}
        for c in curve
    ]
