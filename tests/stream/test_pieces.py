"""Rows are converted where they go, piece by piece, and threads share the pieces."""

from __future__ import annotations

import threading
import tracemalloc

import halotile
import numpy as np
import pytest
from halotile.compiler.stream.pieces import Pieces, pieces_of
from halotile.compiler.stream.views import View
from halotile.errors import RunError
from stream_models import Maker, upscaler

SHAPES = [(), (0,), (7,), (5, 3), (2_300_000,), (2, 3, 91, 4001), (1, 1, 31, 70_001), (1, 2, 0, 9), (1, 3, 4, 5, 6)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_element_once(shape, threads):
    one, other = np.zeros(shape, np.int64), np.arange(np.prod(shape, dtype=int)).reshape(shape)
    pieces, seen = Pieces(threads), set()

    def add(here, there):
        seen.add(threading.get_ident())
        here += there + 1

    pieces.work(add, one, other)
    pieces.close()
    pieces.close()
    assert np.array_equal(one, other + 1)
    assert len(seen) <= threads and all(here.size <= 70_001 for here, _ in pieces_of(one, other))


def test_threads_share_and_tell_of_errors():
    pieces, x = Pieces(2), np.zeros((1, 3, 256, 4000), np.float32)
    met = threading.Barrier(2, timeout=30)
    waited = threading.local()

    def meet(here, there):
        if not hasattr(waited, "done"):
            waited.done = met.wait()

    pieces.work(meet, x, x)  # ends, as both threads come

    def fail(here, there):
        raise ValueError("of a piece")

    with pytest.raises(ValueError, match="of a piece"):
        pieces.work(fail, x, x)
    pieces.close()


def test_rows_of_one_order_are_few_pieces():
    """Pixels with their channels are copied several rows at a time; those of other orders channel by channel."""
    frames, wide = np.zeros((1, 48, 2448, 3), np.uint8), np.zeros((48, 6000, 3), np.uint8)
    assert len(pieces_of(frames, wide[None, :, 100:2548])) == 6
    planes = np.zeros((1, 3, 48, 2448), np.float32)
    found = pieces_of(planes, wide[None, :, 100:2548].transpose(0, 3, 1, 2))
    assert len(found) == 6 and all(here.shape[1:] == (2448,) for here, _ in found)


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_are_converted_in_place(threads):
    """Neither the rows that are read nor those that are written lie in memory a second time."""
    pixels = np.random.default_rng(0).integers(0, 256, (64, 3000, 3)).astype(np.uint8)
    own, made = np.empty((1, 3, 64, 3000), np.float32), np.zeros_like(pixels)
    view = View("x", pixels, (1, 3, "h", 3000), 2, np.dtype(np.float32), None, 1 / 255, Pieces(threads))
    back = View("y", made, (1, 3, "h", 3000), 2, np.dtype(np.float32), None, 255, Pieces(threads))
    view.read_into(0, own)
    assert np.array_equal(own[0], (pixels.transpose(2, 0, 1) * np.float32(1 / 255)).astype(np.float32))
    back.write(0, own)
    assert np.array_equal(made, pixels)
    view.read_into(0, own)
    tracemalloc.start()
    view.read_into(0, own)
    back.write(0, own)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < own.nbytes / 4


@pytest.mark.parametrize("kind", ["uint8", "uint16", "int16", "int32", "float32", "float64"])
@pytest.mark.parametrize("threads", [1, 2])
def test_numbers_of_any_type(kind, threads):
    """Rows become float32, times the scale; and go back rounded to even, held in the range of the type."""
    random, own = np.random.default_rng(3), np.empty((1, 3, 131, 701), np.float32)
    limits = np.iinfo(kind) if np.dtype(kind).kind in "ui" else None
    low, high = (max(limits.min, -(2**24)), min(limits.max, 2**24)) if limits else (-100, 100)
    pixels, made = (random.uniform(low, high, (131, 701, 3)).astype(kind) for _ in range(2))
    view = View("x", pixels, (1, 3, "h", 701), 2, np.dtype(np.float32), None, 0.37, Pieces(threads))
    back = View("y", made, (1, 3, "h", 701), 2, np.dtype(np.float32), None, 0.5, Pieces(threads))
    view.read_into(0, own)
    assert np.array_equal(own[0], pixels.transpose(2, 0, 1).astype(np.float32) * np.float32(0.37))
    own[...] = random.integers(2 * low, 2 * high, own.shape) if limits else own  # halves, too, with the scale
    own[0, :, ::3] *= 3
    wanted = own[0].astype(np.float64).transpose(1, 2, 0) * 0.5
    if limits and kind != "int32":  # whose largest number float32 does not have
        wanted = np.clip(np.rint(wanted), limits.min, limits.max)
    back.write(0, own)
    assert np.array_equal(made, np.rint(wanted).astype(kind) if limits else wanted.astype(np.float32))


class Ending:
    """An array that has fewer rows than it says."""

    shape, dtype = (3, 100, 24), np.dtype(np.float32)

    def __getitem__(self, slices):
        return np.zeros((3, 90, 24), np.float32)[slices]


def test_a_source_that_ends_early_is_an_error():
    with halotile.compile(upscaler(24), stream=8) as model:
        with pytest.raises(RunError, match=r"rows of 'x' have the shape .* source gave"):
            model.stream(Ending())


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_wide_images_do_not_depend_on_threads(threads):
    width = 9001
    m = Maker(3)
    source = m.model([m.conv("x", 3, 3)], width)
    pixels = np.random.default_rng(1).integers(0, 256, (37, width, 3)).astype(np.uint8)
    with halotile.compile(source, stream=12, exact=True, threads=2) as model:
        wanted = model(pixels.transpose(2, 0, 1)[None].astype(np.float32) * np.float32(1 / 255))
        target = np.zeros(wanted.shape, np.float32)
        model.stream(pixels, target, scale=1 / 255, threads=threads)
    assert np.array_equal(target, wanted)
