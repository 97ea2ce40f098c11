"""Many plans of one transform at once: a layer has hundreds, of which few are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..box_cost import Numbers
from .plan import WinogradPlan

VARIED = ("rows", "vectors", "strip", "strips", "chunks", "groups")  # fields of a plan in which those of a table differ


def in_arrays(alike: WinogradPlan, varied: Sequence[tuple[int, ...]]) -> WinogradPlan:
    """Plans as one: each of their VARIED fields, which ``varied`` has for each plan, is an array; all others are those
    of ``alike``."""
    columns: dict[str, Numbers] = dict(zip(VARIED, np.array(varied, np.int64).reshape(-1, len(VARIED)).T))
    return replace(alike, **columns)


@dataclass(frozen=True)
class PlanTable:
    """``plans`` in arrays (:func:`in_arrays`); ``cycles`` and the bytes of scratch ``held`` by a core are of each."""

    plans: WinogradPlan
    cycles: np.ndarray
    held: Numbers

    def __len__(self) -> int:
        return len(self.cycles)

    def plan(self, index: int) -> WinogradPlan:
        alike = self.plans
        rows, vectors, strip, strips, chunks, groups = (int(getattr(alike, name)[index]) for name in VARIED)
        return WinogradPlan(
            alike.transform, alike.tiles, rows, vectors, strip, strips, chunks, groups, float(self.cycles[index]),
            alike.planes, alike.products, alike.plain, alike.half, alike.whole,
        )  # fmt: skip

    def best_first(self, tie: float) -> list[int]:
        """The plans in order: those with the fewest cycles first; of as many (``tie`` times) in the same register tile,
        the one with the least scratch."""
        order = np.argsort(self.cycles, kind="stable")
        if not len(order):
            return []
        best = order[0]
        tied = self.cycles <= tie * self.cycles[best]
        for same in (np.asarray(self.plans.rows), np.asarray(self.plans.vectors)):
            tied &= same == same[best]
        first = order[tied[order]]
        first = first[np.argsort(self.held[first], kind="stable")]
        return [*first.tolist(), *order[~tied[order]].tolist()]

    def front(self, order: Sequence[int]) -> tuple[tuple[int, WinogradPlan], ...]:
        """The bytes that a core holds, and the plan, for all plans that none before them in the order beats in that."""
        held = self.held.tolist()
        found: list[tuple[int, WinogradPlan]] = []
        for i in order:
            if not found or held[i] < found[-1][0]:
                found.append((held[i], self.plan(i)))
        return tuple(found)
