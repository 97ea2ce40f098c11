"""Under a budget layers take less scratch: a transform's smaller strips, or none where the direct form is taken."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import halotile
import numpy as np
import onnx
import pytest
from compiled import native
from halotile.benchmarks.models import MODELS, random_inputs
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.passes.tile.search.model import SearchModel
from halotile.passes.tile.search.program import Program
from halotile.passes.tile.search.refine import refined
from halotile.passes.tile.search.search import CurvePoint, Live
from halotile.schedules.dispatch import build_kernel
from halotile.schedules.words.group import Scratch

# Whatever runs the tests: with one multiply-add a cycle the same layers are transformed otherwise and leave no choice.
TWO_PORTS = replace(native(), vector_bits=512, vector_registers=32, fma_ports=2, fma_latency=4, l2_bytes=2 << 20)


@pytest.fixture(scope="module")
def edsr() -> onnx.ModelProto:
    return MODELS["edsr"].model(small=True, height=48, width=64, features=64, blocks=1)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_kernel_holds_what_its_room_was_said_to_leave_it(edsr: onnx.ModelProto, threads: int) -> None:
    build = run_pipeline(edsr, Options(target=TWO_PORTS, stop_after="layout", threads=threads))
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    model = SearchModel(program, TWO_PORTS, threads, tight=True)
    index = max(range(len(build.groups)), key=lambda i: len(model.besides(i)))
    ways, times = model.besides(index), [s.cycles for s in model.wholes(index)]
    assert len(ways) > 2 and ways[0].room is None and ways[-1].room == ways[-1].bytes == 0
    assert [w.bytes for w in ways] == sorted({w.bytes for w in ways}, reverse=True)
    assert times == sorted(times)
    for way in ways:
        request = model.request(build.groups[index])
        kernel = build_kernel(replace(request, limits=replace(request.limits, room=way.room)))
        assert sum(o.bytes for o in kernel.operands if isinstance(o, Scratch)) == way.bytes
        assert way.room is None or way.bytes <= threads * way.room
        assert kernel.inplace == way.overwritten


def test_room_that_is_there_is_taken() -> None:
    """Layers that go without, given more bytes than they were made for."""
    small = MODELS["edsr"].model(small=True, height=8, width=8, features=64, blocks=1)
    build = run_pipeline(small, Options(target=TWO_PORTS, stop_after="layout", threads=1))
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    model = SearchModel(program, TWO_PORTS, 1, tight=True)
    memory, parts = Live(model), tuple(model.wholes(i)[-1] for i in range(len(build.groups)))
    choice = CurvePoint(max(memory.of(p) for p in parts), sum(p.cycles for p in parts), parts)
    better = refined(model, choice, math.inf)
    assert choice.rooms and not better.rooms
    assert better.cycles < choice.cycles and better.bytes > choice.bytes
    same = refined(model, choice, choice.bytes)
    assert same.rooms and same.bytes <= choice.bytes


def test_a_budget_that_the_free_choice_of_kernels_exceeds_is_met(edsr: onnx.ModelProto, tmp_path: Path) -> None:
    """Nothing can be tiled here that would help: the values are smaller than the scratch beside them."""
    small = MODELS["edsr"].model(small=True, height=8, width=8, features=64, blocks=1)
    off = run_pipeline(small, Options(TWO_PORTS, threads=1, tile="off", stop_after="plan"))
    budget = off.memory.planned_bytes * 2 // 3
    build = run_pipeline(small, Options(TWO_PORTS, threads=1, memory_budget=budget), output=tmp_path)
    assert build.memory.planned_bytes <= budget and build.rooms
    assert all(f"{g.name} holds at most {r} bytes a core beside" in build.notes["tile"] for g, r in build.rooms.items())
    inputs = random_inputs(small)
    wanted = halotile.compile(small, target=TWO_PORTS, threads=1, tile="off")(inputs)
    for name, found in halotile.load(tmp_path, threads=1)(inputs).items():
        np.testing.assert_allclose(found, wanted[name], rtol=1e-4, atol=1e-4)
