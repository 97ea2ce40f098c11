"""Memory of large results serves the next call, once nobody holds it."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from halotile import compile as compile_model
from halotile.benchmarks.graph import ExportForm, ModelGraph
from halotile.compiler.runtime.loader import LoadedModel
from halotile.compiler.runtime.recycled import ALIGNMENT, LEAST, Results

ELEMENTS = LEAST // 4 + 3


@pytest.fixture
def model() -> LoadedModel:
    """Two outputs of equal size, and one that is small."""
    g = ModelGraph("large", ExportForm(opset=17))
    x = g.input("x", (1, ELEMENTS))
    small = g.op("ReduceMax", x, axes=[1], keepdims=1)
    loaded = compile_model(g.finish(y=g.op("Neg", x), z=g.op("Abs", x), small=small), threads=1)._loaded
    assert loaded is not None
    return loaded


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_what_is_dropped_is_used_again_and_what_is_held_is_not(model: LoadedModel) -> None:
    a = np.random.default_rng(0).standard_normal((1, ELEMENTS)).astype(np.float32)
    b = a[:, ::-1].copy()
    first = model({"x": a})
    places = {address(first["y"]), address(first["z"])}
    assert len(places) == 2 and all(p % ALIGNMENT == 0 for p in places)
    second = model({"x": b})  # while the first results are held
    assert places.isdisjoint({address(second["y"]), address(second["z"])})
    np.testing.assert_array_equal(first["y"], -a)
    np.testing.assert_array_equal(second["z"], np.abs(b))
    assert first["small"].item() == second["small"].item() == a.max()
    kept = first["y"][0, 5:].reshape(2, -1)[1:]  # a view of a view holds the whole
    held = address(first["y"])
    del first
    gc.collect()
    third = model({"x": b})
    assert held not in {address(third["y"]), address(third["z"])}
    assert places & {address(third["y"]), address(third["z"])} == places - {held}
    np.testing.assert_array_equal(kept.reshape(-1), -a[0, 5:][-kept.size :])
    del kept
    fourth = model({"x": a})
    assert held in {address(fourth["y"]), address(fourth["z"])}
    assert fourth["y"].flags.writeable and fourth["y"].flags.c_contiguous


def test_results_outlive_their_model_and_no_more_is_kept_than_a_call_makes(model: LoadedModel) -> None:
    a = np.ones((1, ELEMENTS), np.float32)
    many = [model({"x": a}) for _ in range(5)]
    results = model._fresh.results
    many.clear()
    gc.collect()
    assert {size: len(free) for size, free in results._free.items()} == {4 * ELEMENTS: 2}
    y = model({"x": a})["y"]
    model.close()
    assert not any(results._free.values())
    np.testing.assert_array_equal(y, -a)
    del y
    gc.collect()
    assert not any(results._free.values())


def test_types_that_numpy_knows_by_size_only() -> None:
    import ml_dtypes

    made = Results({LEAST: 1}).array((2, LEAST // 4), np.dtype(ml_dtypes.bfloat16), LEAST)
    assert made.dtype == ml_dtypes.bfloat16 and made.shape == (2, LEAST // 4)
