"""Images of any size, with few rows or columns and many of the other, take Winograd's algorithm where its tiles fit."""

from __future__ import annotations

import math
from pathlib import Path

import onnxruntime
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Options
from halotile.schedules.tiled.image_needs import ImageNeeds
from halotile.schedules.words.dims import Dim
from halotile.schedules.words.sizes import value_of
from halotile.targets.resolve import resolve

from ..support.open_models import Drawing, feeds, holds_at
from ..support.open_runs import checked

CLOSE = 5e-5  # of the largest number


@pytest.mark.parametrize("since,tile", [((9, 9), (4, 4)), ((5, 7), (2, 2)), ((14, 14), (6, 6))])
def test_images_that_are_as_large_or_fit_as_well(since: tuple[int, int], tile: tuple[int, int]) -> None:
    rows, columns = Dim.symbol("h", 1), Dim.symbol("w", 1)
    needs = ImageNeeds.of((rows, columns), since, tile)
    condition = needs.condition()
    longer = 0
    for h in [*range(1, 40), 97, 4096]:
        for w in [*range(1, 40), 101, 4096]:
            tiles = math.ceil(h / tile[0]) * math.ceil(w / tile[1])
            most = since[0] * since[1] / (math.ceil(since[0] / tile[0]) * math.ceil(since[1] / tile[1]))
            square = h >= since[0] and w >= since[1]
            fits = h >= tile[0] and w >= tile[1] and h * w >= since[0] * since[1] and h * w / tiles >= most - 1e-9
            assert holds_at(condition, {"h": h, "w": w}) == (square or fits), (h, w)
            longer += fits and not square
            if square or fits:  # then there is memory for the kernel
                assert all(value_of(dim, {"h": h, "w": w}) >= n for dim, n in needs.least)
    assert longer > 50


def test_sizes_that_every_image_has_need_no_condition() -> None:
    assert ImageNeeds.of((Dim.symbol("h", 8), 64), (8, 8), (4, 4)).condition() is None
    one_open = ImageNeeds.of((8, Dim.symbol("w", 1)), (8, 9), (4, 4))
    assert not holds_at(one_open.condition(), {"w": 8}) and holds_at(one_open.condition(), {"w": 9})


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("target", ["x86-64-v3", "native"])
def test_narrow_images_have_the_same_numbers(target: str, threads: int, tmp_path: Path) -> None:
    g = Drawing(8)
    x = g("Relu", g.conv(g.input("x", "n", 32, "h", "w"), 32, 64, 3))
    y = g.conv(g("Relu", g.conv(x, 64, 64, 3)), 64, 64, 3)
    g.output(g("Relu", g("Add", x, y)), 4)
    proto = g.model()
    typical = {"n": 1, "h": 40, "w": 40}
    options = Options(resolve(target), threads=threads, formats=("so",), open=True, typical=typical)
    build = run_pipeline(proto.SerializeToString(), options, output=tmp_path / "out")
    assert any(" from " in k.schedule and "winograd" in k.schedule for k in build.kernels)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    sizes = [(29, 4), (4, 29), (100, 5), (6, 77), (8, 12), (12, 8), (31, 7), (200, 2), (1, 99), (64, 6), (5, 400)]
    with load(tmp_path / "out") as library:
        for number, (h, w) in enumerate(sizes):
            given = feeds(proto, {"n": 1 + number % 3, "h": h, "w": w}, number)
            checked(library, session, given, CLOSE, (h, w))
