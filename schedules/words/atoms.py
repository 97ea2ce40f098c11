"""Atom: what an open dimension is made of."""

from __future__ import annotations

import math
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .size_like import SizeLike
    from .tvm_types import Expr

Monomial = tuple["Atom", ...]  # sorted, an atom as often as its power
INFINITY = math.inf


@dataclass(frozen=True)
class Atom:
    """A symbol (``kind`` symbol) within bounds, or floor(a / b), max(a, b), min(a, b); ``text`` identifies it.

    A symbol that is a multiple of m > 1 stands in a Dim as m times the atom floor(symbol / m), so that what it is
    divided by comes out exactly (``Dim.symbol`` makes it so)."""

    kind: str
    text: str
    operands: tuple[SizeLike, ...] = ()
    low: float = 0
    high: float = INFINITY
    multiple: int = 1

    @property
    def symbol(self) -> Atom | None:
        """The symbol that it is, but for the factor that the symbol is a multiple of; None for any other atom."""
        if self.kind == "symbol":
            return self
        terms = getattr(self.operands[0], "terms", {}) if self.kind == "floor" else {}
        inner = [m[0] for m, f in terms.items() if len(m) == 1 and f == 1]
        found = inner[0] if len(inner) == len(terms) == 1 else None
        return found if found is not None and 1 < found.multiple == self.operands[1] else None

    @cached_property
    def apart(self) -> SizeLike:
        """The first operand less the second. Kept, since extremes of extremes ask for those of their operands."""
        a, b = self.operands
        return a - b

    @cached_property
    def opposite(self) -> SizeLike:
        """The second operand less the first."""
        return -self.apart

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __lt__(self, other: Atom) -> bool:
        return self.text < other.text


#: Bounds of dims of several symbols, which runs must satisfy: (dim, least, most).
KNOWN: ContextVar[tuple[tuple[SizeLike, float, float], ...]] = ContextVar("known", default=())

_VARIABLES: dict[tuple[str, str], Expr] = {}


def variable(symbol: str, dtype: str) -> Expr:
    """The variable that stands for a symbol in int64 (Relax, sizes of memory) or int32 (kernels)."""
    from tvm.tirx import Var

    return _VARIABLES.setdefault((symbol, dtype), Var(symbol, dtype))
