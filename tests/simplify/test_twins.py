"""Open dims leave as few operators as their static twins, as far as the size decides nothing, and the same numbers."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import onnxruntime
import pytest
from halotile.compiler.listing import operators
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Build, Options
from halotile.targets.resolve import resolve
from twins import TWINS, Twin
from twins.base import feeds

CASES = [pytest.param(t, o, id=f"{t.title} ({', '.join(o)})") for t in TWINS for o in t.chosen()]


def built(twin: Twin, opened: tuple[str, ...], check: bool = False) -> Build:
    return run_pipeline(twin.model(*opened), Options(resolve("x86-64-v3"), stop_after="simplify", check=check))


def left(build: Build) -> Counter[str]:
    return Counter(o["operator"].removeprefix("relax.") for o in operators(build.module, composites=True))


@cache
def of_static(title: str) -> Counter[str]:
    return left(built(next(t for t in TWINS if t.title == title), ()))


def reference(twin: Twin, opened: tuple[str, ...]) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(twin.model(*opened).SerializeToString(), options, ["CPUExecutionProvider"])


@pytest.mark.parametrize(("twin", "opened"), CASES)
def test_open_dims_leave_no_more_operators(tools, twin: Twin, opened: tuple[str, ...]) -> None:
    build = built(twin, opened, check=True)
    open_ones, static = left(build), of_static(twin.title)
    allowed = static.total() + sum(twin.extra.get(d, 0) for d in opened)
    assert open_ones.total() <= allowed, (open_ones - static, build.details["simplify"]["declined"])
    model, session = twin.model(*opened), reference(twin, opened)
    for seed, sizes in enumerate(twin.runs(opened)):
        arrays = feeds(model, sizes, seed)
        got = tools.values(build.module, [arrays[i.name] for i in model.graph.input])
        for one, expected in zip(got, session.run(None, arrays), strict=True):
            assert one.shape == expected.shape, sizes
            np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-5, err_msg=str(sizes))


def test_there_are_enough_of_them() -> None:
    assert len(TWINS) >= 200
    assert sum(any(t.extra.values()) for t in TWINS) <= 60
