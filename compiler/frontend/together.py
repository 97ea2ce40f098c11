"""Typical sizes that go together: what runs must satisfy holds for the sizes that a build plans for.

    n is 1 or 3, planned for 128      ->   planned for 3
    total is past + new               ->   total follows from the others
    a b is 15 and b c is 20           ->   3, 5 and 4: no symbol alone satisfies its condition
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...schedules.words.sizes import symbols_of, value_of
from ..spec import Condition, Symbol

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

ROUNDS = 16  # conditions that are mended, one after the other
FARTHEST = 1024  # sizes of one symbol that are tried for one of them
SMALL, TRIED = 16, 4096  # of each symbol's sizes from the least on; of conditions, where all change at once


def going_together(
    symbols: Sequence[Symbol], conditions: Sequence[Condition], free: Collection[str]
) -> tuple[Symbol, ...]:
    """``symbols`` with typical sizes that satisfy ``conditions``, where changing those of ``free`` gets there."""
    sizes = {s.name: s.typical for s in symbols}
    known = [c for c in conditions if symbols_of(c.left) | symbols_of(c.right) <= sizes.keys()]
    for _ in range(ROUNDS):
        broken = next((c for c in known if not holds(c, sizes)), None)
        if broken is None:
            break
        mended = _mended(broken, [s for s in symbols if s.name in free], sizes)
        if mended is None:
            break
        sizes.update(mended)
    if not all(holds(c, sizes) for c in known):
        found = _searched(known, symbols, free)
        if found is None:
            return tuple(symbols)
        sizes = found
    return tuple(replace(s, typical=sizes[s.name]) for s in symbols)


def holds(condition: Condition, sizes: Mapping[str, int]) -> bool:
    """Whether sizes of the symbols satisfy a condition."""
    left, right = value_of(condition.left, sizes), value_of(condition.right, sizes)
    if condition.relation == "is 1 or":
        return left in (1, right)
    if condition.relation == "is":
        return left == right
    return left >= right if condition.relation == "at least" else left <= right


def may_be(symbols: Sequence[Symbol], conditions: Sequence[Condition], sizes: Mapping[str, int]) -> bool:
    """Whether a run may have ``sizes`` of all symbols."""
    return not any(s.refusal(sizes[s.name]) for s in symbols) and all(holds(c, sizes) for c in conditions)


def _mended(condition: Condition, free: Sequence[Symbol], sizes: Mapping[str, int]) -> dict[str, int] | None:
    """One symbol's size with which a condition holds: the last one's that there is, and the nearest."""
    asked: set[SizeLike] = symbols_of(condition.left) | symbols_of(condition.right)
    for symbol in reversed([s for s in free if s.name in asked]):
        least = -(-max(1, symbol.low) // symbol.multiple) * symbol.multiple
        most = FARTHEST * symbol.multiple if symbol.high is None else symbol.high
        wished = sizes[symbol.name]
        near = sorted(range(least, most + 1, symbol.multiple)[:FARTHEST], key=lambda n: abs(n - wished))  # noqa: B023
        found = next((n for n in near if holds(condition, {**sizes, symbol.name: n})), None)
        if found is not None:
            return {symbol.name: found}
    return None


def _searched(
    conditions: Sequence[Condition], symbols: Sequence[Symbol], free: Collection[str]
) -> dict[str, int] | None:
    """Sizes with which all conditions hold at once: symbol by symbol, from what it is planned for, small sizes and the
    divisors of what conditions ask for; None where few tries find none."""
    asked: set[Any] = {name for c in conditions for name in symbols_of(c.left) | symbols_of(c.right)}
    wanted = [abs(side) for c in conditions for side in (c.left, c.right) if isinstance(side, int)]
    order = [s for s in symbols if s.name in free and s.name in asked]
    sizes, left = {s.name: s.typical for s in symbols}, [TRIED]

    def possible(open_: Collection[str]) -> bool:
        """Whether all conditions hold that no symbol of ``open_`` is in."""
        for condition in conditions:
            if not (symbols_of(condition.left) | symbols_of(condition.right)) & set(open_):
                left[0] -= 1
                if not holds(condition, sizes):
                    return False
        return True

    def placed(number: int) -> bool:
        if number == len(order):
            return True
        symbol, behind = order[number], [s.name for s in order[number + 1 :]]
        for size in _sensible(symbol, wanted):
            sizes[symbol.name] = size
            if left[0] > 0 and possible(behind) and placed(number + 1):
                return True
        return False

    return sizes if possible([s.name for s in order]) and placed(0) else None


def _sensible(symbol: Symbol, wanted: Sequence[int]) -> list[int]:
    """The size that a symbol is planned for, then others in order."""
    step = symbol.multiple
    least = -(-max(1, symbol.low) // step) * step
    other = {least + step * n for n in range(SMALL)}
    other |= {d for number in wanted for n in range(1, 65) if number and number % n == 0 for d in (n, number // n)}
    fitting = sorted(n for n in other if not symbol.refusal(n) and n != symbol.typical)
    return [symbol.typical, *fitting]
