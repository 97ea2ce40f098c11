"""One library for several levels of processors: the pipeline once for each, weights of each number there once.

    options.target, *options.levels -> build.library with the code of all of them
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import HalotileError, TargetError
from ..targets.target import Target

if TYPE_CHECKING:
    from ..targets.plain import Json
    from .codegen.spec import LibrarySpec
    from .state import Build


def further_levels(build: Build, pipeline: Callable[..., Build]) -> list[Build]:
    """The builds of ``options.levels``, by ``pipeline``, from the last on: its weights are in the file as it reads
    them, and lower levels store what can't be made of those. ``build``, the least, comes behind them."""
    options, made = build.options, list["Build"]()
    if not options.levels:
        return made
    from .codegen.forms import Alike
    from .codegen.module import WeightBlob

    threads = 1 if options.target.one_thread else options.threads or options.target.cores
    build.beneath = WeightBlob((), {}, 0, alike=Alike())
    for number, target in reversed([*enumerate(options.levels, 1)]):
        folder = options.dump_ir / target.id if options.dump_ir is not None else None
        own = replace(
            options, target=target, levels=None, stop_after="assemble", formats=(), threads=threads, dump_ir=folder
        )
        made.append(pipeline(build.source, own, build.progress, level=number, beneath=build.beneath))
        build.beneath = made[-1].weights
    return made


def with_levels(build: Build, further: Sequence[Build]) -> None:
    """Adds the code of the ``further`` levels to ``build.library``; arena and workspace become what the level that
    needs most of them needs."""
    if not further:
        return
    from .codegen.spec import Level

    for made in further:
        _check_same(build, made)
    every = [build, *reversed(further)]
    parts = [_library(made) for made in every]
    build.levels = [_told(made, parts[0].default_threads) for made in every]
    levels = (
        Level(made.options.target, part.object_bytes, part.kernel_objects, part.matrix_unit, part.form)
        for made, part in zip(every[1:], parts[1:])
    )
    build.library = replace(
        parts[0],
        levels=tuple(levels),
        weights=[chunk for part in reversed(parts) for chunk in part.weights],
        planned_bytes=max(part.planned_bytes for part in parts),
        workspace_bytes=max(part.workspace_bytes for part in parts),
        facts=max(part.facts for part in parts),
    )


def _library(build: Build) -> LibrarySpec:
    assert build.library is not None
    return build.library


def check_levels(target: Target, levels: Sequence[Target] | None, timers: bool = False, tuning: object = None) -> None:
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


def _told(made: Build, threads: int) -> Json:
    """What the report has of a level; ``weight_bytes`` are those in the file that levels above it have not,
    ``made_bytes`` those that it makes of what is in the file when it is used."""
    assert made.weights is not None and made.beneath is not None
    return {
        "target": made.options.target.id,
        "cpu": made.options.target.cpu,
        "arena_bytes": _library(made).arena_bytes(threads),
        "weight_bytes": made.weights.bytes - made.beneath.bytes,
        "made_bytes": made.weights.form.bytes,
    }
