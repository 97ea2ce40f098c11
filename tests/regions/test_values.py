"""Nothing outside of a region matters: inputs outside of it are NaN, and the box comes out the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from evaluate import one_node
from halotile.compiler.frontend import import_model
from halotile.passes.fuse.graph import build_graph
from halotile.schedules.operators.reference import compile_reference
from halotile.schedules.operators.regions import Demand, demand, read_boxes
from region_cases import ones
from tile_models import random_model

rng = np.random.default_rng(5)


def real(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype("float32")


CASES: list[tuple[str, list[np.ndarray | None], dict[str, Any]]] = [
    ("Conv", [real(1, 4, 13, 11), real(6, 2, 3, 4), real(6)],
     dict(pads=[2, 0, 1, 3], strides=[2, 1], dilations=[1, 2], group=2)),
    ("ConvTranspose", [real(1, 2, 7, 5), real(2, 3, 4, 3)], dict(strides=[3, 2], pads=[1, 2, 0, 1], dilations=[1, 2])),
    ("MaxPool", [real(1, 2, 12, 13)], dict(kernel_shape=[3, 2], strides=[2, 3], pads=[1, 0, 1, 1], ceil_mode=1)),
    ("AveragePool", [real(1, 2, 12, 13)], dict(kernel_shape=[3, 4], strides=[2, 3], pads=[1] * 4, ceil_mode=1)),
    ("LpPool", [real(1, 2, 12, 13)], dict(kernel_shape=[3, 4], strides=[2, 3], pads=[1] * 4)),
    ("Pad", [real(1, 2, 9, 8), np.array([0, 0, 3, 2, 0, 0, 4, 1])], dict(mode="reflect")),
    ("Pad", [real(1, 2, 9, 8), np.array([0, 0, 3, 2, 0, 0, 4, 1])], dict(mode="wrap")),
    ("Pad", [real(1, 2, 9, 8), np.array([0, 0, 3, -2, 0, 0, 4, 1])], dict(mode="edge")),
    ("Pad", [real(1, 2, 9, 8), np.array([0, 1, 3, 2, 0, 2, 4, 1]), np.array(-np.inf, "f")], {}),
    ("Resize", [real(1, 2, 7, 9), None, None, np.array([1, 2, 17, 6])], dict(mode="cubic")),
    ("Resize", [real(1, 2, 7, 9), None, None, np.array([1, 2, 17, 20])], dict(mode="linear")),
    ("Resize", [real(1, 2, 17, 20), None, None, np.array([1, 2, 7, 9])], dict(mode="linear", antialias=1)),
    ("Resize", [real(1, 2, 7, 9), None, None, np.array([1, 2, 14, 27])], dict(mode="nearest")),
    ("DepthToSpace", [real(1, 12, 5, 4)], dict(blocksize=2, mode="CRD")),
    ("SpaceToDepth", [real(1, 3, 8, 6)], dict(blocksize=2)),
    ("Slice", [real(1, 2, 11, 12), np.array([9, 1]), np.array([1, 12]), np.array([2, 3]), np.array([-3, 2])], {}),
    ("Softmax", [real(1, 5, 6, 7)], dict(axis=1)),
    ("LRN", [real(1, 7, 6, 5)], dict(size=3)),
    ("Concat", [real(1, 2, 6, 5), ones(1, 2, 3, 5)], dict(axis=2)),
    ("Mul", [real(1, 3, 6, 5), real(3, 1, 1)], {}),
    ("BatchNormalization", [real(1, 3, 6, 5), *(abs(real(3)) for _ in range(4))], {}),
    ("PRelu", [real(1, 3, 6, 5), real(3, 1, 1)], {}),
]  # fmt: skip


@pytest.mark.parametrize("operator, inputs, attributes", CASES, ids=[f"{c[0]}{i}" for i, c in enumerate(CASES)])
def test_what_lies_outside_of_the_region_does_not_matter(
    operator: str, inputs: list[np.ndarray | None], attributes: dict[str, Any]
) -> None:
    model, feeds = one_node(operator, inputs, **attributes)
    imported = import_model(model)
    run = compile_reference(imported.module)
    graph = build_graph(imported.module)
    out, into = graph.outputs[0], graph.inputs[0]
    (x,) = feeds.values()
    (whole,) = run(x)
    poisoned = 0
    for _ in range(12):
        box = []
        for n in out.shape:
            lo = int(rng.integers(0, n))
            box.append((lo, int(rng.integers(lo + 1, min(n, lo + 5) + 1))))
        found = demand(graph.nodes, {out: tuple(box)})
        assert isinstance(found, Demand), found
        needed = read_boxes(found.needs.get(into, ())).get(into)
        part = np.full_like(x, np.nan)
        if needed is not None:
            at = tuple(slice(*s) for s in needed)
            part[at] = x[at]
        poisoned += int(np.isnan(part).any())
        (again,) = run(part)
        at = tuple(slice(*s) for s in box)
        np.testing.assert_array_equal(again[at], whole[at])
    assert poisoned


@pytest.mark.parametrize("seed", range(12))
def test_regions_of_whole_graphs(seed: int) -> None:
    """Random chains with joins, pads, pools, resizes, shuffles: demands composed through all of their nodes."""
    imported = import_model(random_model(1000 + seed, 5))
    run = compile_reference(imported.module)
    graph = build_graph(imported.module)
    rng = np.random.default_rng(seed)
    (into,) = graph.inputs
    x = rng.standard_normal(into.shape).astype("float32")
    whole = run(x)
    for _ in range(6):
        part = np.full_like(x, np.nan)
        boxes = {}
        for out in graph.outputs:
            lows = [int(rng.integers(0, n)) for n in out.shape]
            boxes[out] = tuple((lo, int(rng.integers(lo + 1, min(n, lo + 4) + 1))) for lo, n in zip(lows, out.shape))
        found = demand(graph.nodes, boxes)
        assert isinstance(found, Demand), found
        needed = read_boxes(found.needs.get(into, ())).get(into)
        if needed is not None:
            at = tuple(slice(*s) for s in needed)
            part[at] = x[at]
        for out, once, again in zip(graph.outputs, whole, run(part)):
            at = tuple(slice(*s) for s in boxes[out])
            np.testing.assert_array_equal(again[at], once[at])
