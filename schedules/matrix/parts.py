"""float32 numbers as sums of bfloat16 numbers, whose products a matrix unit adds up in float32.

    x = head + tail (+ rest)        each the nearest bfloat16 to what those before it leave

An eight-bit part leaves at most 2**-9 of its number, two leave 2**-18, three nothing that float32 holds. Of the
products of the parts those below what is left out count for nothing:

    three   head * head + head * tail + tail * head             2**-16 of |x| |y| at most: as F(4x4, 3x3) in float32
    six     these, tail * tail, head * rest and rest * head     2**-23: as products of float32

G. Henry, P. T. P. Tang, A. Heinecke: Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
Computations (2019); oneMKL has both as ``float_to_bf16x2`` and ``float_to_bf16x3``.

Infinite numbers become NaN, as do those above 3.39e38, and parts below 1e-38 count as zero; so kernels of ``exact``
builds have none of this.

A word holds the same part of two numbers, one of each of two vectors of sixteen: pairs of neighbouring vectors, not of
neighbouring numbers, which takes no shuffle (:func:`order`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx

from .unit import COLUMNS, DEPTH, PAIRS

THREE = ((1, 0), (0, 0), (0, 1))  # (part of A, part of B), so that what is in registers is used again
SIX = ((2, 0), (1, 0), (0, 0), (0, 1), (1, 1), (0, 2))
WORDS = PAIRS * COLUMNS  # int32 of a register


def parts_of(products: tuple[tuple[int, int], ...]) -> int:
    """Parts that each number has."""
    return 1 + max(a for a, _ in products)


def split(k: Any, first: Any, second: Any, count: int) -> list[Any]:
    """``count`` words (int32) of the parts of two float32 expressions, within a vectorised loop of ``k``. ``second``
    may be None, where there is no number: its half of the words is zero."""
    words = []
    numbers = [first] if second is None else [first, second]
    for part in range(count):
        bits = [k.bind(tirx.reinterpret("uint32", x) + tirx.const(0x8000, "uint32"), "r") for x in numbers]
        high = [b & tirx.const(0xFFFF0000, "uint32") for b in bits]
        word = tirx.shift_right(bits[0], tirx.const(16, "uint32"))
        words.append(k.bind(tirx.reinterpret("int32", word if second is None else word | high[1]), "w"))
        if part + 1 < count:
            numbers = [k.bind(x - tirx.reinterpret("float32", h), "x") for x, h in zip(numbers, high)]
    return words


def split_array(numbers: np.ndarray, count: int) -> list[np.ndarray]:
    """The same ``count`` parts of float32 numbers, each as the upper 16 bits of a float32 (uint16)."""
    found, left = [], np.ascontiguousarray(numbers, np.float32)
    for _ in range(count):
        high = (left.view(np.uint32) + np.uint32(0x8000)) & np.uint32(0xFFFF0000)
        found.append((high >> np.uint32(16)).astype(np.uint16))
        left = left - high.view(np.float32)
    return found


def order(depth: int) -> np.ndarray:
    """Which term of a sum stands where in A and B: [steps][pair][2], -1 where there is none. Terms come in vectors of
    sixteen, two of which are a step."""
    steps = -(-depth // DEPTH)
    terms = np.arange(steps * DEPTH).reshape(steps, 2, PAIRS).transpose(0, 2, 1)
    return np.where(terms < depth, terms, -1)


def pack(matrix: np.ndarray, terms: np.ndarray, count: int) -> np.ndarray:
    """B, float32 [K, N], as registers: int32 [N / 16][step][part][WORDS], zeros for columns past the last and for terms
    of -1. ``terms``: [steps][pair][2], as :func:`order` gives them."""
    depth, columns = matrix.shape
    blocks = -(-columns // COLUMNS)
    whole = np.zeros((depth + 1, blocks * COLUMNS), np.float32)  # the last row, -1, is zero
    whole[:depth, :columns] = matrix
    taken = whole[terms].reshape(len(terms), PAIRS, 2, blocks, COLUMNS)  # [step][pair][half][block][column]
    packed = np.stack([p.transpose(3, 0, 1, 4, 2) for p in split_array(taken, count)], axis=2)
    return np.ascontiguousarray(packed).view("<i4").reshape(blocks, len(terms), count, WORDS)
