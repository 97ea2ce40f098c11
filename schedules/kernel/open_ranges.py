"""Ranges of variables between open bounds, and what follows from them for conditions.

    x from 2 to w + 1, k from 0 to 4        x + k >= 2 holds; x + k - 2 < w is left; x + u < w + 2 + u holds

TVM's analyzer compares with numbers only. A condition that is linear in the variables is least at one end of each
range, where it is a question about dims, which know their floors.
"""

from __future__ import annotations

from tvm import sym, tirx
from tvm.ir.prim import expr as prim

from ..words.dims import Open, Size, bounds, to_index
from ..words.sizes import SYMBOLS, dim_of, is_symbol, narrowed, surely
from ..words.tvm_types import Expr

LARGEST = 2**31


def knowing_symbols() -> sym.Analyzer:
    """An analyzer that knows the bounds of all symbols."""
    analyzer = sym.Analyzer()
    for dim in SYMBOLS.get().values():
        low, high = bounds(dim)
        known = sym.ConstIntBound(int(low), LARGEST - 1 if high >= LARGEST else int(high))
        analyzer.update(to_index(dim), known)
    return analyzer


class OpenRanges:
    """The least and the greatest value of variables, both numbers or dims."""

    def __init__(self) -> None:
        self._ends: dict[int, tuple[Expr, Expr, Expr]] = {}  # by the variable's address, which it keeps

    def note(self, variable: Expr, least: int, most: Size) -> None:
        """Keeps that ``variable`` is from ``least`` to ``most``."""
        self._ends[hash(variable)] = (variable, least, most)

    def left(self, condition: Expr) -> Expr:
        """``condition`` without the parts that hold for every size and value; false if one of them never does."""
        if any(self.fails(c) for c in _parts(condition)):
            return tirx.const(False, "bool")
        kept = [c for c in _parts(condition) if not self.holds(c)]
        return tirx.all(*kept) if kept else tirx.const(True, "bool")

    def fails(self, comparison: Expr) -> bool:
        """True if a comparison never holds; False also where that isn't seen."""
        opposite = _OPPOSITE.get(type(comparison))
        return opposite is not None and self.holds(opposite(comparison.a, comparison.b))

    def holds(self, comparison: Expr) -> bool:
        """True if a comparison holds for every size and value; False also where that isn't seen."""
        difference = _difference(comparison)
        if difference is None:
            return False
        known = [self._ends[hash(v)] for v in tirx.analysis.undefined_vars(difference) if hash(v) in self._ends]
        others = [v for v in tirx.analysis.undefined_vars(difference) if hash(v) not in self._ends]
        if not all(is_symbol(v) or narrowed(v) is not None for v in others):
            return False  # a name of a value that was computed, of which nothing is known
        linear = sym.detect_linear_equation(difference, [v for v, _, _ in known])
        if not len(linear) or not all(isinstance(c, prim.IntImm) for c in linear[:-1]):
            return False
        try:
            least = dim_of(linear[-1])
        except Open:
            return False
        for (_, low, high), factor in zip(known, map(int, linear[:-1])):
            least = least + factor * (low if factor > 0 else high)
        return surely(lambda: least >= 0)


_OPPOSITE: dict[type, Expr] = {prim.LT: prim.GE, prim.GE: prim.LT, prim.LE: prim.GT, prim.GT: prim.LE}


def _parts(condition: Expr) -> list[Expr]:
    """What must hold together."""
    if isinstance(condition, prim.And):
        return [*_parts(condition.a), *_parts(condition.b)]
    return [condition]


def _difference(comparison: Expr) -> Expr | None:
    """What is at least zero where the comparison of whole numbers holds; None for anything else."""
    if not isinstance(comparison, (prim.LT, prim.LE, prim.GT, prim.GE)):
        return None
    a, b = comparison.a, comparison.b
    if not str(a.ty.dtype).startswith("int"):
        return None
    if isinstance(comparison, (prim.LT, prim.LE)):
        a, b = b, a
    return a - b - 1 if isinstance(comparison, (prim.LT, prim.GT)) else a - b
