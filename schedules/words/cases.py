"""Dims with minima and maxima that are one polynomial at every size: found beyond all cases, and tried at the others.

    max(0, min(2 n - 1, n))                                                   n
    min(2 max(0, n - 5) + 9, max(5 - n, 0) + 2 n - 1) - max(5 - n, 0)         2 n - 1
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .atoms import Atom
from .dims import Dim, terms_of
from .sizes import replaced, symbol_atoms, value_of

if TYPE_CHECKING:
    from .size_like import SizeLike

MOST_TRIED = 128  # sizes below the one from which on no minimum or maximum is left

_SETTLED: dict[tuple[SizeLike, ...], SizeLike] = {}


def settled(value: SizeLike) -> SizeLike:
    """An equal dim without minima and maxima, where there is one; else the dim itself. It depends on one symbol."""
    if not isinstance(value, Dim) or not _extremes(value):
        return value
    symbols = {a.text: a for a in symbol_atoms(value)}
    if len(symbols) != 1:
        return value
    (symbol,) = symbols.values()
    key = (str(value), symbol.low, symbol.high, symbol.multiple)
    if key not in _SETTLED:
        found = _beyond(value, symbol)
        _SETTLED[key] = value if found is None else found
    return _SETTLED[key]


def _beyond(value: Dim, symbol: Atom) -> SizeLike:
    """What the dim is from some size on, if it is just that below as well; None otherwise."""
    least, step = int(symbol.low), symbol.multiple
    most = int(min(symbol.high, least + MOST_TRIED * step))
    for bits in range(MOST_TRIED.bit_length()):
        first = least + (1 << bits) * step
        if first > most:
            break
        large = replaced(value, {symbol.text: Dim.symbol(symbol.text, first, symbol.high, step)})
        if _extremes(large):
            continue
        form = replaced(large, {symbol.text: Dim.symbol(symbol.text, symbol.low, symbol.high, step)})
        sizes = ({symbol.text: n} for n in range(-(-least // step) * step, first, step))
        return form if all(value_of(value, n) == value_of(form, n) for n in sizes) else None
    return None


def _extremes(value: SizeLike) -> bool:
    """Whether there is a minimum or maximum in it."""
    atoms = [a for monomial in terms_of(value) for a in monomial]
    return any(a.kind in ("min", "max") or any(map(_extremes, a.operands)) for a in atoms)
