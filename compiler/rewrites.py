"""The stages that rewrite the Relax module, one a pass, each with notes and details of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..passes.result import Result
    from .state import Build


def simplify(build: Build) -> None:
    """The same numbers from fewer operators."""
    from ..passes.simplify import Simplify

    options = build.options
    if options.simplify:
        passed = Simplify(float_mode=options.policy.rounding, check=options.check)
        _keep(build, "simplify", passed.apply(build.module, options.target))
    if build.output is not None and build.stream is None:  # of the network, and not of a step of it
        from .reach.build import plain_reach

        build.reach = plain_reach(build)


def reassociate(build: Build) -> None:
    """Less work for the kernels, if it may round otherwise. It may take more operators, so it is no simplification;
    what it leaves is simplified again."""
    from ..passes.reassociate import Reassociate
    from ..passes.simplify import Simplify
    from ..passes.simplify.size_tables import spread

    options, rounding = build.options, build.options.policy.rounding
    if not options.simplify:
        return
    build.module = spread(build.module)
    result = Reassociate(rounding != "exact").apply(build.module, options.target)
    _keep(build, "reassociate", result)
    if result.changed:
        cleaned = Simplify(float_mode=rounding, check=options.check).apply(build.module, options.target)
        build.module = spread(cleaned.module)


def dots(build: Build) -> None:
    """Products of bytes as such, where the target has an instruction for them."""
    from ..passes.dots import Dots

    options, policy = build.options, build.options.policy
    if not options.simplify:
        return
    borders = policy.speed and not isinstance(options.tile, Mapping)
    passed = Dots(options.dots, policy.rounding == "exact", borders, policy.winograd)
    _keep(build, "dots", passed.apply(build.module, options.target))


def numbers(build: Build) -> None:
    """Weights in bytes, where what reads them is no slower for it."""
    from ..passes.numbers import NumbersPass

    options = build.options
    if options.simplify:
        rounded = options.weights == "int8"
        _keep(build, "numbers", NumbersPass(not options.policy.speed, rounded).apply(build.module, options.target))


def merge(build: Build) -> None:
    """Products of one value side by side, which fusion then finds as one; and float16, where it was asked for."""
    from ..passes.merge import Merge
    from ..schedules.instructions.bf16_parts import products_of

    options, policy = build.options, build.options.policy
    if options.simplify and options.fuse:
        passed = Merge(policy.threads, policy.strassen, policy.parts, products_of(policy), policy.layers)
        _keep(build, "merge", passed.apply(build.module, options.target))
    if options.weights == "int8":
        _round_weights(build)
    halves(build)


def _round_weights(build: Build) -> None:
    """Weights of products to bytes; behind the merges, which read them."""
    from ..passes.numbers import ProductsOfBytes

    result = ProductsOfBytes().apply(build.module, build.options.target)
    build.module = result.module
    build.notes["numbers"] = [*build.notes.get("numbers", ()), *result.notes]
    before = build.details.get("numbers", {})
    off = max(d.get("largest_rounding", 0.0) for d in (before, result.details))
    build.details["numbers"] = {**before, **result.details, "largest_rounding": off}


def halves(build: Build) -> None:
    """Layers in float16, where that is faster and the samples say that it holds their numbers."""
    from ..passes.halves import Halves

    options = build.options
    if options.policy.precision == "float16":
        before = build.module
        _keep(build, "halves", Halves(options.halves, options.policy, options.half_error).apply(before, options.target))
        if build.details.get("halves"):
            build.wide = before
        else:
            build.warnings += [note for note in build.notes["halves"] if note.startswith("all layers stay")]


def _keep(build: Build, stage: str, result: Result) -> None:
    build.module = result.module
    build.notes[stage] = list(result.notes)
    if result.details:
        build.details[stage] = dict(result.details)
