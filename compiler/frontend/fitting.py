"""Sizes that fit wherever a condition binds one open dimension alone: the multiples of a number.

    2 ((h + 31) // 32) is (h + 15) // 16     ->     any multiple of 32 fits as h

What a condition asks for is exact, but seldom says which image to take. With m times another dimension in the place of
h both sides become polynomials of that, and these are the same, or far enough apart, for every size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...schedules.words.dims import INFINITY, Dim, Open
from ...schedules.words.sizes import replaced, symbols_of
from ..spec import Condition, Symbol

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

MULTIPLES = (*range(2, 65), 72, 80, 96, 112, 128, 144, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024)


def with_fitting(conditions: Sequence[Condition], symbols: Sequence[Symbol]) -> tuple[Condition, ...]:
    """``conditions``, each of one symbol alone with the sizes that satisfy all such ones of that symbol, where they are
    the multiples of a number of MULTIPLES."""
    alone: dict[str, list[Condition]] = {}
    for condition in conditions:
        names = symbols_of(condition.left) | symbols_of(condition.right)
        if len(names) == 1:
            alone.setdefault(str(*names), []).append(condition)
    found = {s.name: _least(s, alone[s.name]) for s in symbols if s.name in alone}
    words = {c: f"any multiple of {m} fits as {name}" for name, m in found.items() if m for c in alone[name]}
    return tuple(replace(c, fits=words.get(c, "")) for c in conditions)


def _least(symbol: Symbol, conditions: Sequence[Condition]) -> int:
    """The least number whose multiples, as far as the symbol may have them, satisfy all conditions; 0 if none is found.
    """
    high = INFINITY if symbol.high is None else symbol.high
    for m in MULTIPLES:
        first = -(-max(1, symbol.least) // m) * m
        if m % symbol.multiple == 0 and first <= high:
            size = Dim.symbol(symbol.name, first, high, m)
            if all(_always(c, {symbol.name: size}) for c in conditions):
                return m
    return 0


def _always(condition: Condition, size: dict[str, SizeLike]) -> bool:
    """Whether a condition holds for all values of the ``size`` of its symbol."""
    left, right = replaced(condition.left, size), replaced(condition.right, size)
    try:
        if condition.relation == "at least":
            return bool(left >= right)
        if condition.relation == "at most":
            return bool(left <= right)
    except Open:
        return False
    return bool(left == right)
