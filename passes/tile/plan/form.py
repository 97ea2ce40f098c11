"""What a plan is made from: the form of a tile group, and why a form may be impossible."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ....schedules.words.group import Group, Value
from ....schedules.words.tile_plan import Span

RING, RECOMPUTE, MATERIALISE = "ring", "recompute", "materialise"
MODES = (RING, RECOMPUTE, MATERIALISE)


class Untileable(Exception):
    """A form that can't be planned; the message says why, in a line."""


@dataclass(frozen=True)
class NeededPart:
    """The part of an input that a box of an output needs, in rows and columns of the whole tensor. It may leave the
    tensor only if ``outside`` is a number: the fill that the reader must find there. None: the reader decides about
    edges itself, and never reads outside."""

    rows: Span
    columns: Span
    outside: float | None = None


Needs = Callable[[Group, Value, Span, Span], "NeededPart | None"]


@dataclass(frozen=True)
class Form:
    """How a tile group is cut: everything that its exact plan follows from.

    ``stripe_rows`` and ``column_width`` are sizes of a stripe and a column block in the group's last output, ``bands``
    the number of row ranges that are computed independently. ``modes`` has the mode of each inner value that is not
    kept in a ring. Rings take in multiples of ``quantum`` rows, or of ``quanta[value]`` (kernels may compute several
    rows at a time). ``sharing`` cores compute each step together. ``saves``: rings may save the rows they keep, where
    that takes fewer bytes. ``over``: output -> the input whose window it may overwrite, as far as kernels go. ``room``:
    see TilePlan. ``dying``: inputs whose memory nobody needs afterwards.
    """

    stripe_rows: int
    column_width: int
    bands: int = 1
    modes: Mapping[Value, str] = field(default_factory=dict)
    quantum: int = 1
    quanta: Mapping[Value, int] = field(default_factory=dict)
    sharing: int = 1
    saves: bool = False
    room: int | None = None
    over: Mapping[Value, Value] = field(default_factory=dict)
    dying: frozenset[Value] = frozenset()

    def mode(self, value: Value) -> str:
        """The mode of an inner value: RING, RECOMPUTE or MATERIALISE."""
        return self.modes.get(value, RING)

    def unit(self, group: Group) -> int:
        """Number of rows of which a ring with an output of ``group`` takes in multiples."""
        return max((self.quanta.get(v, self.quantum) for v in group.outputs), default=1)


def clip(span: Span, size: int) -> Span:
    """``span`` within ``[0, size)``; empty spans become (x, x)."""
    low = min(max(span[0], 0), size)
    return low, max(low, min(span[1], size))


def hull(a: Span | None, b: Span | None) -> Span | None:
    """The smallest span that holds both; None and empty spans hold nothing."""
    if a is None or a[0] >= a[1]:
        return b if b is not None and b[0] < b[1] else None
    if b is None or b[0] >= b[1]:
        return a
    return min(a[0], b[0]), max(a[1], b[1])


def cut(size: int, step: int) -> list[Span]:
    """``[0, size)`` in pieces of ``step``; the last may be shorter."""
    return [(at, min(at + step, size)) for at in range(0, size, step)]


def banded(size: int, step: int, bands: int, unit: int = 1) -> list[list[Span]]:
    """``[0, size)`` as [band][stripe]: ``bands`` parts as equal as multiples of ``unit`` allow, each cut into pieces of
    ``step``, of which the last may be shorter. There are fewer bands if there are fewer pieces."""
    bands = max(1, min(bands, -(-size // step)))
    starts = [low for low, _ in dealt(cut(size, unit * _grain(size, step, bands, unit)), bands)]
    return [[(a, min(a + step, end)) for a in range(low, end, step)] for low, end in zip(starts, [*starts[1:], size])]


def largest(size: int, step: int, bands: int) -> int:
    """An upper bound, and mostly the exact value, of the size of the largest band of :func:`banded`."""
    return _most(size, bands, _grain(size, step, bands, 1))


def _most(size: int, bands: int, grain: int) -> int:
    return min(size, math.ceil(math.ceil(size / grain) / bands) * grain)


def _grain(size: int, step: int, bands: int, unit: int) -> int:
    """Number of rows that bands begin at multiples of: up to 8 units, where that is a small part of a band, so that
    members at other scales begin at whole rows; fewer where more would cost another stripe."""
    least = -(-_most(size, bands, unit) // step)
    able = (g for g in (8, 4, 2) if 16 * g * unit * bands <= size)
    return next((g for g in able if -(-_most(size, bands, g * unit) // step) <= least), 1)


def dealt(pieces: Sequence[Span], parts: int) -> list[Span]:
    """``pieces`` joined to ``parts`` contiguous spans, as equal in number as possible."""
    count = len(pieces)
    ends = [(count * i // parts, count * (i + 1) // parts) for i in range(parts)]
    return [(pieces[a][0], pieces[b - 1][1]) for a, b in ends if a < b]
