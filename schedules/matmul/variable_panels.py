"""A variable B brought into panels, before a product that meets it with many rows of A."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from ..words.group import Scratch
from ..words.tvm_types import Buffer, Expr

if TYPE_CHECKING:
    from .kernel import MatmulKernel
    from .regions import Region

PACK_CHUNK = 64  # rows of B that one task packs


def panels_of(matmul: MatmulKernel, b: Buffer) -> Buffer:
    """Copies every variable B into panels in the arena, a run of its rows a task; returns their buffer."""
    facts, k, lanes = matmul.facts, matmul.k, matmul.lanes
    matrices = facts.b.elements // (facts.k * facts.n)
    elements = matrices * matmul._panel_elements
    packed = k.pointer("panels", facts.output.dtype, elements)
    matmul.ctx.operands.append(Scratch(elements * matmul.element))
    chunk = min(PACK_CHUNK, facts.k)
    chunks = -(-facts.k // chunk)
    with k.loop(matrices * chunks, "parallel", "p") as p:
        matmul.ctx.ranged(p, matrices * chunks)
        matrix = matmul.bind(tirx.floordiv(p, chunks), matrices)
        begin = matmul.bind(tirx.floormod(p, chunks) * chunk, facts.k)
        count: Expr = chunk if facts.k % chunk == 0 else tirx.min(facts.k - begin, chunk)
        with k.loop(count, name="s") as s:
            row = begin + s
            source = (matrix * facts.k + row) * facts.n
            for r in matmul._regions():
                whole = r.vectors if r.last == lanes else r.vectors - 1
                with k.loop(r.panels, name="n") as n:
                    at = matrix * matmul._panel_elements + r.first * facts.k + (n * facts.k + row) * r.vectors * lanes
                    column = r.first + n * r.vectors * lanes
                    _copy(matmul, packed, at, b, source + column, whole, r)
    return packed


def _copy(
    matmul: MatmulKernel, packed: Buffer, at: Expr, b: Buffer, source: Buffer, whole: int, region: Region
) -> None:
    """One row of one panel: whole vectors, then the columns that are left with zeros behind them."""
    k, lanes = matmul.k, matmul.lanes
    if whole:
        with k.loop(whole, "unroll", "j") as j, k.loop(lanes, "vectorized", "v") as v:
            k.store(packed, at + j * lanes + v, b[source + j * lanes + v])
    if region.last != lanes:
        with k.loop(lanes, "vectorized", "v") as v:
            k.store(packed, at + whole * lanes + v, tirx.const(0, matmul.facts.output.dtype))
        with k.loop(region.last, "vectorized", "v") as v:
            k.store(packed, at + whole * lanes + v, b[source + whole * lanes + v])
