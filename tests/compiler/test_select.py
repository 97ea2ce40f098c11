"""The select stage: what it chose is what is built, a choice can be replaced, and every refusal has its reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compiled import Compiled, module_of, native, weight
from halotile.compiler import pipeline
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Build, Options
from halotile.schedules.conv.register_tile import Tile
from halotile.schedules.conv.select import FLOATS
from halotile.schedules.words.choice import Choice
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper, numpy_helper
from tvm.relax import op as R

X = np.random.default_rng(0).standard_normal((1, 64, 29, 31), np.float32)
W = np.random.default_rng(1).standard_normal((64, 64, 3, 3), np.float32) / 24


def selected(options: Options) -> Build:
    """A convolution, up to its choice."""
    build = Build(None, options)
    build.module = module_of([X], lambda x: R.nn.relu(R.nn.conv2d(x, weight(W), padding=1)))
    for stage in (pipeline.fuse, pipeline.layout, pipeline.select):
        stage(build)
    return build


def finished(build: Build) -> Build:
    for stage in (pipeline.tile, pipeline.schedule, pipeline.plan):
        stage(build)
    return build


def convolution(build: Build) -> tuple[object, Choice]:
    (found,) = [(g, c) for g, c in build.choices.items() if g.anchor is not None]
    return found


@pytest.mark.parametrize(("outputs", "groups", "chosen"), [(1, 1, "few outputs"), (64, 64, "depthwise"), (64, 1, "")])
@pytest.mark.parametrize("sides", [(29, 31), ("h", "w")])
def test_every_choice_is_explained(outputs: int, groups: int, chosen: str, sides: tuple[int | str, ...]) -> None:
    """Who is not asked, behind an algorithm that is sure, has not to know the layouts of its results."""
    w = np.ones((outputs, 64 // groups, 3, 3), np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4, group=groups)]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, c, *sides]) for n, c in (("x", 64), ("y", outputs)))
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for target in ("x86-64-v3", "x86-64-v4", "raspberry-pi-5"):
        build = run_pipeline(model, Options(resolve(target), explain=True, stop_after="plan", cache=None))
        (choice,) = [c for g, c in build.choices.items() if g.anchor is not None]
        notes = [n.strip() for n in build.notes["select"]]
        if chosen and sides != ("h", "w"):
            assert choice.algorithm == chosen and choice.sure
        if choice.sure:
            assert not [n for n in notes if n.startswith(("not direct", "rather than direct"))]
        assert any(str(choice) in n for n in notes) or choice.algorithm.startswith("boxes")


def test_what_is_chosen_is_built() -> None:
    build = selected(Options(resolve("x86-64-v4"), tile="off", threads=1))
    _, choice = convolution(build)
    assert choice.algorithm == "winograd" and set(build.choices) == set(build.groups)
    assert any(choice.label in k.schedule for k in finished(build).kernels)


@pytest.mark.parametrize("tile", [Tile(1, 3, 2), Tile(2, 4, 1)])
def test_a_choice_that_is_replaced_is_built_instead(tile: Tile) -> None:
    results = []
    for force in (False, True):
        build = selected(Options(native(), tile="off"))
        group, _ = convolution(build)
        if force:
            build.choices[group] = Choice("direct", tile, f"direct {tile}")
        compiled = Compiled(finished(build))
        assert any(k.schedule.startswith("direct") and str(tile) in k.schedule for k in build.kernels) or not force
        results.append(compiled.run([X])[0])
    np.testing.assert_allclose(*results, rtol=0, atol=2e-4)


def test_measured_choices_are_those_of_the_stage() -> None:
    plain = selected(Options(native(), tile="off", tuning={}))
    _, own = convolution(plain)
    assert own.decision is not None and own.decision.chosen == own.decision.own == own.label
    second = convolution(selected(Options(native(), tile="off", tuning={}, candidate=1)))[1]
    assert second.label != own.label
    tuned = selected(Options(native(), tile="off", tuning={own.decision.key: second.label}))
    _, taken = convolution(tuned)
    assert replace(taken, decision=None, notes=()) == replace(second, decision=None, notes=())
    assert taken.notes == (f"measured faster than {own.label}",)


def test_every_algorithm_is_explained(tmp_path: Path) -> None:
    """Each once: taken, rather than, or not, with a reason. Without being asked, a build notes nothing."""
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], name="c", pads=[1, 1, 1, 1])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(W, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    for options in ({"explain": True}, {"dump_ir": tmp_path}):
        build = run_pipeline(model, Options(resolve("x86-64-v4"), stop_after="select", **options))
        group, choice = convolution(build)
        lines = build.notes["select"]
        at = lines.index(f"{group.name}: {choice}")  # type: ignore[attr-defined]
        others = lines[at + 1 : at + len(FLOATS)]
        refused = {line.split("not ")[1].split(":")[0] for line in others if line.startswith("    not ")}
        beaten = sum(line.startswith("    rather than ") for line in others)
        assert choice.algorithm == "winograd" and len(refused) + beaten == len(FLOATS) - 1
        assert refused <= {a.name for a in FLOATS} - {"winograd", "direct"} and beaten == 1
        assert all(len(line.split(": ", 1)[1]) > 10 for line in others if line.startswith("    not "))
    assert (tmp_path / "9-select.txt").read_text() == "\n".join(lines)
    assert "select" not in run_pipeline(model, Options(resolve("x86-64-v4"), stop_after="select")).notes
