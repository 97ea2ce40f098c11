"""Rows of a register tile whose elements lie in vector registers, of which multiply-adds repeat one.

    for eight steps of K
      x[r] = a[row r, step + [0, 8)]                       one load a row
      for step of them                                     written out
        acc[r][v] += x[r][step] * b[panel][step][v]

A tile of 8 rows and 2 vectors takes 24 loads for 128 multiply-adds so, 80 where each number is loaded by itself, which
keeps a Cortex-A76 from starting two multiply-adds in a cycle: in float16 inner loops take 0.75 to 0.8 of the cycles
(llvm-mca). Steps that are left over load their numbers by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tvm import tirx

from ...targets.target import Target
from ..emit.builder import KernelBuilder
from ..instructions.by_element import multiply_elements, takes_elements
from ..kernel.context import Context
from ..kernel.unrolled_steps import each_step
from ..words.group import Group
from ..words.tvm_types import Buffer, Expr
from .facts import MatmulFacts
from .folded_moves import producers

if TYPE_CHECKING:
    from ..words.size_like import SizeLike


def holds_rows(target: Target, group: Group, facts: MatmulFacts) -> bool:
    """True where register tiles hold the elements of their rows: rows of A straight from memory, that are long enough,
    by a constant B."""
    half, dtype = facts.a.dtype == facts.output.dtype, facts.output.dtype
    if not half or not takes_elements(target, dtype) or not facts.packs or producers(group, facts.a):
        return False
    return facts.k >= target.lanes(dtype)


def each_group(
    ctx: Context, target: Target, count: SizeLike, body: Callable[..., None], group: int = 1, begin: SizeLike = 0
) -> None:
    """``body`` for every step of ``begin + [0, count)``; where a ``group`` of several is taken together, for a first
    step and how many, and for each that is left over."""
    group = group if isinstance(count, int) else 1
    groups = count // group if group > 1 else 0
    if groups:
        with ctx.k.loop(groups, name="run") as run:
            body(begin + ctx.ranged(run, groups) * group, group)
    if group == 1 or count % group:
        each_step(ctx, target, count - groups * group, body, begin + groups * group)


def multiply_rows(
    k: KernelBuilder, target: Target, acc: Buffer, rows: tuple[Buffer, Expr, int], right: tuple[Buffer, Expr],
    tile: tuple[int, int, int], size: int | None = None,
) -> None:  # fmt: skip
    """Adds to ``acc``, a ``tile`` of (rows, vectors, lanes), the products of as many steps as a vector has lanes.
    ``rows``: A, where the elements of the first row begin, and how far those of the next lie behind; ``right``: B, and
    where the vectors of the first step begin; ``size``: elements from one step of B to the next, if there are others
    between."""
    (height, vectors, lanes), (a, first, apart), (b, at) = tile, rows, right
    held = k.local("x", str(a.dtype), height * lanes)
    for r in range(height):
        k.store(held, tirx.Ramp(r * lanes, 1, lanes), a[tirx.Ramp(first + r * apart, 1, lanes)])
    with k.loop(lanes, "unroll", "i") as i:
        step = at + i * (size or vectors * lanes)
        multiply_elements(k, target, acc, lambda r: held[r * lanes + i], lambda v: b[step + v], tile)
