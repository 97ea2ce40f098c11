"""Random graphs on random images, streamed by random pushes and computed in random tiles and chunks, equal the whole.

The reference is ONNX Runtime without optimisations; rows that must not be read are NaN. A thousand more of these graphs
run with ``HALOTILE_RANDOM_IMAGES=1000``, a fifth of them in tiles and strips, a tenth in passes;
``HALOTILE_RANDOM_BLOCKS=0:500`` has these in tiles and random chunks of dask, every one.
"""

from __future__ import annotations

import os
from functools import partial

import halotile
import numpy as np
import onnxruntime
import pytest
from halotile.compiler.stream import abreast
from halotile.compiler.stream.machine import Stream
from halotile.errors import BudgetError
from random_images import random_image_graph
from streamed_images import streamed

MORE = int(os.environ.get("HALOTILE_RANDOM_IMAGES", "0"))
STREAMS = range(MORE) if MORE else (0, 7, 24, 33, 46, 61)
BLOCKS = range(0, MORE, 5) if MORE else (2, 10, 24)
if told := os.environ.get("HALOTILE_RANDOM_BLOCKS"):
    BLOCKS = range(*map(int, told.split(":")))
STRIPS = range(0, MORE, 5) if MORE else (12,)
PASSES = range(9, MORE, 10) if MORE else (19,)


def reference(model):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [o.name for o in session.get_outputs()]
    return lambda x: dict(zip(names, session.run(None, {"x": x})))


def same(found, wanted, about):
    assert found.keys() == wanted.keys()
    for name, y in wanted.items():
        assert found[name].shape == y.shape, (about, name)
        close = 1e-4 * np.abs(y).max()
        np.testing.assert_allclose(found[name], y, rtol=1e-4, atol=close, err_msg=f"{about} {name}")


def by_multiple(g, name, least):
    return f"{name}:{-(-least // g.multiple) * g.multiple}..:{g.multiple}"


def drawn(random, *shape):
    return random.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("seed", STREAMS)
def test_pushes_of_any_size_make_the_whole(seed):
    random, g, batch = np.random.default_rng(seed), random_image_graph(seed), 1 + seed % 2
    width, rows = g.samples[int(random.integers(6))], int(random.choice([1, 4, 8, 13, 32]))
    source = g.model(width, batch)
    whole = reference(source)
    shapes = {"x": (batch, 3, by_multiple(g, "h", 1), width)}
    with halotile.compile(source, stream=rows, shapes=shapes, exact=True) as model:
        least, multiple = model.plan.least, model.plan.multiple
        last = -(-max(least, int(random.integers(20, 90))) // multiple) * multiple
        for height in (least, least + multiple, least + 2 * multiple, last):
            x = drawn(random, batch, 3, height, width)
            wanted = whole(x)
            for most in (1, int(random.integers(1, height + 1)), height):
                same(streamed(model, x, most, random), wanted, f"{height} rows, at most {most} at once")


@pytest.mark.parametrize("seed", STRIPS)
def test_the_narrowest_strips_make_the_whole(seed, monkeypatch):
    monkeypatch.setattr(abreast, "Stream", partial(Stream, poison=True))
    random, g, batch = np.random.default_rng(seed), random_image_graph(seed, local=True), 1 + seed % 2
    width = (211 + seed % 7) // g.multiple * g.multiple
    source = g.model("w", batch)
    asked = {"stream": 8, "exact": True, "shapes": {"x": (batch, 3, by_multiple(g, "h", 1), width)}}
    with pytest.raises(BudgetError) as refused:
        halotile.compile(source, memory_budget=1, **asked)
    with halotile.compile(source, memory_budget=refused.value.least, **asked) as model:
        assert MORE or len(model.plan.columns.strips) > 1
        height = (-(-model.plan.least // g.multiple) + int(random.integers(20))) * g.multiple
        x = drawn(random, batch, 3, height, width)
        found = model.stream({"x": x})
        found = found if isinstance(found, dict) else {model.outputs[0].name: found}
        same(found, reference(source)(x), f"{height} x {width}")


@pytest.mark.parametrize("seed", PASSES)
def test_passes_make_the_whole(seed):
    random, g = np.random.default_rng(seed), random_image_graph(seed, passes=True)
    width = g.samples[0]
    source = g.model(width, 1)
    shapes = {"x": (1, 3, by_multiple(g, "h", 1), width)}
    with halotile.compile(source, stream=8, shapes=shapes, exact=True) as model:
        assert model.plan.passes > 1
        for height in ((-(-model.plan.least // g.multiple) + 4) * g.multiple, 60):
            x = drawn(random, 1, 3, height, width)
            found = model.stream({"x": x})
            found = found if isinstance(found, dict) else {model.outputs[0].name: found}
            same(found, reference(source)(x), f"{height} rows")


def cuts(random, length):
    """Chunks of any sizes along an axis."""
    at = sorted(set(random.integers(1, length, int(random.integers(0, 5))).tolist())) if length > 1 else []
    return tuple(b - a for a, b in zip([0, *at], [*at, length]))


@pytest.mark.parametrize("seed", BLOCKS)
def test_tiles_and_chunks_of_any_size_make_the_whole(seed):
    da = pytest.importorskip("dask.array", reason="dask is not installed: pip install 'dask[array]'")
    random, g, batch = np.random.default_rng(seed), random_image_graph(seed, local=True), 1 + seed % 2
    source = g.model("w", batch)
    shapes = {"x": (batch, 3, by_multiple(g, "h", 16), by_multiple(g, "w", 16))}
    with halotile.compile(source, shapes=shapes, exact=True) as model:
        height, width = (int(n) // g.multiple * g.multiple for n in random.integers(60, 120, 2))
        x = drawn(random, batch, 3, height, width)
        wanted = reference(source)(x)
        for tile in random.integers(1, 60, 2).tolist():
            found = model.map_blocks({"x": x}, tile=tile)
            same(found, wanted, f"{height} x {width}, tile {tile}")
            lazy = model.map_blocks({"x": da.from_array(x, chunks=tuple(cuts(random, n) for n in x.shape))}, tile=tile)
            assert all(np.array_equal(y.compute(scheduler="sync"), found[name]) for name, y in lazy.items())
