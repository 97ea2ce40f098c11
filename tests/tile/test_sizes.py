"""What a tile group's kernel takes is known without building it: planning for a budget looks at many plans."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compiled import native
from halotile.benchmarks.models import MODELS
from halotile.compiler import pipeline
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.errors import HalotileError
from halotile.passes.tile.search import decide
from halotile.passes.tile.search.decide import plan_segment
from halotile.passes.tile.search.model import SearchModel
from halotile.passes.tile.search.program import Program
from halotile.passes.tile.search.search import Search
from halotile.schedules.tiled import PartSizes, TiledKernel, build_tiled, sized_tiled
from halotile.schedules.words.group import Box, Limits, Scratch, Value
from tile_forms import whole
from winograd_layers import server


@pytest.mark.parametrize("name", ["edsr", "unet", "mobilenet_v2", "segformer"])
def test_sizes_are_those_of_the_kernels(name: str) -> None:
    """Transforms on scratch of their own, direct, transposed and depthwise convolutions, pools, resizing."""
    build = run_pipeline(MODELS[name].model(small=True), Options(target=native(), stop_after="layout", threads=2))
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    model = SearchModel(program, native(), 2, tight=True)
    curve = Search(model).curve()
    segments = {s for choice in curve[:: max(1, len(curve) // 3)] for s in choice.tiled}
    assert segments
    sizes = PartSizes()
    for segment in sorted(segments, key=lambda s: (s.first, s.last, s.scratch))[:6]:
        plan = plan_segment(model, segment)
        kernel = build_tiled(plan, whole(plan, build, native()), workers=2)
        sized = sized_tiled(plan, whole(plan, build, native()), 2, sizes)
        for k in (kernel, sized):
            assert {o for o in k.operands if isinstance(o, Value) and o.constant is None} == {
                v for v in (*plan.inputs, *plan.outputs) if v.constant is None
            }
        scratch = [[o.bytes for o in k.operands if isinstance(o, Scratch)] for k in (kernel, sized)]
        assert scratch[0] == scratch[1]
        assert kernel.workspace == sized.workspace and kernel.outputs == sized.outputs


def test_plans_that_several_choices_share_are_made_once() -> None:
    build = run_pipeline(MODELS["edsr"].model(small=True), Options(target=native(), stop_after="layout", threads=2))
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    model = SearchModel(program, native(), 2, tight=True)
    segment = next(s for choice in Search(model).curve() for s in choice.tiled)
    other = model.of(Program(program.groups, program.layouts, program.places, program.outputs))
    assert plan_segment(other, segment) is plan_segment(model, segment)


def test_a_refused_budget_builds_the_kernels_of_few_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """U-Net built 826 tile groups for the one number in the error, four minutes of it."""
    built: list[TiledKernel] = []
    looked: list[int] = []
    plain, sizes = pipeline._kernel, decide._Sizes.of

    def counted(build: pipeline.Build, group: object, plan: object, room: int | None = None) -> object:
        kernel = plain(build, group, plan, room)
        built.extend([kernel] if plan is not None else [])
        return kernel

    def watched(self: decide._Sizes, at: int, choice: object) -> int | None:
        looked.append(at)
        return sizes(self, at, choice)  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline, "_kernel", counted)
    monkeypatch.setattr(decide._Sizes, "of", watched)
    model = MODELS["unet"].model(small=True)
    with pytest.raises(HalotileError, match="smallest arena"):
        run_pipeline(model, Options(target=native(), threads=2, memory_budget=1, stop_after="plan"))
    assert looked
    assert 0 < len(built) <= 6


@pytest.mark.parametrize("order", [1, -1])
def test_a_size_is_that_of_the_room_it_was_asked_for(order: int) -> None:
    """The same questions in another order have the same answers."""
    source = MODELS["edsr"].model(small=True, height=48, width=64, features=64, blocks=1)
    build = run_pipeline(source, Options(server(), stop_after="layout", threads=1))
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    model = SearchModel(program, server(cores=1), 1, tight=True)
    index = max(range(len(build.groups)), key=lambda i: len(model.besides(i)))
    request = replace(model.request(build.groups[index]), box=Box(*build.groups[index].outputs[0].shape[2:]))
    rooms = [b.room for b in model.besides(index)]
    sizes = PartSizes()
    found = {room: sizes.of(replace(request, limits=Limits(room)))[0] for room in rooms[::order]}
    assert len(rooms) > 2 and [found[r] for r in rooms] == sorted(set(found.values()), reverse=True)
    assert all(room is None or held <= room for room, held in found.items())
