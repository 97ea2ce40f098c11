"""Images larger than those that a build plans for take another algorithm where it pays, with weights of its own."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Options
from halotile.schedules.tiled import larger_images
from halotile.targets.resolve import resolve

from ..support.open_models import Drawing, feeds
from ..support.open_runs import run_in

CLOSE = 3e-5  # of the largest number of an output
FROM = re.compile(r"(winograd F\(\S+\)), .*? from (\d+) x (\d+)")
TYPICAL = {"n": 1, "h": 6, "w": 6}


def layers(channels: int = 128) -> onnx.ModelProto:
    """Two layers of an image's size, the second with a residual, and two of half its size."""
    g = Drawing(7)
    x = g("Relu", g.conv(g.input("x", "n", channels, "h", "w"), channels, channels, 3))
    x = g("Relu", g("Add", g.conv(x, channels, channels, 3), x))
    x = g("Relu", g.conv(x, channels, 2 * channels, 3, strides=[2, 2]))
    g.output(g.conv(x, 2 * channels, 2 * channels - 3, 3), 4)
    return g.model()


@pytest.fixture(scope="module", params=[1, 2], ids=["one thread", "two threads"])
def built(request, tmp_path_factory):
    proto, threads = layers(), request.param
    options = Options(resolve("x86-64-v3"), threads=threads, open=True, formats=("so",), typical=TYPICAL)
    folder = tmp_path_factory.mktemp("larger") / "out"
    build = run_pipeline(proto.SerializeToString(), options, output=folder)
    with load(folder) as library:
        yield proto, build, library, threads


def begins(schedule: str) -> list[tuple[str, int]]:
    """The transforms of a kernel, and from how many rows and columns on each is taken."""
    return [(name, int(rows)) for name, rows, columns in FROM.findall(schedule) if rows == columns]


def convolutions(build) -> list[str]:
    return [k.schedule for k in build.kernels if k.schedule.startswith("open images")]


def test_larger_images_have_a_kernel_of_their_own(built) -> None:
    """Of another transform where one is the usual algorithm, and of one where none is."""
    _, build, _, _ = built
    found = [begins(schedule) for schedule in convolutions(build)]
    assert len(found) == 4
    for (large, since), (usual, least) in found[:2]:
        assert (large, usual) == ("winograd F(4x4,3x3)", "winograd F(2x2,3x3)") and since > least
    ((last, since),) = found[3]
    assert last == "winograd F(2x2,3x3)" and since > 3, "half of the planned image is direct"


def test_the_same_numbers_on_both_sides(built) -> None:
    """Memory between guards, full of NaN, for images around those from which on another kernel computes."""
    proto, build, library, threads = built
    limits = sorted({rows for k in build.kernels for _, rows in begins(k.schedule)})
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    sides = [(n + d, n) for n in (*limits, *(2 * n for n in limits)) for d in (-1, 0, 1)]
    for number, (h, w) in enumerate([(1, 1), (37, 2), *sides, (23, 29)]):
        sizes = {"n": 1 + number % 3, "h": h, "w": w}
        given = feeds(proto, sizes, number)
        (wanted,) = session.run(None, given)
        ordered = {s.name: sizes[s.name] for s in build.imported.symbols}
        found = [run_in(library, ordered, given["x"], t, 0xFF) for t in range(1, threads + 1)]
        assert np.abs(found[0] - wanted).max() <= CLOSE * np.abs(wanted).max(), sizes
        assert all(np.array_equal(found[0], other) for other in found[1:]), sizes


@pytest.mark.parametrize("shapes", [("n", 128, 6, 6), ("n", 128, "h:1..7", "w:1..7")], ids=["fixed", "bounded"])
def test_none_where_no_image_is_larger(shapes) -> None:
    typical = {name: n for name, n in TYPICAL.items() if any(str(s).startswith(name) for s in shapes)}
    build = run_pipeline(layers(), Options(resolve("x86-64-v3"), shapes={"x": shapes}, typical=typical))
    found = convolutions(build)
    assert len(found) == 4 and all(len(begins(schedule)) <= 1 for schedule in found)


def test_none_that_brings_too_many_weights(monkeypatch) -> None:
    options = Options(resolve("x86-64-v3"), typical=TYPICAL)
    before = run_pipeline(layers(), options)
    monkeypatch.setattr(larger_images, "MOST", 1 << 10)
    after = run_pipeline(layers(), options)
    assert after.report["weight_bytes"] < before.report["weight_bytes"]
    assert sum(len(begins(s)) for s in convolutions(after)) == sum(len(begins(s)) for s in convolutions(before)) - 3
