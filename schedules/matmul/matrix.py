"""Products of float32 on the matrix unit (:mod:`..matrix.unit`), as three products of parts (:mod:`..matrix.parts`).

    parallel for batch, block of rows, group of panels        (:mod:`.registers`)
      rows of A -> [register][step][part][16 rows][16 words]                            split once for all panels
      for panel of B, two registers of columns
        for block of two registers of rows
          for step of 32 terms                                                           rolled
            c[2][2] += tail * head + head * head + head * tail
          c -> sums[32 rows][2 vectors]                                                  a few KB on the stack
          for row: epilogue(sums[row])

A constant B lies in panels [N / 16][step][part][16 pairs][16 columns], split at compile time: four bytes an element, as
before. A is read through the moves before it, the output is written through those behind it, as :mod:`.packed` does.

Error: each product of two elements lacks up to 2**-16 of itself, whatever is infinite becomes NaN; off under ``exact``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
from tvm import tirx

from ..group import Kernel, Packed, Request
from ..matrix.parts import THREE, WORDS, order, pack, parts_of, split
from ..matrix.unit import DEPTH, PAIRS, ROWS, MatrixUnit, Rows, may_split
from .facts import MatmulFacts
from .follow import follow
from .moves import producers, read_steps
from .packed import Region, _Matmul
from .registers import Registers, Shape, choose_registers, heights, pieces

PARTS = parts_of(THREE)
STACK_BYTES = 64 * 1024  # larger locals come from the worker's workspace
BYTES = 4  # of a word


def shape_of(facts: MatmulFacts) -> Shape:
    return Shape(facts.rows, facts.k, facts.n, 1 if facts.flat else int(np.prod(facts.batch, dtype=np.int64)))


def fits_unit(request: Request, facts: MatmulFacts) -> bool:
    """True if the product may be computed on the matrix unit: float32 by a constant, but not by whole numbers, whose
    sums are exact; A read along memory."""
    if not may_split(request) or facts.output.dtype != "float32" or request.target.memory_kind == "scratchpad":
        return False
    if not facts.packs or facts.b.is_whole:
        return False
    assert request.group.anchor is not None
    moved = producers(request.group, facts.a)
    return not moved or read_steps(request.group, request.group.anchor, facts.a)[0] == 1


def build_matrix(request: Request, facts: MatmulFacts) -> Kernel:
    return _Matrix(request, facts, choose_registers(request.target, shape_of(facts), request.workers)[1]).build()


class _Matrix(_Matmul):
    def __init__(self, request: Request, facts: MatmulFacts, chosen: Registers) -> None:
        super().__init__(request, facts, (ROWS, chosen.width))
        self.streams, self.chosen, self.shape = False, chosen, shape_of(facts)
        self.unit = MatrixUnit(self.k)
        self.workspace = 0

    def build(self) -> Kernel:
        shape, chosen, k = self.shape, self.chosen, self.k
        a = None if self.moved else self.ctx.buffer(self.facts.a)
        elements = shape.column_registers * shape.steps * PARTS * WORDS
        b = self.ctx.packed(Packed(f"w_{self.facts.b.name}", self._registers_of_b, elements, "int32"), narrow=False)
        panels = -(-shape.column_registers // chosen.width)
        run = -(-panels // chosen.groups)
        total = shape.batches * chosen.row_blocks * chosen.groups
        with k.loop(total, "parallel" if total > 1 and shape.large else "serial", "p") as p:
            self.ctx.ranged(p, total)
            group = self.bind(tirx.floormod(p, chosen.groups), chosen.groups)
            block = self.bind(tirx.floormod(tirx.floordiv(p, chosen.groups), chosen.row_blocks), chosen.row_blocks)
            batch = self.bind(tirx.floordiv(p, chosen.groups * chosen.row_blocks), shape.batches)
            self._task(a, b, (batch, block, group), run)
        return Kernel(
            function=k.finish(),
            operands=tuple(self.ctx.operands),
            outputs=self.request.group.outputs,
            schedule=f"matmul on the matrix unit, blocks of {chosen.rows * ROWS} rows, panels of {chosen.width}x16",
            flops=self.facts.flops,
            workspace=self.workspace,
        )

    def _registers_of_b(self) -> np.ndarray:
        """Panels one after the other: [panel][step][part][register][WORDS]."""
        columns, found = pack(self._steps_of_b(), order(self.shape.depth), PARTS), []
        for region in self._regions():
            first, count = region.first // self.lanes, region.panels * region.vectors
            part = columns[first : first + count].reshape(region.panels, region.vectors, *columns.shape[1:])
            found.append(part.transpose(0, 2, 3, 1, 4).reshape(-1))
        return np.concatenate(found)

    # -- a task ----------------------------------------------------------------------------------

    def _task(self, a: Any, b: Any, place: tuple[Any, Any, Any], run: int) -> None:
        k, chosen, (batch, block, group) = self.k, self.chosen, place
        first = self.bind(block * (chosen.rows * ROWS), self.shape.rows)
        left = self._room(chosen.rows * self.shape.steps * PARTS * WORDS)
        sums = k.local("sums", "float32", 3 * 2 * ROWS * self.lanes, "global")
        self.unit.configure()
        self._split_rows(a, batch, first, left, (b, group * (run * chosen.width)))
        for region in self._regions():
            count: Any = region.panels
            begin: Any = 0
            if chosen.groups > 1:
                begin = group * run
                if region.first:  # the last panel, of the last group
                    with k.when(group == chosen.groups - 1):
                        self._panel_of_task(region, (left, b, sums), (batch, tirx.IntImm("int32", 0), block, first))
                    continue
                even = region.panels == chosen.groups * run
                count = run if even else tirx.max(tirx.min(region.panels - begin, run), 0)
            with k.loop(count, name="n") as n:
                panel = self.bind(begin + n, region.panels)
                self._panel_of_task(region, (left, b, sums), (batch, panel, block, first))
        self.unit.release()

    def _room(self, words: int) -> Any:
        """For the parts of a task's rows: on the stack, in the worker's workspace, or, where one task is all, in memory
        of the plan."""
        size = words * BYTES
        if size > STACK_BYTES and self.shape.batches * self.chosen.row_blocks * self.chosen.groups == 1:
            return self.ctx.scratch(words, "int32")
        if size > STACK_BYTES:
            self.workspace = -(-size // 64) * 64 + 64
        return self.k.local("parts", "int32", words, "global")

    def _split_rows(self, a: Any, batch: Any, first: Any, left: Any, right: tuple[Any, Any]) -> None:
        """The rows of a task in parts; what a last register lacks stays as it is. Meanwhile it asks for the first panel
        of B (``right``: B, and the panel's first register)."""
        k, rows, depth, steps = self.k, self.shape.rows, self.shape.depth, self.shape.steps
        base = 0 if self.facts.flat or self.moved else self._base(self.facts.a, self._batch_indices(batch))
        whole, rest = divmod(depth, DEPTH)
        registers: Any = self.chosen.rows
        if self.chosen.row_blocks > 1:
            registers = tirx.min(registers, tirx.floordiv(rows - first + (ROWS - 1), ROWS))
        with k.loop(registers, name="g") as g:
            self.ctx.ranged(g, self.chosen.rows)
            count: Any = ROWS if rows % ROWS == 0 else tirx.min(rows - first - g * ROWS, ROWS)

            def step(s: Any, split_step: Callable[[Any, Any, Any], None]) -> None:
                with k.loop(count, name="r") as r:
                    self.ctx.ranged(r, ROWS)
                    row = self.bind(first + g * ROWS + r, rows)
                    at = (g * steps + s) * (PARTS * WORDS) + r * PAIRS
                    split_step(lambda term: self._left(a, base, batch, row, s * DEPTH + term), left, at)

            if whole:
                with k.loop(whole, name="s") as s:
                    self.ctx.ranged(s, whole)
                    self._ask_ahead(right[0], right[1], (g, self.chosen.rows), s)
                    step(s, lambda element, left, at: self._split_run(element, left, at, (0, PAIRS), True))
            if rest:
                step(whole, partial(self._split_rest, rest))

    def _split_rest(self, rest: int, element: Callable[[Any], Any], left: Any, at: Any) -> None:
        """The last step, of fewer than DEPTH terms."""
        k, both, one = self.k, max(rest - PAIRS, 0), min(rest, PAIRS)
        for begin, end, pair in ((0, both, True), (both, one, False)):
            if begin < end:
                self._split_run(element, left, at, (begin, end), pair)
        if one < PAIRS:
            for part in range(PARTS):
                with k.loop(PAIRS - one, "vectorized", "v") as v:
                    k.store(left, at + part * WORDS + one + v, tirx.const(0, "int32"))

    def _split_run(
        self, element: Callable[[Any], Any], left: Any, at: Any, run: tuple[int, int], pair: bool
    ) -> None:
        """Words ``run`` of a step; without ``pair`` their second halves are zero."""
        begin, end = run
        with self.k.loop(end - begin, "vectorized", "v") as v:
            self.ctx.ranged(v, end - begin)
            second = element(PAIRS + begin + v) if pair else None
            words = split(self.k, element(begin + v), second, PARTS)
            for part, word in enumerate(words):
                self.k.store(left, at + part * WORDS + begin + v, word)

    def _panel_of_task(self, region: Region, memory: tuple[Any, Any, Any], place: tuple[Any, ...]) -> None:
        """One panel by all rows of a task: whole blocks, then a last one, which in the last task is another."""
        k, chosen = self.k, self.chosen
        batch, panel, block, first = place
        last_rows = self.shape.row_registers - (chosen.row_blocks - 1) * chosen.rows
        tall, blocks, last = heights(chosen.rows, region.vectors)
        _, fewer, end = heights(last_rows, region.vectors)
        count: Any = blocks
        final = block == chosen.row_blocks - 1
        if fewer != blocks:
            count = fewer if chosen.row_blocks == 1 else self.bind(tirx.Select(final, fewer, blocks), blocks + 1)
        most = max(blocks, fewer)
        if most:
            with k.loop(count, name="t") as t:
                self.ctx.ranged(t, most)
                self._block(region, memory, (tall, region.vectors), (batch, panel, first), t * tall, (t, most))
        if chosen.row_blocks > 1 and last:
            with k.when(block < chosen.row_blocks - 1):
                self._block(region, memory, (last, region.vectors), (batch, panel, first), blocks * tall, None)
        if end:
            with k.when(final) if chosen.row_blocks > 1 else nullcontext():
                self._block(region, memory, (end, region.vectors), (batch, panel, first), fewer * tall, None)

    def _block(
        self, region: Region, memory: Any, shape: tuple[int, int], place: Any, register: Any, turn: Any
    ) -> None:
        """Registers of rows from ``register`` on by one panel, and what follows; ``turn``: the number of the block, of
        how many that meet the panel."""
        k, unit, steps = self.k, self.unit, self.shape.steps
        (left, b, sums), (batch, panel, first), (rows, width) = memory, place, shape
        column = self.bind(region.first // self.lanes + panel * width, self.shape.column_registers)
        right = self.bind(column * (steps * PARTS * WORDS), 1 << 31)
        for high, begin, wide in pieces(rows, width):
            for c in range(high * wide):
                unit.zero(c)
            with k.loop(steps, name="s") as s:
                unit.step(
                    (high, wide),
                    THREE,
                    lambda i, part: Rows(left, (((register + i) * steps + s) * PARTS + part) * WORDS),  # noqa: B023
                    lambda j, part: Rows(b, right + ((s * PARTS + part) * width + begin + j) * WORDS),  # noqa: B023
                )
                if turn is not None:
                    self._ask_ahead(b, column + width, turn, s)
            for i in range(high):
                for j in range(wide):
                    at = (i * ROWS * width + begin + j) * self.lanes
                    unit.store(i * wide + j, Rows(sums, at, width * self.lanes * BYTES))
        row = self.bind(first + register * ROWS, self.shape.rows)
        self._rows_of_block(region, sums, batch, panel, (row, rows * ROWS))

    def _ask_ahead(self, b: Any, column: Any, turn: tuple[Any, int], step: Any) -> None:
        """Hints for the share of the panel from register ``column`` on that falls to a step of one of the turns
        (number, how many) before it."""
        size, steps = PARTS * WORDS, self.shape.steps
        follow(self.k, b, column * (steps * size), turn[0] * steps + step, self.chosen.width * size, turn[1], BYTES)

    def _rows_of_block(self, region: Region, sums: Any, batch: Any, panel: Any, rows: tuple[Any, int]) -> None:
        """The epilogue over the rows of a block that the output has."""
        k, lanes, (row, height) = self.k, self.lanes, rows
        column = region.first + panel * region.vectors * lanes
        whole = region.vectors if region.last == lanes else region.vectors - 1
        count: Any = height if self.shape.rows % ROWS == 0 else tirx.min(self.shape.rows - row, height)
        with k.loop(count, name="r") as r:
            self.ctx.ranged(r, height)
            for first, vectors, width in ((0, whole, lanes), (whole, region.vectors - whole, region.last)):
                if vectors:
                    kind = "serial" if self.costly else "unroll"
                    with k.loop(vectors, kind, "b") as j, k.loop(width, "vectorized", "v") as v:
                        self.ctx.ranged(v, width)
                        at = sums[(r * region.vectors + first + j) * lanes + v]
                        self._element(at, batch, row + r, column + (first + j) * lanes + v)
