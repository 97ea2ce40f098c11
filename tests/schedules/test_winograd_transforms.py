"""Winograd's transforms: matrices, the short chains that apply them, packed weights, and the bound of errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, module_of, staged
from halotile.schedules.conv.winograd import algorithm as winograd_algorithm
from halotile.schedules.conv.winograd.transform import F2, F4, F6, Transform, error_bound
from halotile.schedules.conv.winograd.weights import pack_weights
from winograd_layers import conv, convolution, plans_of, random

UNSTRIDED = pytest.mark.parametrize("t", [F2, F4, F6], ids=["F2", "F4", "F6"])


@UNSTRIDED
def test_the_matrices_convolve(t: Transform) -> None:
    d, w, a = random(t.extents, 1).astype(np.float64), random((3, 3), 2).astype(np.float64), t.across
    y = a.result @ ((a.weights @ w @ a.weights.T) * (a.data @ d @ a.data.T)) @ a.result.T
    np.testing.assert_allclose(y, convolution(d[None, None], w[None, None], (0, 0, 0, 0))[0, 0], atol=1e-12)


@UNSTRIDED
def test_the_short_chains_are_the_matrices(t: Transform) -> None:
    d = list(np.eye(t.across.extent))
    number: Callable[[float], float] = float
    np.testing.assert_array_equal(np.array(t.across.apply_data(d, number, lambda v: v)), t.across.data)
    np.testing.assert_array_equal(np.array(t.across.apply_result(d, number, lambda v: v)), t.across.result)


@UNSTRIDED
def test_packed_weights_are_rounded_once(t: Transform) -> None:
    w = random((21, 5, 3, 3), 3)
    packed = pack_weights(w, t, chunks=2, width=16)
    exact = np.einsum("ay,oiyx,bx->iabo", t.across.weights, w.astype(np.float64), t.across.weights)
    exact = exact.reshape(5, t.products, 21).transpose(1, 0, 2)
    got = packed.transpose(1, 2, 0, 3).reshape(t.products, 5, 32)
    np.testing.assert_allclose(got[:, :, :21], exact, rtol=2.0**-24, atol=1e-18)
    assert not got[:, :, 21:].any()


def adversarial(
    t: Transform, channels: int, outputs: int, size: int, rng: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Data and weights whose signs follow the largest rows of BT and G, so that intermediate values are as large as
    they can be and cancel in the result."""
    row, column = rng.integers(0, t.across.extent, 2)
    sign = lambda v: np.where(v == 0, 1.0, np.sign(v))  # noqa: E731
    tile = np.outer(sign(t.across.data[row]), sign(t.across.data[column]))
    reps = -(-size // t.across.m) + 1
    x = np.tile(tile[: t.across.m, : t.across.m], (reps, reps))[:size, :size]
    x[: t.across.extent, : t.across.extent] = tile
    data = (
        x * rng.choice([-1.0, 1.0], (1, channels, 1, 1)) * (1 - 1e-3 * rng.random((1, channels, size, size)))
    )
    w = np.outer(sign(t.across.weights[row]), sign(t.across.weights[column])) * rng.choice(
        [-1.0, 1.0], (outputs, channels, 1, 1)
    )
    return data.astype(np.float32), (w * (1 - 1e-3 * rng.random((outputs, channels, 3, 3)))).astype(
        np.float32
    )


@UNSTRIDED
def test_error_bound(t: Transform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the stated bound on adversarial data; on random data within 2e-6 (F2), 2e-5 (F4) and 4e-5 (F6) of the
    largest output, and not more than 3, 40 and 80 times a direct convolution's error."""
    monkeypatch.setattr(winograd_algorithm, "choose_plan", plans_of(t, 0))
    rng = np.random.default_rng(9)
    cases = [adversarial(t, 64, 32, 14, rng) for _ in range(4)]
    cases.append((random((1, 64, 14, 14), 5), random((32, 64, 3, 3), 6) / np.float32(24)))
    cases.append((random((1, 64, 14, 14), 7) + 3, random((32, 64, 3, 3), 8) / np.float32(24)))

    def body(*xs: Any) -> list[Any]:
        return [conv(x, w, (0, 0, 0, 0)) for x, (_, w) in zip(xs, cases)]

    arrays = [x for x, _ in cases]
    module = module_of(arrays, body)
    results = Compiled(staged(module)).run(arrays)
    monkeypatch.setattr(winograd_algorithm, "choose_plan", lambda target, facts, **_: None)
    direct = Compiled(staged(module)).run(arrays)
    for i, ((x, w), y, z) in enumerate(zip(cases, results, direct)):
        exact = convolution(x, w, (0, 0, 0, 0))
        error, plain = np.abs(y - exact).max(), np.abs(z - exact).max()
        assert 0 < error <= error_bound(t, 64) * np.abs(x).max() * np.abs(w).max() * 64
        if i >= 4:
            share, times = {2: (2e-6, 3), 4: (2e-5, 40), 6: (4e-5, 80)}[t.across.m]
            assert error <= share * np.abs(exact).max()
            assert error <= times * plain
