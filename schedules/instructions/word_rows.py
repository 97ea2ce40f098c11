"""Words that the positions of a row read, as dot products of bytes take them from the lanes of vector registers.

    ld1r v0.4s, [x]; sdot v1.4s, v2.16b, v0.16b           a load, and mostly an address, for each position
    ldr q0, [x]; sdot v1.4s, v2.16b, v0.4b[0 .. 3]        one load for four neighbours

Only 64-bit ARM names a lane. A tile of three rows, four columns and two vectors takes 52 instructions a step with a
load for each position, 31 with one a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import tirx

from .int8_dot import per_word

if TYPE_CHECKING:
    from ..emit.builder import KernelBuilder
    from ..words.tvm_types import Analyzer, Buffer, Expr

LANES = 4  # words of a vector register


def row_words(k: KernelBuilder, analyzer: Analyzer, data: Buffer, places: Sequence[Expr]) -> list[Expr]:
    """The words, int32, that begin at ``places`` of ``data``, elements of one or two bytes; several come by one load
    where they lie near each other, and nothing is read before the first word or behind the last."""
    per = per_word(str(data.dtype))
    offsets = _offsets(analyzer, places, per)
    loads = _loads(offsets) if offsets is not None else []
    if offsets is None or len(loads) >= len(places):
        return [tirx.reinterpret("int32", data[_run(place, per)]) for place in places]
    held = [k.local("x", "int32", size) for _, size in loads]
    for vector, (start, size) in zip(held, loads):
        read = data[_run(places[0] + start * per, size * per)]
        k.store(vector, _run(0, size), tirx.reinterpret(f"int32x{size}", read))
    owners = (next(i for i, (start, size) in enumerate(loads) if start <= o < start + size) for o in offsets)
    return [held[i][tirx.IntImm("int32", offset - loads[i][0])] for i, offset in zip(owners, offsets)]


def _offsets(analyzer: Analyzer, places: Sequence[Expr], per: int) -> list[int] | None:
    """How many words each place lies behind the first; None where that is not known, or no whole number."""
    found = []
    for place in places:
        apart = analyzer.simplify(place - places[0])
        if not isinstance(apart, tirx.IntImm) or apart.value % per or apart.value < 0:
            return None
        found.append(apart.value // per)
    return found


def _loads(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """(first word, words) of loads that have all words at ``offsets``."""
    end, loads = max(offsets) + 1, list[tuple[int, int]]()
    size = next(n for n in (LANES, LANES // 2, 1) if n <= end)
    for offset in sorted(offsets):
        if not loads or offset >= loads[-1][0] + size:
            loads.append((min(offset, end - size), size))
    return loads


def _run(first: Expr | int, count: int) -> Expr:
    first = tirx.IntImm("int32", first) if isinstance(first, int) else first
    return tirx.Ramp(first, tirx.IntImm(str(first.ty.dtype), 1), count)
