"""The rows that a reach names are those that matter: ONNX Runtime's outputs change where it says, and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.reach.build import model_reach
from halotile.compiler.reach.words import AxisReach, Cut, Reach
from halotile.compiler.state import Options
from halotile.targets.resolve import resolve
from local_models import local_model

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
        for o in range(length):  # at the border no more than the rows and what stands for those outside
            needed = {i for i, changed in changes.items() if o in changed[number]}
            first = (o // cut.period - cut.front) * told.multiple
            assert not needed or min(needed) >= first, (o, told)
    assert seen
