"""Heights of register tiles for an open number of rows: the tallest, and lower ones for the few rows that are better
served by these.

    tallest 14:    rows from 14 on, but for 15 to 21
            7:     7 to 13 and 15 to 21, but for 8 to 11
            4:     4 to 6 and 8 to 11              and so on down to one row

The last tile begins where it ends with the rows, so that it needs as many as it is high. Of a few rows more than one
tile has, two would compute most of a tile twice: lower ones compute less, if they keep the multipliers busy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tvm import tirx

from ..words.sizes import may_lie, surely
from ..words.tvm_types import Expr

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

Span = tuple[int, int]  # of rows: the first, and the one behind the last
ALL = (0, 1 << 31)


def open_heights(rows: SizeLike, tallest: int, busy: Callable[[int], bool]) -> list[tuple[int, list[Span]]]:
    """Heights of tiles, the tallest first, each with the numbers of rows that it computes; none of them in vain, and
    every number that ``rows`` may be by one of them. ``busy``: tiles of a height keep the multipliers busy."""
    found, height, spans = [], tallest, [ALL]
    while spans:
        less = -(-height // 2)
        few = [(0, height)] * (height > 1) + [(height + 1, height + less + 1)] * (height > 1 and busy(less))
        own = _without(spans, few)
        if any(_may_lie(rows, s) for s in own):
            found.append((height, own))
        spans = [s for s in _without(spans, own) if _may_lie(rows, s)]
        height = less
    return found


def _may_lie(rows: SizeLike, span: Span) -> bool:
    outside = surely(lambda: rows < span[0]) or surely(lambda: rows >= span[1])
    return not outside and may_lie(rows, *span)


def within(rows: Expr, spans: Sequence[Span]) -> Expr | None:
    """Whether a number of rows is in one of the spans; None if every one is."""
    if list(spans) == [ALL]:
        return None
    ends = [([rows >= a] if a else []) + ([rows < b] if b != ALL[1] else []) for a, b in spans]
    return tirx.any(*(tirx.all(*both) for both in ends))


def _without(spans: Sequence[Span], others: Sequence[Span]) -> list[Span]:
    """What of ``spans`` is in none of the ``others``."""
    left = list(spans)
    for first, end in others:
        left = [part for a, b in left for part in ((a, min(b, first)), (max(a, end), b)) if part[0] < part[1]]
    return left
