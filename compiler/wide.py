"""What a build in float16 would be with all of its layers in float32: the measure of what float16 is asked for.

    arena_aimed(build, stages)    bytes: half of the arena that float32 would take, which float16's is to keep

float32 gains more time by tiles, since whole values leave the caches sooner; so it is tiled where float16 is not, and
could take the smaller arena of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from .state import STAGES

if TYPE_CHECKING:
    from .state import Build

    Stages = Mapping[str, Callable[[Build], None]]

HALF = 0.52  # of float32's arena: half of its bytes, and what is float32 all the same, or rounded up to whole lines


def arena_aimed(build: Build, stages: Stages) -> int | None:
    """The bytes that the arena of ``build``, which is about to be tiled, is to keep where that costs little time; None
    where no layer is in float16, where something else decides on tiles, or float32 takes no arena."""
    options = build.options
    if build.wide is None or options.tile not in (None, "auto") or not options.policy.speed:
        return None
    chosen = in_float32(build, stages, "tile").details.get("tile", {}).get("chosen")
    return int(HALF * chosen["bytes"]) or None if chosen is not None else None


def in_float32(build: Build, stages: Stages, last: str) -> Build:
    """The same build with all layers in float32, from where layers went into float16 up to the stage ``last``;
    ``stages`` are the pipeline's, by name."""
    details = {name: found for name, found in build.details.items() if name != "halves"}
    wide = replace(
        build, module=build.wide, wide=None, output=None, progress=None, details=details, notes=dict(build.notes),
        warnings=[], groups=(), views={}, layouts={}, choices={}, vanished={}, tiled={}, rooms={}, ready={}, flows={},
        repeats=None,
    )  # fmt: skip
    for stage in STAGES[STAGES.index("fuse") : STAGES.index(last) + 1]:
        stages[stage](wide)
    return wide
