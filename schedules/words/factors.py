"""Factors: polynomials of sizes as products, which bounds of single terms say nothing of.

    h w - 4 w - 8 h + 32          (h - 8) (w - 4)
    n h w - 4 n w                 n w (h - 4)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING

from .atoms import Monomial

if TYPE_CHECKING:
    from .size_like import SizeLike

Terms = Mapping[Monomial, "SizeLike"]
MOST_TERMS = 16  # of a polynomial that is looked at


def factors_of(terms: Terms) -> tuple[list[dict[Monomial, SizeLike]], SizeLike] | None:
    """Factors and what is left: the atoms that all terms share and the rest of these, or of c X Y + a X + b Y + d the
    factors c X + b and Y + a / c; None for any other polynomial."""
    if not 1 < len(terms) <= MOST_TERMS or max(map(len, terms)) < 2:
        return None
    shared = reduce(_common, terms)
    if shared:
        alone: list[dict[Monomial, SizeLike]] = [{(atom,): 1} for atom in shared]
        return [*alone, {without(m, shared) or (): f for m, f in terms.items()}], 0
    pairs = [m for m in terms if len(m) > 1]
    if len(pairs) != 1 or len(pairs[0]) != 2 or len(set(pairs[0])) != 2:
        return None
    (one, other), c = pairs[0], Fraction(terms[pairs[0]])
    a, b, d = (Fraction(terms.get(m, 0)) for m in ((one,), (other,), ()))
    if set(terms) - {(one, other), (one,), (other,), ()}:
        return None
    return [{(one,): c, (): b}, {(other,): 1, (): a / c}], d - a * b / c


def grow_together(terms: Terms) -> bool:
    """True if terms may grow and fall together, so that intervals of each say little: n - 2 floor(n / 2)."""
    varying = [monomial for monomial in terms if monomial]
    return len(varying) > 1 and any(atom.kind != "symbol" for monomial in varying for atom in monomial)


def product(ends: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """The least and the greatest product of numbers within bounds."""
    a, b = 1.0, 1.0
    for low, high in ends:
        found = [times(p, q) for p in (a, b) for q in (low, high)]
        a, b = min(found), max(found)
    return a, b


def times(a: float, b: float) -> float:
    """The product, which is zero where one is, whatever the other."""
    return 0.0 if a == 0 or b == 0 else a * b


def _common(a: Monomial, b: Monomial) -> Monomial:
    left, found = list(b), []
    for atom in a:
        if atom in left:
            left.remove(atom)
            found.append(atom)
    return tuple(found)


def without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """``monomial`` divided by another; None where that has more of an atom."""
    left = list(monomial)
    for atom in divisor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)
