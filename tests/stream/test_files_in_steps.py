"""Rows of files are read ahead and written in one piece for all strips: each once, in few pieces, within the room."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from itertools import pairwise

import halotile
import numpy as np
import pytest
from halotile.compiler.stream import abreast, ahead
from halotile.compiler.stream.ahead import RowReader, RowsAhead, lies_in_file
from halotile.compiler.stream.behind import RowWriter
from halotile.compiler.stream.files import NpyFile, PlainFile
from halotile.compiler.stream.machine import Stream
from halotile.compiler.stream.step_rows import StepRows
from halotile.errors import OutputError, RunError
from halotile.targets.detect import native
from stream_models import upscaler

WIDE, HIGH = 9001, 101
SMALL = replace(native(), l1_bytes=32 << 10, l2_bytes=256 << 10, l3_bytes=0, clusters=())


def built(budget):
    return halotile.compile(
        upscaler("w"), shapes={"x": (1, 3, "h", WIDE)}, exact=True, memory_budget=budget, stream=True, target=SMALL
    )


@pytest.fixture(scope="module")
def model():
    """A library in strips that all have room beside each other."""
    with built(None) as made:
        budget = (Stream(made._runs, made.plan).state_bytes + made.arena_bytes()) // 4
    with built(budget) as made:
        assert len(made.plan.columns.strips) > 4 and len(made.plan.columns.groups()) == 1
        yield made


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).standard_normal((1, 3, HIGH, WIDE)).astype(np.float32)


@pytest.fixture(scope="module")
def y(x):
    return halotile.compile(upscaler("w"), shapes={"x": x.shape}, exact=True, target=SMALL)(x)


def roomy(model, more):
    """The same library with so many bytes of room more."""
    columns = model.plan.columns
    return replace(model.plan, columns=replace(columns, room=len(columns.strips) * columns.held + more))


class Pieces:
    """Tells which rows of sources and targets are read and written in one piece, and by which thread."""

    def __init__(self, monkeypatch):
        self.read, self.wrote, self.threads = [], [], set()
        read, write = ahead._read, PlainFile.__setitem__

        def seen(array, slices, rows):
            self.read.append(slices)
            self.threads.add(threading.get_ident())
            read(array, slices, rows)

        def put(file, slices, rows):
            self.wrote.append(slices)
            self.threads.add(threading.get_ident())
            write(file, slices, rows)

        monkeypatch.setattr(ahead, "_read", seen)
        monkeypatch.setattr(PlainFile, "__setitem__", put)


@pytest.mark.parametrize("kind", ["npy", "mapped"])
@pytest.mark.parametrize("layout", ["NCHW", "HWC"])
def test_rows_are_read_and_written_once(model, x, y, kind, layout, tmp_path, monkeypatch):
    monkeypatch.setattr(abreast, "Stream", partial(Stream, poison=True))
    monkeypatch.setattr(model, "plan", roomy(model, 1 << 30))
    turned = (lambda a: a) if layout == "NCHW" else (lambda a: np.ascontiguousarray(a[0].transpose(1, 2, 0)))
    np.save(tmp_path / "x.npy", turned(x))
    source = tmp_path / "x.npy" if kind == "npy" else np.load(tmp_path / "x.npy", mmap_mode="r")
    target = NpyFile(tmp_path / "y.npy", turned(y).shape, "float32")
    pieces = Pieces(monkeypatch)
    model.stream(source, target)
    target.close()
    assert np.array_equal(np.load(tmp_path / "y.npy"), turned(y))
    steps = -(-HIGH // model.plan.rows)
    axis = layout.index("H")
    read = [s[axis].start for s in pieces.read]
    assert len(read) == steps and read == sorted(read)
    rows = [(s[axis].start, s[axis].stop) for s in pieces.wrote]
    assert rows[0][0] == 0 and rows[-1][1] == 2 * HIGH and all(a[1] == b[0] for a, b in pairwise(rows))
    assert len(rows) <= steps + 1
    assert threading.get_ident() not in pieces.threads


def test_without_room_each_strip_reads_and_writes_its_own(model, x, y, tmp_path, monkeypatch):
    """No strip advances alone for them, and memory is no more than was promised."""
    np.save(tmp_path / "x.npy", x)
    target = NpyFile(tmp_path / "y.npy", y.shape, "float32")
    row = 4 * 3 * WIDE
    for room, reads in ((0, False), (3 * model.plan.rows * row, True)):  # what is written takes four times
        monkeypatch.setattr(model, "plan", roomy(model, room))
        pieces, seen = Pieces(monkeypatch), []
        model.stream(np.load(tmp_path / "x.npy", mmap_mode="r"), target, progress=lambda *at: seen.append(at))  # noqa: B023
        assert bool(pieces.read) == reads and seen[-1][1] == HIGH
        strips = {(s[3].start, s[3].stop) for s in pieces.wrote}
        assert len(strips) == len(model.plan.columns.strips)
    target.close()
    assert np.array_equal(np.load(tmp_path / "y.npy"), y)


def test_arrays_in_memory_are_used_as_they_are(model, x, y, monkeypatch):
    monkeypatch.setattr(model, "plan", roomy(model, 1 << 30))
    pieces, out = Pieces(monkeypatch), np.empty_like(y)
    model.stream(x, out)
    assert np.array_equal(out, y) and not pieces.read and not pieces.wrote


def test_what_lies_in_a_file(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((4, 5)))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    file = NpyFile(tmp_path / "x.npy")
    assert lies_in_file(mapped) and lies_in_file(mapped[1:, ::2].T) and lies_in_file(file)
    assert not lies_in_file(np.array(mapped)) and not lies_in_file(np.zeros((4, 5))[1:])
    file.close()


@pytest.mark.parametrize("rows", [1, 4, 5, 23, 40])
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_ahead_of_any_steps(rows, axis, tmp_path):
    """The rows of each step, from any step on and also again, while the next ones are read into other memory."""
    x = np.random.default_rng(1).integers(0, 255, (23, 7, 3) if axis == 0 else (7, 23, 3)).astype(np.uint8)
    np.save(tmp_path / "x.npy", x)
    whole, reader = (slice(None),) * axis, RowReader()
    steps = -(-23 // rows)
    for source in (NpyFile(tmp_path / "x.npy"), np.load(tmp_path / "x.npy", mmap_mode="r")):
        read = RowsAhead(source, axis, rows, reader)
        assert read.shape == x.shape and read.dtype == x.dtype
        for step in [*range(steps), *range(steps // 2, steps), 0]:
            at = (*whole, slice(step * rows, min(23, (step + 1) * rows)))
            found = read[(*at, *(slice(None),) * (3 - len(at)))]
            part = read[(*at, *(slice(None),) * (2 - len(at)), slice(1, 2))]
            assert np.array_equal(found, x[at]) and np.array_equal(part, x[at][..., 1:2])
    reader.close()
    reader.close()


def test_a_file_that_ends_too_early_is_told(model, x, tmp_path, monkeypatch):
    monkeypatch.setattr(model, "plan", roomy(model, 1 << 30))
    np.save(tmp_path / "x.npy", x)
    with open(tmp_path / "x.npy", "r+b") as file:
        file.truncate(x.nbytes // 2)
    with pytest.raises(RunError, match="ends before its rows do"):
        model.stream(tmp_path / "x.npy", tmp_path / "y.npy")


def test_rows_of_a_strip_that_is_ahead_wait(tmp_path):
    """Rows are written once all of their columns are filled, whatever else was begun; their memory serves again."""
    file, writer = NpyFile(tmp_path / "y.npy", (9, 6), "int32"), RowWriter()
    whole, wanted = StepRows(file, 0, writer), np.arange(54, dtype=np.int32).reshape(9, 6)
    places = set()

    def fill(part, first, end, a, b):
        slices = (slice(first, end), slice(None))
        rows = part[slices]
        rows[...] = wanted[first:end, a:b]
        places.add(rows.base.__array_interface__["data"][0])
        part.filled(slices, rows.size)

    left, right = whole.part(1, 0, 2), whole.part(1, 2, 6)
    for part, a, b in ((left, 0, 2), (right, 2, 6)):
        fill(part, 0, 3, a, b)
    fill(left, 3, 6, 0, 2)
    fill(left, 6, 9, 0, 2)
    fill(right, 6, 9, 2, 6)
    writer.done()
    assert np.array_equal(np.load(tmp_path / "y.npy")[6:], wanted[6:])
    assert not np.array_equal(np.load(tmp_path / "y.npy")[3:6], wanted[3:6])
    fill(right, 3, 6, 2, 6)
    writer.done()
    writer.close()
    file.close()
    assert np.array_equal(np.load(tmp_path / "y.npy"), wanted) and len(places) == 2


def test_errors_of_writing_in_one_piece_are_told(model, x, y, tmp_path, monkeypatch):
    monkeypatch.setattr(model, "plan", roomy(model, 1 << 30))

    class Full(NpyFile):
        def __setitem__(self, slices, rows):
            raise OutputError("the disk is full")

    with pytest.raises(OutputError, match="the disk is full"):
        model.stream(x, Full(tmp_path / "y.npy", y.shape, "float32"))
