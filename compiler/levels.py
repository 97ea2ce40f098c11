"""One library for several levels of processors: the pipeline once for each, weights of equal form shared.

    options.target, *options.levels -> build.library with the code of all of them
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import HalotileError, TargetError
from ..targets.target import Target

if TYPE_CHECKING:
    from .state import Build


def with_levels(build: Build, pipeline: Callable[..., Build]) -> None:
    """Adds the code of the further levels to ``build.library``. ``pipeline`` builds a model for one target; arena and
    workspace become what the level that needs most of them needs."""
    from .codegen.spec import Level

    options, library, weights = build.options, build.library, build.weights
    levels, chunks, threads = [], list(library.weights), library.default_threads
    needs = [(library.planned_bytes, library.workspace_bytes, library.facts)]
    build.levels = [_told(options.target, library, weights.bytes, threads)]
    for number, target in enumerate(options.levels or (), 1):
        folder = options.dump_ir / target.id if options.dump_ir is not None else None
        own = replace(
            options, target=target, levels=None, stop_after="assemble", formats=(), threads=threads, dump_ir=folder
        )
        made = pipeline(build.source, own, build.progress, level=number, beneath=weights)
        _check_same(build, made)
        levels.append(
            Level(target, made.library.object_bytes, made.library.kernel_objects, made.library.matrix_unit)
        )
        chunks += made.library.weights
        needs.append((made.library.planned_bytes, made.library.workspace_bytes, made.library.facts))
        build.levels.append(_told(target, made.library, made.weights.bytes - weights.bytes, threads))
        weights = made.weights
    planned, workspace, facts = (max(column) for column in zip(*needs))
    build.library = replace(
        library, levels=tuple(levels), weights=chunks, planned_bytes=planned, workspace_bytes=workspace, facts=facts
    )


def check_levels(target: Target, levels: Sequence[Target] | None, timers: bool = False, tuning: Any = None) -> None:
    """Raises TargetError unless ``levels`` go from ``target`` upwards on one architecture; HalotileError for what a
    library with levels can't have."""
    from ..targets.llvm import architecture, features

    if not levels:
        return
    for what, wanted in (("timers", timers), ("tuning", tuning)):
        if wanted:
            raise HalotileError(f"{what}: of one level of processors alone; build it without levels")
    every, known = (target, *levels), []
    for level in every:
        if level.memory_kind != "cache":
            raise TargetError(f"level {level.id}: a machine with a scratchpad can't share a library")
        if level.triple != target.triple:
            raise TargetError(f"level {level.id} is for {level.triple}, {target.id} for {target.triple}: choose one")
        known.append(features(architecture(level.triple), level.cpu, tuple(level.features)))
    for below, above, less, more in zip(every, levels, known, known[1:]):
        if not _able(less) < _able(more):
            raise TargetError(
                f"level {above.id} has not all instructions of {below.id} and more: give levels from the least on"
            )


def _able(features: frozenset[str]) -> frozenset[str]:
    """The features that processors can be asked for; others are how LLVM should tune."""
    from .codegen.processor import ASKED

    return features & ASKED


def _check_same(build: Build, made: Build) -> None:
    for what in ("inputs", "outputs", "symbols", "conditions"):
        if getattr(build.library, what) != getattr(made.library, what):
            raise TargetError(
                f"levels {build.options.target.id} and {made.options.target.id} come to other {what} of this model; "
                "build one library for each"
            )


def _told(target: Target, library: Any, weights: int, threads: int) -> dict[str, Any]:
    """What the report has of a level; ``weight_bytes`` are those that levels before it have not."""
    return {
        "target": target.id,
        "cpu": target.cpu,
        "arena_bytes": library.arena_bytes(threads),
        "weight_bytes": weights,
    }
