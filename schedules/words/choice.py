"""How a group is computed: the algorithm that was chosen, with its plan, or why another one was not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

OwnPlan = Any  # what an algorithm plans: a record of its own, which is handed back to it and read by nobody else


@dataclass(frozen=True)
class Decision:
    """A choice among candidates (words/candidates.py): ``chosen`` for ``key``, where the estimate says ``own``.
    ``offered`` are worth a measurement."""

    key: str
    chosen: str
    own: str
    offered: int


@dataclass(frozen=True)
class Choice:
    """An algorithm, by its name, with a plan that only the algorithm reads. ``label`` names both.

    ``cycles`` are what offers are compared by, the margin that their algorithm has to win by included; the fewest are
    taken. An offer that is ``sure`` is taken without a comparison: it was measured to be far ahead wherever it applies.
    ``decision`` and ``notes`` say what measured choices had to do with it.
    """

    algorithm: str
    plan: OwnPlan = None
    label: str = ""
    cycles: float = math.inf
    sure: bool = False
    decision: Decision | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = self.label or self.algorithm
        return text if math.isinf(self.cycles) else f"{text}, {self.cycles:,.0f} cycles"


@dataclass(frozen=True)
class AlgorithmRefusal:
    """Why an algorithm does not compute a request."""

    algorithm: str
    reason: str

    def __str__(self) -> str:
        return f"{self.algorithm}: {self.reason}"
