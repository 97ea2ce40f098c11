"""Sorting whole numbers a byte at a time: what equals keeps its order.

    count how often each byte stands at each place                      one pass
    for each place, from the lowest: deal the numbers to where those of their byte begin

The work is the same for every number, where a heap takes log2(n) steps down for each; places where all numbers have the
same byte are passed over. Ranks (:func:`.heap.rank_of`) are sorted by their high halves, other numbers by all of their
bytes, their positions beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from tvm import tirx

from ..emit.builder import KernelBuilder
from ..words.tvm_types import Expr
from .common import is_float, is_nan
from .heap import position_of
from .loops import cast

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

BYTES = 256
MOST, MOST_WIDE = 4096, 2048  # numbers on a task's stack, twice; with positions beside them
# ns of a number here, of the counts, and of a level of a heap (Granite Rapids)
RANKED, WIDE = (8.0, 400.0, 3.3), (20.0, 800.0, 4.5)


def radix_pays(length: int, k: int, wide: bool = False) -> bool:
    """True where the first ``k`` of ``length`` numbers in order come sooner so than from a heap, which sinks ``k`` of
    them and those that are met later and belong there: k / i of the i-th, in any order. ``wide``: all bytes count."""
    number, counts, level = WIDE if wide else RANKED
    sinks = k * (1 + math.log(length / k))
    return length <= (MOST_WIDE if wide else MOST) and number * length + counts < level * sinks * math.log2(max(k, 2))


@cache
def radix_lengths(k: int | None, wide: bool = False) -> tuple[int, int] | None:
    """The least and the greatest length between which sorting gives the first ``k`` sooner than a heap (without ``k``,
    all); None if it never does. Open lengths are compared with them at run time."""
    found = [n for n in range(k or 1, MOST + 1) if radix_pays(n, k or n, wide)]
    return (found[0], found[-1]) if found else None


def key_of(dtype: str, largest: bool) -> Callable[[KernelBuilder, Expr], Expr] | None:
    """A whole number for an element of a type too wide for a rank: greater ones come first, equals are equal."""
    if dtype not in ("int64", "uint32", "float64"):
        return None

    def number(b: KernelBuilder, value: Expr) -> Expr:
        if is_float(dtype):
            zero, most = tirx.const(0, dtype), tirx.IntImm("int64", (1 << 63) - 1)
            value = b.bind(value)
            raw = b.local("raw", "int64", 1)
            b.store(raw, 0, tirx.reinterpret("int64", tirx.Select(value == zero, zero, value)))  # -0 equals 0
            sign = tirx.shift_right(raw[0], tirx.IntImm("int64", 63))
            turned = tirx.bitwise_xor(raw[0], tirx.bitwise_and(sign, most))
            value = tirx.Select(is_nan(value), most, turned)
        value = cast("int64", value)
        return value if largest else tirx.bitwise_not(value)

    return number


def sort_descending(
    b: KernelBuilder, number: Callable[[Expr], Expr], length: Expr, wide: bool = False, room: SizeLike = None
) -> Callable[[Expr], Expr]:
    """Sorts the int64 ``number(0)`` to ``number(length - 1)``, greatest first; returns where the n-th stood. There is
    memory for ``room`` numbers, those of an open ``length`` that is compared with it before."""
    room = length if room is None else room
    numbers = b.local("numbers", "int64", 2 * room, "global")
    positions = b.local("places", "int32", 2 * room, "global") if wide else None
    places = list(range(8)) if wide else list(range(4, 8))
    counts = b.local("counts", "int32", len(places) * BYTES, "global")
    given = b.local("given", "int32", 1)  # where the half that is to be dealt begins
    b.store(given, 0, tirx.IntImm("int32", 0))
    with b.loop(len(places) * BYTES, name="z") as z:
        b.store(counts, z, tirx.IntImm("int32", 0))
    with b.loop(length, name="f") as i:
        b.store(numbers, i, number(i))
        if positions is not None:
            b.store(positions, i, i)
        for row, place in enumerate(places):
            slot = b.bind(row * BYTES + _byte(numbers[i], place))
            b.store(counts, slot, counts[slot] + 1)
    for row, place in enumerate(places):
        with b.when(counts[row * BYTES + _byte(numbers[given[0]], place)] != length):
            begin, count, moving = b.local("begin", "int32", 1), b.local("count", "int32", 1), b.local("m", "int64", 1)
            b.store(begin, 0, length - given[0])
            with b.loop(BYTES, name="z") as z:
                b.store(count, 0, counts[row * BYTES + z])
                b.store(counts, row * BYTES + z, begin[0])
                b.store(begin, 0, begin[0] + count[0])
            with b.loop(length, name="d") as i:
                b.store(moving, 0, numbers[given[0] + i])
                slot = b.bind(row * BYTES + _byte(moving[0], place))
                b.store(numbers, counts[slot], moving[0])
                if positions is not None:
                    b.store(positions, counts[slot], positions[given[0] + i])
                b.store(counts, slot, counts[slot] + 1)
            b.store(given, 0, length - given[0])

    def stood(n: Expr) -> Expr:
        return position_of(numbers[given[0] + n]) if positions is None else positions[given[0] + n]

    return stood


def _byte(number: Expr, place: int) -> Expr:
    """A number's byte at a place, greater ones first."""
    byte = tirx.bitwise_and(cast("int32", tirx.shift_right(number, tirx.IntImm("int64", 8 * place))), BYTES - 1)
    return tirx.bitwise_xor(byte, 0x7F if place == 7 else 0xFF)  # the sign is the other way round
