"""The tile plans of a model, and the curve of memory against predicted time, without building it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .pipeline import run_pipeline
from .report import planned
from .state import Options


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
