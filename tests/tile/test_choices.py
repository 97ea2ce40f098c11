"""What the planner chooses: budgets hold to the byte, objectives are met, wishes are obeyed or refused in a line."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from compiled import native
from halotile.benchmarks.models import MODELS
from halotile.compiler.options import checked_budget, checked_optimize, checked_tile
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Build, Options
from halotile.errors import HalotileError
from halotile.passes.tile.plan.checker import check_plan
from halotile.passes.tile.search.model import SearchModel
from halotile.passes.tile.search.program import Program
from halotile.passes.tile.search.search import Search


@pytest.fixture(scope="module")
def edsr() -> onnx.ModelProto:
    return MODELS["edsr"].model(small=True, height=48, width=64)


def planned(model: Any, **options: Any) -> Build:
    return run_pipeline(model, Options(target=native(), stop_after="plan", threads=2, **options))


@pytest.fixture(scope="module")
def untiled(edsr: onnx.ModelProto) -> int:
    return int(planned(edsr, tile="off").report["arena_bytes"])


@pytest.mark.parametrize("share", [1.0, 0.7, 0.5, 0.4])
def test_a_budget_is_never_exceeded_and_the_report_is_exact(edsr: onnx.ModelProto, untiled: int, share: float) -> None:
    budget = int(untiled * share)
    build = planned(edsr, memory_budget=budget)
    assert build.report["arena_bytes"] <= budget
    assert build.report["arena_bytes"] == build.memory.planned_bytes + 2 * build.report["workspace_bytes"]
    if share < 1:  # smaller strips of the transform's tiles are enough at first
        assert build.tiled or (share >= 0.5 and build.rooms)
    for plan in build.tiled.values():
        assert check_plan(plan).problems == []


def test_an_impossible_budget_names_the_smallest_arena_and_that_one_works(edsr: onnx.ModelProto) -> None:
    with pytest.raises(HalotileError, match=r"the smallest arena .* is \d+ bytes") as caught:
        planned(edsr, memory_budget=1000)
    assert "\n" not in str(caught.value)
    smallest = int(str(caught.value).split(" is ")[-1].split()[0])
    assert planned(edsr, memory_budget=smallest).report["arena_bytes"] == smallest


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["densenet", "shufflenet_v2"])
@pytest.mark.parametrize("optimize", ["speed", "memory"])
def test_what_a_refusal_names_is_what_memory_as_the_objective_finds(name: str, optimize: str) -> None:
    """DenseNet's gaps are smaller with more tile groups than are worth it, or with fewer."""
    model = MODELS[name].model(small=True)
    smallest = planned(model, optimize="memory").report["arena_bytes"]
    with pytest.raises(HalotileError, match=f" is {smallest} bytes$"):
        planned(model, memory_budget=smallest - 1, optimize=optimize)
    assert planned(model, memory_budget=smallest, optimize=optimize).report["arena_bytes"] == smallest


def test_memory_as_the_objective_gives_less_than_speed(edsr: onnx.ModelProto, untiled: int) -> None:
    smallest = planned(edsr, optimize="memory")
    assert smallest.tiled
    assert smallest.report["arena_bytes"] < untiled / 2


def test_what_was_planned_runs_and_gives_the_numbers_of_the_whole(edsr: onnx.ModelProto, tmp_path: Path) -> None:
    feeds = MODELS["edsr"].inputs(edsr, 3)
    results = []
    for name, options in (("whole", {"tile": "off"}), ("tiled", {"optimize": "memory"})):
        run_pipeline(edsr, Options(target=native(), threads=2, exact=True, **options), output=tmp_path / name)
        results.append(load(tmp_path / name)(feeds))
    for key, value in results[0].items():
        assert np.array_equal(value, results[1][key])  # direct convolutions: the very same bits


def test_off_and_the_default_tile_nothing_and_a_budget_with_off_is_checked(edsr: onnx.ModelProto, untiled: int) -> None:
    assert not planned(edsr, tile="off").tiled
    assert planned(edsr, tile="off", memory_budget=untiled).report["arena_bytes"] == untiled
    with pytest.raises(HalotileError, match="tile='off'"):
        planned(edsr, tile="off", memory_budget=untiled - 1)


def test_a_wish_is_obeyed(edsr: onnx.ModelProto) -> None:
    last = planned(edsr, tile="off").groups[-2].outputs[0].name
    build = planned(edsr, tile={"last": last, "shape": (5, 24), "bands": 3})
    (plan,) = build.tiled.values()
    assert {t.columns for t in plan.tasks} == {(0, 24), (24, 48), (48, 64)}
    assert len({t.rows for t in plan.tasks}) == 3
    assert plan.members[-1].outputs[0].name == last
    assert check_plan(plan).problems == []


def test_a_wish_for_one_mode_is_obeyed(edsr: onnx.ModelProto) -> None:
    last = planned(edsr, tile="off").groups[-2].outputs[0].name
    build = planned(edsr, tile={"last": last, "shape": (16, 16), "modes": "recompute"})
    (plan,) = build.tiled.values()
    assert set(plan.modes.values()) == {"recompute"}
    assert plan.extra_work > 1.2
    assert check_plan(plan).problems == []


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        ({"last": "nothing of the kind"}, r"no group, node or value .* the groups are \w+, .*conv2d"),
        ({"shape": (0, 4)}, "whole numbers from 1"),
        ({"shape": 16}, "whole numbers from 1"),
        ({"last": ["a", "b"]}, "are names, not"),
        ({1: 2, None: 3}, "unknown key 1"),
        ({"shape": (8, None), "colour": 1}, "unknown key 'colour'"),
        ({"shape": (8, None), "modes": "sideways"}, "mode 'sideways'"),
        ({"shape": (8, None), "bands": 0}, "bands is a whole number"),
    ],
)
def test_bad_wishes_are_refused_in_a_line(edsr: onnx.ModelProto, wish: dict[str, Any], says: str) -> None:
    with pytest.raises(HalotileError, match=says) as caught:
        planned(edsr, tile=wish)
    assert "\n" not in str(caught.value)


def test_runs_that_read_beside_what_they_write_are_no_choice() -> None:
    """Unfused bottlenecks: an add reads one half of a concatenation whose other half it writes. Every shape of such a
    run was tried in turn, until a build gave up."""
    neck = MODELS["detector_neck"].model(small=True, size=128)
    build = run_pipeline(neck, Options(target=native(), stop_after="layout", threads=1, fuse=False))
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    count = len(program.groups)
    assert any(program.joined(f, last) for last in range(count) for f in range(max(0, last - 3), last + 1))
    model = SearchModel(program, native(), 1)
    assert Search(model).curve() and model.options is not None
    runs = [segment for options in model.options.values() for _, segment in options if segment.shape is not None]
    assert runs and all(program.joined(segment.first, segment.last) is None for segment in runs)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_what_a_tile_group_must_save_is_shared_by_cores(threads: int) -> None:
    """As its other cycles are: else groups that pay on one core are left out on several."""
    neck = MODELS["detector_neck"].model(small=True, size=128)
    build = run_pipeline(neck, Options(target=native(), stop_after="layout", threads=threads))
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    curve, settle = Search(SearchModel(program, native(), threads), 0.05).curve(), native().fitted.kernels.settle
    assert any(choice.tiled for choice in curve)
    for choice in curve:
        beside = sum(0.05 * s.cycles + settle / threads for s in choice.tiled)
        assert choice.weighed - choice.cycles == pytest.approx(beside, rel=1e-6, abs=1.0)


def test_sizes_as_text() -> None:
    assert checked_budget("32MiB") == 32 << 20
    assert checked_budget("1.5 KB") == 1500
    assert checked_budget(7) == 7
    for wrong in ("", "MiB", "-1", "1e400", "3 furlongs", 0, True, 2.5):
        with pytest.raises(HalotileError):
            checked_budget(wrong)
    with pytest.raises(HalotileError):
        checked_tile("sometimes")
    assert repr(checked_tile({"shape": [np.int64(4), None]})) == "{'shape': (4, None)}"
    with pytest.raises(HalotileError):
        checked_optimize("beauty")


@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2", "unet"])
def test_planning_takes_seconds(name: str) -> None:
    """Under 5 s on an idle machine; this one may be busy, so that only its own time counts."""
    at: dict[int, float] = {}

    def progress(stage: str, done: int, _total: int) -> None:
        if stage == "tile":
            at[done] = time.process_time()

    options = Options(target=native(), stop_after="tile", tile="auto")
    build = run_pipeline(MODELS[name].model(), options, progress)
    assert at[1] - at[0] < 8
    assert build.details["tile"]["curve"]


def test_mobilenet_has_a_curve_of_many_points() -> None:
    build = run_pipeline(MODELS["mobilenet_v2"].model(), Options(target=native(), stop_after="tile", tile="auto"))
    curve = build.details["tile"]["curve"]
    assert len(curve) >= 6
    assert all(a["bytes"] <= b["bytes"] and a["cycles"] >= b["cycles"] * 0.9 for a, b in zip(curve, curve[1:]))


@pytest.mark.parametrize("last", ["max_pool2d", "resample"])
def test_windows_on_plain_memory_are_computed_whole(last: str) -> None:
    """In a box they are taken tap by tap, one output at a time: 100 times as long as columns first, then rows."""
    scales = np.array([1, 1, 7.7, 7.7], np.float32)
    nodes = [
        onnx.helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[13, 13], pads=[6] * 4),
        onnx.helper.make_node("MaxPool", ["p"], ["y"], kernel_shape=[3, 3], pads=[1] * 4)
        if last == "max_pool2d"
        else onnx.helper.make_node("Resize", ["p", "", "scales"], ["y"], mode="linear"),
    ]
    image = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 512, 20, 20])
    graph = onnx.helper.make_graph(nodes, "pyramid", [image], [onnx.ValueInfoProto(name="y")],
                                   [onnx.numpy_helper.from_array(scales, "scales")])  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    assert not planned(model).tiled
    with pytest.raises(HalotileError, match="kept only by the whole"):
        planned(model, tile=checked_tile({"last": f"g1_{last}", "shape": (8, 20)}))
