"""Views that only give an image's rows and columns other names, as sums of a pyramid's levels have where sizes are
open: they lie in channel blocks as what they are views of."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.spec import Condition
from halotile.compiler.state import Options
from halotile.schedules.words.dims import Dim
from halotile.schedules.words.sizes import no_symbols, plan_for, same_where_it_runs
from halotile.targets.resolve import resolve

from ..support.open_models import Drawing, feeds
from ..support.open_runs import run_in

NAMED = "x86-64-v3"
CLOSE = 3e-5  # of the largest number of an output
SIZES = [(1, 1), (4, 8), (8, 8), (13, 29), (16, 5), (29, 61), (64, 40)]  # that the levels agree at


def pyramid(channels: int, part: int, batch: int | str = "n"):
    """Three levels of an image, each added to the one below it, and parts of all joined at the size of the lowest."""
    g = Drawing(6)
    x = g.input("x", batch, 3, "h", "w")

    def conv(x: str, inputs: int, outputs: int, taps: int, strides: int = 1) -> str:
        weight = g.drawn(outputs, inputs, taps, taps)
        return g("Conv", x, weight, g.drawn(outputs), kernel_shape=[taps] * 2, pads=[taps // 2] * 4,
                 strides=[strides] * 2)  # fmt: skip

    def larger(x: str, times: float) -> str:
        return g("Resize", x, "", g.constant([1, 1, times, times]), mode="nearest",
                 coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip

    levels, width = [], 3
    for _ in range(3):
        x = g("Relu", conv(x, width, 16, 3, 2))
        levels.append(x)
        width = 16
    top = conv(levels[2], 16, channels, 1)
    middle = g("Add", conv(levels[1], 16, channels, 1), larger(top, 2))
    low = g("Add", larger(middle, 2), conv(levels[0], 16, channels, 1))
    parts = [larger(conv(top, channels, part, 3), 4), larger(conv(middle, channels, part, 3), 2),
             conv(low, channels, part, 3)]  # fmt: skip
    g.output(conv(g("Concat", *parts, axis=1), 3 * part, 4, 3), 4)
    return g.model()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("channels", "part", "batch"), [(32, 8, "n"), (24, 5, 1), (16, 16, 2)])
def test_levels_of_a_pyramid_stay_in_blocks(channels, part, batch, threads, tmp_path) -> None:
    proto = pyramid(channels, part, batch)
    typical = {"h": 64, "w": 64, **({"n": 1} if batch == "n" else {})}
    options = Options(resolve(NAMED), threads=threads, open=True, formats=("so",), typical=typical, tile="off")
    build = run_pipeline(proto.SerializeToString(), options, output=tmp_path / "out")
    for kernel, group in zip(build.kernels, build.groups, strict=True):
        if any(n.operator in ("halotile.upsample", "relax.concat", "halotile.copy") for n in group.nodes):
            inside = all(v.shape[1] != 3 and v not in build.graph.outputs for v in (*group.inputs, *group.outputs))
            assert not inside or "plain" not in kernel.schedule, (kernel.schedule, group.operators)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path / "out") as library:
        for number, (h, w) in enumerate(SIZES):
            sizes = {"h": _fitting(h), "w": _fitting(w), **({"n": 1 + number % 3} if batch == "n" else {})}
            given = feeds(proto, sizes, number)
            (wanted,) = session.run(None, given)
            ordered = {s.name: sizes[s.name] for s in build.imported.symbols}
            for poison in (0xFF, 0x7F):
                got = run_in(library, ordered, given["x"], threads, poison)
                assert np.abs(got - wanted).max() <= CLOSE * np.abs(wanted).max(), sizes


def _fitting(size: int) -> int:
    """The next size at which twice a level's rows are those of the level below."""
    while any(-(-size // (2 * d)) * 2 != -(-size // d) for d in (2, 4)):
        size += 1
    return size


@pytest.mark.parametrize("shape", [("n", 16, "w", "h"), (1, 16, "h*w", 1)])
def test_other_reshapes_of_blocks_are_copies(shape, tmp_path) -> None:
    """Of the same rank, but other rows and columns: elements lie elsewhere."""
    g = Drawing(8)
    x = g.input("x", 1, 3, "h", "w")
    x = g("Conv", x, g.drawn(16, 3, 3, 3), g.drawn(16), kernel_shape=[3, 3], pads=[1] * 4)
    size = g("Shape", x)
    rows, columns = (g("Gather", size, g.constant([a], np.int64), axis=0) for a in (2, 3))
    ends = [columns, rows] if shape[2] == "w" else [g("Mul", rows, columns), g.constant([1], np.int64)]
    x = g("Reshape", x, g("Concat", g.constant([1, 16], np.int64), *ends, axis=0))
    g.output(g("Conv", x, g.drawn(5, 16, 1, 1), g.drawn(5), kernel_shape=[1, 1]), 4)
    proto = g.model()
    options = Options(resolve(NAMED), threads=1, open=True, formats=("so",), typical={"h": 12, "w": 20})
    run_pipeline(proto.SerializeToString(), options, output=tmp_path / "out")
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path / "out") as library:
        for number, (h, w) in enumerate([(3, 5), (7, 2), (12, 20)]):
            given = feeds(proto, {"h": h, "w": w}, number)
            (got,), (wanted,) = library(given).values(), session.run(None, given)
            assert np.abs(got - wanted).max() <= CLOSE * np.abs(wanted).max()


def test_what_is_the_same_where_the_model_runs() -> None:
    h, w = Dim.symbol("h", 1), Dim.symbol("w", 1, multiple=2)
    half, quarter = (h + 1) // 2, (h + 3) // 4
    with no_symbols():
        assert not same_where_it_runs(half, 2 * quarter)
        plan_for([], [Condition(2 * quarter, "is", half), Condition(w, "at least", h), Condition(3 * h, "is", 2 * w)])
        assert same_where_it_runs(half, 2 * quarter) and same_where_it_runs(4 * quarter, 2 * half)
        assert same_where_it_runs(6 * h, 4 * w) and same_where_it_runs(h, h) and same_where_it_runs(3, 3)
        assert not same_where_it_runs(half, quarter) and not same_where_it_runs(h, w)
        assert not same_where_it_runs(half, 2 * quarter + 1) and not same_where_it_runs(2, 3)
    assert not same_where_it_runs(half, 2 * quarter)
