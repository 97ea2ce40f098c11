"""Outputs that take over the window of an input: residual layers, whose sum goes where what they add was.

    x -> conv -> conv -> conv + x -> y          y and x have one window, of as many rows as both need

That needs a kernel that reads x at its own place only and writes each element once, which the form says; and rows of x
that nobody reads afterwards, which follows from what members compute in each stripe. Rows that rings keep are saved
elsewhere in between (windows.py). The values of a chain of such members have one window and one base:

    x: rows 2 to 6    y: rows 1 to 5            a window of rows 1 to 6

and zeros at the same places outside of the image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ....schedules.words.group import Value
from ....schedules.words.layout import Layout
from ....schedules.words.tile_plan import Span
from .form import Form
from .members import Members
from .rows_and_columns import Piece, clipped

Rows = Sequence[Sequence[Sequence[Piece]]]
Chains = list[list[int]]  # members whose outputs have one window, in order


def chains_of(
    members: Members, layouts: Mapping[Value, Layout], form: Form, rows: Rows, columns: Sequence[Sequence[Span | None]]
) -> Chains:
    """Chains of members whose outputs may share one window, in program order: each overwrites the output of the one
    before it. A member is in one chain at most."""
    found: Chains = []
    for member, group in enumerate(members.groups):
        value = form.over.get(group.outputs[0])
        if value is None or not form.saves or not members.wholes.keys().isdisjoint(group.outputs):
            continue
        before = members.producer.get(value)
        if before is None or value in members.wholes.values() or not _fits(members, layouts, columns, member, before):
            continue
        if not _dead(members, rows, member, before):
            continue
        chain = next((c for c in found if c[-1] == before), None)
        if chain is not None:
            chain.append(member)
        elif not any(before in c for c in found):  # or another member took it over
            found.append([before, member])
    return found


def _fits(
    members: Members,
    layouts: Mapping[Value, Layout],
    columns: Sequence[Sequence[Span | None]],
    member: int,
    before: int,
) -> bool:
    """True if both have windows of all columns and of the same layout."""
    if member in members.whole or before in members.whole or len(columns[-1]) > 1:
        return False
    groups = members.groups[before], members.groups[member]
    if any(len(g.outputs) > 1 for g in groups):
        return False
    own = [layouts.get(g.outputs[0]) for g in groups]
    blocks = {(known.block, known.stored) if known is not None else (0, "") for known in own}
    return len(blocks) == 1 and columns[member][0] == columns[before][0]


def _dead(members: Members, rows: Rows, member: int, before: int) -> bool:
    """True if nobody needs a row of what ``before`` made once ``member`` has computed it."""
    value, height = members.groups[before].outputs[0], members.size(member, 2)
    if any(reader > member for reader, _ in members.readers[before]):
        return False
    for made, own in zip(rows[before], rows[member]):
        for stripe, piece in enumerate(own):
            fresh = clipped(piece.fresh, height)
            if fresh is None:
                continue
            if members.span(member, value, 2, fresh)[0] != fresh:
                return False
            after = [p.keep[0] for p in made[stripe + 1 :] if p.keep is not None]
            if after and min(after) < fresh[1]:
                return False
    return True


def with_joint_bases(rows: Rows, chains: Chains) -> list[list[list[Piece]]]:
    """``rows`` with the windows of all members of a chain at one base in each stripe, so that the same rows lie at the
    same bytes."""
    result = [[list(band) for band in member] for member in rows]
    for chain in chains:
        for band in range(len(result[0])):
            for stripe in range(len(result[0][band])):
                pieces = [result[m][band][stripe] for m in chain]
                bases = [p.base for p in pieces if p.fresh is not None or p.keep is not None]
                for m, piece in zip(chain, pieces):
                    result[m][band][stripe] = replace(piece, base=min(bases, default=0))
    return result
