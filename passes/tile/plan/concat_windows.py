"""Where parts of concatenations lie that are computed where they belong (concat_parts.py), and whether they can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....schedules.words.alignment import ALIGNMENT
from ....schedules.words.group import Value, dtype_bytes
from ....schedules.words.tile_plan import Span, Window
from .form import Untileable
from .members import Members
from .rows_and_columns import Piece, clipped


def part_windows(windows: Mapping[Value, Window], wholes: Mapping[Value, Value]) -> dict[Value, Window]:
    """Part -> its window, inside the window of its concatenation, one after the other. Raises Untileable if one does
    not begin at a cache line."""
    found: dict[Value, Window] = {}
    ends: dict[Value, int] = {}
    for part, whole in wholes.items():
        window = windows[whole]
        offset = ends.get(whole, window.offset)
        layout = window.layout.alike((1, part.shape[1], *window.layout.shape[2:]))
        if offset % ALIGNMENT:
            raise Untileable(f"{part.name} would not begin at a line of memory in {whole.name}")
        found[part] = Window(part, layout, offset)
        ends[whole] = offset + layout.elements * dtype_bytes(layout.held(part.dtype))
    return found


def check_parts(
    members: Members, rows: Sequence[Sequence[Sequence[Piece]]], columns: Sequence[Sequence[Span | None]]
) -> None:
    """Raises Untileable if the boxes of a part are not those of its concatenation, or would destroy what that keeps."""
    for part, whole in members.wholes.items():
        member, owner = members.producer[part], members.producer[whole]
        height, width = whole.shape[2:4]
        fine = all(clipped(a, width) == b for a, b in zip(columns[owner], columns[member]))
        pieces = [pair for a, b in zip(rows[owner], rows[member]) for pair in zip(a, b)]
        if not fine or not all(_appears(a, b, height) for a, b in pieces):
            raise Untileable(f"{part.name} and {whole.name} don't have the same boxes")


def _appears(whole: Piece, part: Piece, height: int) -> bool:
    """True if all new rows of ``whole`` are new in ``part``, and none that it has already."""
    new, own = clipped(whole.fresh, height), part.fresh
    if part.keep is not None or (new is None) != (own is None):
        return False
    if new is None or own is None:
        return True
    again = whole.keep is not None and own[0] < whole.keep[1] and whole.keep[0] < own[1]
    return own[0] <= new[0] and new[1] <= own[1] and own == clipped(own, height) and not again
