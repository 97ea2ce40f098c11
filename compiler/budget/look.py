"""The plan of precisions and the curve it was chosen from, as plain data, without building anything."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ..given import ModelGiven
from ..state import Options
from .plan import Planner, Rung, Tell
from .wish import checked, planner

if TYPE_CHECKING:
    from ...targets.plain import Json


def look(
    model: ModelGiven, options: Options, calibrate: object, error: object = None, progress: Tell | None = None
) -> Json:
    """``layers``: precision, shares of the error and predicted cycles of each, and the reason; ``curve``: what no other
    assignment beats in expected error and predicted time; ``chosen`` of it for the ``error``, None where there is none
    given."""
    limit = checked(options, calibrate, error, needs_error=False)
    made: Planner = planner(model, options, calibrate, progress)
    chosen = next(made.within(limit)) if error is not None else None
    named = {"name": made.shares.model.graph.name, "target": options.target.id}
    return {**named, "limit": None if error is None else limit, **seen(made, chosen)}


def seen(made: Planner, chosen: Rung | None = None) -> Json:
    """What a planner knows, as :func:`look` tells it."""
    rungs = made.rungs if chosen is None or chosen in made.rungs else [*made.rungs, chosen]
    return {
        "precisions": sorted({"float32", *(kind for mixed in made.times.kinds for kind in mixed)}),
        "cycles_float32": made.rungs[0].cycles,
        "chosen": None if chosen is None else _point(chosen),
        "layers": made.rows(chosen or made.rungs[0]),
        "curve": [_point(r) for r in sorted(rungs, key=lambda r: (r.error, r.cycles))],
    }


def _point(rung: Rung) -> Json:
    return {
        "error": rung.errors[0], "held": rung.errors[1], "cycles": rung.cycles,
        "precisions": dict(sorted(Counter(rung.precision.values()).items())),
    }  # fmt: skip
