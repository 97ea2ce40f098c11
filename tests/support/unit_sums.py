"""The matrix unit's arithmetic in NumPy: sums of products of bfloat16 parts, for machines that have no such unit.

A multiply-add of the unit takes 32 terms as sixteen pairs. The first of each pair make one chain of fused multiply-adds
in float32, the second another, and their sum is added to what is there. What lies below the normal numbers is zero,
read or written.
"""

from __future__ import annotations

import numpy as np
from halotile.schedules.instructions.bf16_parts import order, parts_of, split_array

LOST = 2.0**-126


def unit_product(a: np.ndarray, b: np.ndarray, products: tuple[tuple[int, int], ...]) -> np.ndarray:
    """A @ B of float32, [M, K] and [K, N]."""
    terms = order(a.shape[1])
    rows, columns = (
        [_flushed(_number(p)) for p in split_array(_padded(m), parts_of(products))] for m in (a, b.T)
    )
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for step in terms:
        for i, j in products:
            chains = [np.zeros_like(total), np.zeros_like(total)]
            for pair in step:
                for half, term in enumerate(pair):
                    product = np.multiply.outer(rows[i][:, term], columns[j][:, term])
                    chains[half] = _flushed((chains[half] + product).astype(np.float32))
            total = _flushed(total + _flushed(chains[0] + chains[1]))
    return total


def _padded(m: np.ndarray) -> np.ndarray:
    """With a last column of zeros, for terms of -1."""
    return np.concatenate([m, np.zeros((m.shape[0], 1), np.float32)], 1)


def _number(part: np.ndarray) -> np.ndarray:
    """In float64, in which products of parts are exact."""
    return (part.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def _flushed(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < LOST, x.dtype.type(0), x)
