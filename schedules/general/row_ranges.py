"""Ranges of rows between which what a map reads changes: a letterbox, a padding, a concatenation along rows.

    for h: for w: y[h, w] = f(x[h - 140, w]) if 140 <= h < 500 else 114

Whether a row lies inside is the same for all of its lanes, and there would be a question for each of them. Each range
has lines of its own, in which the question is settled when the kernel is written:

    for h
      if h < 140:             for w: y[h, w] = 114
      if 140 <= h < 500:      for w: y[h, w] = f(x[h - 140, w])
      if 500 <= h:            for w: y[h, w] = 114
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import sym, tirx
from tvm.ir.prim import expr as prim

from ..emit.written_out import children
from ..kernel.context import Context
from ..words.tvm_types import Expr

MOST = 4  # ranges, each of which is code of its own
HOLDS_FROM: dict[type, int] = {prim.LT: 0, prim.GE: 0, prim.LE: 1, prim.GT: 1}  # what a - b changes at: 0 or 1


def ranges(conditions: Sequence[Expr], row: Expr, extent: int) -> list[tuple[int, int]]:
    """The ranges (begin, end) of ``row`` in each of which all comparisons of it with numbers have one answer."""
    cuts = {0, extent}
    for condition in conditions:
        for cut in _cuts(condition, row):
            if 0 < cut < extent:
                cuts.add(cut)
    places = sorted(cuts)
    return list(zip(places, places[1:]))


def _cuts(condition: Expr, row: Expr) -> list[int]:
    """Where the answer changes: the first rows after the change."""
    if isinstance(condition, (prim.And, prim.Or)):
        return _cuts(condition.a, row) + _cuts(condition.b, row)
    at = HOLDS_FROM.get(type(condition))
    if at is None:
        return [cut for part in children(condition) for cut in _cuts(part, row)]
    if any(not v.same_as(row) for v in tirx.analysis.undefined_vars(condition)):
        return []
    linear = sym.detect_linear_equation(condition.a - condition.b, [row])
    if len(linear) != 2 or not all(isinstance(c, prim.IntImm) for c in linear):
        return []
    factor, rest = (int(c.value) for c in linear)
    if factor == 0:
        return []
    # factor * row + rest < at (LT and GE: 0, LE and GT: 1) changes where it becomes at, or where it no longer is
    return [-((rest - at) // factor)] if factor > 0 else [(rest - at) // -factor + 1]


def in_ranges(
    ctx: Context, parts: Sequence[tuple[int, int]], body: Callable[[list[Expr]], None]
) -> Callable[[list[Expr]], None]:
    """``body`` for loops whose last is the row, once for each range."""

    def lines(loops: list[Expr]) -> None:
        row = loops[-1]
        for begin, end in parts:
            inside = [row >= begin] * (begin > 0) + [row < end] * ((begin, end) != parts[-1])
            with ctx.k.when(tirx.all(*inside)):
                rest = ctx.ranged(ctx.k.bind(row - begin, "r"), end - begin)
                body([*loops[:-1], rest + begin])

    return lines
