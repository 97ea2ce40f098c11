"""Offsets of buffers whose sizes are open: a closed form that holds at every size.

Places are found at the sizes that the build plans for. What is kept of them is who lies below whom, of each two buffers
that are in use at the same time; a buffer then begins where the highest of those below it ends:

    offset(b) = max over a below b of offset(a) + size(a)

So no two of them ever share a byte, at the planned sizes the arena is the planned one, and at all others it costs no
search: a few additions and maxima for each buffer. Where the planned sizes leave a choice, other sizes decide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .placement import Life, least, place

FACTORS = (2, 6)  # of typical sizes


@dataclass(frozen=True)
class Slot:
    """The place of a buffer in the arena, by its number: its offset is known when sizes are."""

    number: int


def below(lives: Sequence[Life], offsets: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The numbers of the buffers that lie directly below each buffer, of those in use at the same time."""
    together = [
        {j for j, b in enumerate(lives) if j != i and b.first <= a.last and b.last >= a.first}
        for i, a in enumerate(lives)
    ]
    under = [{j for j in together[i] if offsets[j] < offsets[i]} for i in range(len(lives))]
    return tuple(tuple(sorted(own - set().union(*(under[j] for j in own)))) for own in under)


def other_sizes(symbols: Sequence[Any]) -> list[dict[str, int]]:
    """Sizes beside the typical ones at which the arena is to be small as well: the least, and larger ones."""
    found = [{s.name: min(s.typical * factor, s.most) for s in symbols} for factor in FACTORS if symbols]
    return [{s.name: s.least for s in symbols}, *found] if symbols else []


def offsets_of(under: Sequence[Sequence[int]], lives: Sequence[Life]) -> tuple[list[int], int]:
    """The offsets that follow from who lies below whom, where buffers have these sizes, and the end of the highest."""
    offsets = [0] * len(lives)
    for i in in_order(under):
        offsets[i] = max((offsets[j] + lives[j].bytes for j in under[i]), default=0)
    return offsets, max((start + life.bytes for start, life in zip(offsets, lives)), default=0)


def best_below(
    lives: Sequence[Life], starts: Sequence[int], others: Sequence[Sequence[Life]]
) -> tuple[tuple[int, ...], ...]:
    """Who lies below whom, so that the arena is no larger than with ``starts`` where buffers are those of ``lives``,
    and closest to the bytes in use where they are those of any of ``others``: where sizes leave room, it is the places
    at other sizes that count."""
    every = [lives, *others]
    bounds = [max(1, least(own)) for own in every]
    own = below(lives, starts)
    most = offsets_of(own, lives)[1]

    def excess(under: tuple[tuple[int, ...], ...]) -> tuple[float, float]:
        ratios = [offsets_of(under, at)[1] / bound for at, bound in zip(every, bounds)]
        return max(ratios), sum(ratios)

    found = [own]
    for other in others:
        under = below(other, place(other, math.inf)[0])
        if offsets_of(under, lives)[1] <= most:
            found.append(under)
    return min(found, key=excess)


def in_order(under: Sequence[Sequence[int]]) -> list[int]:
    """The buffers, each after those below it."""
    order: list[int] = []
    seen: set[int] = set()

    def visit(i: int) -> None:
        if i in seen:
            return
        seen.add(i)
        for j in under[i]:
            visit(j)
        order.append(i)

    for i in range(len(under)):
        visit(i)
    return order
