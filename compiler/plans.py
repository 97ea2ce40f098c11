"""The tile plans of a model, and the curve of memory against predicted time, without building it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .pipeline import Build, Options, run_pipeline


def plans(model: Any, options: Options) -> dict[str, Any]:
    """``groups``: one entry a tile group; ``untiled``, ``chosen`` and ``curve`` where there was a choice; bytes are
    those of the arena, cycles predicted ones of the whole run."""
    build = run_pipeline(model, replace(options, stop_after="plan"))
    return {
        "name": build.imported.name,
        "arena_bytes": build.report["arena_bytes"],
        "seconds": build.seconds["tile"],
        "groups": planned(build),
        **{k: v for k, v in build.details.get("tile", {}).items()},
        "notes": list(build.notes.get("tile", ())),
    }


def planned(build: Build) -> list[dict[str, Any]]:
    """The tile groups of a build, in order, as plain data."""
    from ..passes.tile.describe import plan_data
    from ..schedules.words.tile_plan import TilePlan

    found: Mapping[Any, Any] = build.tiled
    return [plan_data(g.name, found[g]) for g in build.groups if isinstance(found.get(g), TilePlan)]
