"""Maxima and minima of open dimensions that say each other: of a length cut or padded to 480,000, max(480000 - n, 0) is
added and max(n - 480000, 0) taken away, and what is left is a number."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from .atoms import Atom, Monomial
from .size_like import SizeLike


def one_for_two(terms: Mapping[Monomial, SizeLike]) -> tuple[dict[Monomial, SizeLike], SizeLike] | None:
    """The terms of a sum with one extreme in place of two that say each other, and what is to be added to them; None
    where there are no such two."""
    ends = [m for m in terms if len(m) == 1 and m[0].kind in ("max", "min")]
    for kept, gone in combinations(ends, 2):
        if (found := _dependent(gone[0], kept[0])) is not None:
            sign, rest = found
            left = {m: f for m, f in terms.items() if m != gone}
            return {**left, kept: terms[kept] + sign * terms[gone]}, rest * terms[gone]
    return None


def _dependent(one: Atom, other: Atom) -> tuple[int, SizeLike] | None:
    """(sign, rest) where a maximum or minimum is sign * other + rest, which holds if the operands of both are as far
    apart: max(n - 5, 0) is max(n, 5) - 5 and max(5 - n, 0) + n - 5, and min(n, 5) is n + 5 - max(n, 5)."""
    (sign, base, apart), (own, start, between) = _over(one), _over(other)
    if apart == -between:  # max(-d, 0) is max(d, 0) - d
        base = base - between * sign
    elif apart != between:
        return None
    return sign * own, base - sign * own * start


def _over(extreme: Atom) -> tuple[int, SizeLike, SizeLike]:
    """(sign, base, d): the maximum or minimum as base + sign * max(d, 0)."""
    a, b = extreme.operands
    return (1, b, a - b) if extreme.kind == "max" else (-1, a, a - b)
