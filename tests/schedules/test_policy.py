"""One option's meaning for another, as a table; requests that differ in anything a kernel depends on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from halotile.compiler.state import Options
from halotile.schedules.words.group import Box, Group, Limits, Node, Request, SharedWeights, Value
from halotile.schedules.words.layout import Layout
from halotile.schedules.words.policy import Policy, Tuning
from halotile.targets.resolve import resolve

TARGET = resolve("x86-64-v4")
#                                  options                        winograd strassen matrix parts  speed
TABLE: list[tuple[dict[str, Any], tuple[bool, ...]]] = [
    ({}, (True, True, True, True, True)),
    ({"exact": True}, (False, False, True, False, True)),
    ({"winograd": False}, (False, False, True, True, True)),
    ({"matrix": False}, (True, True, False, False, True)),
    ({"weights": "float16"}, (True, False, True, False, True)),
    ({"weights": "int8"}, (True, False, True, False, True)),
    ({"weights": "float16", "precision": "bfloat16"}, (True, False, True, True, True)),
    ({"memory_budget": 1 << 20}, (True, False, True, True, False)),
    ({"optimize": "memory"}, (True, False, True, True, False)),
    ({"exact": True, "matrix": False}, (False, False, False, False, True)),
]


@pytest.mark.parametrize(("options", "wanted"), TABLE, ids=lambda v: " ".join(v) if isinstance(v, dict) else "")
def test_what_an_option_implies(options: dict[str, Any], wanted: tuple[bool, ...]) -> None:
    p = Options(TARGET, **options).policy
    assert (p.winograd, p.strassen, p.matrix, p.parts, p.speed) == wanted
    assert p.weights == options.get("weights", "float32")
    assert p.exact == options.get("exact", False) and p.threads == TARGET.cores and p.tuning is None


def test_threads_and_measured_choices() -> None:
    policy = Options(TARGET, threads=3, tuning={"a": "b"}, candidate=2).policy
    assert policy.threads == 3 and policy.tuning is not None
    assert (policy.tuning.chosen, policy.tuning.candidate) == ({"a": "b"}, 2)
    assert replace(Options(TARGET), exact=True).policy.exact


def test_equal_requests_are_one_key() -> None:
    x, w = Value("x", (1, 8, 4, 4), "float32"), Value("w", (8, 8), "float32", np.zeros((8, 8), "float32"))
    y, other = Value("y", (1, 8, 4, 4), "float32"), Value("other", (3,), "float32")
    node = Node("n", "relax.nn.relu", None, (x, w), (y,))
    group = Group("g", (node,), (x,), (y,), None)
    blocked = {x: Layout.blocked(x.shape, 8)}
    request = Request(group, blocked, TARGET)
    same = Request(group, {**blocked, other: Layout.blocked((1, 8), 8)}, replace(TARGET), Policy.of(), Limits())
    assert request == same and hash(request) == hash(same) and request != 1
    different = [
        replace(request, layouts={}),
        replace(request, group=replace(group)),
        replace(request, target=replace(TARGET, cores=TARGET.cores + 1)),
        replace(request, target=replace(TARGET, native=True)),
        replace(request, policy=Policy.of(winograd=False)),
        replace(request, policy=Policy.of(tuning=Tuning())),
        *(replace(request, limits=limits) for limits in (Limits(0), Limits(once=1), Limits(crowded=True))),
        replace(request, limits=Limits(closing=True)),
        replace(request, box=Box(1, 4)),
        replace(request, box=Box(1, 4, open=True)),
        replace(request, shared=SharedWeights()),
    ]
    assert len({request, same, *different}) == 1 + len(different)
