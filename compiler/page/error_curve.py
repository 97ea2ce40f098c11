"""The curve of expected error against predicted time that the page shows, and what a build chose of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...targets.plain import Json, JsonView
    from ..budget.plan import Planner


@dataclass
class ErrorCurve:
    """``points`` that no other assignment beats in expected error and predicted cycles, those of float32 among them;
    ``layers``: of each its shares of the error and cycles, by precision; ``kinds``: the precisions there are.
    ``assigned``: what a build within an error records, None of another."""

    points: list[Json]
    layers: list[Json]
    kinds: list[str]
    cycles_float32: float
    assigned: JsonView | None = None

    @classmethod
    def of(cls, made: Planner, assigned: JsonView | None) -> ErrorCurve:
        """What a planner knows, beside what a build has ``assigned``."""
        from ..budget.look import seen

        found = seen(made)
        return cls(found["curve"], found["layers"], found["precisions"], found["cycles_float32"], assigned)

    @property
    def chosen(self) -> Json | None:
        """The point of the build's own assignment."""
        own = self.assigned
        if own is None:
            return None
        kinds = dict(sorted(Counter(own["layers"].values()).items()))
        here = [p for p in self.points if p["cycles"] == own["cycles"] and p["precisions"] == kinds]
        made = {"error": own["expected"], "held": own["expected"], "cycles": own["cycles"], "precisions": kinds}
        return here[0] if here else made

    @property
    def every(self) -> list[Json]:
        """The points and the chosen one, the most exact first."""
        own = [] if self.chosen is None or self.chosen in self.points else [self.chosen]
        return sorted([*self.points, *own], key=self.error)

    @staticmethod
    def error(point: JsonView) -> float:
        """The larger error of the two halves of the samples."""
        return float(max(point["error"], point["held"]))

    def part(self, point: JsonView) -> float:
        """Predicted time of a point as a part of float32's."""
        return float(point["cycles"] / self.cycles_float32)
