"""What ``--check`` holds every stage to: a well-formed module, exact plans of tiles, an arena without collisions.

Every rewrite of the simplification is checked on numbers by its own pass (passes/simplify/check.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InternalError
from ..schedules.words.group import Value
from .state import REWRITES

if TYPE_CHECKING:
    from ..passes.memory.places import Places
    from ..passes.memory.plan import Buffer
    from ..schedules.words.group import Kernel
    from ..schedules.words.tvm_types import IRModule
    from .state import Build


def check_stage(build: Build, stage: str) -> None:
    """Raises InternalError with the first thing that is wrong with what ``stage`` left."""
    for problem in _problems(build, stage):
        raise InternalError(f"stage {stage} left what breaks a rule of the compiler: {problem}")


def _problems(build: Build, stage: str) -> Iterator[str]:
    if stage == "import" or stage in REWRITES:
        yield from _malformed(build.module)
    elif stage == "select":
        yield from (f"{g.name} has no choice" for g in build.groups if g not in build.choices)
    elif stage == "tile":
        for group, plan in build.tiled.items():
            yield from (f"{group.name}: {problem}" for problem in _of_plan(build, plan))
    elif stage == "plan":
        yield from collisions(build.memory.buffers)


def require_made(kernels: Sequence[Kernel], given: Sequence[Value], places: Places) -> None:
    """Raises InternalError unless each kernel reads what is given, a constant, or what an earlier one makes: other
    memory holds what the run before left there. Checked in every build, as no run would tell."""
    made = {places.root(value) for value in given}
    for kernel in kernels:
        own = {places.root(value) for value in kernel.outputs}
        for operand in kernel.operands:
            if isinstance(operand, Value) and operand.constant is None and places.root(operand) not in made | own:
                raise InternalError(f"a kernel ({kernel.schedule}) reads '{operand.name}', which nothing makes")
        made |= own


def _malformed(module: IRModule) -> Iterator[str]:
    from tvm import relax

    try:
        relax.analysis.well_formed(module)
    except Exception as error:  # of several types
        yield str(error).strip().splitlines()[0]


def _of_plan(build: Build, plan: Any) -> list[str]:
    from ..passes.tile.open.at_size import plan_at
    from ..passes.tile.plan.checker import check_plan
    from ..passes.tile.scratchpad.checker import check_stripes
    from ..schedules.words.open_tile_plan import OpenTilePlan
    from ..schedules.words.stripe_plan import StripePlan

    if isinstance(plan, OpenTilePlan):
        assert build.imported is not None
        sizes = [{s.name: s.least for s in build.imported.symbols}, {s.name: s.typical for s in build.imported.symbols}]
        return [str(problem) for at in sizes for problem in check_plan(plan_at(plan, at)).problems]
    checked = check_stripes(plan) if isinstance(plan, StripePlan) else check_plan(plan)
    return [str(problem) for problem in checked.problems]


def collisions(buffers: tuple[Buffer, ...]) -> Iterator[str]:
    """Two buffers of the arena that are in use at one time and share bytes."""
    placed = sorted(buffers, key=lambda b: b.first)
    for i, one in enumerate(placed):
        for other in placed[i + 1 :]:
            if other.first > one.last:
                break
            if one.offset < other.offset + other.bytes and other.offset < one.offset + one.bytes:
                yield f"{one.name} and {other.name} share bytes of the arena in step {other.first}"
