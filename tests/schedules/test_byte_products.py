"""Products of bytes by the target's instruction, against sums of NumPy's integers, of which every bit has to agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import Compiled, module_of, native, staged, weight
from halotile.schedules.dots import data_dtype
from tvm import relax

R = relax.op
DATA = data_dtype(native())
pytestmark = pytest.mark.skipif(DATA is None, reason="this machine has no instruction for products of bytes")

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
    rng, limits = np.random.default_rng(seed), np.iinfo(dtype)
    some = rng.integers(limits.min, limits.max + 1, shape)
    ends = rng.choice([limits.min, limits.max], shape)
    return np.where(rng.random(shape) < 0.5, some, ends).astype(dtype)


def product(a: Any, b: np.ndarray) -> Any:
    return R.matmul(a, weight(b), out_dtype="int32")


def case(i: int) -> tuple[np.ndarray, np.ndarray]:
    rows, k, n = SHAPES[i]
    return drawn((*rows, k), str(DATA), i), drawn((k, n), "int8", i + 100)


@pytest.mark.parametrize("i", range(len(SHAPES)))
def test_equals_integers(i: int) -> None:
    a, b = case(i)
    build = staged(module_of([a], lambda x: product(x, b)))
    (kernel,) = build.kernels
    assert kernel.schedule.startswith("matmul of bytes packed")
    (found,) = Compiled(build).run([a])
    assert np.array_equal(found, a.astype(np.int32) @ b.astype(np.int32))
