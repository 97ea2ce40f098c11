"""Winograd convolutions against float64: transforms, plans that differ, epilogues; equal bits however tasks run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from compiled import Compiled, Suite, module_of, native, staged, weight
from halotile.schedules.conv.winograd import algorithm as winograd_algorithm
from halotile.schedules.conv.winograd.kernel import STACK_BYTES
from halotile.schedules.conv.winograd.transform import F2, F4, F6, Transform
from halotile.schedules.words.group import Scratch
from tvm import relax
from winograd_layers import Pads, conv, convolution, plans_of, random

R = relax.op

# batch, input channels, output channels, height, width, padding: primes, tails of vectors, extents near the tile's
SHAPES: dict[str, tuple[int, int, int, int, int, Pads]] = {
    "even": (1, 32, 32, 16, 16, (1, 1, 1, 1)),
    "prime": (1, 17, 23, 13, 19, (1, 1, 1, 1)),
    "unpadded": (1, 48, 16, 11, 14, (0, 0, 0, 0)),
    "asymmetric": (1, 20, 37, 9, 10, (2, 0, 1, 3)),
    "one_sided": (1, 16, 16, 10, 10, (0, 2, 2, 0)),
    "batch": (2, 33, 50, 7, 9, (1, 1, 1, 1)),
    "batch_of_tiles": (3, 16, 48, 4, 4, (1, 1, 1, 1)),
    "one_tile": (1, 100, 64, 4, 4, (1, 1, 1, 1)),
    "long": (1, 16, 16, 5, 83, (1, 1, 1, 1)),
    "deep": (1, 100, 96, 6, 7, (1, 1, 1, 1)),
    "few_channels": (1, 5, 3, 8, 12, (1, 1, 1, 1)),
    "five_blocks": (1, 16, 80, 12, 12, (1, 1, 1, 1)),
}


MANY = {"F4": (F4, 0), "F4-other-plans": (F4, 11), "F2": (F2, 3), "F6": (F6, 1), "F6-other-plans": (F6, 6)}


@pytest.fixture(scope="module", params=MANY.values(), ids=MANY.keys())
def forced(request) -> tuple[Transform, int]:
    return request.param


@pytest.fixture(scope="module")
def suite(forced: tuple[Transform, int]) -> Suite:
    """Every shape, alone and with epilogues, compiled by one transform and compared with float64; extents of less than
    a tile of it are one."""
    suite = Suite()
    for i, (name, (n, cin, cout, h, w, pads)) in enumerate(SHAPES.items()):
        h, w = max(h, forced[0].across.m), max(w, forced[0].across.m)
        x, k = random((n, cin, h, w), i), random((cout, cin, 3, 3), 100 + i) / np.float32(3 * np.sqrt(cin))
        y = convolution(x, k, pads)
        suite.add(name, [x], lambda x, k=k, pads=pads: conv(x, k, pads), y.astype(np.float32), 0, 1e-4)
    add_epilogues(suite)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd_algorithm, "choose_plan", plans_of(*forced))
        suite.compile()
    return suite


def add_epilogues(suite: Suite) -> None:
    x, k = random((1, 24, 10, 13), 50), random((40, 24, 3, 3), 51) / np.float32(15)
    r, b = random((1, 40, 10, 13), 52), random((1, 40, 1, 1), 53)
    y = convolution(x, k, (1, 1, 1, 1)) + b
    f32 = np.float32
    suite.add(
        "residual",
        [x, r],
        lambda x, r: R.nn.relu(conv(x, k) + weight(b) + r),
        np.maximum(y + r, 0).astype(f32),
        0,
        1e-4,
    )
    suite.add(
        "silu", [x], lambda x: R.nn.silu(conv(x, k) + weight(b)), (y / (1 + np.exp(-y))).astype(f32), 0, 1e-4
    )
    second = random((16, 40, 3, 3), 54) / np.float32(20)
    inner = np.maximum(y, 0)
    suite.add(
        "margins",
        [x],
        lambda x: conv(R.nn.relu(conv(x, k) + weight(b)), second, (2, 1, 0, 1)),
        convolution(inner, second, (2, 1, 0, 1)).astype(f32),
        0,
        2e-4,
    )


CASES = [*SHAPES, "residual", "silu", "margins"]


@pytest.mark.parametrize("name", CASES)
def test_equals_float64(suite: Suite, forced: tuple[Transform, int], name: str) -> None:
    suite.check(name)
    m = forced[0].across.m
    assert any(f"winograd F({m}x{m},3x3)" in s for s in suite.schedules(name)), suite.schedules(name)


def test_the_bits_do_not_depend_on_the_tasks(suite: Suite) -> None:
    arrays = [a for case in suite.cases.values() for a in case.arrays]
    assert suite.compiled is not None
    once = suite.compiled.run(arrays, tasks=1)
    for tasks, poison in ((2, 0xFF), (3, 0x7F), (64, 0)):
        for a, b in zip(once, suite.compiled.run(arrays, tasks=tasks, poison=poison)):
            np.testing.assert_array_equal(a.view(np.int32), b.view(np.int32))


def test_the_plan_has_scratch_for_every_core(suite: Suite) -> None:
    """Large scratch lies in the arena (which the other tests poison and guard), a part for each core; none is taken
    beside it."""
    assert suite.compiled is not None
    kernels = [k for k in suite.compiled.build.kernels if "winograd" in k.schedule]
    assert kernels and all(k.workspace == 0 for k in kernels)
    scratch = [(k, o) for k in kernels for o in k.operands if isinstance(o, Scratch)]
    assert scratch and all(o.bytes > STACK_BYTES for _, o in scratch)
    memory = suite.compiled.build.memory
    assert memory is not None and all(memory.offsets[o] + o.bytes <= memory.planned_bytes for _, o in scratch)


@pytest.mark.parametrize("bits", [128, 256])
def test_shorter_vectors(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winograd_algorithm, "choose_plan", plans_of(F4, 5))
    target = replace(native(), vector_bits=bits, vector_registers=16)
    x, k = random((1, 18, 11, 13), 1), random((21, 18, 3, 3), 2) / np.float32(12)
    compiled = Compiled(staged(module_of([x], lambda x: conv(x, k)), target))
    np.testing.assert_allclose(compiled.run([x])[0], convolution(x, k, (1, 1, 1, 1)), rtol=0, atol=1e-4)
