"""float32 numbers as sums of bfloat16 numbers, whose products a matrix unit adds up in float32.

    x = head + tail (+ rest)        each the nearest bfloat16 to what those before it leave

A part has eight bits, so it leaves at most 2**-8 of its number: half a step of 2**-7, where the number is just above
a power of two (1 + 2**-8). That is a power of two or less than one, and the next part leaves at most half a step of
half of it, 2**-17 of the number; a third one leaves nothing that float32 holds. What products of the parts leave out of
x * y, whose tails are t, u and whose numbers beyond these are r, s:

    three   head * head + head * tail + tail * head             t u + r y + x s - r s:     2**-15 of |x| |y| at most
    six     these, tail * tail, head * rest and rest * head     t s + r u + r s:           2**-24, as float32 itself

(2**-16 + 2 * 2**-17 of |x| |y|, and 2 * 2**-8 * 2**-17; that largest tails and largest rests are of different numbers
makes up for the last terms.) The sums are float32's, and round as those do: by 2**-24 of what is summed, a term.

The unit takes numbers below 2**-126 (1.2e-38) for zero, and makes none. So beyond that bound a term may lack
2**-126 (|x| + |y|), for tails that are so small, and 2**-126 for each of its products and each sum of them: sums of
products near 1e-36 lose digits, and those of smaller ones all. Where |x|, |y| and |x y| are above 1e-29 or zero, that
is less than float32 rounds.

G. Henry, P. T. P. Tang, A. Heinecke: Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
Computations (2019); oneMKL has both as ``float_to_bf16x2`` and ``float_to_bf16x3``.

Infinite numbers become NaN, as do those above 3.39e38; so kernels of ``exact`` builds have none of this.

With precision ``bfloat16`` there is one part, and one product: each number is off by up to 2**-8 of itself. Infinite
numbers stay such, and those above 3.39e38 become so.

A word holds the same part of two numbers, one of each of two vectors of sixteen: pairs of neighbouring vectors, not of
neighbouring numbers, which takes no shuffle (:func:`order`). Where there is one part, numbers stay in their order: what
lies in memory as bfloat16 (schedules/math/bfloat16.py) is then copied as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tvm import tirx

from ..words.policy import Policy
from ..words.tvm_types import Expr
from .amx import COLUMNS, DEPTH, PAIRS

if TYPE_CHECKING:
    from ..emit.builder import KernelBuilder

Products = tuple[tuple[int, int], ...]
ONE: Products = ((0, 0),)  # numbers rounded to bfloat16, where that is allowed
THREE: Products = ((1, 0), (0, 0), (0, 1))  # (part of A, part of B), so that what is in registers is used again
SIX: Products = ((2, 0), (1, 0), (0, 0), (0, 1), (1, 1), (0, 2))
LEFT_OUT = {1: 0.0, len(THREE): 2.0**-15, len(SIX): 2.0**-24}  # of |x| |y| at most, by products; 1: float32's own
WORDS = PAIRS * COLUMNS  # int32 of a register


def parts_of(products: Products) -> int:
    """Parts that each number has."""
    return 1 + max(a for a, _ in products)


def products_of(policy: Policy) -> Products:
    """The products that stand for one of float32."""
    return ONE if policy.precision == "bfloat16" else THREE


def told(products: Products) -> str:
    """Words for a kernel's schedule: ``3 products``."""
    return f"{len(products)} products" if len(products) > 1 else "bfloat16"


def split(k: KernelBuilder, first: Expr, second: Expr | None, count: int) -> list[Expr]:
    """``count`` words (int32) of the parts of two float32 expressions, within a vectorised loop of ``k``. ``second``
    may be None, where there is no number: its half of the words is zero. What is no number stays none: with several
    parts in what a later one has, with one by asking (rounding would carry over into the sign)."""
    words = []
    numbers = [first] if second is None else [first, second]
    for part in range(count):
        bits = [k.bind(_rounded(x, count == 1), "r") for x in numbers]
        high = [b & tirx.const(0xFFFF0000, "uint32") for b in bits]
        word = tirx.shift_right(bits[0], tirx.const(16, "uint32"))
        words.append(k.bind(tirx.reinterpret("int32", word if second is None else word | high[1]), "w"))
        if part + 1 < count:
            numbers = [k.bind(x - tirx.reinterpret("float32", h), "x") for x, h in zip(numbers, high)]
    return words


def _rounded(x: Expr, alone: bool) -> Expr:
    """The bits of a number, of which the upper sixteen are the nearest bfloat16."""
    bits = tirx.reinterpret("uint32", x)
    nearest = bits + tirx.const(0x8000, "uint32")
    if not alone:
        return nearest
    number = (bits & tirx.const(0x7FFFFFFF, "uint32")) <= tirx.const(0x7F800000, "uint32")  # TVM takes x == x for true
    return tirx.Select(number, nearest, bits | tirx.const(0x400000, "uint32"))


def split_array(numbers: np.ndarray, count: int) -> list[np.ndarray]:
    """The ``count`` bfloat16 parts of known float32 numbers, each as the upper 16 bits of a float32 (uint16)."""
    found, left = [], np.ascontiguousarray(numbers, np.float32)
    for _ in range(count):
        bits = left.view(np.uint32)
        high = (np.where(np.isnan(left), bits | np.uint32(0x400000), bits + np.uint32(0x8000))) & np.uint32(0xFFFF0000)
        found.append((high >> np.uint32(16)).astype(np.uint16))
        if len(found) < count:
            left = left - high.view(np.float32)
    return found


def order(depth: int, parts: int = 2) -> np.ndarray:
    """Which term of a sum stands where in A and B: [steps][pair][2], -1 where there is none. Terms come in vectors of
    sixteen, two of which are a step; where there is one part, one behind the other."""
    terms = np.arange(-(-depth // DEPTH) * DEPTH)
    return np.where(terms < depth, terms, -1)[_places(len(terms), parts)]


def order_of_blocks(channels: int, taps: int, parts: int) -> np.ndarray:
    """The order of the terms of a sum over (channel, tap) on the unit, whose steps are a tap of a pair of blocks of
    channels; -1 where there is no term."""
    number = np.arange(-(-channels // DEPTH) * DEPTH)[_places(-(-channels // DEPTH) * DEPTH, parts)][:, None]
    terms = number * taps + np.arange(taps)[None, :, None, None]
    return np.where(number < channels, terms, -1).reshape(-1, PAIRS, 2)


def _places(terms: int, parts: int) -> np.ndarray:
    """Which of the terms of its step stands where: [steps][pair][2]."""
    places = np.arange(terms)
    return places.reshape(-1, PAIRS, 2) if parts == 1 else places.reshape(-1, 2, PAIRS).transpose(0, 2, 1)


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
