"""The golden cases of tiling, on the planner's own output."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from compiled import native
from halotile.benchmarks.models import MODELS
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Build, Options
from halotile.passes.tile.plan.checker import check_plan
from halotile.passes.tile.plan.lower import plan_group
from halotile.passes.tile.plan.needs import group_needs_of
from halotile.passes.tile.plan.work import macs
from halotile.schedules.words.tile_plan import Compute, Fill, Task, TilePlan
from onnx import TensorProto, helper, numpy_helper

# output tile (x0, y0, x1, y1): input box, box of conv1 and conv2, pads (l, t, r, b), box that conv3 needs
GOLDEN = {
    (0, 0, 16, 16): ((0, 0, 19, 19), (0, 0, 17, 17), (1, 1, 0, 0), (-1, -1, 17, 17)),
    (16, 0, 32, 16): ((15, 0, 35, 19), (15, 0, 33, 17), (0, 1, 0, 0), (15, -1, 33, 17)),
    (32, 0, 48, 16): ((31, 0, 50, 19), (31, 0, 48, 17), (0, 1, 1, 0), (31, -1, 49, 17)),
    (0, 16, 16, 32): ((0, 15, 19, 35), (0, 15, 17, 33), (1, 0, 0, 0), (-1, 15, 17, 33)),
    (16, 16, 32, 32): ((15, 15, 35, 35), (15, 15, 33, 33), (0, 0, 0, 0), (15, 15, 33, 33)),
    (32, 16, 48, 32): ((31, 15, 50, 35), (31, 15, 48, 33), (0, 0, 1, 0), (31, 15, 49, 33)),
    (0, 32, 16, 48): ((0, 31, 19, 50), (0, 31, 17, 48), (1, 0, 0, 1), (-1, 31, 17, 49)),
    (16, 32, 32, 48): ((15, 31, 35, 50), (15, 31, 33, 48), (0, 0, 0, 1), (15, 31, 33, 49)),
    (32, 32, 48, 48): ((31, 31, 50, 50), (31, 31, 48, 48), (0, 0, 1, 1), (31, 31, 49, 49)),
}


def three_convs() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    tensors, nodes, at = [], [], "input"

    def constant(array: np.ndarray) -> str:
        tensors.append(numpy_helper.from_array(array, f"w{len(tensors)}"))
        return tensors[-1].name

    def node(kind: str, *more: str, **attributes: Any) -> None:
        nonlocal at
        nodes.append(helper.make_node(kind, [at, *more], [f"v{len(nodes)}"], **attributes))
        at = nodes[-1].output[0]

    for i, kernel in enumerate((3, 1, 3)):
        if i == 2:
            node("Pad", constant(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)))
        weight = rng.standard_normal((16, 16, kernel, kernel)).astype(np.float32)
        node("Conv", constant(weight), constant(rng.standard_normal(16).astype(np.float32)))
        node("Relu")
    graph = helper.make_graph(
        nodes,
        "golden",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, (1, 16, 50, 50))],
        [helper.make_tensor_value_info(at, TensorProto.FLOAT, (1, 16, 48, 48))],
        initializer=tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture(scope="module")
def golden() -> Build:
    return run_pipeline(three_convs(), Options(target=native(), stop_after="layout"))


def convs(build: Build) -> list[Any]:
    return [g for g in build.groups if g.anchor is not None]


def steps(task: Task, kind: type) -> list[Any]:
    return [s for stripe in task.stripes for s in stripe if isinstance(s, kind)]


def box(rows: tuple[int, int], columns: tuple[int, int]) -> tuple[int, int, int, int]:
    return columns[0], rows[0], columns[1], rows[1]


def area(b: tuple[int, int, int, int]) -> int:
    return (b[2] - b[0]) * (b[3] - b[1])


def recomputed(build: Build) -> TilePlan:
    members = convs(build)
    modes = {v: "recompute" for g in members for v in g.outputs}
    return plan_group(members, build.layouts, native(), 16, 16, 3, modes)


def test_boxes_pads_and_inputs_of_the_nine_tiles(golden: Build) -> None:
    plan = recomputed(golden)
    found = {}
    for task in plan.tasks:
        first, second, third = steps(task, Compute)
        data = plan.members[0].anchor.operands[0]
        source = group_needs_of(plan.members[0], data, first.rows, first.columns)
        needed = group_needs_of(plan.members[2], plan.members[1].outputs[0], third.rows, third.columns)
        assert source is not None and needed is not None
        assert (first.rows, first.columns) == (second.rows, second.columns)
        pads = (
            second.columns[0] - needed.columns[0],
            second.rows[0] - needed.rows[0],
            needed.columns[1] - second.columns[1],
            needed.rows[1] - second.rows[1],
        )
        filled = sum(area(box(f.rows, f.columns)) for f in steps(task, Fill))
        assert filled == area(box(needed.rows, needed.columns)) - area(box(second.rows, second.columns))
        found[box(third.rows, third.columns)] = (
            box(source.rows, source.columns),
            box(first.rows, first.columns),
            pads,
            box(needed.rows, needed.columns),
        )
    assert found == GOLDEN
    assert check_plan(plan).problems == []


def test_the_nine_tiles_read_and_compute_as_much_more_as_stated(golden: Build) -> None:
    plan = recomputed(golden)
    once = 48 * 48
    assert sum(area(v[1]) for v in GOLDEN.values()) / once == pytest.approx(1.17, abs=0.005)
    assert sum(area(v[0]) for v in GOLDEN.values()) / 50**2 == pytest.approx(1.35, abs=0.005)
    computed = check_plan(plan).computed
    assert computed[0] == computed[1] == sum(area(v[1]) for v in GOLDEN.values())
    assert computed[2] == once


def test_rings_compute_everything_once(golden: Build) -> None:
    members = convs(golden)
    plan = plan_group(members, golden.layouts, native(), 16, None, 1)
    checked = check_plan(plan)
    assert checked.problems == []
    assert checked.computed == [48 * 48] * 3
    assert plan.extra_work == 1.0
    assert set(plan.modes.values()) == {"ring"}


@pytest.fixture(scope="module")
def resnet18() -> Build:
    return run_pipeline(MODELS["resnet18"].model(), Options(target=native(), stop_after="layout"))


@pytest.mark.parametrize(("mode", "factor"), [("recompute", 4.98), ("ring", 1.00)])
def test_resnet18_stem_and_first_stage_in_one_row_stripes(resnet18: Build, mode: str, factor: float) -> None:
    """Multiply-adds of the convolutions and elements of the pool's windows, in stripes of one row."""
    stage = [g for g in resnet18.groups if g.outputs[0].shape[1] == 64 and len(g.outputs[0].shape) == 4]
    modes = {v: mode for g in stage for v in g.outputs}
    plan = plan_group(stage, resnet18.layouts, native(), 1, None, 1, modes)
    checked = check_plan(plan)
    assert checked.problems == []
    once = done = 0.0
    for member, count in zip(plan.members, checked.computed):
        if member.anchor is not None:  # the convolutions and the pool
            height, width = member.outputs[0].shape[2:]
            once += macs(member.anchor)
            done += macs(member.anchor) * count / (height * width)
    assert done / once == pytest.approx(factor, abs=0.005)
