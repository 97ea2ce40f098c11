"""The algorithm whose cost the planner counts is the one that the family builds: layers x options x targets."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from halotile.compiler.pipeline import Build, Options, run_pipeline
from halotile.passes.tile.search.model import SearchModel
from halotile.passes.tile.search.program import Program
from halotile.schedules.conv import chosen
from halotile.schedules.conv.select import FLOATS
from halotile.schedules.tiled.kernel import box_target
from halotile.schedules.words.group import Box, Request
from halotile.targets.resolve import resolve
from onnx import ModelProto, TensorProto, helper, numpy_helper

#: channels, outputs, height, width, kernel, stride, groups, dilation
LAYERS: list[tuple[int, int, int, int, int, int, int, int]] = [
    *((c, o, s, s, 1, 1, 1, 1) for c, o, s in ((16, 96, 56), (96, 24, 56), (256, 1024, 14), (1024, 256, 14))),
    *((c, o, s, s, 1, 1, 1, 1) for c, o, s in ((64, 64, 56), (576, 96, 14), (160, 960, 7), (31, 61, 29))),
    (2048, 512, 7, 7, 1, 1, 1, 1),
    *((c, o, s, s, 1, 2, 1, 1) for c, o, s in ((256, 512, 56), (1024, 2048, 14))),
    *((c, c, s, s, 3, 1, 1, 1) for c, s in ((16, 112), (32, 56), (64, 56), (128, 28), (256, 14), (512, 7), (48, 33))),
    *((c, o, s, s, 3, 1, 1, 1) for c, o, s in ((64, 128, 40), (31, 37, 29), (17, 64, 30), (512, 256, 13), (8, 8, 60))),
    *((c, c, s, s, 3, 2, 1, 1) for c, s in ((64, 56), (128, 56), (256, 28), (61, 31))),
    *((c, c, s, s, 5, 1, 1, 1) for c, s in ((32, 28), (64, 14), (24, 57))),
    *((c, c, s, s, 7, 1, 1, 1) for c, s in ((32, 28), (16, 40))),
    *((3, o, s, s, k, t, 1, 1) for o, s, k, t in ((32, 224, 3, 2), (64, 112, 7, 2), (64, 96, 3, 1), (64, 80, 9, 1))),
    *((1, o, s, s, k, 1, 1, 1) for o, s, k in ((32, 48, 5), (64, 60, 3))),
    *((c, o, s, s, 3, 1, 1, 1) for c, o, s in ((64, 1, 60), (64, 3, 60), (32, 4, 50), (48, 12, 40))),
    *((c, c, s, s, k, t, c, 1) for c, s, k, t in ((32, 112, 3, 1), (96, 56, 3, 2), (240, 14, 5, 1), (61, 29, 7, 1))),
    *((c, c, s, s, 3, 1, g, 1) for c, s, g in ((128, 28, 32), (256, 14, 32), (64, 28, 2), (96, 20, 4), (60, 20, 10))),
    *((c, c, s, s, 3, 1, 1, d) for c, s, d in ((64, 40, 2), (128, 28, 4), (96, 65, 12))),
    *((c, c, 1, s, 3, 1, 1, 1) for c, s in ((64, 400), (80, 100))),
    *((c, c, s, 1, 3, 1, 1, 1) for c, s in ((64, 300),)),
    (64, 64, 8, 200, 3, 1, 1, 1),
    (64, 64, 200, 8, 3, 1, 1, 1),
    (24, 40, 90, 122, 3, 1, 1, 1),
    (128, 20, 52, 52, 1, 1, 1, 1),
    (96, 255, 13, 13, 1, 1, 1, 1),
]  # fmt: skip
SERVER = "x86_64-linux-gnu+sapphirerapids"
TARGETS = ("x86-64-v3", "x86-64-v4", SERVER, "raspberry-pi-4", "raspberry-pi-5", "raspberry-pi-2")
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "one thread": {"threads": 1},
    "exact": {"exact": True},
    "no winograd": {"winograd": False},
    "no matrix": {"matrix": False},
    "half weights": {"weights": "float16"},
    "memory": {"optimize": "memory"},
    "budget": {"memory_budget": 1 << 30},
}


def layers() -> ModelProto:
    """Every layer on an input of its own, with a residual where the result is as large as the data."""
    nodes, inputs, outputs, weights = [], [], [], []
    r = np.random.default_rng(0)
    for i, (c, o, h, w, k, stride, groups, dilation) in enumerate(LAYERS):
        kernel = [min(k, h), min(k, w)]
        pads = [dilation * (n // 2) for n in kernel] * 2
        weight = r.standard_normal((o, c // groups, *kernel)).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{i}"))
        inputs.append(helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, [1, c, h, w]))
        outputs.append(helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None))
        more = {"strides": [stride] * 2, "dilations": [dilation] * 2, "group": groups, "pads": pads}
        nodes.append(helper.make_node("Relu", [f"x{i}"], [f"a{i}"]))
        nodes.append(helper.make_node("Conv", [f"a{i}", f"w{i}"], [f"c{i}"], **more))
        same = c == o and stride == 1
        nodes.append(helper.make_node("Add" if same else "Relu", [f"c{i}", *([f"a{i}"] if same else [])], [f"s{i}"]))
        nodes.append(helper.make_node("MaxPool", [f"s{i}"], [f"y{i}"], kernel_shape=[1, 1]))
    graph = helper.make_graph(nodes, "layers", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture(scope="module")
def model() -> ModelProto:
    return layers()


def planner(build: Build) -> SearchModel:
    """As the tile stage makes it."""
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    policy = build.options.policy
    return SearchModel(program, build.target, policy.threads, policy, build.closing, tight=not policy.speed)


def built(build: Build, group: Any) -> Request:
    """As the schedule stage makes it."""
    from halotile.compiler.pipeline import _request

    return _request(build, group)


def name(request: Request) -> str:
    choice = chosen(request)
    return "general" if choice is None else choice.algorithm


def test_there_are_enough_layers() -> None:
    assert len(LAYERS) >= 60 and len(set(LAYERS)) == len(LAYERS)
    assert len(OPTIONS) >= 8 and len(TARGETS) >= 6


@pytest.mark.every
@pytest.mark.parametrize("target", TARGETS)
def test_the_algorithm_that_is_costed_is_built(model: ModelProto, target: str) -> None:
    taken: Counter[str] = Counter()
    for case, options in OPTIONS.items():
        build = run_pipeline(model, Options(resolve(target), stop_after="layout", **options))
        costs = planner(build)
        groups = [(i, g) for i, g in enumerate(build.groups) if g.anchor is not None and "conv" in g.anchor.operator]
        assert len(groups) == len(LAYERS)
        for index, group in groups:
            where = f"{case}, {target}: {group.anchor.operands[1].shape} at {group.outputs[0].shape}"
            whole, box = built(build, group), boxed(build, group)
            assert costs.whole_cost(index).algorithm == name(whole), where
            assert costs.cost(index).algorithm == name(box), where
            taken[name(whole)] += 1
    assert len(taken) >= 4, taken
    assert set(taken) <= {a.name for a in FLOATS}


def boxed(build: Build, group: Any) -> Request:
    """As the kernel of a tile group asks for a box as large as the whole."""
    return replace(built(build, group), target=box_target(build.target), box=Box(*group.outputs[0].shape[2:]))
