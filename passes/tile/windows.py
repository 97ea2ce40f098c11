"""Where each window lies in a task's scratch.

Members run in order within a stripe. A window that keeps rows between stripes owns its bytes for the whole task; any
other only from its producer's step to its last reader's, and shares them with those that are not alive then. Windows
are placed largest first at the lowest offset that is free while they live.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...schedules.group import Value, dtype_bytes
from ...schedules.layout import Layout
from ...schedules.tileplan import Span, Window
from .members import Members
from .spans import Piece

ALIGNMENT = 64


def place_windows(
    members: Members,
    layouts: Mapping[Value, Layout],
    rows: Sequence[Sequence[Sequence[Piece]]],
    columns: Sequence[Sequence[Span | None]],
) -> tuple[dict[Value, Window], int]:
    """The windows by value, and the bytes of one task."""
    wanted: list[tuple[int, int, int, Value, Layout]] = []  # bytes, first, last, value, layout
    steps = len(members.groups)
    for member, group in enumerate(members.groups):
        if member in members.whole:
            continue
        pieces = [p for band in rows[member] for p in band]
        held = max((p.end - p.base for p in pieces), default=0)
        wide = max((c[1] - c[0] for c in columns[member] if c is not None), default=0)
        kept = any(p.keep is not None for p in pieces)
        for value in group.outputs:
            known = layouts.get(value)
            shape = (*value.shape[:2], max(1, held), max(1, wide))
            layout = Layout.blocked(shape, known.block if known is not None else 0)
            size = -(-layout.elements * dtype_bytes(value.dtype) // ALIGNMENT) * ALIGNMENT
            last = max((r for r, v in members.readers[member] if v is value), default=member)
            wanted.append((size, 0, steps, value, layout) if kept else (size, member, last, value, layout))
    wanted.sort(key=lambda w: (-w[0], w[1]))
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last
    windows: dict[Value, Window] = {}
    total = 0
    for size, first, last, value, layout in wanted:
        offset = 0
        for start, end, f, la in sorted(placed):
            if la < first or f > last:
                continue
            if start - offset >= size:
                break
            offset = max(offset, end)
        placed.append((offset, offset + size, first, last))
        total = max(total, offset + size)
        windows[value] = Window(value, layout, offset)
    return windows, total
