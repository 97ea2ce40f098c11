"""Offsets of open sizes: no two buffers in use together share a byte, whatever their sizes are."""

from __future__ import annotations

import random

from halotile.passes.memory.open_offsets import below, in_order
from halotile.passes.memory.placement import Life, place


def test_buffers_in_use_together_share_no_byte_at_any_size():
    chance = random.Random(3)
    for _ in range(200):
        count = chance.randint(1, 14)
        lives = []
        for _ in range(count):
            first = chance.randrange(10)
            lives.append(Life(64 * chance.randint(1, 40), first, chance.randint(first, 9)))
        starts, total = place(lives)
        under = below(lives, starts)
        planned = _offsets([life.bytes for life in lives], under)
        assert max(planned[i] + life.bytes for i, life in enumerate(lives)) <= total
        sizes = [64 * chance.randint(0, 60) for _ in lives]
        offsets = _offsets(sizes, under)
        for i, a in enumerate(lives):
            for j, b in enumerate(lives[:i]):
                if a.first <= b.last and b.first <= a.last:
                    assert offsets[i] + sizes[i] <= offsets[j] or offsets[j] + sizes[j] <= offsets[i]


def test_only_direct_neighbours_are_kept():
    stacked = [Life(64, 0, 3)] * 4
    assert below(stacked, [0, 64, 128, 192]) == ((), (0,), (1,), (2,))


def _offsets(sizes: list[int], under: tuple[tuple[int, ...], ...]) -> dict[int, int]:
    found: dict[int, int] = {}
    for i in in_order(under):
        found[i] = max((found[j] + sizes[j] for j in under[i]), default=0)
    return found
