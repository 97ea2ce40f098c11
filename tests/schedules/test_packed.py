"""Packed weights that take long are made when they are read: kernels that a plan only asks for scratch never do."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import native
from halotile.benchmarks.models import MODELS
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.schedules.conv.winograd import weights as winograd_weights
from halotile.schedules.words.group import Packed


def test_data_is_made_once_when_it_is_read() -> None:
    made = []

    def make() -> np.ndarray:
        made.append(1)
        return np.zeros(8, np.float32)

    packed = Packed("w", make, 8)
    assert (packed.elements, packed.dtype, made) == (8, "float32", [])
    assert packed.data is packed.data and packed.data.size == packed.elements and made == [1]
    half = Packed("h", np.zeros((2, 3), np.float16))
    assert (half.elements, half.dtype) == (6, "float16")


def test_planning_under_a_budget_transforms_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    pack, calls = winograd_weights.pack_weights, []

    def counted(*arguments: object) -> np.ndarray:
        calls.append(1)
        return pack(*arguments)

    monkeypatch.setattr(winograd_weights, "pack_weights", counted)
    model = MODELS["unet"].model(small=True, size=96, base=16)
    untiled = run_pipeline(model, Options(native(), stop_after="plan", threads=1, tile="off"))
    budget = untiled.report["arena_bytes"] // 2
    build = run_pipeline(model, Options(native(), stop_after="plan", threads=1, memory_budget=budget))
    assert any("winograd" in p.schedule for k in build.kernels for p in getattr(k, "parts", (k,)))
    assert not calls
    packed = [o for k in build.kernels for o in k.operands if isinstance(o, Packed) and callable(o.given)]
    assert packed and all(o.data.size == o.elements and str(o.data.dtype) == o.dtype for o in packed) and calls
