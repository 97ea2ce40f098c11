"""Multiply-adds that repeat an element of a vector register in all lanes, as 64-bit ARM has them.

    ldr h0, [x]; fmla v1.8h, v2.8h, v0.h[0]          a load for each number that is repeated
    ldr q0, [x]; fmla v1.8h, v2.8h, v0.h[0 .. 7]     one for eight neighbours, which lie in a register meanwhile

A register tile of float16 takes a load for every two to four multiply-adds otherwise, and cores begin four instructions
in a cycle of which two are to be multiply-adds. Of 64 channels at 56 x 56 in float16 a 1x1 layer takes 1.2 instructions
a multiply-add so, and 1.9 with a load for each number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tvm import tirx

from ...targets.target import Target
from .load_order import keep_loads
from .prefetch import LINE

if TYPE_CHECKING:
    from ..emit.builder import KernelBuilder
    from ..words.tvm_types import Buffer, Expr

FREE = 2  # registers for what the elements are multiplied by, on its way
MOST = 8  # registers of elements: multiply-adds of float16 take those of the lower sixteen, which sums lie in as well


def takes_elements(target: Target, dtype: str) -> bool:
    """True where register tiles hold vectors of what they repeat. Cores that execute in order have no registers for
    that beside loads on their way, and in float32 a vector has half as many elements."""
    return target.is_aarch64 and not target.in_order and dtype == "float16"


def most_rows(target: Target, vectors: int) -> int:
    """Rows of a tile of ``vectors``: each has its accumulators, and a register of what is repeated."""
    return min(MOST, (target.vector_registers - FREE) // (vectors + 1))


def multiply_elements(
    k: KernelBuilder, target: Target, acc: Buffer, element: Callable[[int], Expr], weights: Callable[[Expr], Expr],
    tile: tuple[int, int, int],
) -> None:  # fmt: skip
    """Adds to ``acc``, a ``tile`` of (rows, vectors, lanes), the products of an ``element`` for each row by
    ``weights``, given by their number in a row of the tile. As many vectors of weights are loaded together as have
    registers."""
    rows, vectors, lanes = tile
    for b in range(vectors):
        if b % FREE == 0:
            keep_loads(k, target)
        for row in range(rows):
            with k.loop(lanes, "vectorized", "v") as v:
                slot = (row * vectors + b) * lanes + v
                k.store(acc, slot, acc[slot] + element(row) * weights(b * lanes + v))


@contextmanager
def each_line(k: KernelBuilder, step: Expr, apart: int) -> Iterator[None]:
    """What is in it happens for those of a loop's steps, which is written out, whose hints begin another line, where
    these lie ``apart`` bytes from one to the next. The other lines have been asked for."""
    with k.when(tirx.EQ(tirx.floormod(step, max(1, LINE // max(1, apart))), 0)):
        yield


def at_new_lines(k: KernelBuilder, step: Expr, apart: int, ask: Callable[[int], None]) -> None:
    """``ask`` for the bytes of each of a loop's steps, which is written out, at which a line begins, where steps lie
    ``apart`` bytes from one to the next and the first at a line: 12 lines of eight steps of 96 bytes."""
    for offset in range(0, apart, math.gcd(apart, LINE)):
        with k.when(tirx.EQ(tirx.floormod(step * apart + offset, LINE), 0)):
            ask(offset)
