"""Open batches of images on several cores: each has as many whole images as the others, and a band of those left."""

from __future__ import annotations

import re

import numpy as np
import onnxruntime
import pytest
from halotile.compiler.api import compile as compile_model
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Options
from halotile.schedules.tiled.open_batch import _may_be_any
from halotile.schedules.words.dims import Dim
from halotile.schedules.words.sizes import SYMBOLS, no_symbols
from halotile.targets.resolve import resolve

from ..support.open_models import Drawing, feeds
from ..support.open_runs import run_in

NAMED = "x86-64-v3"
CLOSE = 3e-5  # of the largest number of an output
SIZES = [(1, 5, 7), (2, 1, 1), (2, 13, 3), (3, 7, 17), (4, 3, 2), (5, 2, 29), (7, 11, 6), (8, 1, 19), (3, 61, 37)]
POISONS = (0xFF, 0x7F)


def network(batch: int | str = "n"):
    """Layers of every kind that cores share images of: few channels, Winograd's, depthwise, groups, strides, residuals,
    transposed, 1 x 1, one whose number for each image comes from its mean."""
    g = Drawing(11)
    x = g.input("x", batch, 3, "h", "w")

    def conv(x: str, inputs: int, outputs: int, taps: int = 3, groups: int = 1, strides: int = 1) -> str:
        weight = g.drawn(outputs, inputs // groups, taps, taps)
        return g("Conv", x, weight, g.drawn(outputs), kernel_shape=[taps] * 2, pads=[taps // 2] * 4, group=groups,
                 strides=[strides] * 2)  # fmt: skip

    x = g("Relu", conv(x, 3, 32))
    x = g("Relu", g("Add", conv(g("Relu", conv(x, 32, 32)), 32, 32), x))
    x = g("HardSwish", conv(x, 32, 32, groups=32))
    x = g("Mul", x, g("Sigmoid", conv(g("GlobalAveragePool", x), 32, 32, taps=1)))
    y = g("Relu", conv(x, 32, 40, taps=1))
    y = conv(y, 40, 24, groups=4, strides=2)
    up = g("ConvTranspose", y, g.drawn(24, 13, 2, 2), kernel_shape=[2, 2], strides=[2, 2])
    g.output(g("Relu", conv(up, 13, 5)), 4)
    return g.model()


@pytest.fixture(scope="module", params=[("x86-64-v3", 2), ("x86-64-v3", 3), ("native", 4)], ids=str)
def built(request, tmp_path_factory):
    target, threads = request.param
    proto = network()
    options = Options(resolve(target), threads=threads, open=True, formats=("so",), typical={"n": 2, "h": 24, "w": 24})
    folder = tmp_path_factory.mktemp("batches") / "out"
    build = run_pipeline(proto.SerializeToString(), options, output=folder)
    with load(folder) as library:
        yield proto, build, library, threads


def test_cores_have_images_of_every_convolution(built) -> None:
    _, build, _, threads = built
    shared = [k for k in build.kernels if k.schedule.startswith("open images")]
    assert len(shared) >= 8
    for kernel in shared:
        assert re.search(rf"\beach\d*\b.* = n // {threads}", kernel.function.script()), kernel.schedule


def test_numbers_and_bits_of_every_number_of_threads(built) -> None:
    """Memory between guards, full of NaN; batches of fewer images than cores, as many, and more."""
    proto, build, library, threads = built
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for number, (n, h, w) in enumerate(SIZES):
        sizes = {"n": n, "h": 2 * h, "w": 2 * w}
        given = feeds(proto, sizes, number)
        (wanted,) = session.run(None, given)
        ordered = {s.name: sizes[s.name] for s in build.imported.symbols}
        found = [run_in(library, ordered, given["x"], t, POISONS[t % 2]) for t in range(1, threads + 1)]
        assert np.abs(found[0] - wanted).max() <= CLOSE * np.abs(wanted).max(), sizes
        assert all(np.array_equal(found[0], other) for other in found[1:]), sizes


def test_no_image_is_nothing(built) -> None:
    proto, _, library, _ = built
    (got,) = library(feeds(proto, {"n": 0, "h": 8, "w": 6}, 1)).values()
    assert got.shape == (0, 5, 8, 6)


def test_a_batch_of_one_size_is_computed_at_once(tmp_path) -> None:
    proto = network(3)
    options = Options(resolve("x86-64-v3"), threads=2, open=True, formats=("so",), typical={"h": 24, "w": 24})
    build = run_pipeline(proto.SerializeToString(), options, output=tmp_path / "out")
    shared = [k for k in build.kernels if k.schedule.startswith("open images")]
    assert shared and not any(re.search(r"\beach\d*\b", k.function.script()) for k in shared)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path / "out") as library:
        given = feeds(proto, {"h": 10, "w": 14}, 3)
        (got,), (wanted,) = library(given).values(), session.run(None, given)
    assert np.abs(got - wanted).max() <= CLOSE * np.abs(wanted).max()


@pytest.mark.parametrize(("batch", "numbers"), [("n:4..32:4", (4, 8, 20)), ("n:3..9", (3, 4, 9)), ("n:..:2", (2, 6))])
def test_no_core_has_fewer_images_than_a_batch_may_have(batch, numbers) -> None:
    """Kernels may rely on the least number of images and on what it is a multiple of."""
    proto = network()
    shapes, typical = {"x": (batch, 3, "h", "w")}, {"h": 24, "w": 24}
    model = compile_model(proto, threads=2, target=NAMED, shapes=shapes, typical=typical, cache=False)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for n in numbers:
        given = feeds(proto, {"n": n, "h": 14, "w": 22}, n)
        (got,), (wanted,) = model(given).values(), session.run(None, given)
        assert np.abs(got - wanted).max() <= CLOSE * np.abs(wanted).max(), n
    name, limits = batch.split(":", 1)
    low, _, step = limits.partition(":")
    first = int(low.split("..")[0] or 0)
    symbol = Dim.symbol(name, first, multiple=int(step or 1))
    with no_symbols():
        SYMBOLS.set({name: symbol})
        assert not _may_be_any(symbol, name) and _may_be_any(Dim.symbol("m"), "m")
