"""Register tiles of an attention's products in float16, whose sums go on in float32.

    for run of SPAN terms
      acc[r][v] += left[row r, term] * right[panel][term][v]        float16, elements of rows by lanes where there are
      sums[r][v] += float32(acc[r][v])                              float32(acc) as it is, of the last run, or one

Scores of a depth of 64, and rows of up to 128 keys, are one run.
"""

from __future__ import annotations

from ...targets.target import Target
from ..kernel.context import Context
from ..kernel.half_sums import HalfSums, in_runs
from ..math.float16 import Widened
from ..matmul.row_elements import each_group, multiply_rows
from ..words.tvm_types import Buffer, Expr
from .panels import by_elements

HALF = "float16"


def half_sums(
    ctx: Context, target: Target, acc: Buffer, rows: tuple[Buffer, Expr, Expr], right: tuple[Buffer, Expr, int],
    tile: tuple[int, int, int], terms: int,
) -> HalfSums | Widened:  # fmt: skip
    """What reads as the float32 sums of ``terms`` products, of which ``acc`` has zeros, a ``tile`` of (rows, vectors,
    lanes). ``rows``: the left operand, where the first row begins, and how far the next lies behind; ``right``: its
    panel, where that begins, and elements from a step of it to the next."""
    k, (height, vectors, lanes) = ctx.k, tile
    (left, first, apart), (panel, begin, size) = rows, right

    def multiply(step: Expr, count: int = 1) -> None:
        at = begin + step * size
        if count > 1:
            multiply_rows(k, target, acc, (left, first + step, apart), (panel, at), tile, size)
            return
        with k.loop(height, "unroll", "r") as r, k.loop(vectors, "unroll", "b") as b:
            with k.loop(lanes, "vectorized", "v") as v:
                slot = (r * vectors + b) * lanes + v
                k.store(acc, slot, acc[slot] + left[first + r * apart + step] * panel[at + b * lanes + v])

    together = lanes if by_elements(target, HALF, terms) else 1
    if not in_runs(HALF, terms):
        each_group(ctx, target, terms, multiply, together)
        return Widened(acc)
    wide = HalfSums(k, acc, height * vectors, lanes)
    wide.each_run(ctx, 0, terms, multiply, together, rounded=False)
    return wide
