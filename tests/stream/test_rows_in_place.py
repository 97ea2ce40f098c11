"""Rows that were kept and new ones lie together without a copy: in blocks of channels, beside skips, and in batches."""

from __future__ import annotations

from dataclasses import replace

import halotile
import numpy as np
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.schedules.conv.kernel import ConvKernel
from halotile.schedules.words.layout import Layout
from halotile.targets.detect import native
from stream_models import Maker, random_graph
from streamed_images import reference, same


def _residual(channels, width, batch=1):
    """Two residual blocks and pixels shuffled to twice the size."""
    m = Maker(5)
    y = m.conv("x", 3, channels)
    for _ in range(2):
        y = m.op("Add", y, m.conv(m.op("Relu", m.conv(y, channels, channels)), channels, channels))
    y = m.op("DepthToSpace", m.conv(y, channels, 4 * channels), blocksize=2, mode="CRD")
    return m.model([m.conv(y, channels, 3)], width, batch=batch)


def _skipped(channels, width):
    """Half the size and back, joined with what was there before."""
    m = Maker(6)
    a = m.op("Relu", m.conv("x", 3, channels))
    y = m.op("Relu", m.conv(m.op("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2]), channels, channels))
    y = m.op("Relu", m.conv(y, channels, channels))
    up = m.op("ConvTranspose", y, m.weights(channels, channels, 2, 2), strides=[2, 2])
    return m.model([m.conv(m.op("Concat", up, a, axis=1), 2 * channels, 2)], width)


def _copies(model):
    return [k for k in model.report["kernels"] if "relax.concat" in k["operators"]]


@pytest.mark.parametrize("channels, batch", [(32, 1), (16, 2), (20, 1)])
def test_kernels_write_behind_the_rows_that_were_kept(channels, batch):
    source = _residual(channels, 19, batch)
    with halotile.compile(source, stream=7) as model:
        assert not _copies(model)
        same(model, source, [1, 6, 29], np.random.default_rng(channels))


@pytest.mark.parametrize("step", [8, 4])
def test_skips_wait_in_place(step):
    source = _skipped(32, 22)
    with halotile.compile(source, stream=step, shapes={"x": (1, 3, "h:2..:2", 22)}) as model:
        assert not _copies(model)
        same(model, source, [2, 12, 30], np.random.default_rng(step))


def test_what_waits_takes_the_memory_of_no_copy():
    """Of 24 rows of 32 channels two at a time are there, and the few that were kept."""
    m = Maker(7)
    y = m.op("Relu", m.conv("x", 3, 32))
    for _ in range(4):
        y = m.op("Relu", m.conv(y, 32, 32))
    with halotile.compile(m.model([m.conv(y, 32, 3)], 64), stream=24, exact=True, threads=1) as model:
        rows = 4 * 32 * 66 * (24 + 2)
        assert 2 * rows <= model.arena_bytes(1) < 2.5 * rows


@pytest.mark.parametrize("seed", range(8))
def test_random_graphs_in_blocks_of_channels(seed):
    source = random_graph(seed, batch=1 + seed % 2, channels=16)
    model = halotile.compile(source, stream=5)
    least = model.plan.least
    same(model, source, [least, least + 1, 33], np.random.default_rng(seed))


def test_room_lies_between_planes():
    layout = Layout.blocked((1, 5, 3, 4), 2, ((0, 0), (0, 0), (0, 0), (1, 1)), room=2)
    assert layout.physical_shape == (1, 3, 5, 6, 2) and not layout.is_plain
    x = np.random.default_rng(0).standard_normal((1, 5, 3, 4)).astype(np.float32)
    held = layout.pack(x)
    assert not held[:, :, 3:].any() and np.array_equal(layout.unpack(held), x)
    assert held.reshape(-1)[layout.offset([0, 3, 2, 1])] == x[0, 3, 2, 1]
    assert "within 5 rows" in str(layout)


def test_moves_are_filled_by_the_kernels_before_them():
    """Of the shuffle there are only the moves, as in a library of the whole image."""
    m = Maker(8)
    y = m.op("DepthToSpace", m.conv(m.conv("x", 3, 32), 32, 64), blocksize=2, mode="CRD")
    source = m.model([m.conv(y, 16, 3)], 18)
    with halotile.compile(source, stream=6) as model:
        moving = [k for k in model.report["kernels"] if "relax.permute_dims" in k["operators"]]
        assert moving and not any("relax.where" in k["operators"] for k in moving) and not _copies(model)
        same(model, source, [1, 5, 20], np.random.default_rng(8))


def test_what_is_gathered_of_moved_rows():
    m = Maker(9)
    y = m.op("DepthToSpace", m.conv("x", 3, 32), blocksize=2, mode="CRD")
    y = m.op("Mul", m.conv(y, 8, 8), m.op("Sigmoid", m.op("GlobalAveragePool", y)))
    source = m.model([y], 12)
    x = np.random.default_rng(9).standard_normal((1, 3, 17, 12)).astype(np.float32)
    with halotile.compile(source, stream=6) as model:
        (wanted,) = reference(source, x).values()
        np.testing.assert_allclose(model(x), wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_skips_that_begin_behind_kept_rows_are_asked_for(monkeypatch):
    """Where layers come from memory, the products of a step ask for a skip's rows as those of a whole image do."""
    target = replace(native(), vector_registers=32, vector_bits=512, l2_bytes=1 << 20, l3_bytes=1 << 20)
    source, counts = _residual(32, 96), []
    for _ in range(2):
        build = run_pipeline(source, Options(target, stream=48, stop_after="plan"))
        kernels = [k for k in build.kernels if "winograd" in k.schedule and len(k.operands) > 4]
        counts.append(sum(str(k.function).count("T.prefetch") for k in kernels))
        monkeypatch.setattr(ConvKernel, "cuts", lambda conv: [])
    assert counts[0] > counts[1]
