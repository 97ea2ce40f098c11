"""The loop nest of maps: lines of merged axes in vectors, in the order of loops in which reads run along memory."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from tvm import tirx

from ..emit.known_gathers import MOST_VECTORS, WrittenLine
from ..words.dims import Dim, is_open, to_index
from ..words.sizes import product, surely, usual
from ..words.tvm_types import Expr
from .axes import Merged
from .block_squares import emit_block_squares, has_block_squares
from .concat_order import NOTE, joins, side_by_side
from .depth_to_space import chunks, from_whole_periods, in_periods, period
from .loop_interchange import emit_interchanged, innermost_axis
from .loop_nest import PARALLEL_WORK, Nest
from .open_middles import emit_spans
from .passes import emit_passes
from .pixel_shuffle import NOTE as TRANSPOSED
from .pixel_shuffle import least_width, squares
from .row_ranges import MOST, in_ranges, ranges

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

MOST_BESIDE = 4  # elements along an axis that are computed side by side
LEAST_STATEMENTS, SHARE = 32, 1.2  # of one of them, and how much more all are where each is for itself


class MapNest(Nest):
    """Emits one phase of maps."""

    def emit(self) -> None:
        extents = self.extents()
        if self.blocked:
            if not self.row and joins(self.s.request, extents):
                self.s.notes.append(NOTE)
                self._serial(*side_by_side(extents, self._lanes))
            elif has_block_squares(self, extents):
                emit_block_squares(self, extents)
            else:
                self._loops(extents, lambda loops: self._lanes(loops))
            return
        box = self.s.request.box
        if box is not None and box.open:
            self._serial(extents[:-1], [], lambda loops: self._open_line(loops, extents[-1]))
            return
        merged = self._merge(extents, 0)
        outer, inner = merged.outer, merged.inner
        if not merged.contiguous and emit_passes(self, extents, self._line):
            return
        periods = None if merged.contiguous else self._periods(extents)
        if periods is not None and self._periodic(merged, *periods):
            return
        if outer and not surely(lambda: inner < self.lanes) and not merged.contiguous:
            axis = innermost_axis(extents, len(extents) - 1, self._positions, self.ctx.analyzer.simplify)
            if axis is not None and axis < len(outer) and emit_interchanged(self, merged, axis, self._line):
                return
        work = usual(product(extents))
        if not outer and self.parallel and work >= PARALLEL_WORK:
            # one long axis: cores take chunks of whole vectors
            vectors, tail = divmod(inner, self.lanes)
            chunk = max(1, 4096 // self.lanes)
            chunks = -(-vectors // chunk)
            with self.k.loop(chunks, "parallel", "c") as c:
                self.ctx.ranged(c, chunks)
                count = tirx.min(vectors - c * chunk, chunk)
                with self.k.loop(count, name="j") as j:
                    self._vector(merged, [], (c * chunk + j) * self.lanes, self.lanes)
            self._tail(merged, [], vectors * self.lanes, tail)
            return
        if emit_spans(self, merged, extents, self._line):
            return
        parts = self._ranges_of_rows(merged, extents)
        self._side_by_side(merged, extents, max(parts, key=lambda part: part[1] - part[0], default=None))
        if len(parts) > 1:
            self.s.notes.append(f"{len(parts)} ranges of rows")
            self._loops(merged.outer, in_ranges(self.ctx, parts, lambda loops: self._line(merged, loops)))
            return
        self._loops(merged.outer, lambda loops: self._line(merged, loops))

    def _side_by_side(self, merged: Merged, extents: list[SizeLike], rows: tuple[int, int] | None) -> None:
        """Takes a short axis out of the loops whose elements share much of their work, such as the colours of a frame:
        vectors of all of them are computed next to each other then. ``rows``: where what is read is the same."""
        if is_open(extents) or self.ctx.origin is not None or len(self.phase.tensors) > 1:
            return
        for axis, extent in enumerate(merged.outer[:-1]):
            if not 1 < extent <= MOST_BESIDE:
                continue
            marks = [self.ctx.ranged(tirx.Var(f"m{i}", "int32"), e) for i, e in enumerate(extents)]
            if rows is not None:
                place = len(merged.outer) - 1
                marks[place] = self.ctx.ranged(tirx.Var("r", "int32"), rows[1] - rows[0]) + rows[0]
            one, together = (self._statements(marks, (axis + len(self.row), count)) for count in (1, extent))
            if one >= LEAST_STATEMENTS and together * SHARE < one * extent:
                self.beside = (axis + len(self.row), extent)
                merged.outer[axis] = 1
                self.s.notes.append(f"{extent} along axis {self.beside[0]} side by side")
                return

    def _statements(self, marks: list[Expr], beside: tuple[int, int]) -> int:
        """How many statements the elements side by side are, before any of it is in vectors."""
        self.beside = beside
        with self.k.capture() as statements:
            self._element(self.indices(marks, None))
        self.beside = None
        return len(statements)

    def _ranges_of_rows(self, merged: Merged, extents: list[SizeLike]) -> list[tuple[int, int]]:
        """The ranges of the last loop around a line in which what is read is the same; none where there are many."""
        if not merged.outer or is_open(extents) or self.ctx.origin is not None:
            return []
        marks = [self.ctx.ranged(tirx.Var(f"m{i}", "int32"), e) for i, e in enumerate(extents)]
        self._dry(marks, 0)
        place = len(merged.outer) - 1
        found = ranges(self.choices, marks[place], extents[place])
        return found if len(found) <= MOST else []

    def _periods(self, extents: list[Expr]) -> tuple[int, int] | None:
        """After how many rows and columns of an image accesses repeat, where they do; see :mod:`.depth_to_space`."""
        if len(extents) != 4 or (is_open(extents) and (self.s.request.box is not None or is_open(extents[1:2]))):
            return None
        marks = [self.ctx.ranged(tirx.Var(f"m{i}", "int32"), e) for i, e in enumerate(extents)]
        positions = self._positions(marks)
        rows, columns = (period(positions, mark) for mark in marks[2:])
        steps = max(rows, 1), columns
        return steps if columns and in_periods(self.ctx, extents, steps) else None

    def _periodic(self, merged: Merged, rows: int, columns: int) -> bool:
        """A map whose accesses repeat after ``rows`` and ``columns``; False where sizes are open and squares would not
        do. Open rows that are too short for a square are lines as of any map."""
        with from_whole_periods(self.ctx, (rows, columns)):
            given = self.ctx, self.extents(), (rows, columns), lambda at: self._element(self.indices(at, None))
            opened = is_open(self.extents())
            in_squares = squares(*given) if not opened or self.s.repeats() else None
            if opened and in_squares is None:
                return False
            self.s.notes.append(f"reads repeat after {rows} rows and {columns} columns")
            self.s.notes += [TRANSPOSED] if in_squares else []
            body = in_squares or chunks(*given)
            width, least = self.extents()[3], least_width(self.ctx, (rows, columns))
            if not opened or surely(lambda: width >= least):
                self._loops(*body)
                return True
            room = to_index(width) >= least
            with self.k.when(room):
                self._loops(*body)
            with self.k.when(tirx.Not(room)):
                self._loops(merged.outer, lambda loops: self._line(merged, loops))
        return True

    def _line(self, merged: Merged, loops: list[Expr]) -> None:
        vectors, tail = divmod(merged.inner, self.lanes)
        if self._is_written_out(merged, loops):
            self.k.written = WrittenLine(self.k.tables)
            for start in range(0, merged.inner, self.lanes):
                at = tirx.IntImm("int32", start)
                self._vector(merged, loops, at, min(self.lanes, merged.inner - start))
            self.k.written = None
            return
        if is_open([vectors]) or vectors:
            with self.k.loop(vectors, name="j") as j:
                self.ctx.ranged(j, vectors)
                self._vector(merged, loops, j * self.lanes, self.lanes)
        self._tail(merged, loops, vectors * self.lanes, tail)

    def _open_line(self, loops: list[Expr], columns: Expr) -> None:
        """A row of a box whose size is known at run time: whole vectors, then single elements."""
        vectors = tirx.floordiv(columns, self.lanes)
        with self.k.loop(vectors, name="j") as j, self.k.loop(self.lanes, "vectorized", "v") as v:
            self._element(self.indices([*loops, j * self.lanes + self.ctx.ranged(v, self.lanes)], None))
        with self.k.loop(columns - vectors * self.lanes, name="e") as e:
            self._element(self.indices([*loops, vectors * self.lanes + e], None))

    def _tail(self, merged: Merged, loops: list[Expr], start: SizeLike, count: SizeLike) -> None:
        """The ``count`` last elements of a line: one short vector; or of an open number a whole vector that ends there,
        which computes some again, if there is room and nothing that it reads was overwritten, else one by one."""
        if isinstance(count, Dim):
            whole = to_index(merged.inner)
            again = self.lanes > 1 and self.s.repeats()
            with self.k.when(whole < self.lanes) if again else nullcontext(), self.k.loop(count, name="e") as e:
                self._vector(merged, loops, self.ctx.ranged(e, self.lanes) + start, 1)
            if again:
                with self.k.when(tirx.all(whole >= self.lanes, to_index(count) > 0)):
                    self._vector(merged, loops, self.k.bind(whole - self.lanes, "x"), self.lanes)
        elif count:
            at = to_index(start) if isinstance(start, Dim) else tirx.IntImm("int32", start)
            self._vector(merged, loops, at, count)

    def _is_written_out(self, merged: Merged, loops: list[Expr]) -> bool:
        """True if reads jump along the line, and lie at places known at compile time once their vector's does."""
        if merged.count != 1 or isinstance(merged.inner, Dim) or self.ctx.origin is not None:
            return False
        if merged.inner > MOST_VECTORS * self.lanes:
            return False
        inputs = self.ctx.graph.group.inputs
        tables = any(v.constant is not None and v.dtype.startswith("int") and v.elements > 1 for v in inputs)
        if merged.contiguous and not tables:
            return False
        self.k.written = WrittenLine(self.k.tables)
        with self.k.capture():
            self._vector(merged, loops, tirx.IntImm("int32", 0), min(self.lanes, merged.inner))
        found, self.k.written = self.k.written.shuffles, None
        return found > 0
