"""Open images by Winograd's algorithm from the size on where it is faster, or where they are narrower and its tiles fit
them as well; by register tiles else: which of the two runs, and that both are right."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import onnxruntime
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Options
from halotile.targets.resolve import resolve

from ..support.open_models import Drawing, feeds
from ..support.open_runs import run_in

NAMED = "x86-64-v3"
CLOSE = 3e-5  # of the largest number of an output: sums in another order, and Winograd's
TYPICAL = {"h": 96, "w": 96}
POISONS = ((1, 0xFF), (2, 0x7F))  # (threads, byte): 0xFF is a NaN


@dataclass(frozen=True)
class Layer:
    """A convolution of images of any size; ``fast``: Winograd's algorithm computes large ones."""

    channels: int
    outputs: int
    taps: int = 3
    strides: int = 1
    dilation: int = 1
    groups: int = 1
    fast: bool = True

    def model(self):
        g = Drawing(9)
        x = g.input("x", 1, self.channels, "h", "w")
        weight = g.drawn(self.outputs, self.channels // self.groups, self.taps, self.taps)
        reach = (self.taps - 1) * self.dilation // 2
        x = g("Conv", x, weight, g.drawn(self.outputs), kernel_shape=[self.taps] * 2, pads=[reach] * 4,
              strides=[self.strides] * 2, dilations=[self.dilation] * 2, group=self.groups)  # fmt: skip
        g.output(g("Relu", x), 4)
        return g.model()


LAYERS = {
    "plain": Layer(32, 32),
    "few outputs": Layer(64, 12),
    "5 x 5": Layer(32, 24, taps=5),
    "dilation": Layer(64, 64, dilation=2),
    "strides": Layer(64, 64, strides=2),
    "groups": Layer(32, 32, groups=2, fast=False),
    "1 x 1": Layer(32, 32, taps=1, fast=False),
}


@pytest.fixture(scope="module", params=LAYERS)
def built(request, tmp_path_factory):
    """(layer, proto, schedule of its kernel, library, one whose sums keep their order)."""
    layer = LAYERS[request.param]
    proto = layer.model()
    loaded, schedules = [], []
    for exact in (False, True):
        options = Options(resolve(NAMED), threads=2, open=True, formats=("so",), typical=TYPICAL, exact=exact)
        folder = tmp_path_factory.mktemp("open") / "out"
        build = run_pipeline(proto.SerializeToString(), options, output=folder)
        schedules += [k["schedule"] for k in build.report["kernels"] if "open images" in k["schedule"]]
        loaded.append(load(folder))
    with loaded[0], loaded[1]:
        yield layer, proto, schedules[0], *loaded


def boundary(schedule: str) -> tuple[int, int]:
    """Rows and columns from which on the first kernel of a schedule is taken."""
    found = re.match(r"open images: winograd F\((\d)x(\d)[^|]*? C8(?: from (\d+) x (\d+))? or direct conv", schedule)
    assert found is not None, schedule
    rows, columns, *since = found.groups()
    return (int(since[0]), int(since[1])) if since[0] else (int(rows), int(columns))


def test_winograd_is_taken_where_it_applies(built) -> None:
    layer, _, schedule, _, _ = built
    assert ("winograd" in schedule) == layer.fast, schedule
    if layer.fast:
        assert not re.search(r"or direct conv C\d+, tile 1x[12]x1 ", schedule.split(" or ")[1])


def taken(layer: Layer, schedule: str, h: int, w: int) -> bool:
    """Whether Winograd's algorithm computes ``h`` rows and ``w`` columns: as many of both as from the boundary on, or
    as many in all, in tiles that hold as many."""
    if not layer.fast:
        return False
    rows, columns = boundary(schedule)
    found = re.search(r"winograd F\((\d)x(\d)", schedule)
    assert found is not None
    tile = [int(n) * layer.dilation for n in found.groups()]

    def tiles(height: int, width: int) -> int:
        return -(-height // tile[0]) * -(-width // tile[1])

    if h >= rows and w >= columns:
        return True
    narrow = (rows, columns) != tuple(tile) and h >= tile[0] and w >= tile[1] and h * w >= rows * columns
    return narrow and h * w * tiles(rows, columns) >= tiles(h, w) * rows * columns


def test_tiles_below_the_boundary_and_winograd_from_it_on(built) -> None:
    """Below, sums keep their order: bits are those of a library that computes all so."""
    layer, proto, schedule, library, exact = built
    rows, columns = boundary(schedule) if layer.fast else (7, 7)
    below = [(rows - 1, columns - 1), (rows - 2, columns), (1, 97), (97, 2), (1, 1)]
    above = [(rows, columns), (rows + 1, columns + 4), (rows, 97)]
    assert not any(taken(layer, schedule, *size) for size in below)
    assert not layer.fast or all(taken(layer, schedule, *size) for size in above)
    between = [(rows - 1, columns + 7), (rows + 13, columns - 1), (4, 64), (64, 5), (8, 40), (6, 77)]
    assert not layer.fast or any(taken(layer, schedule, *size) for size in between)
    for number, (h, w) in enumerate([*below, *above, *between]):
        sizes = {"h": layer.strides * h, "w": layer.strides * w}
        given = feeds(proto, sizes, number)
        (got,), (kept,) = library(given).values(), exact(given).values()
        assert np.array_equal(got, kept) == (not taken(layer, schedule, h, w)), (h, w, schedule)
        assert library.arena_bytes(2, sizes) >= exact.arena_bytes(2, sizes)


def test_numbers_on_both_sides(built) -> None:
    """Prime sizes, scratch full of NaN, one thread and two."""
    layer, proto, schedule, library, _ = built
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    rows, columns = boundary(schedule) if layer.fast else (7, 7)
    sides = [(rows - 1, columns - 1), (rows, columns), (rows + 1, columns + 1)]
    primes = [(1, 2), (2, 3), (5, 7), (7, 5), (13, 11), (17, 31), (3, 101), (97, 2), (61, 53)]
    primes += [(4, 67), (71, 6), (8, 41)]
    for number, (h, w) in enumerate([*primes, *sides]):
        sizes = {"h": layer.strides * h, "w": layer.strides * w}
        given = feeds(proto, sizes, number)
        (wanted,) = session.run(None, given)
        for threads, poison in POISONS:
            got = run_in(library, sizes, given["x"], threads, poison)
            assert np.abs(got - wanted).max() <= CLOSE * np.abs(wanted).max(), (h, w, threads)
