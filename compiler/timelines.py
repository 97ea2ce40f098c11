"""The predicted timelines of a model's stripes on a target with a scratchpad, as plain data and as pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import TargetError
from ..passes.tile.scratchpad.timeline import Timeline, predict
from ..targets.target import Target
from .given import ModelGiven
from .options import Fixed, Shapes

if TYPE_CHECKING:
    from ..targets.plain import Json, JsonView


@dataclass(frozen=True)
class ChainTimeline:
    """One chain of groups in stripes, and when everything in it is predicted to start and end."""

    name: str
    groups: tuple[str, ...]
    rows: int
    stripes: int
    scratchpad_bytes: int
    timeline: Timeline
    one_by_one: Timeline

    def data(self) -> Json:
        on_path = set(map(id, self.timeline.critical_path))
        return {
            "name": self.name,
            "groups": list(self.groups),
            "stripe_rows": self.rows,
            "stripes": self.stripes,
            "scratchpad_bytes": self.scratchpad_bytes,
            "seconds": self.timeline.seconds,
            "seconds_without_overlap": self.one_by_one.seconds,
            "bars": [
                {
                    "event": str(b.event),
                    "lane": b.lane,
                    "start": b.start,
                    "end": b.end,
                    "critical": id(b) in on_path,
                }
                for b in self.timeline.bars
            ],
        }


def timelines(
    model: ModelGiven, shapes: Shapes | None, target: str | Target, rows: int | None = None,
    fixed: Mapping[str, Fixed] | None = None, typical: Mapping[str, int] | None = None,
) -> tuple[ChainTimeline, ...]:
    """The chains that a build for ``target`` computes in stripes (of ``rows`` rows; None chooses)."""
    from ..passes.tile.scratchpad.costs import stripe_costs
    from ..schedules.words.stripe_plan import StripePlan
    from ..targets.resolve import resolve
    from .pipeline import run_pipeline
    from .state import Options

    chosen = resolve(target)
    if chosen.memory_kind != "scratchpad":
        raise TargetError(
            f"target {chosen.id} has no scratchpad, so nothing is transferred; name one that has: -t scratchpad"
        )
    tile: JsonView | None = None if rows is None else {"shape": (rows, None)}
    lengths = dict(shapes) if shapes else None
    options = Options(chosen, lengths, typical, fixed=fixed, tile=tile, stop_after="tile")
    build = run_pipeline(model, options)
    found = []
    for group in build.groups:
        plan = build.tiled.get(group)
        if isinstance(plan, StripePlan):
            costs = [stripe_costs(plan, stripe, chosen) for stripe in plan.stripes]
            names = tuple(g.name for g in plan.members)
            found.append(
                ChainTimeline(
                    group.name,
                    names,
                    plan.stripe_rows,
                    len(plan.stripes),
                    plan.bytes,
                    predict(costs),
                    predict(costs, overlap=False),
                )
            )
    return tuple(found)
