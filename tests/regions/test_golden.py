"""Tiles of a chain with a pad in the middle: the table of nine tiles, as the regions of the imported graph."""

from __future__ import annotations

import numpy as np
import pytest
from halotile.passes.fuse.graph import Graph
from halotile.schedules.regions import Demand, demand
from region_cases import chain_of, zeros

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


def graph() -> Graph:
    return chain_of(
        (1, 3, 50, 50),
        ("Conv", [zeros(5, 3, 3, 3)], {}),
        ("Relu", [], {}),
        ("Conv", [zeros(7, 5, 1, 1)], {}),
        ("Relu", [], {}),
        ("Pad", [np.array([0, 0, 1, 1, 0, 0, 1, 1])], {}),
        ("Conv", [zeros(4, 7, 3, 3)], {}),
        ("Relu", [], {}),
    )


def rectangle(box: tuple[tuple[int, int], ...]) -> Rectangle:
    return box[3][0], box[2][0], box[3][1], box[2][1]


def tile(g: Graph, x0: int, y0: int, x1: int, y1: int) -> Demand:
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
