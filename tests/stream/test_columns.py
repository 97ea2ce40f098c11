"""Streams within a memory budget: fewer rows, strips of columns, smaller arenas; what comes out has the same bits."""

from __future__ import annotations

import os
import subprocess
from functools import partial

import halotile
import numpy as np
import onnx
import pytest
from commands import run_command
from halotile.compiler.stream import abreast
from halotile.compiler.stream.machine import Stream
from halotile.errors import BudgetError, RunError
from stream_models import Maker, unet, upscaler

WIDE = 811


def drawn(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def built(source, budget=None, shape=(1, 3, "h", WIDE)):
    return halotile.compile(source, shapes={"x": shape}, exact=True, memory_budget=budget, stream=True)


def taken(model):
    """Bytes of a stream of this model."""
    still = {s.name: np.zeros(s.shape, np.float32) for s in model._runs.inputs if s.name == "gain"}
    return Stream(model._runs, model.plan, still).state_bytes + model.arena_bytes()


def part(of, source, shapes=None):
    """A budget that is a part of what a stream of 48 rows takes, which depends on the processor; in a sixth, steps of
    12 rows have no room in any case."""
    with halotile.compile(source, shapes=shapes or {"x": (1, 3, "h", WIDE)}, exact=True, stream=True) as model:
        assert model.plan.rows == 48
        return int(taken(model) * of)


@pytest.fixture(scope="module")
def little():
    return part(1 / 7, upscaler("w"))


@pytest.fixture(scope="module")
def strips(little):
    with built(upscaler("w"), little) as model:
        assert len(model.plan.columns.strips) > 2
        yield model


@pytest.fixture(scope="module")
def x():
    return drawn(1, 3, 131, WIDE)


@pytest.fixture(scope="module")
def y(x):
    return halotile.compile(upscaler("w"), shapes={"x": x.shape}, exact=True)(x)


@pytest.mark.parametrize("of", [0.7, 0.25, 0.1, 0.05])
def test_a_budget_is_kept_and_the_bits_are_those_of_the_whole(x, y, of, little):
    budget = int(of * 7 * little)
    with built(upscaler("w"), budget) as model:
        assert taken(model) <= budget
        assert np.array_equal(model.stream(x), y)


@pytest.mark.parametrize("shapes", [{"w": WIDE}, {"w": WIDE, "h": "16..4000"}, {"h": "16..4000:1", "w": WIDE}])
def test_sizes_by_the_names_of_dimensions(x, y, little, shapes):
    """As by those of inputs, of which nothing is said then."""
    with halotile.compile(upscaler("w"), shapes=shapes, exact=True, memory_budget=little, stream=True) as model:
        assert taken(model) <= little and len(model.plan.columns.strips) > 2
        assert np.array_equal(model.stream(x), y)


def test_columns_that_the_model_fixes_are_not_cut():
    with pytest.raises(BudgetError, match=r"can't be cut: the shape .* contradicts the model's .* is not 240") as no:
        halotile.compile(upscaler(240), memory_budget="100KiB", stream=True)
    assert "\n" not in str(no.value)
    with built(upscaler(240), no.value.least, (1, 3, "h", 240)) as model:
        assert model.plan.columns is None and taken(model) <= no.value.least


def test_without_need_nothing_is_cut():
    with built(upscaler("w"), "50MiB") as model, built(upscaler("w")) as other:
        assert model.plan.columns is None and model.plan.rows == other.plan.rows == 48


def test_the_plan_says_how_much_is_computed_again(strips):
    columns = strips.plan.columns
    (note,) = [n for n in strips.report["notes"]["plan"] if "strips" in n]
    assert f"in {len(columns.strips)} strips of columns, which compute {columns.work:.3f} times the image's" in note
    width = {b - a for s in columns.strips for a, b in [s.crops["x"]]}
    assert len(width) == 1 and columns.work == len(columns.strips) * width.pop() / WIDE
    ends = [s.placed[strips.outputs[0].name] for s in columns.strips]
    assert [a for a, _ in ends] == [0, *(b for _, b in ends[:-1])] and ends[-1][1] == 2 * WIDE
    assert strips.inputs[0].shape[3] == WIDE and strips.outputs[0].shape[3] == 2 * WIDE


def test_skips_multiples_and_batches():
    source, shape = unet("w", batch=2), (2, 3, "h:8..:4", 812)
    x = drawn(2, 3, 64, 812)
    wanted = halotile.compile(source, shapes={"x": x.shape}, exact=True)(x)
    budget = part(1 / 7, source, {"x": shape})
    with built(source, budget, shape) as model:
        assert taken(model) <= budget and model.plan.columns is not None
        assert all(s.crops["x"][0] % 4 == 0 for s in model.plan.columns.strips)
        assert np.array_equal(model.stream(x), wanted)
        assert model.verify(shape={"h": 56}).ok


def test_two_inputs_and_two_outputs_of_several_scales():
    m = Maker(5)
    wide = m.op("Relu", m.conv("x", 3, 8))
    half = m.conv(wide, 8, 4, 3, strides=[2, 2])
    up = m.op("Mul", m.op("DepthToSpace", m.conv(wide, 8, 16), blocksize=2), "gain")
    source = m.model([half, up], "w")
    source.graph.input.append(onnx.helper.make_tensor_value_info("gain", onnx.TensorProto.FLOAT, [1, 1, 1, "w2"]))
    shapes = {"x": (1, 3, "h:2..:2", 900), "gain": (1, 1, 1, 1800)}
    x, gain = drawn(1, 3, 62, 900), drawn(1, 1, 1, 1800)
    whole = halotile.compile(source, shapes={**shapes, "x": x.shape}, exact=True)({"x": x, "gain": gain})
    budget = part(1 / 10, source, shapes)
    with halotile.compile(source, shapes=shapes, exact=True, stream=True, memory_budget=budget) as model:
        assert model.plan.columns is not None and model.plan.columns.axes.keys() >= {"x", "gain", half, up}
        found = model.stream({"x": x, "gain": gain})
        assert all(np.array_equal(found[name], whole[name]) for name in (half, up))


@pytest.mark.parametrize("ending", [".npy", ".raw", ".tif", ".zarr"])
def test_files_of_every_kind(strips, tmp_path, ending):
    """Pixels of bytes, read and written a strip at a time."""
    if ending == ".zarr":
        zarr = pytest.importorskip("zarr", reason="zarr is not installed: pip install zarr")
    pixels = np.random.default_rng(1).integers(0, 256, (131, WIDE, 3), np.uint8)
    wanted = np.empty((262, 2 * WIDE, 3), np.uint8)
    strips.stream(pixels, wanted, scale=1 / 255, target_scale=99)
    source, target = tmp_path / f"x{ending}", tmp_path / f"y{ending}"
    if ending == ".npy":
        np.save(source, pixels)
    elif ending == ".raw":
        pixels.tofile(source)
    elif ending == ".tif":
        tifffile = pytest.importorskip("tifffile", reason="tifffile is not installed: pip install tifffile")
        tifffile.imwrite(source, pixels, photometric="rgb", tile=(32, 48), compression="zlib")
    else:
        zarr.open_array(str(source), mode="w", shape=pixels.shape, chunks=(40, 50, 3), dtype="u1")[:] = pixels
    strips.stream(source, target, scale=1 / 255, target_scale=99, source_type="uint8", target_type="uint8")
    if ending == ".raw":
        found = np.fromfile(target, np.uint8).reshape(wanted.shape)
    elif ending == ".tif":
        found = tifffile.imread(target)
    elif ending == ".npy":
        found = np.load(target)[0].transpose(1, 2, 0)
    else:
        found = zarr.open_array(str(target), mode="r")[:][0].transpose(1, 2, 0)
    assert np.array_equal(found, wanted)


def test_a_stream_that_was_stopped_goes_on_in_its_strip(strips, x, y, tmp_path):
    np.save(tmp_path / "x.npy", x)
    target, rows = tmp_path / "y.npy", x.shape[2]

    def stop(done, total):
        assert total == len(strips.plan.columns.groups()) * rows
        if done > 2 * rows + 60:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        strips.stream(tmp_path / "x.npy", target, progress=stop, journal=True, journal_seconds=0)
    seen = []
    strips.stream(tmp_path / "x.npy", target, progress=lambda *at: seen.append(at), journal=True)
    assert seen[0][0] > 2 * rows and np.array_equal(np.load(target), y)
    assert sorted(os.listdir(tmp_path)) == ["x.npy", "y.npy"]


def test_what_comes_once_is_refused(strips, x):
    with pytest.raises(RunError, match=r"has no open\(\): within its memory budget .* strips of columns"):
        strips.open()
    with pytest.raises(RunError, match="rows of an iterator come once: within its memory budget"):
        strips.stream(iter([x]))


def test_what_needs_all_columns_is_named():
    m = Maker(2)
    y = m.op("Softmax", m.conv("x", 3, 8), axis=3)
    source = m.model([m.conv(y, 8, 3)], "w")
    x = drawn(1, 3, 29, WIDE)
    wanted = halotile.compile(source, shapes={"x": x.shape}, exact=True)(x)
    budget = part(1 / 3, source)
    with built(source, budget) as model:  # fewer rows
        assert model.plan.columns is None and model.plan.rows < 48 and taken(model) <= budget
        assert np.array_equal(model.stream(x), wanted)
    with pytest.raises(BudgetError, match=r"20000 bytes can't be met by a stream.*n1.*the least that was found") as no:
        built(source, 20_000)
    assert "\n" not in str(no.value) and str(no.value.least) in str(no.value)
    with built(source, no.value.least) as model:
        assert taken(model) <= no.value.least and np.array_equal(model.stream(x), wanted)


def test_a_refusal_says_the_least_budget_that_will_do(x, y):
    with pytest.raises(BudgetError) as no:
        built(upscaler("w"), 10_000)
    with built(upscaler("w"), no.value.least) as model:
        assert taken(model) <= no.value.least and model.plan.columns.work <= 2.5
        assert np.array_equal(model.stream(x), y)
    with pytest.raises(BudgetError, match=str(no.value.least)):
        built(upscaler("w"), no.value.least - 1)


def test_strips_read_no_row_or_column_that_nobody_gave(strips, monkeypatch, y, x):
    """States and rows hold NaN before a strip begins."""
    monkeypatch.setattr(abreast, "Stream", partial(Stream, poison=True))
    assert np.array_equal(strips.stream(x), y)


@pytest.mark.parametrize("wide", [809, 401])  # primes
def test_strides_dilations_and_transposed_convolutions_at_odd_widths(wide):
    m = Maker(7)
    down = m.op("Relu", m.conv("x", 3, 8, 3, strides=[2, 2]))
    near = m.conv(down, 8, 8, 3, dilations=[2, 2], pads=[2, 2, 2, 2])
    far = m.op("Add", near, down)
    weight = m.weights(8, 3, 4, 4)
    up = m.op("ConvTranspose", far, weight, strides=[2, 2], pads=[1, 1, 1, 1])
    source, x = m.model([up], "w"), drawn(1, 3, 57, wide)
    wanted = halotile.compile(source, shapes={"x": x.shape}, exact=True)(x)
    shape = (1, 3, "h", wide)
    budget = part(1 / 9, source, {"x": shape})  # steps of 6 rows have no room
    with built(source, budget, shape) as model:
        assert taken(model) <= budget and len(model.plan.columns.strips) > 1
        assert np.array_equal(model.stream(x), wanted)


def test_the_command_line(tmp_path, x, y, little):
    onnx.save(upscaler("w"), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", x)

    def command(*words):
        return run_command(words, tmp_path, {**os.environ})

    shape = ("--shape", f"x=1,3,h,{WIDE}", "--stream", "--exact", "--no-verify", "-o", "out")
    done = command("build", "m.onnx", *shape, "--memory-budget", little)
    assert done.returncode == 0 and "strips of columns" in done.stderr
    done = command("stream", "out", "-i", "x.npy", "-o", "y.npy")
    assert done.returncode == 0 and np.array_equal(np.load(tmp_path / "y.npy"), y), done.stderr
    done = command("stream", "out", "-i", "-", "-o", "-")
    assert done.returncode == 1 and "strips of columns" in done.stderr and len(done.stderr.splitlines()) == 1
    done = subprocess.run([tmp_path / "out" / "model_run", "--stream"], capture_output=True, text=True, input="")
    assert done.returncode == 1 and "strips of columns" in done.stderr
