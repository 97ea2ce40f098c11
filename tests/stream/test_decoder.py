"""A decoder of latent images, of residual blocks with group norms, squeeze-and-excite and upsampling, in passes."""

from __future__ import annotations

import halotile
import numpy as np
import pytest
from stream_models import Maker
from streamed_images import reference

WIDTH, CHANNELS = 13, 16


def group_norm(m, y, channels=CHANNELS, groups=4):
    """As exporters write it: an instance norm of groups, then a factor and a summand for each channel."""
    ones, zeros = m.const(np.ones(groups, np.float32)), m.const(np.zeros(groups, np.float32))
    flat = m.op("InstanceNormalization", m.op("Reshape", y, m.const(np.array([0, groups, -1]))), ones, zeros)
    factor, summand = (m.const(m.random.normal(n, 0.2, (channels, 1, 1)).astype(np.float32)) for n in (1, 0))
    return m.op("Add", m.op("Mul", m.op("Reshape", flat, m.op("Shape", y)), factor), summand)


def activated(m, y):
    return m.op("Mul", y, m.op("Sigmoid", y))


def residual(m, y):
    z = m.conv(activated(m, group_norm(m, y)), CHANNELS, CHANNELS)
    return m.op("Add", y, m.conv(activated(m, group_norm(m, z)), CHANNELS, CHANNELS))


def excited(m, y):
    s = m.op("Relu", m.conv(m.op("GlobalAveragePool", y), CHANNELS, 4, 1))
    return m.op("Mul", y, m.op("Sigmoid", m.conv(s, 4, CHANNELS, 1)))


def decoder():
    """Four channels become three of four times the rows and columns."""
    m = Maker(11)
    y = m.conv("x", 4, CHANNELS)
    for _ in range(2):
        y = excited(m, residual(m, y))
        nearest = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        y = m.op("Resize", y, "", m.const(np.array([1, 1, 2, 2], np.float32)), **nearest)
        y = m.conv(y, CHANNELS, CHANNELS)
    return m.model([m.conv(activated(m, group_norm(m, y)), CHANNELS, 3)], WIDTH, channels=4)


@pytest.mark.parametrize("exact", [False, True])
def test_a_decoder_of_norms_and_excitations_is_the_whole_image(exact):
    """Each of five norms and two means needs a pass, and the output another; what comes out is right to 1e-5."""
    source = decoder()
    with halotile.compile(source, shapes={"x": (1, 4, "h", WIDTH)}, stream=8, exact=exact) as model:
        assert model.plan.passes == 2 * (2 + 1) + 1 + 1
        for height in (5, 8, 45):
            x = np.random.default_rng(height).standard_normal((1, 4, height, WIDTH)).astype(np.float32)
            ((_, y),) = reference(source, x).items()
            found = model.stream(x)
            assert found.shape == y.shape == (1, 3, 4 * height, 4 * WIDTH)
            np.testing.assert_allclose(found, y, rtol=0, atol=1e-5 * np.abs(y).max())
