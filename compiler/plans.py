"""The tile plans of a model, and the curve of memory against predicted time, without building it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .given import ModelGiven
from .pipeline import run_pipeline
from .report import planned
from .state import Options

if TYPE_CHECKING:
    from ..targets.plain import Json, JsonView


def plans(model: ModelGiven, options: Options) -> Json:
    """``groups``: one entry a tile group; ``untiled``, ``chosen`` and ``curve``, the points that no other beats, where
    there was a choice; bytes are those of the arena, cycles predicted ones of the whole run."""
    build = run_pipeline(model, replace(options, stop_after="plan"))
    details = dict(build.details.get("tile", {}))
    if "curve" in details:
        details["curve"] = undominated([*details["curve"], details["untiled"]])
    return {
        "name": build.imported.name,
        "arena_bytes": build.report["arena_bytes"],
        "seconds": build.seconds["tile"],
        "groups": planned(build),
        **details,
        "notes": list(build.notes.get("tile", ())),
    }


def undominated(points: Sequence[JsonView]) -> list[JsonView]:
    """The points that no other beats in bytes and cycles, by bytes."""
    found: list[JsonView] = []
    for p in sorted(points, key=lambda p: (p["bytes"], p["cycles"])):
        if not found or p["cycles"] < found[-1]["cycles"]:
            found.append(p)
    return found


def why_beaten(chosen: JsonView, points: Sequence[JsonView]) -> str:
    """Why the chosen plan is one that another beats in what is predicted; nothing if none does."""
    from ..passes.tile.search.decide import SURE

    if chosen in undominated([*points, chosen]):
        return ""
    return (
        f"The plan chosen is not the best that is predicted: a tile group that promises less than {SURE:.0%} of its "
        "time is left out, since predictions are so far off."
    )
