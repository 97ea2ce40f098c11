"""What products of bfloat16 parts leave out, with the worst operands, by a model of the unit's arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from halotile.schedules.conv.winograd.plan import products_for
from halotile.schedules.conv.winograd.transform import F2, F4, F6, S2, S4, Transform, error_bound
from halotile.schedules.instructions.bf16_parts import LEFT_OUT, SIX, THREE, split_array
from unit_sums import LOST, unit_product

WORST = np.uint32(0x3F808040).view(np.float32)  # 1.0039139: half a step of eight bits, and half a step of its tail


def test_parts_leave_no_more_than_they_say() -> None:
    """All numbers of one power of two: 2**-8 of the number, 2**-17, nothing."""
    x = np.arange(0x3F800000, 0x40000000, dtype=np.uint32).view(np.float32)
    head, tail, rest = ((p.astype(np.uint32) << np.uint32(16)).view(np.float32) for p in split_array(x, 3))
    assert np.array_equal((x - head) - tail, rest)
    assert (np.abs(tail) <= 2.0**-8 * x).all() and (np.abs(rest) <= 2.0**-17 * x).all()
    t, r = (np.abs(v).astype(np.float64) / x for v in (tail, rest))
    three = t.max() ** 2 + 2 * r.max()
    assert 0.98 * 2.0**-15 < three + r.max() ** 2 < 2.0**-15
    assert 2 * t.max() * r.max() + r.max() ** 2 < 2.0**-24


def operands(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = (5, 200), (200, 7)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in shapes)
    if kind == "worst":
        a[...], b[...] = WORST, WORST
    if kind in ("fifteen orders", "eighteen orders"):
        half = {"fifteen orders": 7.5, "eighteen orders": 9}[kind]
        a, b = (np.exp2(rng.uniform(-half, half, s)).astype(np.float32) for s in shapes)
    if kind == "worst of all sizes":
        a, b = (np.ldexp(WORST * rng.choice([-1, 1], s), rng.integers(-30, 30, s)).astype(np.float32) for s in shapes)
    if kind == "cancelling":
        a[:, 100:], b[100:] = -a[:, :100], b[:100] * np.float32(1 + 2.0**-9)
    if kind == "tiny":
        a, b = a * np.float32(1e-18), b * np.float32(1e-18)
    if kind == "tiny and huge":
        a, b = a * np.float32(1e-36), b * np.float32(1e30)
    if kind == "denormal":
        a = a * np.float32(1e-38)
    return a, b


KINDS = ("normal", "worst", "fifteen orders", "eighteen orders", "worst of all sizes", "cancelling")
SMALL = ("tiny", "tiny and huge", "denormal")


@pytest.mark.parametrize("products", [THREE, SIX], ids=["three", "six"])
def test_sums_stay_within_the_bound(products: tuple[tuple[int, int], ...]) -> None:
    """What is left out of each product, what sums round, and what lies below the unit's numbers."""
    for seed, kind in enumerate((*KINDS, *SMALL)):
        a, b = operands(kind, seed)
        wide = [np.abs(m).astype(np.float64) for m in (a, b)]
        size, terms = wide[0] @ wide[1], len(products) * a.shape[1]
        lost = LOST * (wide[0].sum(1)[:, None] + wide[1].sum(0) + 2 * terms)
        error = np.abs(unit_product(a, b, products) - a.astype(np.float64) @ b.astype(np.float64))
        assert (error <= (LEFT_OUT[len(products)] + terms * 2.0**-24) * size + lost).all(), kind
        if products is THREE and kind in KINDS:
            assert (error <= 1.01 * 2.0**-15 * size).all(), kind
        if products is THREE and kind == "worst":
            assert (error > 0.97 * 2.0**-15 * size).all()
        if products is SIX and kind in KINDS:
            assert (error <= 2.0**-20 * size).all(), kind


@pytest.mark.parametrize("t", [F2, F4, F6, S2, S4], ids=["F2", "F4", "F6", "S2", "S4"])
def test_winograd_products_stay_within_theirs(t: Transform) -> None:
    """Both transforms in float32, all matrices' products in parts, signs that follow the largest rows."""
    channels, outputs, products = 48, 5, products_for(t)
    rng, down, across = np.random.default_rng(3), t.down, t.across
    bound = error_bound(t, channels, len(products)) * channels
    assert error_bound(t, channels, 3) > 2.0**-15 * t.growth
    for i in range(2):
        row, column = rng.integers(0, across.extent, 2)
        sign = np.outer(_sign(down.data[row]), _sign(across.data[column]))
        x = sign * rng.choice([-1.0, 1.0], (channels, 1, 1)) * WORST
        w = rng.choice([-1.0, 1.0], (outputs, channels, *t.kernel)) * WORST
        if i:
            x, w = rng.standard_normal(x.shape), rng.standard_normal(w.shape)
        x, w = x.astype(np.float32), w.astype(np.float32)
        u = t.transform_weights(w).astype(np.float32)
        left, right = down.data.astype(np.float32), across.data.astype(np.float32)
        v = np.einsum("ij,cjk,lk->ilc", left, x, right).astype(np.float32).reshape(-1, channels)
        own = [min(i, down.rows - 1) * across.rows + min(j, across.rows - 1) for i, j in np.ndindex(*t.extents)]
        m = np.stack([unit_product(v[k : k + 1], u[own[k]], products)[0] for k in range(len(v))])
        m = m.reshape(down.extent, across.extent, outputs)
        y = np.einsum("ij,jko,lk->oil", down.result.astype(np.float32), m, across.result.astype(np.float32))
        wide = x.astype(np.float64), w.astype(np.float64)
        right_ = np.zeros(y.shape)
        for p in range(t.down.m):
            for q in range(t.across.m):
                window = wide[0][:, p * down.stride :, q * across.stride :][:, : t.kernel[0], : t.kernel[1]]
                right_[:, p, q] = np.einsum("cij,ocij->o", window, wide[1])
        assert np.abs(y - right_).max() <= bound * np.abs(x).max() * np.abs(w).max()


def _sign(row: np.ndarray) -> np.ndarray:
    return np.where(np.asarray(row, np.float64) < 0, -1.0, 1.0)
