"""Tiled groups compute what the whole groups compute, to the bit: the same kernels' arithmetic, box by box.

Arena and outputs are poisoned with NaN, and a launch runs its tasks last first.

    HALOTILE_CHAINS=0:2000 pytest -s tests/tile/test_execution.py -k many      that many, from that seed on: 40 minutes
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import dataclass, replace
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import onnxruntime
import pytest
from compiled import Compiled, native
from halotile.compiler import pipeline
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Build, Options
from halotile.passes.tile.plan.checker import check_plan
from halotile.passes.tile.search.program import Program
from halotile.passes.tile.tile import replaced
from halotile.schedules.tiled import TiledKernel
from halotile.schedules.tiled import core_sharing as sharing_module
from halotile.schedules.words.tile_plan import Copy, TilePlan
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from interleaved import interleaved
from tile_forms import planned
from tile_models import random_model


@dataclass
class Pair:
    """What a model gives whole, tiled, and in ONNX Runtime; the tiled build."""

    whole: list[np.ndarray]
    tiled: list[np.ndarray]
    wanted: list[np.ndarray]
    build: Build


def built(model: object, winograd: bool) -> Build:
    return run_pipeline(model, Options(target=native(), stop_after="layout", winograd=winograd, threads=3))


def finished(build: Build) -> Compiled:
    for stage in (pipeline.schedule, pipeline.plan):
        stage(build)
    inputs = build.imported.inputs
    compiled = Compiled(build)
    build.imported = SimpleNamespace(inputs=inputs)
    return compiled


def pair(seed: int, layers: int, choice: int, winograd: bool, least: int = 1) -> Pair | None:
    """A random run of at least so many groups of a random model, in a random form, on up to three cores, which share
    rows or columns; None if there is none."""
    with patch.object(sharing_module, "WIDE", 2 if seed // 6 % 2 else sharing_module.WIDE):
        return _pair(seed, layers, choice, winograd, least)


def _pair(seed: int, layers: int, choice: int, winograd: bool, least: int) -> Pair | None:
    sharing = 1 + seed // 2 % 3
    model = random_model(seed, layers)
    build = built(model, winograd)
    rng = np.random.default_rng((seed, choice))
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    ends = [i for i in range(len(build.groups)) if program.refusal(i) is None]
    if not ends:
        return None
    first = last = int(rng.choice(ends))
    while first > 0 and program.refusal(first - 1) is None and program.reads(first - 1, last) and rng.random() < 0.9:
        first -= 1
    if program.joined(first, last) is not None or last - first + 1 < least:
        return None
    plan = planned(build, program, first, last, rng, sharing)
    if plan is None:
        return None
    assert check_plan(plan).problems == []
    plan = replace(plan, sharing=sharing)  # a launch runs its cores last first, too
    if plan.sharing > 1:
        assert check_plan(interleaved(plan, last_first=True)).problems == []
    result = replaced(build.groups, [(first, last, plan)])
    build.groups, build.tiled = result.groups, dict(result.plans)
    tiled = finished(build)
    whole = finished(built(model, winograd))
    names = [v.name for v in build.graph.inputs]
    arrays = [rng.standard_normal(v.shape).astype(v.dtype) for v in build.graph.inputs]
    plain = onnxruntime.SessionOptions()  # its fusion of Pad into a pool refuses pads beyond the kernel's
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), plain, providers=["CPUExecutionProvider"])
    feeds = dict(zip([i.name for i in session.get_inputs()], arrays))
    assert len(names) == len(feeds)
    return Pair(whole.run(arrays), tiled.run(arrays), session.run(None, feeds), build)


def _saves(plan: TilePlan) -> bool:
    return any(isinstance(s, Copy) for t in plan.tasks for stripe in t.stripes for s in stripe)


def close(got: np.ndarray, wanted: np.ndarray) -> bool:
    scale = max(1e-6, float(np.abs(wanted).max(initial=0)))
    return got.shape == wanted.shape and float(np.abs(got - wanted).max(initial=0)) <= 2e-4 * scale


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(0, 3))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_tiled_is_whole_to_the_bit(seed: int, layers: int, choice: int) -> None:
    found = pair(seed, layers, choice, winograd=False)
    assume(found is not None)
    assert found is not None
    assert any(isinstance(k, TiledKernel) for k in found.build.kernels)
    for whole, tiled, wanted in zip(found.whole, found.tiled, found.wanted, strict=True):
        np.testing.assert_array_equal(tiled, whole)
        assert close(tiled, wanted)


@pytest.mark.parametrize(("seed", "way"), [(931042, "AveragePool"), (931267, "grouped conv")])
def test_boxes_add_in_the_order_of_the_whole(seed: int, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows whose columns are added first, and groups of channels that share vectors."""
    wide = replace(native(), vector_bits=512, vector_registers=32)
    for module in (sys.modules[__name__], sys.modules["compiled"]):
        monkeypatch.setattr(module, "native", lambda: wide)
    layers, choice = 1 + seed % 9, seed % 5
    found = pair(seed, layers, choice, winograd=False, least=2)
    assert found is not None and any(isinstance(k, TiledKernel) for k in found.build.kernels)
    ways = [node.op_type for node in random_model(seed, layers).graph.node]
    ways += [k.schedule.split(" C")[0] for k in finished(built(random_model(seed, layers), False)).build.kernels]
    assert way in ways
    for whole, tiled in zip(found.whole, found.tiled, strict=True):
        np.testing.assert_array_equal(tiled, whole)


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(0, 3))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_winograd_members(seed: int, layers: int, choice: int) -> None:
    """Tiles of a transform begin elsewhere in a box: equal within its bound."""
    found = pair(seed, layers, choice, winograd=True)
    assume(found is not None)
    assert found is not None
    for whole, tiled, wanted in zip(found.whole, found.tiled, found.wanted, strict=True):
        assert close(tiled, whole)
        assert close(tiled, wanted)


@pytest.mark.skipif("HALOTILE_CHAINS" not in os.environ, reason="HALOTILE_CHAINS=first:count asks for many")
def test_many_chains() -> None:
    """Every third one with Winograd. Says what was executed: members, modes, tasks."""
    seed, count = (int(n) for n in os.environ["HALOTILE_CHAINS"].split(":"))
    seen: Counter[str] = Counter()
    while seen["executed"] < count:
        seed += 1
        winograd = seed % 3 == 0
        found = pair(seed, 1 + seed % 9, seed % 5, winograd, 2 if seed % 10 else 1)
        if found is None:
            continue
        for whole, tiled, wanted in zip(found.whole, found.tiled, found.wanted, strict=True):
            if winograd:
                assert close(tiled, whole), f"seed {seed}"
            else:
                np.testing.assert_array_equal(tiled, whole, err_msg=f"seed {seed}")
            assert close(tiled, wanted), f"seed {seed}"
        (plan,) = found.build.tiled.values()
        kinds = {f"with {n.operator}" for g in plan.members for n in g.nodes}
        seen.update(["executed", f"{min(len(plan.members), 9)} members", *set(plan.modes.values()), *kinds])
        seen.update(["winograd"] * winograd + ["several tasks"] * (len(plan.tasks) > 1))
        seen.update(["saved rows"] * _saves(plan) + ["shared by cores"] * (plan.sharing > 1))
        seen.update(["over an input"] * bool(plan.inplace) + ["over an outer input"] * bool(plan.takes))
        if seen["executed"] % 50 == 0:
            print(seed, dict(sorted(seen.items())), flush=True)
    assert seen["executed"] == count
