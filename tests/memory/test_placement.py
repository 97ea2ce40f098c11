"""Offsets of buffers: none alive together overlap, and the arena is as small as the busiest step where that can be."""

from __future__ import annotations

import math
import time

from halotile.passes.memory.placement import Life, least, place
from hypothesis import given, settings
from hypothesis import strategies as st

lives = st.lists(
    st.builds(lambda size, first, more: Life(64 * size, first, first + more), *(st.integers(0, 6) for _ in range(3)))
)


@settings(max_examples=300, deadline=None)
@given(lives)
def test_nothing_alive_together_overlaps(given: list[Life]) -> None:
    offsets, total = place(given)
    assert least(given) <= total == max((o + b.bytes for o, b in zip(offsets, given)), default=0)
    spans = [(b, o, o + b.bytes) for o, b in zip(offsets, given)]
    for at, (a, low, high) in enumerate(spans):
        for b, other, end in spans[:at]:
            apart = a.last < b.first or b.last < a.first
            assert apart or high <= other or end <= low


def test_what_ends_highest_is_placed_first() -> None:
    """Largest first puts the two of four apart from the buffer that both meet: 8 blocks for 6."""
    given = [Life(256, 3, 3), Life(128, 0, 2), Life(128, 2, 3), Life(256, 1, 1)]
    assert place(given)[1] == least(given) == 384


def test_other_orders_are_tried() -> None:
    """Two tile groups' scratch between long-lived values, as a U-Net under a third of its arena leaves them."""
    given = [Life(192, 2, 3), Life(192, 1, 1), Life(256, 3, 3), Life(64, 0, 2), Life(128, 1, 2), Life(128, 0, 2)]
    assert place(given)[1] == least(given) == 512


# Of a tile plan of U-Net in half of its arena: those that leave a gap between them.
SIZES = [(67, 3, 13), (66, 13, 14), (34, 4, 11), (17, 5, 6), (17, 6, 9), (17, 3, 4), (14, 7, 7), (9, 4, 5), (8, 7, 8)]
SEARCHED = [Life(64 * size, first, last) for size, first, last in SIZES]


def test_orders_are_searched_where_gaps_are_left() -> None:
    """Only if that can make the arena as small as it has to be."""
    bound = least(SEARCHED)
    assert place(SEARCHED)[1] == bound
    assert place(SEARCHED, bound)[1] == bound
    assert place(SEARCHED, math.inf)[1] > bound
    assert place(SEARCHED, bound - 64)[1] > bound


def test_many_buffers_take_no_longer_than_they_may() -> None:
    given = [Life(64 * (1 + i * 7919 % 31), i, i + 1 + i * 104729 % 90) for i in range(600)]
    start = time.process_time()
    assert place(given)[1] >= least(given)
    assert time.process_time() - start < 4
