"""Transposed convolutions as convolutions with a shuffle, and shuffles of whole blocks: fired, exact, left alone."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import native
from halotile.passes.reassociate import Reassociate
from halotile.schedules.operators.registry import call
from halotile.targets.resolve import resolve
from relax_modules import const, f32, module, operators, values
from tvm import relax

op = relax.op
LANES = native().lanes("float32")


def applied(mod, target=None) -> tuple[list[str], dict[str, int]]:
    """The operators and the rewrites, after comparing the values."""
    result = Reassociate().apply(mod, target or native())
    for a, b in zip(values(mod), values(result.module), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5 * max(1e-6, float(np.abs(a).max())))
    assert not Reassociate().apply(result.module, target or native()).changed
    return operators(result.module), result.details.get("applied", {})


def transposed(channels, outputs, kernel, strides, begin, output, groups=1, dilations=(1, 1)):
    def body(emit, x):
        weight = const(f32(channels, outputs // groups, *kernel))
        y = emit(call(
            "halotile.conv_transpose", x, weight, strides=list(strides), dilations=list(dilations), begin=list(begin),
            output=list(output), groups=groups,
        ))  # fmt: skip
        return emit(op.add(y, const(f32(1, outputs, 1, 1))))

    return body


CASES = {
    "super-resolution": ((9, 9), (3, 3), (4, 4), (15, 21)),
    "generator": ((4, 4), (2, 2), (1, 1), (10, 14)),
    "taps not divided": ((3, 5), (2, 2), (0, 1), (11, 17)),
    "one axis": ((1, 4), (1, 2), (0, 1), (5, 14)),
    "steps wider than the kernel": ((2, 2), (3, 3), (0, 0), (14, 20)),
    "output padding": ((3, 3), (2, 2), (1, 1), (10, 14)),
    "beyond the last tap": ((2, 2), (2, 2), (0, 0), (11, 15)),
    "cropped": ((6, 6), (2, 2), (3, 2), (8, 13)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("batch", [1, 2])
def test_few_outputs_share_vectors(case, outputs, batch):
    body = transposed(67, outputs, *CASES[case])
    ops, rules = applied(module(body, (batch, 67, 5, 7)), resolve("x86-64-v4"))
    assert rules == {"phases-side-by-side": 1}
    assert ops[0] == "conv2d" and "permute_dims" in ops and "conv_transpose" not in ops


@pytest.mark.parametrize("case", ["lanes are full", "groups", "dilation", "far crop"])
def test_transposed_convolutions_that_stay(case):
    body = {
        "lanes are full": transposed(32, 64, (2, 2), (2, 2), (0, 0), (10, 14)),
        "groups": transposed(64, 2, (4, 4), (2, 2), (1, 1), (10, 14), groups=2),
        "dilation": transposed(64, 1, (3, 3), (2, 2), (0, 0), (13, 17), dilations=(2, 2)),
        "far crop": transposed(64, 1, (2, 2), (2, 2), (4, 4), (4, 6)),
    }[case]
    channels = 32 if case == "lanes are full" else 64
    assert not Reassociate().apply(module(body, (1, channels, 5, 7)), resolve("x86-64-v4")).changed


def shuffle(emit, x, ways, order=(0, 1, 4, 2, 5, 3)):
    batch, channels, height, width = (int(n) for n in x.ty.shape.values)
    depth = channels // (ways[0] * ways[1])
    y = emit(op.permute_dims(emit(op.reshape(x, [batch, depth, *ways, height, width])), list(order)))
    return emit(op.reshape(y, [batch, depth, height * ways[0], width * ways[1]]))


@pytest.mark.parametrize("ways", [(2, 2), (3, 1), (1, 2)])
def test_a_shuffle_takes_whole_blocks(ways):
    outputs = LANES * 2 * ways[0] * ways[1]

    def body(emit, x):
        y = emit(op.nn.conv2d(x, const(f32(outputs, 5, 3, 3)), padding=[1] * 4))
        y = emit(op.nn.relu(emit(op.add(const(f32(outputs, 1, 1)), y))))
        return shuffle(emit, emit(op.multiply(y, const(f32()))), ways)

    ops, rules = applied(module(body, (2, 5, 4, 3)))
    assert rules == {"whole-blocks": 1} and ops[-3:] == ["reshape", "permute_dims", "reshape"]


@pytest.mark.parametrize(
    ("mask", "moves"), [((64, 1, 1), 0), ((1, 64, 1, 1), 0), ((1, 4, 3), 1), ((1, 1, 4, 1), 1), ((4, 1), 1), ((3,), 1)]
)
def test_a_mask_that_tells_channels_apart_keeps_their_order(mask, moves):
    """Whatever its rank: its axes are the last ones of the image."""

    def body(emit, x):
        y = emit(op.nn.conv2d(x, const(f32(64, 5, 3, 3)), padding=[1] * 4))
        y = emit(op.where(const(f32(*mask) > 0), y, const(f32())))
        return shuffle(emit, y, (2, 2))

    _, rules = applied(module(body, (2, 5, 4, 3)))
    assert rules.get("whole-blocks", 0) == moves


@pytest.mark.parametrize("case", ["odd channels", "read twice", "groups", "bias per place", "no convolution"])
def test_shuffles_that_stay(case):
    outputs = 4 * (LANES + 1 if case == "odd channels" else LANES)

    def body(emit, x):
        groups = 2 if case == "groups" else 1
        y = x
        if case != "no convolution":
            y = emit(op.nn.conv2d(x, const(f32(outputs, outputs // groups, 1, 1)), groups=groups))
        if case == "bias per place":
            y = emit(op.add(y, const(f32(1, 1, 4, 3))))
        z = shuffle(emit, y, (2, 2))
        return (z, y) if case == "read twice" else z

    assert not Reassociate().apply(module(body, (1, outputs, 4, 3)), native()).changed
