"""Columns of sources and targets for strips that take each step one behind the other.

    rows of the source, read once    |==============================================|
    lane 0                           |::::::::::::::::--|
    lane 1                                      |--::::::::::::::::--|
    lane 2                                                   |--:::::::::::::::::::::|
    rows of the target, written once |==============================================|

Arrays in memory and plain files give any pixels at their own cost. Of all others, the rows of a step are kept in the
width of all lanes until each lane has had its columns of them; those of targets, too, unless chunks end where lanes do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np

from .ahead import RowReader, RowsAhead, lies_in_file
from .bands import ReadBands, WriteBands, chunk_rows, chunk_sizes, rows_held
from .behind import RowWriter
from .columns import Columns, Span, StreamStrip
from .files import PlainFile
from .machine import Stream
from .step_rows import StepRows
from .views import View
from .words import Port, StreamPlan

Views = Mapping[str, View]


@dataclass
class Lane:
    """The stream of a strip, or of the whole image, with its columns of the sources and targets."""

    stream: Stream
    strip: StreamStrip | None
    seen: Views
    made: Views
    written: dict[str, int] = field(default_factory=dict)  # rows of each output

    def goes_on(self, plan: StreamPlan, step: int) -> None:
        """Its outputs go on with the rows of a step."""
        self.written = {p.name: max(0, step * p.count - p.delay) for p in plan.outputs}
        self.stream.sink = lambda port, rows: self._take(plan, port, rows)

    def _take(self, plan: StreamPlan, port: Port, rows: np.ndarray) -> None:
        if self.strip is not None and plan.columns is not None:
            rows = plan.columns.cut(port.name, rows, self.strip.taken)
        self.made[port.name].write(self.written[port.name], rows)
        self.written[port.name] += rows.shape[port.axis]


def sources_of(
    plan: StreamPlan, views: Views, strips: Sequence[StreamStrip], reader: RowReader | None
) -> list[Views]:
    """Each strip's columns of the sources. ``reader`` reads those of files ahead, where there is room for that."""
    assert plan.columns is not None
    found = {}
    for port in plan.inputs:
        view, spans = views[port.name], _spans(plan.columns, port.name, [s.crops for s in strips])
        if len(strips) > 1 and reader is not None and lies_in_file(view.array):
            view, spans = _across(view, plan.columns, port.name, spans)
            view.array = RowsAhead(view.array, view.row_axis, port.count, reader)
        elif len(strips) > 1 and not view.by_pixels():
            view, spans = _across(view, plan.columns, port.name, spans)
            view.array = ReadBands(view.array, view.row_axis, _band_rows(view, port), again=True)
        parts = [_columns(view, plan.columns, port.name, span) for span in spans]
        found[port.name] = parts if len(strips) > 1 else [part.banded(ReadBands) for part in parts]
    return [{name: parts[i] for name, parts in found.items()} for i in range(len(strips))]


def targets_of(
    plan: StreamPlan, views: Views, strips: Sequence[StreamStrip], writer: RowWriter | None
) -> tuple[list[Views], list[WriteBands]]:
    """Each strip's columns of the targets, and the bands in which rows may wait. ``writer`` writes the rows that files
    get of all strips together, where there is room for that."""
    assert plan.columns is not None
    found, bands = {}, []
    for port in plan.outputs:
        view, spans = views[port.name], _spans(plan.columns, port.name, [s.placed for s in strips])
        if len(strips) > 1 and _chunks_across(view, plan.columns, port.name, spans):
            view, spans = _across(view, plan.columns, port.name, spans)
            view.array = WriteBands(view.array, view.row_axis)
            bands.append(view.array)
            found[port.name] = [_columns(view, plan.columns, port.name, span) for span in spans]
        elif len(strips) > 1 and writer is not None and _in_one(view, plan.columns, port.name):
            view, spans = _across(view, plan.columns, port.name, spans)
            view.array = StepRows(view.array, view.row_axis, writer)
            found[port.name] = [_columns(view, plan.columns, port.name, span) for span in spans]
        else:
            found[port.name] = [_columns(view, plan.columns, port.name, s).banded(WriteBands) for s in spans]
            bands += [v.array for v in found[port.name] if isinstance(v.array, WriteBands)]
    return [{name: parts[i] for name, parts in found.items()} for i in range(len(strips))], bands


def waiting_bytes(plan: StreamPlan, sources: Views, targets: Views) -> int:
    """The bytes of rows that wait for each of several strips: of bands of its columns."""
    assert plan.columns is not None
    columns, strips, total = plan.columns, plan.columns.strips, 0
    for port in plan.inputs:
        view = sources[port.name]
        if not view.by_pixels():
            high = _band_rows(view, port)
            held = rows_held(port.count, high) if high != port.count else high
            spans = _spans(columns, port.name, [s.crops for s in strips])
            total += held * _column_bytes(view, columns, port.name, max(b - a for a, b in spans))
    for port in plan.outputs:
        view, spans = targets[port.name], _spans(columns, port.name, [s.placed for s in strips])
        high = chunk_rows(view.array, view.row_axis)
        held = high if high > 1 else 0
        if _chunks_across(view, columns, port.name, spans):
            held = rows_held(port.count, high)
        total += held * _column_bytes(view, columns, port.name, max(b - a for a, b in spans))
    return total


def ahead_bytes(plan: StreamPlan, sources: Views) -> int:
    """The bytes for each of several strips of rows of files that are read ahead: those of two steps."""
    assert plan.columns is not None
    columns, strips, total = plan.columns, plan.columns.strips, 0
    for port in plan.inputs:
        if lies_in_file((view := sources[port.name]).array):
            spans = _spans(columns, port.name, [s.crops for s in strips])
            total += 2 * port.count * _column_bytes(view, columns, port.name, max(b - a for a, b in spans))
    return total


def step_bytes(plan: StreamPlan, targets: Views) -> int:
    """The bytes for each of several strips of a step's rows that files get in one piece."""
    assert plan.columns is not None
    columns, strips, total = plan.columns, plan.columns.strips, 0
    for port in plan.outputs:
        if _in_one((view := targets[port.name]), columns, port.name):
            spans = _spans(columns, port.name, [s.placed for s in strips])
            total += port.count * _column_bytes(view, columns, port.name, max(b - a for a, b in spans))
    return total


def _in_one(view: View, columns: Columns, name: str) -> bool:
    """True if a target gets rows of all strips in one piece: a file of ours, whose columns are cut."""
    return view.behind is not None and isinstance(view.array, PlainFile) and name in columns.axes


def _spans(columns: Columns, name: str, parts: Sequence[Mapping[str, Span]]) -> list[Span]:
    """The columns of each strip; of what has no such columns, nothing that matters."""
    return [part[name] if name in columns.axes else (0, 0) for part in parts]


def _columns(view: View, columns: Columns, name: str, span: Span) -> View:
    return view.columns(columns.axes[name], *span) if name in columns.axes else view


def _across(view: View, columns: Columns, name: str, spans: Sequence[Span]) -> tuple[View, list[Span]]:
    """The columns that strips have together, and each strip's within them."""
    first, end = min(a for a, _ in spans), max(b for _, b in spans)
    return copy(_columns(view, columns, name, (first, end))), [(a - first, b - first) for a, b in spans]


def _band_rows(view: View, port: Port) -> int:
    """Rows of a band of a source: those of a chunk, or of a step."""
    high = chunk_rows(view.array, view.row_axis)
    return high if high > 1 else port.count


def _chunks_across(view: View, columns: Columns, name: str, spans: Sequence[Span]) -> bool:
    """Whether chunks of a target have columns of several strips."""
    chunks = chunk_sizes(view.array)
    if not chunks or name not in columns.axes:
        return False
    at = view.at(columns.axes[name])
    wide, last = chunks[at], view.array.shape[at]
    return any(a % wide or (b % wide and b != last) for a, b in spans)


def _column_bytes(view: View, columns: Columns, name: str, count: int) -> int:
    """Bytes of a row of so many columns."""
    shape = [n for a, n in enumerate(view.array.shape) if a != view.row_axis]
    size = math.prod(shape) * np.dtype(view.array.dtype).itemsize
    return size * count // columns.sizes[name] if name in columns.axes else size // len(columns.strips)
