"""Convolutions and products of bytes on the matrix unit: which plan is chosen, what meets what, and every sum exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from byte_sums import numbers, reference
from compiled import Compiled, machine, module_of, staged, weight
from halotile.schedules.conv.amx import int8_choose as choose
from halotile.schedules.conv.amx.int8_choose import BytesPlan, held_bytes, plans_of, vector_cycles
from halotile.schedules.conv.amx.int8_kernel import pack_weights
from halotile.schedules.conv.amx.strips import Strip
from halotile.schedules.conv.facts import ConvFacts
from halotile.schedules.instructions.amx import has_matrix_unit
from halotile.schedules.operators.registry import call
from halotile.schedules.words.group import Value
from halotile.targets.resolve import resolve
from tvm import relax

R = relax.op
UNIT = has_matrix_unit(machine(), "amx-int8")
needs_unit = pytest.mark.skipif(not UNIT, reason="NOT RUN: this machine has no matrix unit for bytes")

#  batch, channels, outputs, size, kernel, strides, dilations, before, after, fill
CASES = [
    (1, 64, 32, (14, 14), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0), 0),
    (1, 67, 61, (13, 17), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 117),
    (2, 37, 29, (11, 7), (3, 3), (2, 2), (1, 1), (1, 0), (0, 1), 117),
    (1, 16, 48, (13, 17), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 9),
    (3, 23, 17, (5, 31), (2, 3), (1, 1), (1, 3), (0, 3), (1, 3), 1),
    (2, 3, 24, (19, 23), (7, 7), (2, 2), (1, 1), (3, 3), (3, 3), 127),
    (1, 3, 64, (30, 22), (3, 3), (2, 1), (1, 1), (1, 0), (1, 2), 200),
    (1, 96, 33, (15, 15), (5, 3), (3, 2), (1, 1), (2, 1), (2, 1), 255),
    (2, 128, 64, (7, 7), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 77),
    (1, 512, 40, (3, 3), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 77),
    (1, 50, 80, (28, 28), (3, 3), (1, 1), (4, 4), (4, 4), (4, 4), 3),
    (1, 130, 16, (9, 9), (1, 1), (2, 2), (1, 1), (0, 0), (0, 0), 0),
    (2, 33, 47, (29,), (5,), (1,), (2,), (2,), (1,), 50),
    (2, 19, 33, (23,), (7,), (2,), (1,), (3,), (3,), 100),
]


def convolution(case: Any, seed: int = 0) -> tuple[np.ndarray, Any, np.ndarray]:
    """Data, what a module computes of it, and what that must be: sums, and a number for each output."""
    batch, channels, outputs, size, kernel, strides, dilations, before, after, fill = case
    rng = np.random.default_rng(channels + outputs + seed)
    x, w = numbers(rng, "uint8", (batch, channels, *size)), numbers(rng, "int8", (outputs, channels, *kernel))
    bias = rng.integers(-1000, 1000, (1, outputs, *(1 for _ in size))).astype(np.int32)
    wanted = reference(x, w, strides, dilations, (before, after), 1, fill)

    def body(p: Any) -> Any:
        data = R.maximum(p, relax.const(np.array(0, "uint8"), "uint8"))  # made in blocks, with margins
        y = call(
            "halotile.dot_conv", data, weight(w), strides=strides, dilations=dilations, begin=before,
            output=list(wanted.shape[2:]), groups=1, fill=fill,
        )  # fmt: skip
        return R.add(y, weight(bias))

    return x, body, wanted + bias


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit, whatever the estimate says."""
    monkeypatch.setattr(choose, "MARGIN", float("inf"))


def schedules(build: Any) -> list[str]:
    return [k.schedule for k in build.kernels if "matrix unit" in k.schedule]


@needs_unit
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_convolutions_are_exact(case: Any, workers: int, always: None) -> None:
    x, body, wanted = convolution(case)
    build = staged(module_of([x], body), replace(machine(), cores=workers), tiled=False)
    assert len(schedules(build)) == 1
    np.testing.assert_array_equal(Compiled(build).run([x])[0], wanted)


@needs_unit
@pytest.mark.parametrize("rows", [1, 2, 3, 13])
@pytest.mark.parametrize("columns", [5, 17])
@pytest.mark.parametrize("groups", [1, 2])
def test_strips_of_any_size(rows: int, columns: int, groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, body, wanted = convolution(CASES[1])

    def plans(target: Any, facts: ConvFacts, block: int, workers: int) -> list[BytesPlan]:
        return [BytesPlan(Strip.of(facts, rows, columns), groups, block, facts.channels)]

    monkeypatch.setattr(choose, "plans_of", plans)
    build = staged(module_of([x], body), replace(machine(), cores=2), tiled=False)
    assert f"strip {rows}x{columns}" in schedules(build)[0]
    np.testing.assert_array_equal(Compiled(build).run([x])[0], wanted)


@needs_unit
def test_what_follows_is_in_the_kernel(always: None) -> None:
    """Scales, a residual that is read in its place, and bytes again."""
    x, body, sums = convolution(CASES[8])
    beside = np.random.default_rng(1).integers(0, 256, sums.shape).astype("uint8")
    scale = np.linspace(0.5, 2, sums.shape[1]).astype("float32").reshape(1, -1, 1, 1) / np.float32(4096)

    def whole(p: Any, q: Any) -> Any:
        real = R.add(R.multiply(R.astype(body(p), "float32"), weight(scale)), R.astype(q, "float32"))
        return R.astype(R.clip(R.round(real), 0, 255), "uint8")

    build = staged(module_of([x, beside], whole), machine(), tiled=False)
    (kernel,) = (k for k in build.kernels if "matrix unit" in k.schedule)
    assert kernel.outputs[0].dtype == "uint8"
    exact = np.clip(np.rint(sums * scale.astype("float64") + beside), 0, 255)
    assert np.abs(Compiled(build).run([x, beside])[0].astype(int) - exact).max() <= 1  # float32 rounds at a half


def facts_of(
    channels: int, outputs: int, size: int, kernel: int, stride: int = 1, dilation: int = 1, pad: int = 0
) -> ConvFacts:
    w = np.random.default_rng(0).integers(-128, 128, (outputs, channels, kernel, kernel)).astype("int8")
    out = (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    return ConvFacts(
        Value("x", (1, channels, size, size), "uint8"), Value("w", w.shape, "int8", w),
        Value("y", (1, outputs, out, out), "int32"), (kernel,) * 2, (stride,) * 2, (dilation,) * 2,
        (pad,) * 2, (pad,) * 2, 1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "block", "windows"),
    [
        (facts_of(64, 64, 56, 3, pad=1), 16, 9),
        (facts_of(16, 16, 56, 3, pad=1), 16, 3),  # the taps of a row are 48 bytes
        (facts_of(32, 16, 56, 3, pad=1), 16, 6),
        (facts_of(96, 96, 28, 3, pad=1), 16, 15),
        (facts_of(3, 64, 224, 7, 2, pad=3), 4, 4),  # two rows of taps each: 16 bytes a place
        (facts_of(512, 512, 7, 3, pad=1), 16, 72),
        (facts_of(64, 128, 56, 1, 2), 16, 1),
        (facts_of(37, 19, 21, 3, 2, 3, pad=3), 16, 9),
    ],
)
def test_windows_hold_every_weight_once(facts: ConvFacts, block: int, windows: int) -> None:
    plan = next(iter(plans_of(resolve("x86_64-linux-gnu+sapphirerapids"), facts, block, 1)))
    assert len(plan.windows) == windows
    terms = np.array([w.terms for w in plan.windows])
    used, count = np.unique(terms[terms >= 0], return_counts=True)
    assert (count == 1).all() and len(used) == facts.channels * facts.taps
    packed = pack_weights(facts, plan.windows).view(np.int8).reshape(-1, len(plan.windows), 16, 16, 4)
    weights = np.asarray(facts.weight.constant).reshape(facts.outputs, -1)
    for output in (0, facts.outputs - 1):
        row = packed[output // 16, :, :, output % 16].reshape(len(plan.windows), 64)
        np.testing.assert_array_equal(row[terms >= 0], weights[output][terms[terms >= 0]])
        assert not row[terms < 0].any()


def test_the_plan_is_chosen_by_cycles() -> None:
    """Deep layers take the unit with few, large strips; small rooms smaller ones."""
    target = resolve("x86_64-linux-gnu+sapphirerapids")
    facts = facts_of(64, 64, 56, 3, pad=1)
    plans = list(plans_of(target, facts, 16, 1))
    best = min(plans, key=lambda p: p.cycles)
    assert best.strip.rows >= 14 and best.cycles < 0.4 * vector_cycles(target, facts, 1)
    assert min(held_bytes(p) for p in plans) < held_bytes(best)
    deep = min(plans_of(target, facts_of(512, 512, 7, 3, pad=1), 16, 2), key=lambda p: p.cycles)
    assert (deep.strip.rows, deep.groups) == (7, 2), "each core reads its own weights"


@needs_unit
@pytest.mark.parametrize("switched", [{"layouts": None}, {}], ids=["unit", "other target"])
def test_targets_without_it_keep_vectors(switched: dict[str, Any]) -> None:
    x, body, wanted = convolution(CASES[8])
    target = machine() if switched else replace(machine(), features=(*machine().features, "-amx-int8"))
    build = staged(module_of([x], body), target, tiled=False)
    assert bool(schedules(build)) == bool(switched)
    np.testing.assert_array_equal(Compiled(build).run([x])[0], wanted)


SHAPES = [(16, 64, 16), (17, 63, 31), (49, 130, 65), (128, 384, 384), (33, 1031, 100), (200, 64, 48), (31, 257, 95)]


@needs_unit
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_products_are_exact(
    shape: tuple[int, int, int], workers: int, batch: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    from halotile.schedules.matmul import amx_int8

    monkeypatch.setattr(amx_int8, "MARGIN", float("inf"))
    m, k, n = shape
    rng = np.random.default_rng(m + k + n)
    a, b = numbers(rng, "uint8", (*batch, m, k)), numbers(rng, "int8", (k, n))
    target = replace(machine(), cores=workers)
    build = staged(module_of([a], lambda x: R.matmul(x, weight(b), out_dtype="int32")), target)
    (kernel,) = build.kernels
    assert kernel.schedule.startswith("matmul of bytes packed, matrix unit")
    assert ("rows copied" in kernel.schedule) == (k % 64 > 0)
    np.testing.assert_array_equal(Compiled(build).run([a])[0], a.astype(np.int32) @ b.astype(np.int32))


@needs_unit
def test_few_rows_are_left_to_vectors() -> None:
    rng = np.random.default_rng(0)
    a, b = numbers(rng, "uint8", (4, 512)), numbers(rng, "int8", (512, 1000))
    (kernel,) = staged(module_of([a], lambda x: R.matmul(x, weight(b), out_dtype="int32")), machine()).kernels
    assert "matrix" not in kernel.schedule
