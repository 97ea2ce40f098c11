"""Depthwise convolutions of bytes as dot products of columns, exactly equal to sums of integers in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byte_sums import numbers, reference
from compiled import Compiled, module_of, narrow, native, staged, weight
from halotile.schedules.conv import chosen
from halotile.schedules.conv.direct.int8_depthwise import Words
from halotile.schedules.conv.facts import ConvFacts
from halotile.schedules.conv.select import ALGORITHMS, considered
from halotile.schedules.instructions.int8_dot import data_dtype
from halotile.schedules.operators.registry import call
from halotile.schedules.words.group import Request
from tvm import relax

needs_dots = pytest.mark.skipif(
    data_dtype(native()) != "uint8", reason="NOT RUN: this machine sums no products of unsigned bytes"
)

#  batch, channels, size, kernel, strides, dilations, before, after, fill
CASES = [
    (1, 32, (14, 14), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 0),
    (1, 37, (13, 17), (3, 3), (2, 2), (1, 1), (1, 1), (1, 1), 7),
    (2, 24, (11, 7), (5, 5), (1, 1), (1, 1), (2, 2), (2, 2), 3),
    (1, 31, (23, 19), (5, 5), (2, 2), (1, 1), (1, 2), (2, 1), 255),
    (1, 48, (19, 23), (7, 7), (2, 2), (1, 1), (3, 3), (3, 3), 5),
    (1, 17, (29,), (5,), (1,), (1,), (2,), (2,), 9),
    (2, 20, (5, 6, 7), (3, 2, 3), (1, 1, 1), (1, 1, 1), (1, 0, 1), (1, 1, 1), 9),
    (1, 16, (9, 9), (3, 3), (1, 1), (2, 1), (2, 1), (2, 1), 200),
    (1, 8, (2, 1), (3, 2), (1, 1), (1, 1), (1, 1), (1, 1), 1),
    (1, 19, (41, 13), (3, 9), (1, 3), (1, 1), (1, 4), (1, 4), 128),
    (3, 53, (7, 7), (4, 4), (1, 1), (1, 1), (0, 0), (0, 0), 0),
]


@needs_dots
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("half", [False, True])
def test_sums_are_exact(case: Any, half: bool) -> None:
    batch, channels, size, kernel, strides, dilations, before, after, fill = case
    rng = np.random.default_rng(channels)
    x = numbers(rng, "uint8", (batch, channels, *size))
    w = numbers(rng, "int8", (channels, 1, *kernel))
    bias = rng.integers(-1000, 1000, (1, channels, *(1 for _ in size))).astype(np.int32)
    wanted = reference(x, w, strides, dilations, (before, after), channels, fill)

    def body(p: Any) -> Any:
        data = relax.op.maximum(p, relax.const(np.array(0, "uint8"), "uint8"))
        y = call(
            "halotile.dot_conv", data, weight(w), strides=strides, dilations=dilations, begin=before,
            output=list(wanted.shape[2:]), groups=channels, fill=fill,
        )  # fmt: skip
        return relax.op.add(y, weight(bias))

    target = narrow(native().vector_bits // 2) if half else native()
    if data_dtype(target) != "uint8":
        pytest.skip("NOT RUN: this machine multiplies no bytes in half a vector")
    build = staged(module_of([x], body), target, tiled=False)
    made = [k for k in build.kernels if k.schedule.startswith("depthwise dot products of bytes")]
    assert len(made) == 1, [k.schedule for k in build.kernels]
    assert any(getattr(o, "name", "").startswith("s_") for o in made[0].operands)  # sums begin with the constant
    compiled = Compiled(build)
    for poison in (0xFF, 0x55):
        (found,) = compiled.run([x], poison=poison)
        np.testing.assert_array_equal(found, wanted + bias)


@needs_dots
@pytest.mark.parametrize("weights", ["float32", "float16", "int8"])
def test_all_packed_bytes_are_told_and_no_other_form_is_taken(weights: str) -> None:
    """What others would compute depthwise layers by assumes that channels meet."""
    x, w = np.zeros((1, 32, 9, 9), "uint8"), np.ones((32, 1, 3, 3), np.int8)

    def body(p: Any) -> Any:
        data = relax.op.maximum(p, relax.const(np.array(0, "uint8"), "uint8"))
        return call(
            "halotile.dot_conv", data, weight(w), strides=[1, 1], dilations=[1, 1], begin=[0, 0], output=[7, 7],
            groups=32, fill=0,
        )  # fmt: skip

    build = staged(module_of([x], body), tiled=False, weights=weights)
    group = next(g for g in build.groups if g.anchor is not None)
    request = Request(group, build.layouts, build.target, build.options.policy)
    choice = chosen(request)
    assert choice is not None and choice.algorithm == "depthwise bytes"
    facts = ConvFacts.of(group.anchor)
    packed = next(o for k in build.kernels for o in k.operands if getattr(o, "name", "").startswith("w_"))
    assert ALGORITHMS[choice.algorithm].stored(request, facts, choice.plan) == packed.data.nbytes == 32 * 3 * 2 * 4
    assert any(getattr(c, "algorithm", "") == choice.algorithm for c in considered(request, facts))


@pytest.mark.sampled
@pytest.mark.parametrize("taps", range(2, 10))
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_words_hold_all_taps_of_their_outputs_and_no_column_beyond(taps: int, stride: int) -> None:
    own = Words(taps, stride)
    for columns in range(1, 12):
        read: dict[int, set[int]] = {}
        for first, outputs, word, held in own.read(columns):
            begin = first * stride + 4 * word
            assert begin + held <= (columns - 1) * stride + taps
            for output in range(first, first + outputs):
                read.setdefault(output, set()).update(range(begin, begin + held))
        assert all(set(range(o * stride, o * stride + taps)) <= read[o] for o in range(columns))
