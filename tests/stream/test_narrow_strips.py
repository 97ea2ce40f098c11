"""Strips are narrower than they need to be where the last cache then keeps what kernels hand on; the bits stay."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import halotile
import numpy as np
import pytest
from halotile.compiler.stream import abreast
from halotile.compiler.stream.machine import Stream
from halotile.compiler.stream.traffic import Traffic
from halotile.targets.detect import native
from stream_models import random_graph, unet, upscaler

SMALL = {"l1_bytes": 32 << 10, "l2_bytes": 256 << 10, "l3_bytes": 0, "clusters": ()}
LARGE = {"l1_bytes": 32 << 10, "l2_bytes": 64 << 20, "l3_bytes": 1 << 30, "clusters": ()}


def streamed(source, shape, budget, caches):
    target = replace(native(), **caches)
    return halotile.compile(
        source, shapes={"x": shape}, exact=True, memory_budget=budget, stream=True, target=target, threads=2
    )


def budget_of(source, shape, caches):
    """A seventh of what steps of 48 rows take: no whole width fits, with 12 rows or more a step."""
    with streamed(source, shape, None, caches) as model:
        assert model.plan.columns is None and model.plan.rows == 48
        return (Stream(model._runs, model.plan).state_bytes + model.arena_bytes()) // 7


def width(model):
    ((first, end), *_) = [s.crops["x"] for s in model.plan.columns.strips]
    return end - first


def drawn(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_wide_images_get_narrower_strips_of_a_small_cache():
    """Strips are as wide as fit where a cache holds all of them, and narrower where it doesn't."""
    source, shape = unet("w"), (1, 3, "h:8..:4", 9004)
    budget = budget_of(source, shape, SMALL)
    with streamed(source, shape, budget, SMALL) as small, streamed(source, shape, budget, LARGE) as large:
        assert len(large.plan.columns.strips) >= 2 and width(small) < 0.8 * width(large)
        assert large.plan.columns.work < small.plan.columns.work <= 1.1
        assert small.arena_bytes() < 0.8 * large.arena_bytes()
        assert len(small.plan.columns.groups()) <= len(large.plan.columns.groups())
        x = drawn(1, 3, 60, 9004)
        y = halotile.compile(source, shapes={"x": x.shape}, exact=True, target=small.target)(x)
        assert np.array_equal(small.stream(x), y)


def test_a_small_gain_is_within_a_predictions_error():
    """Strips as wide as fit stay where narrower ones are predicted to be but little faster."""
    source, shape = upscaler("w"), (1, 3, "h", 9001)
    budget = budget_of(source, shape, SMALL)
    with streamed(source, shape, budget, SMALL) as small, streamed(source, shape, budget, LARGE) as large:
        assert small.plan == large.plan


def test_narrow_images_stay_as_they_are():
    """Strips whose kernels hand on little are as wide as fit: the same of a small cache and of a large one."""
    source, shape = upscaler("w"), (1, 3, "h", 811)
    budget = budget_of(source, shape, SMALL)
    with streamed(source, shape, budget, SMALL) as small, streamed(source, shape, budget, LARGE) as large:
        assert len(small.plan.columns.strips) > 1 and small.plan == large.plan


@pytest.mark.parametrize("seed", [2])
def test_random_graphs_in_narrower_strips(seed, monkeypatch):
    """The same bits as the whole image; states and rows hold NaN before a strip begins."""
    monkeypatch.setattr(abreast, "Stream", partial(Stream, poison=True))
    source = random_graph(seed, 6004, channels=8)
    source.graph.input[0].type.tensor_type.shape.dim[3].dim_param = "w"
    shape, high = (1, 3, "h:8..:4", 6004), 60
    budget = budget_of(source, shape, SMALL)
    with streamed(source, shape, budget, SMALL) as model, streamed(source, shape, budget, LARGE) as other:
        assert model.plan.columns is not None and width(model) < width(other)
        x = drawn(1, 3, high, 6004)
        whole = halotile.compile(source, shapes={"x": x.shape}, exact=True, target=model.target)({"x": x})
        found = model.stream({"x": x}, {name: np.empty_like(y) for name, y in whole.items()})
        assert all(np.array_equal(found[name], y) for name, y in whole.items())


def test_what_no_cache_keeps_comes_from_memory():
    """Time for each column grows with the width until nothing stays, and launches weigh on the narrowest."""
    target = replace(native(), **SMALL)
    traffic = Traffic.on(target, 2, [8 << 20] * 10, 10**7)
    times = [traffic.cycles(share) for share in (1.0, 0.5, 0.25, 0.12, 0.06)]
    assert times == sorted(times, reverse=True)
    assert traffic.cycles(1e-4) > traffic.cycles(0.02)
    at_rest = replace(traffic, kept=float(1 << 40))
    assert at_rest.cycles(1.0) < traffic.cycles(1.0) and at_rest.cycles(0.5) > at_rest.cycles(1.0)
