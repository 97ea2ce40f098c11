"""Heights of values as formulas of the image's height, found from their dims and checked on many heights."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from ...schedules.words.dims import Dim, Size
from ...schedules.words.sizes import symbols_of, value_of
from ..spec import Symbol
from .heights import Height

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

_LONGEST = 4096  # rows after which a height repeats, at most
_FAR = 1 << 14  # rows of an image in whose middle no border is seen
_APART = 97  # units between heights that are looked at far away: a rate that is nearly right goes wrong there


class IrregularHeight(Exception):
    """A height that no formula of this kind gives; the text is the dim."""


def open_axes(shape: tuple[Size, ...], symbol: Symbol) -> list[int]:
    """The axes whose length depends on the image's height."""
    return [a for a, d in enumerate(shape) if isinstance(d, Dim) and symbol.name in symbols_of(d)]


@lru_cache(maxsize=1024)  # most values of a model share a few dims, and each plan asks anew
def height_of(dim: Dim, symbol: Symbol) -> tuple[Height, int]:
    """The formula of a dim, and the least height of the image from which on it holds."""
    m = symbol.multiple
    far = -(-_FAR // m) * m

    def at(rows: int) -> int:
        return value_of(dim, {symbol.name: rows})

    for period in _periods(m):
        base = -(-far // period) * period
        steps = at(base + period) - at(base)
        rest = [0] * period
        for r in range(0, period, m):
            rest[r] = at(base + r) - steps * (base // period)
        found = Height(period, steps, tuple(rest))
        near, wide = range(base, base + 4 * period, m), range(base, 4 * far, _APART * m)
        if steps > 0 and all(at(h) == found.at(h) for heights in (near, wide) for h in heights):
            return found, _least(found, at, symbol, far)
    raise IrregularHeight(f"the length {dim} does not follow the height step by step")


def _periods(multiple: int) -> list[int]:
    return [p for p in range(multiple, _LONGEST + 1, multiple) if p <= 64 * multiple or p & (p - 1) == 0]


def _least(found: Height, at: SizeLike, symbol: Symbol, far: int) -> int:
    """The least height from which on the formula holds, and gives one row at least."""
    least = max(symbol.least, symbol.multiple)
    for rows in range(min(far, least + 2048 * symbol.multiple), least - 1, -symbol.multiple):
        rows -= rows % symbol.multiple
        if found.at(rows) < 1 or at(rows) != found.at(rows):
            return rows + symbol.multiple
    return least


def rate_of(height: Height) -> Fraction:
    """Rows for each row of the image."""
    return Fraction(height.steps, height.period)


def unit_of(heights: list[Height]) -> int:
    """Rows of the image after which every value has moved by whole rows."""
    return math.lcm(*(h.period for h in heights)) if heights else 1
