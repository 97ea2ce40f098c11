"""Arrays that are made from others in the file: every step gives the numbers that were to be made, or there is none."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from halotile.compiler.codegen.forms import Alike
from halotile.compiler.codegen.steps import FILE, FIRST, MADE, SECOND, FillStep, LevelForm
from halotile.schedules.conv.winograd.transform import transforms
from halotile.schedules.conv.winograd.weights import linear_weights, pack_weights
from halotile.schedules.matmul.strassen import linear_halves

KERNELS = [((3, 3), (1, 1)), ((3, 3), (2, 2)), ((5, 5), (1, 1)), ((1, 7), (1, 1))]


class Operand:
    """Of a kernel: packed weights, that may be a linear map of plain ones."""

    def __init__(self, linear: Any = None) -> None:
        self.linear = linear


class Blob:
    """A file of weights that a level begins with, and what is stored in it since."""

    def __init__(self, *arrays: np.ndarray) -> None:
        self.alike, self.bytes = Alike(), b""
        for array in arrays:
            self.alike.add(self.store(array), array)

    def store(self, data: np.ndarray) -> int:
        at = len(self.bytes)
        self.bytes += data.tobytes() + b"\xff" * (-data.nbytes % 64 + 64)
        return at

    def make(self, operand: Operand, data: np.ndarray, form: LevelForm) -> np.ndarray | None:
        """What the steps make, by another implementation than the library's."""
        place = self.alike.make(operand, data, self.store, form)
        if place is None:
            return None
        memory = {
            FILE: np.frombuffer(self.bytes, "f4"), MADE: np.full(form.bytes // 4, 7, "f4"),
            FIRST: np.full(form.first // 4, 7, "f4"), SECOND: np.full(form.second // 4, 7, "f4"),
        }  # fmt: skip
        for step in form.steps:
            done = apply(step, memory[step.of], np.frombuffer(self.bytes, np.uint8)).reshape(-1)
            memory[step.to][step.target : step.target + done.size] = done
        return memory[MADE][place // 4 :][: data.size].reshape(data.shape)


def apply(step: FillStep, source: np.ndarray, file: np.ndarray) -> np.ndarray:
    source = source[step.source :]
    if step.factors:
        rows, terms, size = step.dims
        planes = source[: terms * size].reshape(terms, size).astype("f8")
        return (np.reshape(step.factors, (rows, terms)) @ planes).astype("f4")
    if step.starts is None:
        grid = np.indices(step.dims).reshape(len(step.dims), -1)
        return source[np.tensordot(step.strides, grid, 1)]
    starts = file[step.starts :][: 4 * step.dims[0]].view("i4").astype(int)
    reads = starts[:, None] + np.arange(step.dims[1]) * step.strides[0]
    return np.where(starts[:, None] < 0, 0, source[np.where(starts[:, None] < 0, 0, reads)]).astype("f4")


def panels(weight: np.ndarray, width: int, block: int) -> np.ndarray:
    """[O, I, h, w] -> [panel][block of inputs][h][w][input][output], zeros behind the last output."""
    outputs, inputs, *taps = weight.shape
    padded = np.zeros((-(-outputs // width) * width, inputs, *taps), "f4")
    padded[:outputs] = weight
    cut = padded.reshape(-1, width, inputs // block, block, *taps)
    return np.ascontiguousarray(cut.transpose(0, 2, 4, 5, 3, 1))


@pytest.mark.parametrize(("outputs", "repeated"), [(64, False), (67, False), (40, False), (64, True), (40, True)])
def test_panels_of_other_widths(outputs: int, repeated: bool) -> None:
    rng = np.random.default_rng(outputs)
    weight = rng.standard_normal((outputs, 16, 3, 3)).astype("f4")
    if repeated:  # numbers that are there several times, and zeros
        weight = np.where(rng.random(weight.shape) < 0.2, np.round(weight, 1), weight).astype("f4")
    blob, wanted = Blob(panels(weight, 32, 16)), panels(weight, 8, 8)
    before = len(blob.bytes)
    made = blob.make(Operand(), wanted, LevelForm())
    assert made is not None
    np.testing.assert_array_equal(made, wanted)
    assert len(blob.bytes) - before < wanted.nbytes / 4 + 128  # nothing, or a table of runs


def test_several_arrays_lie_apart() -> None:
    rng, form, made = np.random.default_rng(3), LevelForm(), []
    weights = [rng.standard_normal((24, 16, 3, 3)).astype("f4") for _ in range(3)]
    blob = Blob(*(panels(w, 16, 16) for w in weights))
    for weight in weights:
        found = blob.make(Operand(), panels(weight, 8, 4), form)
        assert found is not None
        made.append(found)
    assert form.bytes >= sum(m.nbytes for m in made)
    for found, weight in zip(made, weights):
        np.testing.assert_array_equal(found, panels(weight, 8, 4))


@pytest.mark.parametrize(("kernel", "strides"), KERNELS)
@pytest.mark.parametrize("stored", [True, False])
def test_transformed_weights(kernel: tuple[int, int], strides: tuple[int, int], stored: bool) -> None:
    """From panels of the plain weights, or from the plain weights, which are stored where they are smaller."""
    weight = np.random.default_rng(5).standard_normal((24, 16, *kernel)).astype("f4")
    for transform in transforms(kernel, strides):
        wanted = pack_weights(weight, transform, 3, 8)
        blob, form = Blob(*[panels(weight, 16, 16)] * stored), LevelForm()
        made = blob.make(Operand(partial(linear_weights, weight, transform)), wanted, form)
        if made is None:
            assert linear_weights(weight, transform)[1].nbytes + 128 > wanted.nbytes  # nothing to gain
            continue
        np.testing.assert_array_max_ulp(made, wanted, 1)
        assert any(step.factors for step in form.steps)


def test_seven_products_of_halves() -> None:
    weight = np.random.default_rng(6).standard_normal((64, 48)).astype("f4")
    factors, planes = linear_halves(weight)
    (b11, b12), (b21, b22) = (np.split(half, 2, 1) for half in np.split(weight.astype("f8"), 2))
    seven = np.stack([b11, b21, b22 - b12 + b11, b12 - b11, b22, b22 - b12, b21 - b22 + b12 - b11]).astype("f4")
    np.testing.assert_array_max_ulp((factors @ planes).astype("f4").reshape(seven.shape), seven, 1)
    wanted = np.ascontiguousarray(seven.reshape(7, 32, 3, 8).transpose(2, 0, 1, 3))
    made = Blob(np.ascontiguousarray(weight.T)).make(Operand(lambda: linear_halves(weight)), wanted, LevelForm())
    assert made is not None
    np.testing.assert_array_max_ulp(made, wanted, 1)


def test_other_numbers_types_and_small_arrays_are_stored() -> None:
    rng = np.random.default_rng(7)
    weight = rng.standard_normal((32, 16, 3, 3)).astype("f4")
    blob, form = Blob(panels(weight, 16, 16)), LevelForm()
    changed = panels(weight, 8, 8)
    changed[0, 0, 0, 0, 0, :2] = changed[0, 0, 0, 0, 0, 1::-1]  # two numbers change places
    for data in (rng.permutation(weight.reshape(-1)), weight + 1, weight.astype("f8"), weight[0], changed):
        made = blob.make(Operand(), data, form)
        assert made is None or (made == data).all()
    assert blob.make(Operand(), weight + 1, form) is None and blob.make(Operand(), weight[0], form) is None
