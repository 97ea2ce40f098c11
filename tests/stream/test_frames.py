"""Frames of bytes stream: steps take pixels and give pixels, from any source to any target, in strips of columns, too.

The reference is ONNX Runtime's numbers in float32, which a byte may be no farther from than a half and its own error.
"""

from __future__ import annotations

from functools import partial

import halotile
import numpy as np
import pytest
from halotile.compiler.stream import abreast
from halotile.compiler.stream.machine import Stream
from halotile.errors import HalotileError
from onnx import TensorProto, helper
from stream_models import upscaler
from streamed_images import reference

ROWS = "h"


def frames(width):
    """An upscaler of that width, and the ways in and out."""
    source = upscaler("w")
    (y,) = source.graph.output
    y.CopyFrom(helper.make_tensor_value_info(y.name, TensorProto.FLOAT, (1, 3, "rows", "columns")))
    x = source.graph.input[0].name
    around = {
        "inputs": {x: halotile.Image(scale=255)},
        "outputs": {y.name: halotile.Output(multiply=40, dtype="uint8", layout="NHWC")},
    }
    return source, {"shapes": {x: (1, 3, ROWS, width)}, "stream": 8, "threads": 2, "exact": True, **around}


def close(found, source, pixels):
    """The bytes are the rounded numbers."""
    x = (pixels.astype(np.float32) * np.float32(1 / 255)).transpose(2, 0, 1)[None]
    ((_, y),) = reference(source, x).items()
    exact = np.clip(y[0].transpose(1, 2, 0).astype(np.float64) * 40, 0, 255)
    assert found.shape == exact.shape and found.dtype == np.uint8
    assert 0.02 < ((exact > 1) & (exact < 254)).mean()  # not all at the ends
    assert np.abs(found - exact).max() < 0.5 + 255e-5


def drawn(rows, width):
    return np.random.default_rng(rows).integers(0, 256, (rows, width, 3), np.uint8)


@pytest.mark.parametrize("rows", [8, 31, 67])
def test_from_pixels_to_pixels(rows):
    source, asked = frames(53)
    x = drawn(rows, 53)
    with halotile.compile(source, **asked) as model:
        found = np.zeros((2 * rows, 106, 3), np.uint8)
        model.stream(x, found)
        close(found, source, x)
        assert np.array_equal(model.stream(x[None]), found[None])


def test_columns_of_frames_are_cut_by_the_name_of_their_dimension():
    """Where nothing is said of the whole input, which has another layout than the frame."""
    source, asked = frames(301)
    x = drawn(21, 301)
    with halotile.compile(source, **asked) as wide:
        whole, budget = wide.stream(x[None]), wide.arena_bytes() // 3
    for shapes in ({"w": 301}, {"h": "8..900", "w": 301}, {"w": "301"}):
        with halotile.compile(source, **{**asked, "shapes": shapes}, memory_budget=budget) as model:
            assert model.plan.columns is not None and len(model.plan.columns.strips) > 2
            assert np.array_equal(model.stream(x[None]), whole)


@pytest.mark.parametrize("kind", ["npy", "raw", "tif"])
def test_from_file_to_file(kind, tmp_path):
    if kind == "tif":
        tifffile = pytest.importorskip("tifffile", reason="NOT RUN: tifffile is not installed")
    source, asked = frames(53)
    x = drawn(45, 53)
    place, made = tmp_path / f"x.{kind}", tmp_path / f"y.{kind}"
    if kind == "npy":
        np.save(place, x)
    elif kind == "raw":
        place.write_bytes(x.tobytes())
    else:
        tifffile.imwrite(place, x, photometric="rgb")
    with halotile.compile(source, **asked) as model:
        model.stream(place, made)
    if kind == "npy":
        found = np.load(made)[0]
    elif kind == "raw":
        found = np.frombuffer(made.read_bytes(), np.uint8).reshape(90, 106, 3)
    else:
        found = tifffile.imread(made)
    close(found, source, x)


def test_columns_of_frames_are_cut(monkeypatch, tmp_path):
    """Shapes speak of the model's input, and strips of the frame's columns, which are another axis."""
    monkeypatch.setattr(abreast, "Stream", partial(Stream, poison=True))
    source, asked = frames(1201)
    x = drawn(37, 1201)
    with halotile.compile(source, **asked) as wide:
        whole = wide.stream(x[None])
        budget = wide.arena_bytes() // 3
    with halotile.compile(source, **asked, memory_budget=budget) as model:
        assert model.plan.columns is not None and len(model.plan.columns.strips) > 2
        assert np.array_equal(model.stream(x[None]), whole)
        found = np.zeros((74, 2402, 3), np.uint8)
        model.stream(x, found)
        assert np.array_equal(found, whole[0])
        (tmp_path / "x.raw").write_bytes(x.tobytes())
        model.stream(tmp_path / "x.raw", tmp_path / "y.raw")
        assert (tmp_path / "y.raw").read_bytes() == found.tobytes()
    close(found, source, x)


def test_shapes_that_do_not_say_which_dimension_is_cut_are_refused_by_name():
    """Of three columns: what is narrow anyway, and never cut."""
    source, asked = frames(3)
    with pytest.raises(HalotileError, match="budget"):
        halotile.compile(source, **asked, memory_budget=1000)
