"""Rows are written to files while the next ones are computed: in order, all of them, and no error is lost."""

from __future__ import annotations

import errno
import threading
import time

import halotile
import numpy as np
import pytest
from halotile.compiler.stream.behind import RowWriter
from halotile.compiler.stream.files import NpyFile
from halotile.compiler.stream.machine import Stream
from halotile.errors import OutputError
from stream_models import Maker, upscaler

WIDTH, HEIGHT = 24, 101
SCALES = {"scale": 1 / 255, "target_scale": 255}


@pytest.fixture(scope="module")
def model():
    with halotile.compile(upscaler(WIDTH), stream=8) as made:
        yield made


@pytest.fixture(scope="module")
def pixels():
    return np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def wanted(model, pixels):
    return model.stream(pixels, np.zeros((2 * HEIGHT, 2 * WIDTH, 3), np.uint8), **SCALES)


class Watched(NpyFile):
    """A target that tells of each write before it is done, and where."""

    def __init__(self, path, tell, kind="uint8"):
        super().__init__(path, (2 * HEIGHT, 2 * WIDTH, 3), kind)
        self.tell = tell

    def __setitem__(self, slices, rows):
        self.tell(slices[0])
        super().__setitem__(slices, rows)


@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_the_next_rows_are_computed_meanwhile(model, pixels, tmp_path, monkeypatch, kind):
    """The first rows are written once the step behind theirs begins, which would never be if they were waited for."""
    begun, steps, compute = threading.Event(), [], Stream._compute

    def computed(self):
        steps.append(self._step)
        if len(steps) == 3:
            begun.set()
        compute(self)

    monkeypatch.setattr(Stream, "_compute", computed)
    seen = []

    def tell(rows):
        seen.append((rows.start, begun.wait(30) if len(seen) == 1 else True, threading.get_ident()))

    target = Watched(tmp_path / "y.npy", tell, kind)
    scales = {**SCALES, "target_scale": 255 if kind == "uint8" else 1.0}
    model.stream(pixels, target, **scales)
    assert all(waited for _, waited, _ in seen) and len(seen) > 10
    assert [at for at, _, _ in seen] == sorted(at for at, _, _ in seen)
    assert threading.get_ident() not in {thread for *_, thread in seen} and len({t for *_, t in seen}) == 1
    alone = np.zeros((2 * HEIGHT, 2 * WIDTH, 3), kind)
    assert np.array_equal(np.load(tmp_path / "y.npy"), model.stream(pixels, alone, **scales)) and np.ptp(alone) > 0


@pytest.mark.parametrize("slow", ["writing", "computing"])
@pytest.mark.parametrize("strips", [False, True])
def test_whoever_is_slower(tmp_path, monkeypatch, slow, strips):
    """Two outputs, of the whole width and in strips of columns, in files: the same bytes as in arrays."""
    m = Maker(5)
    a = m.op("Relu", m.conv("x", 3, 6, 5))
    b = m.op("DepthToSpace", m.conv(a, 6, 12), blocksize=2)
    proto = m.model([b, m.op("Sigmoid", m.conv(a, 6, 3))], "w")
    wide = np.random.default_rng(3).integers(0, 256, (1, 3, HEIGHT, 200)).astype(np.uint8)
    budget = {"memory_budget": "80KiB"} if strips else {}
    with halotile.compile(proto, stream=8, shapes={"w": 200}, exact=True, **budget) as model:
        assert (model.plan.columns is not None) == strips
        names, random = [s.name for s in model.outputs], np.random.default_rng(2)
        arrays = model.stream(wide, scale=1 / 255)
        of = NpyFile.__setitem__ if slow == "writing" else Stream._compute

        def slowly(*arguments):
            time.sleep(random.uniform(0, 0.004))
            return of(*arguments)

        where = (NpyFile, "__setitem__") if slow == "writing" else (Stream, "_compute")
        monkeypatch.setattr(*where, slowly)
        files = {name: tmp_path / f"{name}.npy" for name in names}
        model.stream(wide, files, scale=1 / 255)
    for name, array in arrays.items():
        assert np.array_equal(np.load(files[name]), array) and np.ptp(array) > 0


def test_a_full_disk_ends_the_stream(model, pixels, tmp_path):
    for last in (3, 25):  # an early one, which the next rows find, and the one of the last rows
        left = [last]

        def fill(rows, left=left):
            left[0] -= 1
            if left[0] == 0 or rows.stop == 2 * HEIGHT:
                raise OSError(errno.ENOSPC, "No space left on device")

        with pytest.raises(OutputError, match="No space left on device") as found:
            model.stream(pixels, Watched(tmp_path / "y.npy", fill), **SCALES)
        assert "\n" not in str(found.value)


def test_a_journal_never_tells_of_rows_that_wait(model, pixels, wanted, tmp_path):
    """Stopped at any step, with slow writes: rows that the journal tells of are those of the result."""

    class Stopped(Exception):
        pass

    for stop in (16, 48, 96):
        late, place = [], tmp_path / f"{stop}.npy"

        def halt(done, rows, stop=stop):
            if done >= stop:
                raise Stopped

        def slow(rows, late=late):
            time.sleep(0.005)
            late.append(rows)

        with pytest.raises(Stopped):
            target = Watched(place, slow)
            model.stream(pixels, target, journal=tmp_path / "j", journal_seconds=0, progress=halt, **SCALES)
        with np.load(tmp_path / "j") as journal:
            step = int(journal["0|step"])
        delay = model.plan.outputs[0].delay
        told = step * model.plan.outputs[0].count - delay
        assert told > 0 and np.array_equal(np.load(place)[:told], wanted[:told])
        written = place.read_bytes()
        again = NpyFile(place, wanted.shape, "uint8", again=True)
        assert place.read_bytes() == written
        model.stream(pixels, again, journal=tmp_path / "j", **SCALES)
        assert np.array_equal(np.load(place), wanted)


def test_what_is_given_is_written_by_the_caller(model, pixels, wanted):
    """A dataset of somebody else's may be for one thread only."""
    threads = set()

    class Given:
        shape, dtype = wanted.shape, wanted.dtype
        array = np.zeros_like(wanted)

        def __setitem__(self, slices, rows):
            threads.add(threading.get_ident())
            self.array[slices] = rows

    given = Given()
    model.stream(pixels, given, **SCALES)
    assert threads == {threading.get_ident()} and np.array_equal(given.array, wanted)


def test_memory_of_rows_is_one_and_grows():
    writer, out = RowWriter(), np.zeros((9, 5), np.int32)
    behind, other = writer.behind(), writer.behind()
    places = set()
    for rows in (4, 3, 4):
        made = behind.rows((rows, 5), np.dtype(np.int32))
        places.add(made.__array_interface__["data"][0])
        made[...] = np.arange(5 * rows).reshape(rows, 5)
        behind.write(out, (slice(rows, 2 * rows),), made)
        assert other.rows((rows, 5), np.dtype(np.int32)).base is not made.base
        writer.done()
        assert np.array_equal(out[rows : 2 * rows], np.arange(5 * rows).reshape(rows, 5))
    assert len(places) == 1
    writer.close()
    writer.close()
