"""Maxima and minima of open dimensions that say each other: of a length cut or padded to 480,000, max(480000 - n, 0) is
added and max(n - 480000, 0) taken away, and what is left is a number."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from .atoms import Atom, Monomial
from .size_like import SizeLike


def without_two(terms: Mapping[Monomial, SizeLike]) -> tuple[dict[Monomial, SizeLike], SizeLike] | None:
    """The terms of a sum without two extremes of which nothing but ``rest`` is left, and that; None where there are no
    such two. Of others one could stand for both, but with numbers that index arithmetic of 32 bits has no room for."""
    ends = [m for m in terms if len(m) == 1 and m[0].kind in ("max", "min")]
    for one, other in combinations(ends, 2):
        found = _dependent(other[0], one[0])
        if found is not None and terms[one] + found[0] * terms[other] == 0:
            return {m: f for m, f in terms.items() if m not in (one, other)}, found[1] * terms[other]
    return None


def _dependent(one: Atom, other: Atom) -> tuple[int, SizeLike] | None:
    """(sign, rest) where a maximum or minimum is sign * other + rest, which holds if the operands of both are as far
    apart: max(n - 5, 0) is max(n, 5) - 5 and max(5 - n, 0) + n - 5, and min(n, 5) is n + 5 - max(n, 5)."""
    (sign, base), (own, start) = _over(one), _over(other)
    if one.apart == other.opposite:  # max(-d, 0) is max(d, 0) - d
        base = base - other.apart * sign
    elif one.apart != other.apart:
        return None
    return sign * own, base - sign * own * start


def _over(extreme: Atom) -> tuple[int, SizeLike]:
    """(sign, base): the maximum or minimum as base + sign * max(d, 0), where d is how far its operands are apart."""
    a, b = extreme.operands
    return (1, b) if extreme.kind == "max" else (-1, a)
