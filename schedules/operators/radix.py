"""Sorting whole numbers by their high halves, a byte at a time: what equals keeps its order.

    count how often each byte stands at each of the four places         one pass
    for each place, from the lowest: deal the numbers to where those of their byte begin

The work is the same for every number, where a heap takes log2(n) steps down for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import tirx

from ..emit import KernelBuilder
from .loops import cast

BYTES, PLACES = 256, 4
MOST = 4096  # numbers on a task's stack, twice
NUMBER, COUNTS, LEVEL = 8.0, 400.0, 3.3  # ns of a number here, of the counts, of a level of a heap (Granite Rapids)


def radix_pays(length: int, k: int) -> bool:
    """True where the first ``k`` of ``length`` numbers in order come sooner so than from a heap, which sinks ``k`` of
    them and those that are met later and belong there: k / i of the i-th, in any order."""
    sinks = k * (1 + math.log(length / k))
    return length <= MOST and NUMBER * length + COUNTS < LEVEL * sinks * math.log2(max(k, 2))


def sort_descending(b: KernelBuilder, number: Callable[[Any], Any], length: int) -> Any:
    """A buffer of the int64 ``number(0)`` to ``number(length - 1)``, greatest high half first."""
    given, dealt = (b.local(name, "int64", length, "global") for name in ("given", "dealt"))
    counts = b.local("counts", "int32", PLACES * BYTES, "global")
    with b.loop(PLACES * BYTES, name="z") as z:
        b.store(counts, z, tirx.IntImm("int32", 0))
    with b.loop(length, name="f") as i:
        b.store(given, i, number(i))
        for place in range(PLACES):
            slot = b.bind(_slot(given[i], place))
            b.store(counts, slot, counts[slot] + 1)
    for place in range(PLACES):
        begin = b.local("begin", "int32", 1)
        b.store(begin, 0, tirx.IntImm("int32", 0))
        with b.loop(BYTES, name="z") as z:
            slot = place * BYTES + z
            count = b.local("count", "int32", 1)
            b.store(count, 0, counts[slot])
            b.store(counts, slot, begin[0])
            b.store(begin, 0, begin[0] + count[0])
        with b.loop(length, name="d") as i:
            moving = b.local("moving", "int64", 1)
            b.store(moving, 0, given[i])
            slot = b.bind(_slot(moving[0], place))
            b.store(dealt, counts[slot], moving[0])
            b.store(counts, slot, counts[slot] + 1)
        given, dealt = dealt, given
    return given


def _slot(number: Any, place: int) -> Any:
    """Where the count of a number's byte at a place of its high half stands: of greater ones first."""
    high = cast("int32", tirx.shift_right(number, tirx.IntImm("int64", 32)))
    byte = tirx.bitwise_and(tirx.shift_right(high, 8 * place), BYTES - 1)
    flip = 0x7F if place == PLACES - 1 else 0xFF  # the sign is the other way round
    return place * BYTES + tirx.bitwise_xor(byte, flip)
