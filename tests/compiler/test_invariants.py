"""What --check holds every stage to: it passes where all is right, and names what is wrong."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from compiled import native
from halotile.benchmarks.models import MODELS
from halotile.compiler.invariants import check_stage, collisions
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import STAGES, Build, Options
from halotile.errors import InternalError
from halotile.schedules.words.tile_plan import Compute
from tvm import relax
from tvm.ir import IRModule


def built(name: str, **options: Any) -> Build:
    return run_pipeline(MODELS[name].model(small=True), Options(native(), threads=2, stop_after="plan", **options))


@pytest.mark.parametrize("name", ["unet", "segformer"])
def test_every_stage_of_real_models_holds(name: str) -> None:
    build = built(name, check=True, optimize="memory")
    assert list(build.seconds) == list(STAGES[: STAGES.index("plan") + 1]) and build.tiled


def test_a_module_with_a_loose_end_is_named() -> None:
    build = built("resnet18")
    main = build.module["main"]
    loose = relax.Var("loose", main.body.ty)
    build.module = IRModule({"main": relax.Function([*main.params], loose, main.ret_ty)})
    with pytest.raises(InternalError, match="stage simplify left"):
        check_stage(build, "simplify")


def test_a_plan_that_skips_rows_is_named() -> None:
    build = built("unet", optimize="memory")
    group, plan = next(iter(build.tiled.items()))
    task = plan.tasks[0]
    first, *others = task.stripes
    kept = tuple(step for step in first if not isinstance(step, Compute) or step.member)
    build.tiled[group] = replace(plan, tasks=(replace(task, stripes=(kept, *others)), *plan.tasks[1:]))
    with pytest.raises(InternalError, match=f"stage tile left.*{group.name}: "):
        check_stage(build, "tile")


def test_a_group_without_a_choice_is_named() -> None:
    build = built("resnet18")
    missing = build.groups[1]
    build.choices.pop(missing, None)
    with pytest.raises(InternalError, match=f"{missing.name} has no choice"):
        check_stage(build, "select")


def test_buffers_that_share_bytes_are_named() -> None:
    def buffer(name: str, first: int, last: int, offset: int, size: int) -> Any:
        return SimpleNamespace(name=name, first=first, last=last, offset=offset, bytes=size)

    apart = [buffer("a", 0, 2, 0, 64), buffer("b", 1, 3, 64, 64), buffer("c", 3, 4, 0, 64)]
    assert list(collisions(apart)) == []
    assert list(collisions([*apart, buffer("d", 2, 2, 32, 8)])) == ["a and d share bytes of the arena in step 2"]
