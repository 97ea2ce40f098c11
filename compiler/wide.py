"""What a build in float16 would be with all of its layers in float32: the measure of what float16 is asked for.

    arena_aimed(build, stages)    bytes: half of the arena that float32 would take, which float16's is to keep
    settle(build, stages)         all of float32, where an error leaves so many layers in it that the mix is slower

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


def settle(build: Build, stages: Stages) -> None:
    """Takes all layers of ``build``, which has its groups, back to float32, where some stay in it for the error and all
    are expected to be faster so: float32 beside float16 has blocks of as many channels, of two registers each."""
    error = build.options.half_error
    if build.wide is None or error is None or not error.stay or not build.options.policy.speed:
        return
    if build.imported.symbols:
        return
    wide = in_float32(build, stages, "layout")
    mixed, alone = _cycles(build), _cycles(wide)
    if alone >= mixed:
        return
    for name in ("module", "target", "graph", "groups", "views", "places", "closing", "shared", "layouts", "vanished"):
        setattr(build, name, getattr(wide, name))
    build.wide, build.details = None, wide.details
    why = f"all layers stay in float32: {error.why_some} with more in float16, and what is left takes "
    why += f"{mixed / alone:.2f} times float32's time"
    build.notes |= {"fuse": wide.notes["fuse"], "layout": wide.notes["layout"], "halves": [why]}
    build.warnings.append(why)


def _cycles(build: Build) -> float:
    """Predicted, of all groups, computed whole."""
    from ..passes.tile.search.predict import predicted_cycles

    placed = (*build.graph.inputs, *build.graph.outputs)
    return sum(predicted_cycles(
        build.groups, build.layouts, build.places, placed, build.target, build.options.policy, build.closing
    ))  # fmt: skip


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
