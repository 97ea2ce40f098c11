"""Which rows each member computes in each stripe of each band, what of them stays, and which columns in each block.

Everything follows backwards from the last output, which is cut as the form says: a value must hold the hull of what
its readers need for what they compute. Then, for a windowed value,

    recompute   it is computed whole in every stripe
    ring        only rows beyond the last ones so far are; those that this or a later stripe needs are kept

and for a value that lies whole in memory (it leaves the group, or is materialised) every task computes a part of its
own, each element once, and must find there all that it reads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ....schedules.words.tile_plan import Span
from .form import RECOMPUTE, RING, Form, Untileable, banded, clip, cut
from .members import Members


@dataclass(frozen=True)
class Piece:
    """One member in one stripe: ``fresh`` rows appear (computed within the tensor, filled outside of it), ``keep`` are
    there already and stay; the window begins at row ``base``. ``fresh`` None: nothing is new."""

    fresh: Span | None
    base: int = 0
    keep: Span | None = None

    @property
    def end(self) -> int:
        """The row after the last one that the window holds."""
        ends = [s[1] for s in (self.fresh, self.keep) if s is not None]
        return max(ends, default=self.base)


def row_pieces(members: Members, form: Form) -> list[list[list[Piece]]]:
    """The rows of all members as ``[member][band][stripe]``. Where rings would have to take in many rows in a band's
    first stripe, stripes come before it in which the last output computes nothing and the rings fill at their usual
    pace."""
    unit = members.alignment(len(members.groups) - 1, 2)
    bands = banded(members.last.shape[2], _step(members, 2, form.stripe_rows), form.bands, unit)
    plain = _pass(members, form, bands, None)
    warm = [_warm_up(members, form, [p[b] for p in plain]) for b in range(len(bands))]
    return _pass(members, form, bands, warm) if any(w.stripes for w in warm) else plain


@dataclass(frozen=True)
class _WarmUp:
    """``stripes`` come before a band's own; ``ends[member]`` are the rows that rings should have reached after each."""

    stripes: int
    ends: dict[int, list[int]]


def _warm_up(members: Members, form: Form, pieces: list[list[Piece]]) -> _WarmUp:
    paces: dict[int, tuple[int, int, int]] = {}  # first row, end after the first stripe, rows a stripe
    stripe = _step(members, 2, form.stripe_rows)
    count = 0
    for member, own in enumerate(pieces):
        first = own[0].fresh
        if member in members.whole or first is None or _mode(members, member, form) == RECOMPUTE:
            continue
        low, high = clip(first, members.size(member, 2))
        unit = math.lcm(form.unit(members.groups[member]), members.alignment(member, 2))
        pace = max(1, round(stripe * members.size(member, 2) / members.last.shape[2]))
        pace = -(-pace // unit) * unit
        paces[member] = low, high, pace
        count = max(count, -(-(high - low) // pace) - 1)
    ends = {m: [high - (count - j) * pace for j in range(count)] for m, (_, high, pace) in paces.items()}
    return _WarmUp(count, ends)


def _pass(
    members: Members, form: Form, bands: Sequence[Sequence[Span]], warm: Sequence[_WarmUp] | None
) -> list[list[list[Piece]]]:
    result: list[list[list[Piece]]] = [[] for _ in members.groups]
    last = len(members.groups) - 1
    counts = [w.stripes for w in warm] if warm else [0] * len(bands)
    for band, count in zip(bands, counts):
        result[last].append([Piece(None, band[0][0])] * count + [Piece(stripe, stripe[0]) for stripe in band])
    for member in reversed(range(last)):
        wanted = [
            [_wanted(members, member, result, b, s) for s in range(len(band))] for b, band in enumerate(result[last])
        ]
        height = members.size(member, 2)
        unit = math.lcm(form.unit(members.groups[member]), members.alignment(member, 2))
        if member in members.whole:
            cuts = _own(members, member, 2, [_joined(w) for w in wanted], [(b[0][0], b[-1][1]) for b in bands])
            result[member] = [_whole(members, member, w, own) for w, own in zip(wanted, cuts)]
        elif _mode(members, member, form) == RECOMPUTE:
            result[member] = [[Piece(w, w[0]) if w else Piece(None) for w in band] for band in wanted]
        else:
            for b, band_wants in enumerate(wanted):
                ends = warm[b].ends.get(member, []) if warm else []
                result[member].append(_ring(band_wants, ends, height, unit))
    return result


def _mode(members: Members, member: int, form: Form) -> str:
    """The mode of a member's windows: recompute if all of its outputs are."""
    modes = {form.mode(v) for v in members.groups[member].outputs}
    return RECOMPUTE if modes == {RECOMPUTE} else RING


def column_spans(members: Members, form: Form) -> list[list[Span | None]]:
    """The columns of all members as ``[member][block]``: those that the member's window holds, or that it computes of
    an output that lies whole."""
    blocks = cut(members.last.shape[3], _step(members, 3, form.column_width))
    result: list[list[Span | None]] = [[] for _ in members.groups]
    last = len(members.groups) - 1
    result[last] = list(blocks)
    for member in reversed(range(last)):
        wanted = []
        for k in range(len(blocks)):
            computed = [clipped(r[k], members.size(i, 3)) if r else None for i, r in enumerate(result)]
            wanted.append(members.wanted(member, 3, computed))
        if member in members.whole:
            wanted = list(_own(members, member, 3, wanted, blocks))
        result[member] = wanted
    return result


def _step(members: Members, axis: int, step: int) -> int:
    """``step``, as a multiple of what the last member's boxes must be multiples of."""
    unit = members.alignment(len(members.groups) - 1, axis)
    return -(-step // unit) * unit


def clipped(span: Span | None, size: int) -> Span | None:
    """``span`` clipped to ``[0, size)``; None if nothing of it is within."""
    if span is None:
        return None
    low, high = clip(span, size)
    return (low, high) if low < high else None


def _wanted(members: Members, member: int, pieces: list[list[list[Piece]]], band: int, stripe: int) -> Span | None:
    computed: list[Span | None] = [None] * len(members.groups)
    for reader, _ in members.readers[member]:
        computed[reader] = clipped(pieces[reader][band][stripe].fresh, members.size(reader, 2))
    return members.wanted(member, 2, computed)


def _joined(spans: Sequence[Span | None]) -> Span | None:
    real = [s for s in spans if s is not None]
    return (min(s[0] for s in real), max(s[1] for s in real)) if real else None


def _ring(wanted: Sequence[Span | None], ends: Sequence[int], height: int, unit: int) -> list[Piece]:
    """Rows appear once, up to multiples of ``unit``, and no later than they are wanted; at least up to ``ends`` in the
    first stripes. Where none is wanted none appears: a row too early would have all members before make theirs."""
    pieces: list[Piece] = []
    produced: int | None = None
    for s, now in enumerate(wanted):
        future = _joined(wanted[s:])
        if future is None:
            pieces.append(Piece(None))
            continue
        first = future[0]
        keep = (first, produced) if produced is not None and first < produced else None
        start = first if keep is None else keep[1]
        end = now[1] if now is not None else start
        if s < len(ends):
            end = max(end, min(ends[s], height))
        if unit > 1 and start < end < height:
            end = min(height, -(-end // unit) * unit)
        fresh = (start, end) if end > start else None
        if fresh is not None:
            produced = end
        pieces.append(Piece(fresh, first, keep))
    return pieces


def _own(members: Members, member: int, axis: int, wanted: Sequence[Span | None], parts: Sequence[Span]) -> list[Span]:
    """What each band or block computes of a whole value: without gaps or overlap, beginning where its need does."""
    size, total, step = members.size(member, axis), members.last.shape[axis], members.alignment(member, axis)
    starts = []
    for need, part in zip(wanted, parts):
        at = clip(need, size)[0] if need is not None else part[0] * size // total
        starts.append(at // step * step)
    starts[0] = 0
    ends = [*starts[1:], size]
    for i, (low, high) in enumerate(zip(starts, ends)):
        need = wanted[i]
        inside = clipped(need, size) if need is not None else None
        if low > high or (inside is not None and not low <= inside[0] <= inside[1] <= high):
            name = members.groups[member].outputs[0].name
            what = "band" if axis == 2 else "column block"
            raise Untileable(f"{name} lies whole in memory, but a {what} needs a part of it that another one makes")
    return list(zip(starts, ends))


def _whole(members: Members, member: int, wanted: Sequence[Span | None], own: Span) -> list[Piece]:
    """Rows of a whole value appear as they are needed, the rest of the band's own in its last stripe."""
    pieces = []
    at = own[0]
    height, step = members.size(member, 2), members.alignment(member, 2)
    for s, need in enumerate(wanted):
        end = at
        if s == len(wanted) - 1:
            end = own[1]
        elif not members.readers[member]:
            end = own[0] + (own[1] - own[0]) * (s + 1) // len(wanted) // step * step
        elif need is not None:
            end = max(at, clip(need, height)[1])
        pieces.append(Piece((at, end) if end > at else None, at))
        at = end
    return pieces
