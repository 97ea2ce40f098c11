"""Streams equal the whole image: random graphs and random pushes beside ONNX Runtime, all that is unread poisoned."""

from __future__ import annotations

import halotile
import numpy as np
import pytest
from stream_models import Maker, random_graph, unet, upscaler
from streamed_images import same
from uncompiled import reported


@pytest.mark.parametrize("seed", range(16))
def test_random_graphs_stream_as_a_whole(seed):
    source = random_graph(seed, batch=1 + seed % 2)
    model = halotile.compile(source, stream=4, exact=True)
    least = model.plan.least
    same(model, source, [least, least + 1, least + 2, 41], np.random.default_rng(seed))


def test_unet_waits_for_its_skips():
    source = unet(batch=2)
    with halotile.compile(source, stream=8, shapes={"x": (2, 3, "h:8..:4", 24)}) as model:
        assert model.plan.multiple == 4 and model.plan.least == 8
        same(model, source, [8, 12, 36, 64], np.random.default_rng(0))
        same(model, source, [40], np.random.default_rng(0), pushes=1)
        same(model, source, [40], np.random.default_rng(0), pushes=40)


def test_the_bits_are_those_of_the_whole_image():
    """Where kernels add up in one order, which the products of a 1 x 1 convolution and elementwise maps do."""
    m = Maker(3)
    y = m.op("MaxPool", m.op("Relu", "x"), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = m.op("Pad", y, m.const(np.array([0, 0, 2, 0, 0, 0, 1, 0])), mode="reflect")
    source = m.model([m.op("Mul", y, m.op("Exp", y))], 16)
    x = np.random.default_rng(1).standard_normal((1, 3, 57, 16)).astype(np.float32)
    whole = halotile.compile(source, shapes={"x": x.shape}, exact=True)(x)
    assert np.array_equal(halotile.compile(source, stream=True, exact=True)(x), whole)


def test_memory_does_not_depend_on_the_height():
    with halotile.compile(upscaler(), stream=8) as model:
        sizes = set()
        for height in (8, 64, 640):
            with model.open() as stream:
                for _ in range(0, height, 8):
                    stream.push(np.zeros((1, 3, 8, 24), np.float32))
                    stream.pull()
                sizes.add((stream.state_bytes, model.arena_bytes()))
        assert len(sizes) == 1
        # 5 x 5, then twice 3 x 3: the rows above that are read again, of 3, 8 and 8 channels, once, in float32
        kept = 4 * 24 * (4 * 3 + 2 * 8 + 2 * 8)
        assert stream.state_bytes == kept + 4 * 24 * 8 * 3 + 4 * 48 * 16 * 3


def test_multiply_adds_of_a_step_are_those_of_its_rows():
    """No row is computed twice: a step has the share of the whole image's multiply-adds that it has of its rows."""
    whole = reported(upscaler(height=64))
    source = upscaler()
    with halotile.compile(source, stream=8) as model:
        assert model.report["macs"] * 8 == whole["macs"]
        assert model.plan.steps(64) == 8 + 1
