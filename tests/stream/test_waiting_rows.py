"""Skips that wait lie where the concatenation that reads them has their rows: nothing copies them there."""

from __future__ import annotations

import halotile
import numpy as np
import pytest
from stream_models import Maker, unet
from streamed_images import same


def copies(model):
    """Kernels that copy rows of the past to where they are read, other than into what the next step is given."""
    given = {s.output for s in model.plan.states}
    made = [k for k in model.report["kernels"] if k["operators"] == ["relax.strided_slice"]]
    return len(made) - len(given)


def in_place(model):
    return len([n for n in model.report["notes"]["layout"] if n.endswith("what waits lies where it is read")])


def skipped(random, channels, levels, order):
    """``levels`` down and up again, by convolutions of random sizes; skips before or behind what comes up."""
    m = Maker(int(random.integers(1 << 16)))
    y, skips = m.op("Relu", m.conv("x", 3, channels)), []
    for _ in range(levels):
        skips.append(y)
        y = m.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
        y = m.op("Relu", m.conv(y, channels, channels, int(random.choice([1, 3, 5]))))
    while skips:
        up = m.op("ConvTranspose", y, m.weights(channels, channels, 2, 2), strides=[2, 2])
        both = (up, skips.pop()) if order == "behind" else (skips.pop(), up)
        y = m.op("Relu", m.conv(m.op("Concat", *both, axis=1), 2 * channels, channels, int(random.choice([1, 3]))))
    return m.model([m.conv(y, channels, 2)], "w")


@pytest.mark.sampled
@pytest.mark.parametrize("order", ["before", "behind"])
@pytest.mark.parametrize("seed, levels", [(0, 1), (1, 2), (2, 3), (3, 2)])
def test_skips_are_written_where_they_are_read(seed, levels, order):
    random = np.random.default_rng(seed)
    source, step = skipped(random, 32, levels, order), int(random.choice([24, 40, 48]))
    multiple = 1 << levels
    shape = (1, 3, f"h:{2 * multiple}..:{multiple}", 8 * int(random.choice([3, 5])))
    with halotile.compile(source, stream=step, shapes={"x": shape}) as model:
        assert in_place(model) >= 1
        same(model, source, [2 * multiple, 7 * multiple, 13 * multiple], random, 31)


def test_no_row_of_a_skip_is_copied_to_its_reader():
    source = skipped(np.random.default_rng(5), 16, 1, "behind")
    with halotile.compile(source, stream=24, shapes={"x": (1, 3, "h:2..:2", 22)}) as model:
        assert in_place(model) == 1 and copies(model) == 0
        same(model, source, [2, 30, 62], np.random.default_rng(5))


def test_the_bits_are_those_of_the_whole():
    source = skipped(np.random.default_rng(7), 32, 2, "behind")
    x = np.random.default_rng(8).standard_normal((1, 3, 100, 40)).astype(np.float32)
    whole = halotile.compile(source, shapes={"x": x.shape}, exact=True)(x)
    with halotile.compile(source, shapes={"x": (1, 3, "h:8..:4", 40)}, exact=True, stream=24) as model:
        assert in_place(model) == 2 and np.array_equal(model(x), whole)


def test_two_skips_of_one_concatenation_wait_at_different_depths():
    m = Maker(3)
    a = m.op("Relu", m.conv("x", 3, 16))
    b = m.op("Relu", m.conv(a, 16, 16))
    y = m.op("Relu", m.conv(m.op("Relu", m.conv(b, 16, 16, 5)), 16, 16, 5))
    y = m.op("Relu", m.conv(m.op("Concat", y, a, b, axis=1), 48, 16))
    source = m.model([m.conv(y, 16, 2)], 21)
    with halotile.compile(source, stream=24) as model:
        assert in_place(model) == 2
        same(model, source, [1, 5, 24, 59], np.random.default_rng(3))


def test_a_joined_skip_waits_for_a_second_concatenation():
    """What two skips were joined to is a skip itself."""
    m = Maker(4)
    a = m.op("Relu", m.conv("x", 3, 16))
    b = m.op("Relu", m.conv(m.op("Relu", m.conv(a, 16, 16)), 16, 16))
    both = m.op("Concat", b, a, axis=1)
    y = m.op("Relu", m.conv(m.op("Relu", m.conv(both, 32, 32)), 32, 32))
    y = m.op("Relu", m.conv(m.op("Concat", y, both, axis=1), 64, 16))
    source = m.model([m.conv(m.op("Concat", y, a, axis=1), 32, 2)], 21)
    with halotile.compile(source, stream=24) as model:
        assert in_place(model) >= 1
        same(model, source, [1, 5, 24, 59], np.random.default_rng(4))


@pytest.mark.parametrize("channels, batch", [(20, 1), (16, 2), (4, 1)])
def test_what_can_not_lie_in_place_is_copied(channels, batch):
    """Channels that fill no blocks, batches, and plain memory."""
    if channels == 4:
        source, shape = unet("w", batch), (batch, 3, "h:8..:4", 24)
    else:
        source, shape = skipped(np.random.default_rng(6), channels, 1, "behind"), (batch, 3, "h:2..:2", 22)
        source.graph.input[0].type.tensor_type.shape.dim[0].dim_value = batch
    with halotile.compile(source, stream=24, shapes={"x": shape}) as model:
        same(model, source, [8, 32, 60], np.random.default_rng(channels))


def test_a_skip_that_waits_long_takes_no_memory_of_what_it_waits_for():
    """Where it is much later than a step has rows, rows of the other part would take as much again."""
    m = Maker(9)
    a = m.op("Relu", m.conv("x", 3, 16))
    y = a
    for _ in range(4):
        y = m.op("Relu", m.conv(y, 16, 16, 7))
    source = m.model([m.conv(m.op("Concat", y, a, axis=1), 32, 2)], 21)
    with halotile.compile(source, stream=4) as model:
        assert in_place(model) == 0
        same(model, source, [1, 30], np.random.default_rng(9))


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_values_in_halves_wait_as_well(precision):
    source = skipped(np.random.default_rng(10), 32, 1, "behind")
    with halotile.compile(source, stream=24, shapes={"x": (1, 3, "h:2..:2", 22)}, precision=precision) as model:
        x = np.random.default_rng(11).standard_normal((1, 3, 62, 22)).astype(np.float32)
        y = halotile.compile(source, shapes={"x": x.shape})(x)
        assert np.abs(model(x) - y).max() <= 0.05 * np.abs(y).max()
