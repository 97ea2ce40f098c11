"""Strips of a stream advance together: sources are read once for all that have room, and rows may come once."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial

import halotile
import numpy as np
import onnx
import pytest
from halotile.compiler.stream import abreast, run
from halotile.compiler.stream.machine import Stream
from halotile.targets.detect import native
from stream_models import Maker, unet, upscaler

WIDE, HIGH = 9001, 77
SMALL = replace(native(), l1_bytes=32 << 10, l2_bytes=256 << 10, l3_bytes=0, clusters=())


def built(budget, source=None, shape=(1, 3, "h", WIDE)):
    """A library for a processor of small caches, which narrow strips suit."""
    return halotile.compile(
        source or upscaler("w"), shapes={"x": shape}, exact=True, memory_budget=budget, stream=True, target=SMALL
    )


@pytest.fixture(scope="module")
def budget():
    with built(None) as model:
        return (Stream(model._runs, model.plan).state_bytes + model.arena_bytes()) // 4


@pytest.fixture(scope="module")
def model(budget):
    """A library in many strips, all of which have room beside each other."""
    with built(budget) as made:
        assert len(made.plan.columns.strips) > 4 and len(made.plan.columns.groups()) == 1
        yield made


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).standard_normal((1, 3, HIGH, WIDE)).astype(np.float32)


@pytest.fixture(scope="module")
def y(x):
    return halotile.compile(upscaler("w"), shapes={"x": x.shape}, exact=True, target=SMALL)(x)


def in_groups(model, count):
    """The same library where there is room for so few strips that there are ``count`` groups."""
    columns = model.plan.columns
    room = columns.held * -(-len(columns.strips) // count)
    return replace(model.plan, columns=replace(columns, room=room))


class Counted:
    """An array that counts how often each of its elements is read or written."""

    def __init__(self, array, chunks=None):
        self._array, self.shape, self.dtype, self.chunks = array, array.shape, array.dtype, chunks
        self.times = np.zeros(array.shape, np.int32)

    def __getitem__(self, slices):
        self.times[slices] += 1
        return self._array[slices]

    def __setitem__(self, slices, values):
        self.times[slices] += 1
        self._array[slices] = values


def times_read(columns, groups):
    """How often each column is read: once for each group of strips that has it."""
    parts = replace(columns, room=columns.held * -(-len(columns.strips) // groups)).groups()
    found = np.zeros(WIDE, np.int32)
    for part in parts:
        found[min(s.crops["x"][0] for s in part) : max(s.crops["x"][1] for s in part)] += 1
    return len(parts), found


@pytest.mark.sampled
@pytest.mark.parametrize("chunks", [None, (1, 3, 20, WIDE), (1, 1, 64, 500), (1, 3, 1, WIDE)])
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_rows_are_read_once_for_all_strips_that_have_room(model, x, y, groups, chunks, monkeypatch):
    """What is written is written once. States and rows hold NaN before a strip begins."""
    monkeypatch.setattr(abreast, "Stream", partial(Stream, poison=True))
    monkeypatch.setattr(run, "waiting_bytes", lambda *_: 0)
    monkeypatch.setattr(model, "plan", in_groups(model, groups))
    source = Counted(x, chunks)
    target = Counted(np.empty_like(y), chunks and (*chunks[:2], 2 * chunks[2], 2 * chunks[3]))
    seen = []
    model.stream(source, target, progress=lambda *at: seen.append(at))
    assert np.array_equal(target._array, y) and (target.times == 1).all()
    found, columns = times_read(model.plan.columns, groups)
    assert seen[-1][0] == seen[-1][1] == groups * HIGH and found == groups
    assert (source.times == columns).all()


def test_rows_that_wait_count(model, x, y, monkeypatch):
    """Bands of chunks that are large leave room for fewer strips at a time."""
    monkeypatch.setattr(model, "plan", in_groups(model, 1))
    seen = []
    model.stream(Counted(x, (1, 3, 64, WIDE)), np.empty_like(y), progress=lambda *at: seen.append(at))
    assert seen[-1][1] > HIGH
    plain = []
    model.stream(x, np.empty_like(y), progress=lambda *at: plain.append(at))
    assert plain[-1][1] == HIGH


@pytest.mark.parametrize("most", [1, 30, HIGH])
def test_rows_may_come_once_where_whole_ones_have_room(model, x, y, most, monkeypatch):
    columns = model.plan.columns
    with pytest.raises(halotile.errors.RunError, match="no room for rows as wide as the image"):
        model.open()
    monkeypatch.setattr(model, "plan", replace(model.plan, columns=replace(columns, room=columns.room + (64 << 20))))
    assert np.array_equal(model.stream(x[:, :, i : i + most] for i in range(0, HIGH, most)), y)
    with model.open() as stream:
        found = []
        for i in range(0, HIGH, most):
            stream.push({"x": x[:, :, i : i + most]})
            found.append(stream.pull(count=stream.ready() // 2))
        stream.finish()
        found.append(stream.pull())
        assert stream.state_bytes > len(columns.strips) * columns.held / 2
    assert np.array_equal(np.concatenate(found, 2), y)
    with pytest.raises(halotile.errors.RunError, match="the stream is finished"):
        stream.push(x)


def test_wide_streams_read_no_row_that_nobody_gave(model, x, y):
    stream = abreast.WideStream(model._runs, model.plan, {}, poison=True)
    stream.push(x[:, :, :50])
    stream.push(x[:, :, 50:])
    stream.finish()
    assert np.array_equal(stream.pull(), y)


def test_memory_is_that_of_the_budget(model, budget):
    """States of all strips, rows of one, and one arena."""
    lanes = abreast.streams_of(model._runs, model.plan, model.plan.columns.strips, {}, None)
    taken = lanes[0].state_bytes + sum(lane.kept_bytes for lane in lanes[1:]) + model.arena_bytes()
    assert taken <= budget
    assert len({id(lane._rows["x"]) for lane in lanes}) == 1
    (note,) = [n for n in model.report["notes"]["plan"] if "strips" in n]
    assert f"{len(lanes)} strips at a time" in note and taken <= int(note.split("a stream takes ")[1].split()[0])


def test_skips_wait_in_each_strip(monkeypatch):
    """The bits of a U-Net, whose skips are states of every strip, and whose heights are multiples."""
    shape, x = (1, 3, "h:8..:4", 6004), np.random.default_rng(1).standard_normal((1, 3, 92, 6004)).astype(np.float32)
    with built(None, unet("w"), shape) as whole:
        budget = (Stream(whole._runs, whole.plan).state_bytes + whole.arena_bytes()) // 4
    monkeypatch.setattr(abreast, "Stream", partial(Stream, poison=True))
    with built(budget, unet("w"), shape) as model:
        assert max(map(len, model.plan.columns.groups())) > 1
        y = halotile.compile(unet("w"), shapes={"x": x.shape}, exact=True, target=SMALL)(x)
        assert np.array_equal(model.stream(x), y)


def test_a_second_image_without_columns_goes_to_every_strip():
    """An input of rows as wide as one column, which is not cut."""
    m = Maker(5)
    y = m.op("Mul", m.op("Relu", m.conv("x", 3, 8)), "gain")
    source = m.model([m.conv(y, 8, 3)], "w")
    source.graph.input.append(onnx.helper.make_tensor_value_info("gain", onnx.TensorProto.FLOAT, [1, 1, "h", 1]))
    shapes = {"x": (1, 3, "h", 3001), "gain": (1, 1, "h", 1)}
    random = np.random.default_rng(2)
    given = {n: random.standard_normal((*s[:2], 61, s[3])).astype(np.float32) for n, s in shapes.items()}
    wanted = halotile.compile(source, shapes={n: a.shape for n, a in given.items()}, exact=True)(given)
    (name,) = wanted
    with halotile.compile(source, shapes=shapes, exact=True, stream=True) as model:
        budget = (Stream(model._runs, model.plan).state_bytes + model.arena_bytes()) // 7
    with halotile.compile(source, shapes=shapes, exact=True, stream=True, memory_budget=budget) as model:
        assert len(model.plan.columns.strips) > 1
        assert np.array_equal(model.stream(given), wanted[name])
        counted = {n: Counted(a, (1, 1, 7, a.shape[3])) for n, a in given.items()}
        assert np.array_equal(model.stream(counted, np.empty_like(wanted[name])), wanted[name])


@pytest.mark.parametrize("groups", [1, 2])
def test_a_stream_that_was_killed_goes_on(model, x, y, tmp_path, groups):
    """In the group in which it stopped, with the states of all strips."""
    columns = in_groups(model, groups).columns
    model.save(tmp_path / "out")
    np.save(tmp_path / "x.npy", x)
    stop = (len(columns.groups()) - 1) * HIGH + 40
    code = (
        "import sys, time, halotile\n"
        "from dataclasses import replace\n"
        "def wait(done, rows):\n"
        "    if done >= int(sys.argv[5]):\n"
        "        print(done, flush=True)\n"
        "        time.sleep(600)\n"
        "with halotile.load(sys.argv[1]) as model:\n"
        "    columns = replace(model.plan.columns, room=int(sys.argv[4]))\n"
        "    model.plan = replace(model.plan, columns=columns)\n"
        "    model.stream(sys.argv[2], sys.argv[3], journal=True, journal_seconds=0, progress=wait)\n"
    )
    files = [str(tmp_path / name) for name in ("out", "x.npy", "y.npy")]
    command = [sys.executable, "-c", code, *files, str(columns.room), str(stop)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    reached = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (tmp_path / "y.npy.journal").exists() and not np.array_equal(np.load(files[2]), y)
    seen = []
    with halotile.load(files[0]) as again:
        again.plan = replace(again.plan, columns=columns)
        again.stream(*files[1:], journal=True, progress=lambda *at: seen.append(at))
    assert seen[0][0] > reached - again.plan.rows and np.array_equal(np.load(files[2]), y)
    assert not (tmp_path / "y.npy.journal").exists()
