"""Winograd's strips in open images: as much memory as the image has tiles, and the right numbers around every limit."""

from __future__ import annotations

import re

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.schedules.conv.winograd.products import RegisterTiles

from ..support.open_models import Drawing, feeds
from ..support.open_runs import run_in

NAMED = "x86-64-v3"
CHANNELS = 64
CLOSE = 3e-5


def layers() -> onnx.ModelProto:
    g = Drawing(8)
    x = g("Relu", g.conv(g.input("x", "n", CHANNELS, "h", "w"), CHANNELS, CHANNELS, 3))
    g.output(g.conv(x, CHANNELS, CHANNELS, 3), 4)
    return g.model()


def arena(library: halotile.Model, **sizes: int) -> int:
    """Bytes of the arena for an image."""
    return library.arena_bytes(2, {"n": 1, **sizes})


@pytest.fixture(scope="module")
def emitted() -> set[tuple[int, int]]:
    """(tiles of a register tile, those of them that code computes) of all products."""
    return set()


@pytest.fixture(scope="module")
def both(emitted):
    proto = layers()
    typical = {"n": 1, "h": 96, "w": 96}
    with pytest.MonkeyPatch.context() as patch:
        multiply = RegisterTiles._multiply_tile

        def noted(self, data, products, at, rows, hints):
            emitted.add((self.plan.rows, rows))
            multiply(self, data, products, at, rows, hints)

        patch.setattr(RegisterTiles, "_multiply_tile", noted)
        built = halotile.compile(proto, NAMED, typical=typical, threads=2)
    plain = halotile.compile(proto, NAMED, typical=typical, threads=2, exact=True)
    return proto, built, plain


def test_the_memory_is_that_of_the_tiles(both) -> None:
    _, built, plain = both
    assert any("open images: winograd" in kernel["schedule"] for kernel in built.report["kernels"])
    beside = [arena(built, h=s, w=s) - arena(plain, h=s, w=s) for s in (8, 12, 96, 192)]
    assert 0 < beside[0] < 0.6 * beside[2] and beside[0] <= beside[1] <= beside[2]
    assert arena(built, h=3, w=200) == arena(plain, h=3, w=200)  # no tile fits: other kernels run
    begins = re.search(r" from (\d+) x \d+ or direct conv", " ".join(k["schedule"] for k in built.report["kernels"]))
    assert begins is not None
    below = int(begins[1]) - 1
    assert below > 3 and arena(built, h=below, w=below) == arena(plain, h=below, w=below)  # faster without
    assert arena(built, h=below, w=200) > arena(plain, h=below, w=200)  # as full of outputs as the smallest square


@pytest.mark.parametrize("threads", [1, 2])
def test_numbers_around_tiles_and_strips(both, threads: int) -> None:
    proto, built, _ = both
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    shapes = [(1, 3, 9), (1, 4, 4), (2, 5, 4), (1, 8, 7), (1, 13, 17), (3, 9, 9), (1, 24, 24), (1, 33, 47), (2, 4, 61)]
    for n, h, w in shapes:
        given = feeds(proto, {"n": n, "h": h, "w": w})
        (wanted,), (got,) = session.run(None, given), built(given, threads=threads).values()
        assert np.abs(got - wanted).max() <= CLOSE * np.abs(wanted).max(), (n, h, w)


def test_strips_that_end_with_half_a_register_tile(both, emitted) -> None:
    """Images of all numbers of tiles up to three register tiles, in memory full of NaN."""
    proto, built, _ = both
    ((whole, short), *_) = sorted(pair for pair in emitted if pair[0] != pair[1])
    assert short == whole // 2 > 0 and (whole, whole) in emitted
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    text = " ".join(k["schedule"] for k in built.report["kernels"])
    (begin, m), seen = re.search(r"F\((\d)x\d[^|]*? from (\d+) x", text).groups()[::-1], set()
    rows, step = int(begin), int(m)
    for number, (h, columns) in enumerate((h, c) for h in (rows, rows + step) for c in range(9)):
        sizes = {"n": 1, "h": h, "w": rows + 1 + step * columns}
        seen.add(-(-h // step) * -(-sizes["w"] // step) % whole)
        x = feeds(proto, sizes, number)["x"]
        one, two = (run_in(built._loaded, sizes, x, threads, 0xFF) for threads in (1, 2))
        (wanted,) = session.run(None, {"x": x})
        assert np.array_equal(one, two), sizes
        assert np.abs(one - wanted).max() <= CLOSE * np.abs(wanted).max(), sizes
    assert len({n for n in seen if 0 < n <= short}) > 1 and max(seen) > short
