"""Offsets of buffers whose sizes are open: a closed form that holds at every size.

Places are found at the sizes that the build plans for. What is kept of them is who lies below whom, of each two buffers
that are in use at the same time; a buffer then begins where the highest of those below it ends:

    offset(b) = max over a below b of offset(a) + size(a)

So no two of them ever share a byte, at the planned sizes the arena is the planned one, and at all others it costs no
search: a few additions and maxima for each buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .placement import Life


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
