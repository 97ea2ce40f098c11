"""Tiles of a chain with a pad in the middle: the table of nine tiles, as the regions of the imported graph."""

from __future__ import annotations

import numpy as np
import pytest
from halotile.passes.fuse.graph import ProgramGraph
from halotile.schedules.operators.regions import Demand, demand
from halotile.schedules.words.group import Value
from region_cases import build, chain_of, ones

Rectangle = tuple[int, int, int, int]  # x0, y0, x1, y1

# output tile -> input box, box of conv1 and conv2, pads (left, top, right, bottom), box that conv3 needs
NINE = [
    ((0, 0, 16, 16), (0, 0, 19, 19), (0, 0, 17, 17), (1, 1, 0, 0), (-1, -1, 17, 17)),
    ((16, 0, 32, 16), (15, 0, 35, 19), (15, 0, 33, 17), (0, 1, 0, 0), (15, -1, 33, 17)),
    ((32, 0, 48, 16), (31, 0, 50, 19), (31, 0, 48, 17), (0, 1, 1, 0), (31, -1, 49, 17)),
    ((0, 16, 16, 32), (0, 15, 19, 35), (0, 15, 17, 33), (1, 0, 0, 0), (-1, 15, 17, 33)),
    ((16, 16, 32, 32), (15, 15, 35, 35), (15, 15, 33, 33), (0, 0, 0, 0), (15, 15, 33, 33)),
    ((32, 16, 48, 32), (31, 15, 50, 35), (31, 15, 48, 33), (0, 0, 1, 0), (31, 15, 49, 33)),
    ((0, 32, 16, 48), (0, 31, 19, 50), (0, 31, 17, 48), (1, 0, 0, 1), (-1, 31, 17, 49)),
    ((16, 32, 32, 48), (15, 31, 35, 50), (15, 31, 33, 48), (0, 0, 0, 1), (15, 31, 33, 49)),
    ((32, 32, 48, 48), (31, 31, 50, 50), (31, 31, 48, 48), (0, 0, 1, 1), (31, 31, 49, 49)),
]


def graph() -> ProgramGraph:
    return chain_of(
        (1, 3, 50, 50),
        ("Conv", [ones(5, 3, 3, 3)], {}),
        ("Relu", [], {}),
        ("Conv", [ones(7, 5, 1, 1)], {}),
        ("Relu", [], {}),
        ("Pad", [np.array([0, 0, 1, 1, 0, 0, 1, 1])], {}),
        ("Conv", [ones(4, 7, 3, 3)], {}),
        ("Relu", [], {}),
    )


def rectangle(box: tuple[tuple[int, int], ...]) -> Rectangle:
    return box[3][0], box[2][0], box[3][1], box[2][1]


def tile(g: ProgramGraph, x0: int, y0: int, x1: int, y1: int) -> Demand:
    out = g.outputs[0]
    found = demand(g.nodes, {out: ((0, 1), (0, out.shape[1]), (y0, y1), (x0, x1))})
    assert isinstance(found, Demand)
    return found


@pytest.mark.parametrize("row", NINE, ids=lambda r: ",".join(map(str, r[0])))
def test_nine_tiles(row: tuple[Rectangle, Rectangle, Rectangle, Rectangle, Rectangle]) -> None:
    output, image, middle, pads, padded = row
    g = graph()
    found = tile(g, *output)
    convs = [n.results[0] for n in g.nodes if n.operator == "relax.nn.conv2d"]
    assert [v.shape[2] for v in convs] == [48, 48, 48]
    (at_input,) = found.needs[g.inputs[0]]
    assert rectangle(at_input.box) == image and at_input.fill == "none"
    for conv in convs[:2]:
        assert rectangle(found.boxes[conv]) == middle
    assert rectangle(found.boxes[convs[2]]) == output
    before_pad = next(n for n in g.nodes if n.operator == "relax.nn.pad").inputs[0]
    (at_pad,) = found.needs[before_pad]
    assert rectangle(at_pad.box) == padded
    (top, bottom), (left, right) = at_pad.outside[2:]
    assert (left, top, right, bottom) == pads
    assert at_pad.fill == ("zero" if any(pads) else "none")


def test_the_nine_tiles_read_135_percent_and_work_117_percent() -> None:
    g = graph()
    tiles = [tile(g, *row[0]) for row in NINE]
    read = sum(_area(t.needs[g.inputs[0]][0].box) for t in tiles)
    convs = [n.results[0] for n in g.nodes if n.operator == "relax.nn.conv2d"][:2]
    done = sum(_area(t.boxes[c]) for t in tiles for c in convs)
    assert read / 2500 == pytest.approx(1.35, abs=0.005)
    assert done / (2 * 48 * 48) == pytest.approx(1.17, abs=0.005)


def _area(box: tuple[tuple[int, int], ...]) -> int:
    (a, b), (c, d) = box[2:]
    return (b - a) * (d - c)


def stem_and_first_stage() -> ProgramGraph:
    """ResNet-18 up to the end of its first stage: 7x7/2, pool 3x3/2, two residual blocks of two 3x3 each."""
    same = dict(pads=[1] * 4)
    steps = [("Conv", "x w", "a", dict(strides=[2, 2], pads=[3] * 4)), ("Relu", "a", "b", {}),
             ("MaxPool", "b", "r0", dict(kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4))]  # fmt: skip
    for n, (before, after) in enumerate([("r0", "r1"), ("r1", "y")]):
        steps += [("Conv", f"{before} v", f"c{n}", same), ("Relu", f"c{n}", f"d{n}", {}),
                  ("Conv", f"d{n} v", f"e{n}", same), ("Add", f"e{n} {before}", f"f{n}", {}),
                  ("Relu", f"f{n}", after, {})]  # fmt: skip
    return build((1, 3, 224, 224), *steps, weights={"w": ones(64, 3, 7, 7), "v": ones(64, 64, 3, 3)})


def test_one_row_stripes_of_resnet_18_cost_five_times_the_work_and_with_rings_none() -> None:
    g = stem_and_first_stage()
    out = g.outputs[0]
    assert out.shape == (1, 64, 56, 56)
    # operations of an element: multiply-adds of a convolution, the nine elements of the pool's window
    work = {n.results[0]: n.inputs[1].elements // 64 for n in g.nodes if n.operator == "relax.nn.conv2d"}
    assert len(work) == 5
    work |= {n.results[0]: 9 for n in g.nodes if n.operator == "relax.nn.max_pool2d"}
    recomputed = ringed = 0
    kept: dict[Value, int] = dict.fromkeys(work, 0)  # the row up to which a value is there
    for row in range(56):
        found = demand(g.nodes, {out: ((0, 1), (0, 64), (row, row + 1), (0, 56))})
        assert isinstance(found, Demand)
        for value, per_element in work.items():
            (_, channels, (lo, hi), (left, right)) = found.boxes[value]
            cost = channels[1] * (right - left) * per_element
            recomputed += (hi - lo) * cost
            assert lo <= kept[value], "a ring never skips rows that are needed"
            ringed += max(hi - kept[value], 0) * cost
            kept[value] = max(hi, kept[value])
    total = sum(v.elements * cost for v, cost in work.items())
    assert recomputed / total == pytest.approx(4.98, abs=0.005)
    assert ringed == total
