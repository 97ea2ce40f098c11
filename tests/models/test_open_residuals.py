"""Open images whose residuals lie where sums of them are written: which layers do so, that none is written over before
it is read, and what it saves."""

from __future__ import annotations

import itertools

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
CLOSE = 3e-5  # of the largest number of an output
POISONS = ((1, 0xFF), (2, 0x7F))  # (threads, byte)
OVER = "columns over in tiles of one"
SIZES = [*itertools.product((1, 2, 5, 7, 11), (1, 3, 4, 6, 9, 14)), (13, 13), (17, 31), (3, 101), (97, 2), (61, 53)]


def blocks(channels: int, read_again: bool = False, batch: int | str = 1):
    """Two residual blocks of images of any size; ``read_again``: the first one's input is added to the result too."""
    g = Drawing(4)
    x = g.input("x", batch, 3, "h", "w")

    def conv(x: str, inputs: int, outputs: int = channels) -> str:
        weight = g.drawn(outputs, inputs, 3, 3)
        return g("Conv", x, weight, g.drawn(outputs), kernel_shape=[3, 3], pads=[1] * 4)

    first = x = g("Relu", conv(x, 3))
    for _ in range(2):
        x = g("Relu", g("Add", conv(g("Relu", conv(x, channels)), channels), x))
    g.output(conv(g("Add", x, first) if read_again else x, channels, 5), 4)
    return g.model()


def built(proto, folder, typical, **options):
    asked = Options(resolve(NAMED), threads=2, open=True, formats=("so",), typical=typical, **options)
    return run_pipeline(proto.SerializeToString(), asked, output=folder)


@pytest.mark.parametrize("batch", [1, "n"])
@pytest.mark.parametrize("read_again", [False, True])
@pytest.mark.parametrize("channels", [16, 24])
def test_residuals_are_overwritten_and_numbers_stay(channels, read_again, batch, tmp_path) -> None:
    proto = blocks(channels, read_again, batch)
    typical = {"h": 96, "w": 96, **({} if batch == 1 else {"n": 1})}
    build = built(proto, tmp_path / "out", typical)
    assert build.memory is not None
    sums = [k for k in build.kernels if OVER in k.schedule]
    assert len(sums) == 2 and all(k.inplace for k in sums)
    pairs = [(o, v) for o, v in build.memory.inplace if any(o is k.outputs[0] and v in k.inplace for k in sums)]
    assert len(pairs) == 2 - read_again, "each residual that nothing reads afterwards"
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path / "out") as library:
        for number, (h, w) in enumerate(SIZES):
            sizes = {"h": h, "w": w, **({} if batch == 1 else {"n": 1 + number % 3})}
            given = feeds(proto, sizes, number)
            (wanted,) = session.run(None, given)
            outputs = []
            for threads, poison in POISONS:
                ordered = {s.name: sizes[s.name] for s in build.imported.symbols}
                outputs.append(run_in(library, ordered, given["x"], threads, poison))
            assert np.abs(outputs[0] - wanted).max() <= CLOSE * np.abs(wanted).max(), (h, w)
            assert np.array_equal(*outputs), (h, w)


def test_the_arena_is_as_small_as_that_of_a_build_for_the_size(tmp_path) -> None:
    proto = blocks(32)
    built(proto, tmp_path / "open", {"h": 96, "w": 96})
    options = Options(resolve(NAMED), threads=2, formats=("so",), tile="off", shapes={"x": (1, 3, 96, 96)}, open=False)
    run_pipeline(proto.SerializeToString(), options, output=tmp_path / "fixed")
    with load(tmp_path / "open") as own, load(tmp_path / "fixed") as fixed:
        assert own.arena_bytes(2, {"h": 96, "w": 96}) <= 1.02 * fixed.arena_bytes(2)


def test_images_that_builds_plan_for_keep_their_register_tiles(tmp_path) -> None:
    """Where these are smaller than what Winograd's algorithm pays for: no residual is worth the time there."""
    build = built(blocks(32), tmp_path / "out", {"h": 16, "w": 16})
    texts = [k.schedule for k in build.kernels if "winograd" in k.schedule]
    assert texts and not any(OVER in text for text in texts)
    assert not any(k.inplace for k in build.kernels if "winograd" in k.schedule)


@pytest.mark.parametrize("h,w", [(1, 12), (1, 24), (2, 6), (16, 1), ("h", 12)])
@pytest.mark.parametrize("channels", [16, 32])
def test_tiles_that_move_back_write_over_no_residual(channels, h, w, tmp_path) -> None:
    """Of one row, and as wide as divides the usual images: others are not divided."""
    g = Drawing(7)
    y = g("Relu", g.input("x", 1, channels, "h", "w" if isinstance(h, int) else w))
    z = g("Relu", g.conv(y, channels, channels, 1))
    g.output(g("Relu", g("Add", g.conv(z, channels, channels, 1), y)), 4)
    proto = g.model()
    built(proto, tmp_path / "out", {"h": h, "w": w} if isinstance(h, int) else {"h": 1})
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path / "out") as library:
        for rows, columns in ((1, 5), (2, 13), (3, 57), (7, 11), (1, 25), (4, 7), (9, 1)):
            given = feeds(proto, {"h": rows, "w": columns if isinstance(h, int) else w}, rows)
            (wanted,) = session.run(None, given)
            for threads in (1, 2):
                (found,) = library(given, threads=threads).values()
                assert np.abs(found - wanted).max() <= CLOSE * np.abs(wanted).max(), (rows, columns)
