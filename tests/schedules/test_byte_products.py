"""Products of bytes by the target's instruction, against sums of NumPy's integers, of which every bit has to agree."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, module_of, narrow, native, staged, weight
from halotile.schedules.instructions.int8_dot import PAIRS, data_dtype
from halotile.schedules.matmul.facts import MatmulFacts
from halotile.schedules.matmul.int8_dot import build_bytes
from halotile.schedules.words.group import Request
from halotile.schedules.words.policy import Policy
from tvm import relax

R = relax.op
DATA = data_dtype(native())
pytestmark = pytest.mark.skipif(DATA is None, reason="NOT RUN: this machine has no instruction for products of bytes")

SHAPES = [  # rows (with the batch before them), K, N
    *(((m,), k, n) for m, k, n in ((1, 1, 2), (3, 2, 5), (2, 3, 17), (5, 4, 16), (7, 5, 31), (13, 6, 33), (11, 7, 47))),
    *(((m,), k, n) for m, k, n in ((17, 8, 67), (29, 9, 3), (1, 257, 509), (1, 4096, 300), (61, 127, 131))),
    *(((m,), k, n) for m, k, n in ((128, 384, 192), (131, 1031, 257), (16, 9000, 160), (67, 20011, 48))),
    ((3, 5), 19, 23),
    ((2, 1, 7), 64, 40),
    ((2, 3, 43), 96, 200),
]


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Random bytes, half of them the ends of the range: sums of two products leave 16 bits."""
    rng = np.random.default_rng(seed)
    ends = (-255, 255) if dtype == PAIRS else (np.iinfo(dtype).min, np.iinfo(dtype).max)  # pairs: bytes less a zero
    some = rng.integers(ends[0], ends[1] + 1, shape)
    return np.where(rng.random(shape) < 0.5, some, rng.choice(ends, shape)).astype(dtype)


def product(a: Any, b: np.ndarray) -> Any:
    return R.matmul(a, weight(b), out_dtype="int32")


def case(i: int, dtype: str | None = DATA) -> tuple[np.ndarray, np.ndarray]:
    rows, k, n = SHAPES[i]
    return drawn((*rows, k), str(dtype), i), drawn((k, n), "int8", i + 100)


@pytest.mark.parametrize("i", range(len(SHAPES)))
def test_equals_integers(i: int) -> None:
    a, b = case(i)
    build = staged(module_of([a], lambda x: product(x, b)))
    (kernel,) = build.kernels
    assert kernel.schedule.startswith("matmul of bytes packed")
    (found,) = Compiled(build).run([a])
    assert np.array_equal(found, a.astype(np.int32) @ b.astype(np.int32))


def steps(n: int) -> np.ndarray:
    return np.linspace(0.5, 2, n).astype("float32") / np.float32(1 << 16)


def dequantised(y: Any, n: int) -> Any:
    return R.multiply(R.astype(y, "float32"), weight(steps(n)))


@pytest.mark.parametrize("i", [2, 6, 11, 14, 16, 18])
def test_whatever_follows_is_in_the_kernel(i: int) -> None:
    """A bias, a residual, and bytes again beside the numbers; functions of each element."""
    a, b = case(i)
    n, rng = b.shape[1], np.random.default_rng(i)
    bias = rng.standard_normal(n).astype("float32")
    beside = rng.standard_normal((*a.shape[:-1], n)).astype("float32")

    def body(x: Any, other: Any) -> list[Any]:
        total = product(x, b)
        real = R.add(R.add(dequantised(total, n), weight(bias)), other)
        again = R.astype(R.clip(R.round(R.multiply(real, relax.const(np.float32(9)))), -128, 127), "int8")
        return [real, again]

    def calls(x: Any) -> Any:
        return R.tanh(R.nn.gelu(dequantised(product(x, b), n)))

    build = staged(module_of([a, beside], body))
    assert [k.schedule[:15] for k in build.kernels] == ["matmul of bytes"]
    real, again = Compiled(build).run([a, beside])
    sums = a.astype(np.int64) @ b.astype(np.int64)
    wanted = sums * steps(n).astype(np.float64) + bias + beside
    np.testing.assert_allclose(real, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
    np.testing.assert_array_equal(again, np.clip(np.rint(real * np.float32(9)), -128, 127))
    build = staged(module_of([a], calls))
    assert [k.schedule[:15] for k in build.kernels] == ["matmul of bytes"]
    (found,) = Compiled(build).run([a])
    x = sums * steps(n).astype(np.float64)
    gelu = x * 0.5 * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))
    np.testing.assert_allclose(found, np.tanh(gelu), rtol=1e-4, atol=1e-5)


@pytest.mark.sampled
@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("i", range(0, len(SHAPES), 3))
def test_vectors_of_half_the_length(i: int, bits: int) -> None:
    target = narrow(bits)
    if bits > native().vector_bits or data_dtype(target) is None:
        pytest.skip("NOT RUN: this machine has no instruction of this length")
    a, b = case(i, data_dtype(target))
    build = staged(module_of([a], lambda x: product(x, b)), target)
    (kernel,) = build.kernels
    assert kernel.schedule.startswith("matmul of bytes")
    assert f"x{bits // 32}" in kernel.schedule or "matrix unit" in kernel.schedule
    (found,) = Compiled(build).run([a])
    assert np.array_equal(found, a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("tile", [(1, 1), (2, 3), (5, 2), (13, 2), (6, 4), (3, 8)])
def test_every_tile_gives_the_same(tile: tuple[int, int]) -> None:
    """Those that tuning tries."""
    for i in (5, 12, 15):
        a, b = case(i)
        build = staged(module_of([a], lambda x, b=b: product(x, b)), tiled=False)
        request = Request(build.groups[0], build.layouts, build.target, Policy(threads=2))
        facts = MatmulFacts.of(build.groups[0].anchor)
        vectors = -(-facts.n // build.target.lanes("int32"))
        kernel = build_bytes(request, facts, (min(tile[0], facts.rows), min(tile[1], vectors)))
        build.kernels = (kernel,)
        (found,) = Compiled(build).run([a])
        assert np.array_equal(found, a.astype(np.int32) @ b.astype(np.int32))
