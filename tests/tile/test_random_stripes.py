"""Random chains in stripes of random heights: the checker goes through their plans, and some of them run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from evaluate import peer
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Options
from halotile.passes.tile.plan.form import RECOMPUTE, RING, Untileable
from halotile.passes.tile.scratchpad.checker import check_stripes
from halotile.passes.tile.scratchpad.stripes import stripe_plan
from halotile.passes.tile.search.program import Program
from halotile.schedules.scratchpad.double_buffer import double_buffered
from halotile.schedules.scratchpad.kernel import StripedKernel
from halotile.schedules.words.stripe_plan import StripePlan
from halotile.targets.resolve import resolve
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tile_models import random_model


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 40), st.integers(0, 3))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_plans_are_right(seed: int, layers: int, rows: int, choice: int) -> None:
    rng = np.random.default_rng((seed, choice))
    build = run_pipeline(random_model(seed, layers), Options(resolve("scratchpad"), stop_after="layout"))
    program = Program(build.groups, build.layouts, build.places, frozenset(build.graph.outputs))
    last = next((i for i in reversed(range(len(build.groups))) if program.refusal(i) is None), None)
    assume(last is not None)
    assert last is not None
    first = last
    while first > 0 and program.refusal(first - 1) is None and program.reads(first - 1, last) and rng.random() < 0.9:
        first -= 1
    assume(program.joined(first, last) is None)
    assume(program.leaving(first, last) <= set(build.groups[last].outputs))
    groups = build.groups[first : last + 1]
    modes = {v: str(rng.choice([RING, RECOMPUTE])) for g in groups for v in g.outputs}
    try:
        plan = stripe_plan(groups, build.layouts, rows, modes)
    except Untileable:
        assume(False)
        raise
    assert check_stripes(plan).problems == []


@pytest.mark.parametrize("seed", range(8))
def test_builds_run_and_agree(seed: int, tmp_path: Path) -> None:
    """Whole models in stripes of 1 to 5 rows where they can be; the traces are the sequences of their chains."""
    source = random_model(seed, 6)
    rows = 1 + seed % 5
    options = Options(resolve("scratchpad"), tile={"shape": (rows, None)}, name="random")
    build = run_pipeline(source, options, output=tmp_path)
    kernels = [k for k in build.kernels if isinstance(k, StripedKernel)]
    plans = [p for p in build.tiled.values() if isinstance(p, StripePlan)]
    assert kernels and len(kernels) == len(plans)
    assert all(k.scratchpad <= resolve("scratchpad").scratchpad_bytes for k in kernels)
    rng = np.random.default_rng(seed)
    feeds = {i.name: rng.standard_normal(i.shape).astype("float32") for i in build.imported.inputs}
    loaded = load(tmp_path)
    found = loaded(feeds)
    for ours, theirs in zip(found.values(), peer(_proto(source), feeds), strict=True):
        scale = max(1.0, float(np.abs(theirs).max()))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * scale)
    actions = [t.action for t in loaded.trace()]
    computed = [str(e) for p in plans for e in double_buffered(len(p.stripes)) if e.action == "compute"]
    assert actions.count("compute") == len(computed)
    assert actions.count("load") == actions.count("wait load") and actions.count("store") == actions.count("wait store")


def _proto(source: object) -> onnx.ModelProto:
    return source if isinstance(source, onnx.ModelProto) else onnx.load_from_string(source)  # type: ignore[arg-type]
