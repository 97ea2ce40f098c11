"""The rows that a reach names are those that matter: ONNX Runtime's outputs change where it says, and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.compiler.options import checked_shapes
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.positions import POSITIONS
from halotile.compiler.reach.build import model_reach
from halotile.compiler.reach.words import AxisReach, Cut, Reach
from halotile.compiler.state import Options
from halotile.targets.resolve import resolve
from local_models import local_model
from open_models import Drawing

SIDES = {2: (157, 13), 3: (13, 149)}  # height and width, where rows along an axis are looked at


def reach_of(model: onnx.ModelProto, **options: Any) -> tuple[tuple[Reach, ...], tuple[Any, ...]]:
    """The reach of every output, and the open dimensions."""
    build = run_pipeline(model, Options(resolve("native"), stop_after="simplify", cache=None, **options))
    return model_reach(build), build.imported.symbols


class Rows:
    """How outputs of a model change with rows of its input x along an axis."""

    def __init__(self, model: onnx.ModelProto, shape: tuple[int, ...], axis: int, seed: int = 0) -> None:
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        self.random, self.axis = np.random.default_rng(seed), axis
        self.x = self.random.normal(0, 1, shape).astype(np.float32)
        self.before = self.run(self.x)

    def run(self, x: np.ndarray) -> list[np.ndarray]:
        return self.session.run(None, {"x": x})

    def changed(self, row: int) -> list[set[int]]:
        """The rows of each output that follow from a row of the input."""
        found: list[set[int]] = [set() for _ in self.before]
        for factor in (40.0, -40.0):
            x = self.x.copy()
            at = [slice(None)] * 4
            at[self.axis] = slice(row, row + 1)
            x[tuple(at)] += factor * self.random.uniform(0.5, 1, x[tuple(at)].shape).astype(np.float32)
            for rows, old, new in zip(found, self.before, self.run(x)):
                others = tuple(a for a in range(4) if a != self.axis)
                rows |= {int(r) for r in np.flatnonzero((old != new).any(axis=others))}
        return found


def inner_rows(axis: AxisReach, cut: Cut, length: int) -> range:
    """The rows of an output from which no border is seen."""
    return range((cut.front + 1) * cut.period, length - (cut.back + 1) * cut.period)


def shape_for(symbols: tuple[Any, ...], axis: int) -> tuple[int, ...]:
    """Of one image, long along an axis, as the model takes it."""
    multiple = {s.name: s.multiple for s in symbols}
    return (1, 2, *(-(-n // multiple[s]) * multiple[s] for n, s in zip(SIDES[axis], ("h", "w"))))


@pytest.mark.parametrize("seed", range(24))
def test_outputs_change_where_the_reach_says(seed: int) -> None:
    model, axis = local_model(seed), 2 + seed % 2
    reaches, symbols = reach_of(model)
    rows = Rows(model, shape_for(symbols, axis), axis, seed)
    seen = 0
    changes = {i: rows.changed(i) for i in range(rows.x.shape[axis])}
    for number, reach in enumerate(reaches):
        told, cut, length = reach["x"][axis], reach.cuts[axis], rows.before[number].shape[axis]
        assert told.kind != "whole" and not cut.problem, told
        for o in inner_rows(told, cut, length):
            needed = {i for i, changed in changes.items() if o in changed[number]}
            span = (min(needed), max(needed) + 1) if needed else (0, 0)
            assert span == told.rows(o, o + 1), (o, told)
            seen += 1
        first, end = told.rows(told.period, 2 * told.period)  # between multiples, the numbers say the same
        if first < end:
            assert (told.multiple - first, end - 2 * told.multiple) == (told.before, told.after), told
        for o in range(length):  # at the border no more than the rows and what stands for those outside
            needed = {i for i, changed in changes.items() if o in changed[number]}
            first = (o // cut.period - cut.front) * told.multiple
            assert not needed or min(needed) >= first, (o, told)
    assert seen


def test_axes_of_batches_and_channels() -> None:
    g = Drawing(0)
    x = g.input("x", "n", 6, "h", "w")
    y = g("Conv", x, g.drawn(6, 1, 3, 3), group=6, pads=[1, 1, 1, 1])
    g.output(y, 4)
    g.output(g("LRN", y, size=3), 4)
    g.output(g.conv(y, 6, 4, 1), 4)
    (deep, near, mixed), _ = reach_of(g.model())
    assert [axis.kind for axis in deep["x"]] == ["pointwise", "pointwise", "rows", "rows"]
    assert (near["x"][1].before, near["x"][1].after, str(near["x"][1].stride)) == (1, 1, "1")
    assert mixed["x"][1].kind == "whole" and "node 'Conv_v" in mixed["x"][1].why


def test_an_image_that_is_smaller_than_the_reach_says_so() -> None:
    def network(*sides: int | str) -> onnx.ModelProto:
        g = Drawing(0)
        x = g.conv(g.input("x", 1, 2, *sides), 2, 2, 5, dilations=[4, 4], pads=[8] * 4)
        g.output(g.conv(x, 2, 2, 5, dilations=[4, 4], pads=[8] * 4), 4)
        return g.model()

    (small,), _ = reach_of(network(12, 200))
    assert small["x"][2].kind == "whole" and "border" in small["x"][2].why
    assert (small["x"][3].before, small["x"][3].after) == (16, 16)
    (open_,), _ = reach_of(network("h", 200))
    assert (open_["x"][2].before, open_["x"][2].after) == (16, 16)


def test_sizes_that_a_build_bounds_are_no_border() -> None:
    model = local_model(3)
    (free, *_), _ = reach_of(model)
    (bounded, *_), _ = reach_of(model, shapes=checked_shapes({"h": "8..24", "w": "8..24"}))
    assert bounded["x"] == free["x"] and bounded.cuts == free.cuts


def test_plain_data_is_the_same_again() -> None:
    for seed in range(6):
        for reach in reach_of(local_model(seed))[0]:
            assert Reach.of(reach.plain()) == reach


def test_places_of_all_pixels_are_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large image has 2^36 of them, which were counted one by one: gigabytes and half a minute."""
    counted: list[int] = []

    def count(*bounds: int) -> np.ndarray:
        counted.append(bounds[1])
        return np.arange(*bounds)

    monkeypatch.setitem(POSITIONS, "relax.arange", count)
    g = Drawing()
    x = g.input("x", 1, 3, "h", "w")
    flat = g("Reshape", g.conv(x, 3, 3, 3), g.whole(1, 3, -1))
    pixels = g("Gather", g("Shape", flat), g.whole_scalar(2))
    places = g("Range", g.whole_scalar(0), pixels, g.whole_scalar(1))
    g.output(g("Add", flat, g("Sin", g("Cast", places, to=onnx.TensorProto.FLOAT))), 3)
    reach_of(g.model())
    assert max(counted, default=0) <= 1 << 22
