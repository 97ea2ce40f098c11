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
Arena = Callable[[Plans], int]  # bytes of the arena that a run needs with these plans


@dataclass(frozen=True)
class Decision:
    """``bytes``: the arena where it was planned for real. ``curve``: what there was to choose from."""

    choice: Choice
    plans: Plans
    curve: tuple[Choice, ...]
    bytes: int | None = None


def decide(model: Model, optimize: str, budget: int | None, arena: Arena) -> Decision:
    """Raises HalotileError, naming the smallest arena that can be reached, if none fits the budget."""
    search = Search(model, 0.0 if optimize == "memory" or budget is not None else GAIN)
    if budget is None:
        for _ in range(TRIES):
            curve = search.curve()
            choice = curve[0] if optimize == "memory" else curve[-1]
            plans = _lowered(search, choice)
            if plans is not None:
                return Decision(choice, plans, tuple(curve))
        raise HalotileError("tile: no plan could be made; use tile='off'")
    return _within(search, budget, arena, optimize)


def _within(search: Search, budget: int, arena: Arena, optimize: str) -> Decision:
    smallest: int | None = None
    tried: set[Choice] = set()
    factor = 1.0  # real bytes over predicted ones, as far as they were seen
    for _ in range(TRIES):
        curve = search.curve()
        left = [c for c in curve if c not in tried]
        fitting = [c for c in left if c.bytes * factor <= budget]
        if not left:
            break
        choice = (fitting[0] if optimize == "memory" else fitting[-1]) if fitting else left[0]
        plans = _lowered(search, choice)
        if plans is None:
            continue
        tried.add(choice)
        real = arena(plans)
        smallest = real if smallest is None else min(smallest, real)
        if real <= budget:
            return Decision(choice, plans, tuple(curve), real)
        if not fitting:
            break  # not even the smallest one
        factor = max(factor, real / max(1.0, choice.bytes)) if choice.bytes < real else factor
    raise HalotileError(
        f"the memory budget of {budget} bytes can't be met: the smallest arena that Halotile finds for this model on "
        f"{search.model.threads} thread{'s' if search.model.threads > 1 else ''} is {smallest} bytes"
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
