"""Rows of an open image that register tiles leave over are computed by the kernel of one row, and each image takes the
register tile of the fewest cycles for its rows and columns."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import LoadedModel, load
from halotile.compiler.state import Options
from halotile.targets.resolve import resolve

from ..support.open_models import Drawing, feeds
from ..support.open_runs import run_in

CLOSE = 3e-5  # of the largest number: sums of up to 576 products in another order
TYPICAL = {"h": 24, "w": 24}
HEIGHTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17, 29)
WIDTHS = (29, 3, 13, 2, 1, 4)
#: (channels, outputs, taps, strides, groups)
LAYERS = {
    "1 x 1": (32, 32, 1, 2, 1),
    "3 x 3": (64, 64, 3, 1, 1),
    "strides": (24, 32, 3, 2, 1),
    "few channels": (3, 16, 3, 1, 1),
    "groups": (32, 32, 3, 1, 2),
    "vectors left over": (64, 56, 3, 1, 1),
}

Built = tuple[onnx.ModelProto, str, LoadedModel]


def model(channels: int, outputs: int, taps: int, strides: int, groups: int) -> onnx.ModelProto:
    g = Drawing(3)
    x = g.input("x", 1, channels, "h", "w")
    weight = g.drawn(outputs, channels // groups, taps, taps)
    x = g("Conv", x, weight, g.drawn(outputs), kernel_shape=[taps] * 2, pads=[taps // 2] * 4,
          strides=[strides] * 2, group=groups)  # fmt: skip
    g.output(g("Relu", x), 4)
    return g.model()


@pytest.fixture(scope="module", params=LAYERS)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """(proto, schedule of its kernel, library) for two cores, its sums in order, so that tiles compute all."""
    proto = model(*LAYERS[request.param])
    options = Options(resolve("x86-64-v3"), threads=2, open=True, formats=("so",), typical=TYPICAL, exact=True)
    folder = tmp_path_factory.mktemp("rows") / "out"
    build = run_pipeline(proto.SerializeToString(), options, output=folder)
    (schedule,) = (k["schedule"] for k in build.report["kernels"] if "open images" in k["schedule"])
    with load(folder) as library:
        yield proto, schedule, library


def test_rows_over_are_in_tiles_of_one_row(built: Built, request: pytest.FixtureRequest) -> None:
    _, schedule, _ = built
    kernels = [re.search(r"tile (\d+)x(\d+x\d+)", text).groups() for text in schedule.split(" or ")]
    over = [n for n, text in enumerate(schedule.split(" or ")) if " over in tiles of one" in text]
    assert over == [n for n, (rows, own) in enumerate(kernels) if rows != "1" and ("1", own) in kernels], schedule
    assert over or request.node.callspec.params["built"] != "strides", schedule


def test_images_choose_between_tiles(built: Built) -> None:
    _, schedule, _ = built
    tiles = [tuple(map(int, found)) for found in re.findall(r"tile (\d+)x(\d+)x(\d+)", schedule)]
    assert len(tiles) > 2 and len({vectors for *_, vectors in tiles}) == 1, schedule
    assert tiles[-1][:2] == (1, 1), schedule
    assert all(a * b > 1 for a, b, _ in tiles[:-1]) and len({b for _, b, _ in tiles[:-1]}) > 1, schedule


def test_numbers_of_every_height(built: Built) -> None:
    """Results and scratch are full of NaN before; one thread, and two with bands of their own."""
    proto, _, library = built
    strides = next(a.ints[0] for n in proto.graph.node for a in n.attribute if a.name == "strides")
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for number, h in enumerate(HEIGHTS):
        sizes = {"h": strides * h, "w": strides * WIDTHS[number % len(WIDTHS)] - (strides - 1) * (number % 2)}
        given = feeds(proto, sizes, number)
        (wanted,) = session.run(None, given)
        one, two = (run_in(library, sizes, given["x"], threads, 0xFF) for threads in (1, 2))
        assert np.array_equal(one, two), sizes
        assert np.abs(one - wanted).max() <= CLOSE * np.abs(wanted).max(), sizes
