"""The rows and columns of a tile group's members as straight lines: numbers by shape, see segments.py."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....schedules.conv.box_cost import Numbers
from .linear_reach import LinearReach


@dataclass
class Line:
    """Rows and columns of one member in every shape at once, in units of its own output; the words are those of
    segments.py."""

    row_scale: float
    column_scale: float
    end: Numbers
    start: Numbers
    first: Numbers
    left: Numbers
    right: Numbers
    window: Numbers = 0.0  # bytes
    whole: bool = False  # its outputs lie whole in memory
    fresh: Numbers = 0.0  # rows that a call computes
    low: Numbers = 0.0  # of its window: its first row, and the one after its last
    high: Numbers = 0.0
    part: Numbers = False  # where it is computed in the window of a concatenation
    own: Numbers = False  # where the window may be that of a chain


@dataclass(frozen=True)
class Chain:
    """Members that share one window. ``steps``: in which steps of a stripe it lives, and in which shapes; ``window``:
    its bytes; ``low`` to ``high``: the rows that it holds."""

    steps: dict[int, Numbers]
    window: Numbers
    low: Numbers
    high: Numbers

    def with_others(self, other: Chain, able: Numbers, row: Numbers) -> Chain:
        """This chain with ``other``'s members in its window in the shapes where ``able``; ``row``: bytes of a row."""
        steps = dict(self.steps)
        for step, own in other.steps.items():
            steps[step] = steps.get(step, False) | (own & able)
        low: Numbers = np.where(able, np.minimum(self.low, other.low), self.low)
        high: Numbers = np.where(able, np.maximum(self.high, other.high), self.high)
        return Chain(steps, np.where(able, (high - low) * row, self.window), low, high)


def merged(found: Line | None, reader: Line, rows: LinearReach, columns: LinearReach) -> Line | None:
    """The line of a member that serves the readers of ``found`` and ``reader`` as well, which reaches as ``rows`` and
    ``columns`` say. None if the scales of the two differ."""
    slope, before, after = rows.slope, rows.before, rows.after
    wide, left, right = columns.slope, columns.before, columns.after
    new = Line(
        slope * reader.row_scale,
        wide * reader.column_scale,
        slope * (reader.end - 1) + after,
        slope * reader.start + before,
        slope * reader.first + before,
        wide * reader.left + left,
        wide * (reader.right - 1) + right,
    )
    if found is None:
        return new
    if abs(found.row_scale - new.row_scale) > 0.1 * new.row_scale:
        return None
    return Line(
        new.row_scale,
        new.column_scale,
        np.maximum(found.end, new.end),
        np.minimum(found.start, new.start),
        np.minimum(found.first, new.first),
        np.minimum(found.left, new.left),
        np.maximum(found.right, new.right),
    )
