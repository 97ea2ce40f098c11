"""Which layers are in which precision: the assignments that no other beats in error and time.

Errors of layers are of random signs: their squares add up. So it is a knapsack with several forms of each item, and
dynamic programming over the square of the error, in steps of a constant factor, has the whole curve at once.

    unit    forms                                     chosen
    conv1   float32 0, 1.0    bfloat16 2e-3, 0.6      each unit one form: the least sum of times
    conv2   float32 0, 2.0    int8     8e-3, 0.4      for every sum of squares of errors
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

STEP = 10 ** (1 / 32)  # of squares of errors that count as one
FLOOR = 1e-16  # squares below that are one step


@dataclass(frozen=True)
class UnitForm:
    """A unit of layers in one precision: ``error`` of the outputs where it alone is in it, ``cycles`` that it takes."""

    precision: str
    error: float
    cycles: float


@dataclass(frozen=True)
class BudgetPoint:
    """One form of each unit, in order; ``error`` and ``cycles`` are sums."""

    error: float
    cycles: float
    forms: tuple[UnitForm, ...]


Taken = tuple["UnitForm", "Taken"] | None  # the last first
State = tuple[float, float, Taken]  # square of the error, cycles, forms


def curve(units: Sequence[Sequence[UnitForm]]) -> list[BudgetPoint]:
    """The points that no other beats, by their errors, the most exact first."""
    states: list[State] = [(0.0, 0.0, None)]
    for forms in units:
        best: dict[int, State] = {}
        for square, cycles, taken in states:
            for form in forms:
                if not math.isfinite(form.error):
                    continue
                state = square + form.error**2, cycles + form.cycles, (form, taken)
                step = round(math.log(max(state[0], FLOOR) / FLOOR, STEP))
                if step not in best or (state[1], state[0]) < (best[step][1], best[step][0]):
                    best[step] = state
        states = _undominated(list(best.values()))
    return [BudgetPoint(math.sqrt(square), cycles, _forms(taken)) for square, cycles, taken in states]


def ladder(points: Sequence[BudgetPoint], most: int) -> list[BudgetPoint]:
    """At most ``most`` of the points of a curve, from the exact one to the fastest, evenly over the errors between."""
    first, *rest = points
    if len(rest) < most:
        return list(points)
    low, high = (math.log(max(p.error, math.sqrt(FLOOR))) for p in (rest[0], rest[-1]))
    found = {0: first}
    for i in range(1, most):
        error = math.exp(low + (high - low) * i / (most - 1)) * (1 + 1e-9)
        at = max((k for k, p in enumerate(points) if p.error <= error), default=0)
        found[at] = points[at]
    return [found[at] for at in sorted(found)]


def _undominated(states: list[State]) -> list[State]:
    found: list[State] = []
    for state in sorted(states, key=lambda s: (s[0], s[1])):
        if not found or state[1] < found[-1][1]:
            found.append(state)
    return found


def _forms(taken: Taken) -> tuple[UnitForm, ...]:
    found = []
    while taken is not None:
        form, taken = taken
        found.append(form)
    return tuple(reversed(found))
