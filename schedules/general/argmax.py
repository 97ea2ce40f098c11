"""Positions of extremes, in vectors: a position and the value there for every lane.

    wins = x[k] > best              one comparison (two for floats, which keep the first NaN), and two blends
    best = wins ? x[k] : best
    at   = wins ? k : at

Elements come in the order of their positions, so that one needs no comparison of positions until accumulators are
combined. Positions have 32 bits until they are stored, so that lanes are as many as those of the values. Accumulators
begin with position 0 and the lowest value: elements that are all the lowest have position 0, or the last's, which any
of them takes where that is wanted.
"""

from __future__ import annotations

from tvm import tirx
from tvm.ir.prim import expr as prim

from ..emit.inline import negation
from ..math.exponential import is_nan, ordered
from ..operators.te_stages import EXTREME, FIRST, LARGEST
from ..words.tvm_types import Expr, Operation


def kind_of(op: Operation) -> tuple[str, str] | None:
    """(which of equals, which extreme) of a stage that finds positions of extremes; None of any other."""
    kind = op.attrs.get(EXTREME)
    return None if kind is None else tuple(str(kind).split())  # type: ignore[return-value]


def enters(kind: tuple[str, str], value: Expr, best: Expr) -> Expr:
    """True if ``value``, which lies behind ``best``, takes its place."""
    which, extreme = kind
    beats = _beats(extreme)
    if not str(value.ty.dtype).startswith(("float", "bfloat")):
        return beats(value, best) if which == FIRST else negation(beats(best, value))
    if which == FIRST:
        return tirx.all(negation(_reaches(extreme)(best, value)), ordered(best))
    return tirx.any(_reaches(extreme)(value, best), negation(ordered(value)))


def comes_before(kind: tuple[str, str], a: tuple[Expr, Expr], b: tuple[Expr, Expr]) -> Expr:
    """True if the pair a (position, value) wins over b; a NaN is the extreme, as in NumPy."""
    which, extreme = kind
    wins = _beats(extreme)(a[1], b[1])
    same = prim.EQ(a[1], b[1])
    nearer = a[0] < b[0] if which == FIRST else a[0] > b[0]
    if not str(a[1].ty.dtype).startswith(("float", "bfloat")):
        return tirx.any(wins, tirx.all(same, nearer))
    first_nan, second_nan = is_nan(a[1]), is_nan(b[1])
    wins = tirx.any(wins, tirx.all(first_nan, tirx.Not(second_nan)))
    return tirx.any(wins, tirx.all(tirx.any(same, tirx.all(first_nan, second_nan)), nearer))


def _beats(extreme: str) -> type:
    return prim.GT if extreme == LARGEST else prim.LT


def _reaches(extreme: str) -> type:
    return prim.GE if extreme == LARGEST else prim.LE
