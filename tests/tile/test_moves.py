"""What kernels that only move data are believed to take, and what follows: chains of depthwise layers are tiled."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compiled import native
from halotile.benchmarks.graph import ExportForm as Style
from halotile.benchmarks.graph import ModelGraph
from halotile.benchmarks.layers import activation, conv, max_pool
from halotile.benchmarks.models import MODELS
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Build, Options
from halotile.passes.tile.plan.form import RING
from halotile.passes.tile.search.model import SearchModel, Shape
from halotile.passes.tile.search.program import Program
from halotile.passes.tile.search.segments import segments_of
from halotile.targets.fitted import usual
from halotile.targets.target import Target

SERVER = replace(
    native(), vector_bits=512, vector_registers=32, fma_ports=2, l2_bytes=2 << 20, l3_bytes=300 << 20, far_bytes=10
)
BOARD = replace(
    native(), vector_bits=128, vector_registers=32, fma_ports=1, l2_bytes=1 << 20, l3_bytes=0, far_bytes=4
)


def model_of(g: ModelGraph, y: str, target: Target = SERVER, threads: int = 1) -> SearchModel:
    build: Build = run_pipeline(g.finish(y=y), Options(target, stop_after="layout", threads=threads))
    placed = frozenset((*build.graph.inputs, *build.graph.outputs))
    return SearchModel(Program(build.groups, build.layouts, build.places, placed), target, threads)


def whole_model(name: str) -> SearchModel:
    build = run_pipeline(MODELS[name].model(), Options(SERVER, stop_after="layout", threads=1))
    placed = frozenset((*build.graph.inputs, *build.graph.outputs))
    return SearchModel(Program(build.groups, build.layouts, build.places, placed), SERVER, 1)


def cycles(model: SearchModel, operator: str) -> float:
    """Of the group computed whole that has ``operator``."""
    (index,) = [i for i, g in enumerate(model.program.groups) if operator in g.operators]
    return model.whole(index).cycles


def pooled(size: int, target: Target = SERVER, threads: int = 1) -> SearchModel:
    g = ModelGraph("pool", Style(opset=17))
    x = conv(g, g.input("x", (1, 3, size, size)), 32, 3)
    return model_of(g, conv(g, max_pool(g, x, 2, 2), 32, 3), target, threads)


def test_what_leaves_the_second_level_comes_and_goes_slowly() -> None:
    """A pool of 256 x 256 reads 8.4 MB: four times as many bytes as one of 128 x 128, which that level holds."""
    near, far = (cycles(pooled(size), "relax.nn.max_pool2d") for size in (128, 256))
    assert far > 5 * near
    assert (8.4e6 + 2.1e6) / far < 0.7 * SERVER.far_bytes  # bytes a cycle


def test_two_cores_take_half_of_the_time() -> None:
    """They don't keep twice as much: what each reads, another core has written."""
    one, two = (cycles(pooled(256, threads=count), "relax.nn.max_pool2d") for count in (1, 2))
    assert two == pytest.approx(one / 2, rel=0.01)


def test_without_a_third_level_it_is_the_memory_that_counts() -> None:
    slow = pooled(256, replace(BOARD, bandwidth=4e9, hertz=2e9, native=False))
    assert cycles(slow, "relax.nn.max_pool2d") > 10.4e6 / (0.7 * 4e9 / 2e9)


def test_what_a_map_writes_over_is_near() -> None:
    """EfficientNet scales 1.8 MB in their own place: 138 thousand cycles (Emerald Rapids), for 280 to another one."""
    model = whole_model("efficientnet_b0")
    groups = model.program.groups
    (index,) = [i for i, g in enumerate(groups) if g.anchor is None and g.outputs[0].shape == (1, 144, 56, 56)]
    assert "relax.multiply" in groups[index].operators
    own = model.whole(index).cycles
    assert 110e3 < own < 200e3
    model.program.outputs |= {*groups[index].inputs}  # as if somebody read them later
    assert 1.6 * own < model.whole(index).cycles


def test_long_epilogues_count() -> None:
    found = []
    for kind in ("relu", "sigmoid"):
        g = ModelGraph("depthwise", Style(opset=17))
        x = conv(g, g.input("x", (1, 3, 56, 56)), 64, 3)
        y = activation(g, conv(g, x, 64, 3, groups=64, name="depthwise"), kind)
        model = model_of(g, conv(g, y, 16, 1))
        (index,) = [i for i, group in enumerate(model.program.groups) if "depthwise" in "".join(group.sources)]
        found.append(float(model.cost(index).box(56, 56)))
    more = usual().kernels.function - usual().kernels.epilogue
    assert found[1] - found[0] == pytest.approx(more * 56 * 56 * 4, rel=0.01)


def test_results_of_tile_groups_that_only_move_data_come_from_far() -> None:
    """Windows fill the second level; the rows of a depthwise layer's result are not in it when they are written, and
    nothing hides that. With the layer behind it, whose result is a quarter, MobileNetV2's first group takes hardly
    longer: 2.38 million cycles for 2.33 (Emerald Rapids)."""
    model = whole_model("mobilenet_v2")
    short, long = (segments_of(model, 0, last, [Shape(8, 56, 1, RING)])[0] for last in (5, 6))
    assert short is not None and long is not None
    assert long.cycles < short.cycles + 0.7 * model.whole(6).cycles
    assert 2.1e6 < long.cycles < 2.6e6


@pytest.mark.parametrize("threads", [1, 2])
def test_chains_of_depthwise_layers_are_tiled_by_default(threads: int) -> None:
    """MobileNetV2's first layers, 1.07 and 1.05 times as fast for the whole network (Emerald Rapids)."""
    build = run_pipeline(MODELS["mobilenet_v2"].model(), Options(SERVER, threads=threads, stop_after="tile"))
    members = [len(plan.members) for plan in build.tiled.values()]
    assert len(members) == 2 and min(members) >= 5
    details = build.details["tile"]
    assert 1.05 < details["untiled"]["cycles"] / details["chosen"]["cycles"] < 1.11


@pytest.mark.parametrize("shape", [(1, 8, 40, 40), (8, 40), (2, 8, 40)])
def test_of_what_no_box_is_known_nothing_is_believed(shape: tuple[int, ...]) -> None:
    """Values of other ranks, and operators whose regions have no rule."""
    g = ModelGraph("turned", Style(opset=17))
    x = activation(g, g.input("x", shape), "sigmoid")
    start, end, axis, step = (g.const([number], "int64") for number in (-1, -(1 << 31), len(shape) - 1, -1))
    model = model_of(g, activation(g, g.op("Slice", x, start, end, axis, step), "sigmoid"))
    assert all(model.whole(i).cycles > 0 for i in range(len(model.program.groups)))
