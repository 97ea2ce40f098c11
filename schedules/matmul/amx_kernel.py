"""Products of float32 on the matrix unit (:mod:`..instructions.amx`), as three products of parts
(:mod:`..instructions.bf16_parts`), or, with precision ``bfloat16``, as one.

    parallel for batch, block of rows, group of panels        (:mod:`.amx_blocks`)
      rows of A -> [register][step][part][16 rows][16 words]                            split once for all panels
      for panel of B, two registers of columns
        for block of two registers of rows
          for step of 32 terms                                                           rolled
            c[2][2] += tail * head + head * head + head * tail
            epilogue of a few rows of the block before                                   BESIDE
          c -> sums[32 rows][2 vectors]                                                  two of them, on the stack

A constant B lies in panels [N / 32][step][part][2][16 pairs][16 columns], split at compile time: four bytes an element,
as before. While a panel is met by all blocks of rows, they ask for the next one (:mod:`.prefetch`), and for the first
one while rows are split. A is read through the moves before it, the output is written through those behind it, as
:mod:`.packed` does.

Error: each product of two elements lacks up to 2**-15 of itself (more where it, or an element, is nearly a denormal
number), whatever is infinite becomes NaN; off under ``exact``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from tvm import tirx

from ..instructions.amx import DEPTH, PAIRS, ROWS, SUMS, MatrixUnit, RegisterRows, may_split
from ..instructions.bf16_parts import WORDS, order, pack, parts_of, products_of, split
from ..math.bfloat16 import BITS, Narrow
from ..words.dims import to_index
from ..words.group import Kernel, Packed, Request
from ..words.sizes import product, usual
from ..words.tvm_types import Buffer, Expr
from .amx_blocks import AmxRegisters, ProductShape, choose_registers, heights, pieces
from .facts import MatmulFacts
from .folded_moves import producers, read_steps
from .packed import _Matmul
from .prefetch import follow
from .regions import Region

BESIDE = 5  # steps: with fewer a core would not look past the rows between them (784 x 128 x 512, GELU: 1.10)
STACK_BYTES = 64 * 1024  # larger locals come from the worker's workspace
BYTES = 4  # of a word


@dataclass(frozen=True)
class Behind:
    """``rows`` of a panel, from ``row`` on, whose sums lie in scratch from ``at`` on and wait for their epilogue."""

    batch: Expr
    panel: Expr
    row: Expr
    rows: Expr
    at: Expr


def shape_of(request: Request, facts: MatmulFacts) -> ProductShape:
    """The shape of the product as the matrix unit sees it, at the sizes that the build plans for."""
    batches = 1 if facts.flat else usual(product(facts.batch))
    return ProductShape(usual(facts.rows), facts.k, facts.n, batches, products_of(request.policy))


def fits_unit(request: Request, facts: MatmulFacts) -> bool:
    """True if the product may be computed on the matrix unit: float32 by a constant, but not by whole numbers, whose
    sums are exact; A read along memory. Not where memory counts: parts of A
    take workspace of each core, which no plan shares."""
    if not may_split(request) or facts.output.dtype != "float32" or request.target.memory_kind == "scratchpad":
        return False
    if not request.policy.speed:
        return False
    if not facts.packs or facts.b.is_whole:
        return False
    assert request.group.anchor is not None
    moved = producers(request.group, facts.a)
    return not moved or read_steps(request.group, request.group.anchor, facts.a)[0] == 1


def build_matrix(request: Request, facts: MatmulFacts) -> Kernel:
    """The kernel of a product of float32 on the matrix unit, in bf16 parts."""
    chosen = choose_registers(request.target, shape_of(request, facts), request.workers)[1]
    return _Matrix(request, facts, chosen).build()


class _Matrix(_Matmul):
    def __init__(self, request: Request, facts: MatmulFacts, chosen: AmxRegisters) -> None:
        super().__init__(request, facts, (ROWS, chosen.width))
        self.streams, self.chosen, self.shape = False, chosen, shape_of(request, facts)
        self.parts = parts_of(self.shape.products)
        self.words = 2 if self.parts == 1 else 1  # elements of the split rows in one: numbers of one part lie in order
        self.unit = MatrixUnit(self.k)
        self.workspace = 0
        self.rows = to_index(facts.rows)
        self.row_blocks: int = chosen.row_blocks
        if self.open:
            self.row_blocks = to_index(-(-facts.rows // (chosen.rows * ROWS)))
        self.registers: Expr = chosen.rows  # of rows of the present task

    def build(self) -> Kernel:
        shape, chosen, k = self.shape, self.chosen, self.k
        a = None if self.moved else self.ctx.buffer(self.facts.a)
        elements = shape.column_registers * shape.steps * self.parts * WORDS
        b = self.ctx.packed(Packed(f"w_{self.facts.b.name}", self._registers_of_b, elements, "int32"), narrow=False)
        panels = -(-shape.column_registers // chosen.width)
        run = -(-panels // chosen.groups)
        batches = 1 if self.facts.flat else to_index(product(self.facts.batch))
        total = batches * self.row_blocks * chosen.groups
        parallel = shape.batches * chosen.row_blocks * chosen.groups > 1 and shape.large
        with k.loop(total, "parallel" if parallel else "serial", "p") as p:
            self.ctx.ranged(p, total)
            group = self.bind(tirx.floormod(p, chosen.groups), chosen.groups)
            block = self.bind(tirx.floormod(tirx.floordiv(p, chosen.groups), self.row_blocks), self.row_blocks)
            batch = self.bind(tirx.floordiv(p, chosen.groups * self.row_blocks), batches)
            self._task(a, b, (batch, block, group), run)
        return Kernel(
            function=k.finish(),
            operands=tuple(self.ctx.operands),
            outputs=self.request.group.outputs,
            schedule=f"matmul on the matrix unit, blocks of {chosen.rows * ROWS} rows, panels of {chosen.width}x16"
            + (", bfloat16" if self.parts == 1 else ""),
            flops=usual(self.facts.flops),
            workspace=self.workspace,
        )

    def _registers_of_b(self) -> np.ndarray:
        """Panels one after the other: [panel][step][part][register][WORDS]."""
        columns, found = pack(self._steps_of_b(), order(self.shape.depth, self.parts), self.parts), []
        for region in self._regions():
            first, count = region.first // self.lanes, region.panels * region.vectors
            part = columns[first : first + count].reshape(region.panels, region.vectors, *columns.shape[1:])
            found.append(part.transpose(0, 2, 3, 1, 4).reshape(-1))
        return np.concatenate(found)

    # -- a task ----------------------------------------------------------------------------------

    def _task(self, a: Buffer, b: Buffer, place: tuple[Expr, Expr, Expr], run: int) -> None:
        k, chosen, (batch, block, group) = self.k, self.chosen, place
        first = self.bind(block * (chosen.rows * ROWS), self.rows)
        words = chosen.rows * self.shape.steps * self.parts * WORDS
        left = k.local("parts", BITS if self.words == 2 else "int32", self.words * words, "global")
        if words * BYTES > STACK_BYTES:
            self.workspace = -(-words * BYTES // 64) * 64 + 64
        sums = k.local("sums", "float32", (2 * SUMS + 6) * ROWS * self.lanes, "global")
        self.unit.configure()
        self._split_rows(a, batch, first, left, (b, group * (run * chosen.width)))
        memory = (left, b, sums)
        for region in self._regions():
            count: Expr = region.panels
            begin: Expr = tirx.IntImm("int32", 0)
            if chosen.groups > 1 and region.first:  # the last panel, of the last group
                with k.when(group == chosen.groups - 1):
                    self._panels_of_task(region, memory, (batch, block, first), (begin, 1))
                continue
            if chosen.groups > 1:
                begin = group * run
                even = region.panels == chosen.groups * run
                count = run if even else self.bind(tirx.max(tirx.min(region.panels - begin, run), 0), run + 1)
            self._panels_of_task(region, memory, (batch, block, first), (begin, count))
        self.unit.release()

    def _split_rows(self, a: Buffer, batch: Expr, first: Expr, left: Expr, right: tuple[Buffer, Expr]) -> None:
        """The rows of a task in parts; what a last register lacks stays as it is. Meanwhile it asks for the first panel
        of B (``right``: B, and the panel's first register)."""
        k, rows, depth, steps = self.k, self.rows, self.shape.depth, self.shape.steps
        base = 0 if self.facts.flat or self.moved else self._base(self.facts.a, self._batch_indices(batch))
        whole, rest = divmod(depth, DEPTH)
        self.registers = self.chosen.rows
        if self.open or self.chosen.row_blocks > 1:
            self.registers = tirx.min(self.registers, tirx.floordiv(rows - first + (ROWS - 1), ROWS))
        if self.open:
            self.registers = self.bind(self.registers, self.chosen.rows + 1)
        with k.loop(self.registers, name="g") as g:
            self.ctx.ranged(g, self.chosen.rows)
            count: Expr = ROWS if not self.open and rows % ROWS == 0 else tirx.min(rows - first - g * ROWS, ROWS)

            def step(s: Expr, split_step: Callable[[Expr, Buffer, Expr], None]) -> None:
                with k.loop(count, name="r") as r:
                    self.ctx.ranged(r, ROWS)
                    row = self.bind(first + g * ROWS + r, rows)
                    at = (g * steps + s) * (self.parts * WORDS) + r * PAIRS
                    split_step(lambda term: self._left(a, base, batch, row, s * DEPTH + term), left, at)

            if whole:
                with k.loop(whole, name="s") as s:
                    self.ctx.ranged(s, whole)
                    self._ask_ahead(right[0], right[1], (g, self.chosen.rows), s)
                    if self.words == 2:
                        step(s, partial(self._round_step, DEPTH))
                    else:
                        step(s, lambda element, left, at: self._split_run(element, left, at, (0, PAIRS), True))
            if rest:
                step(whole, partial(self._round_step if self.words == 2 else self._split_rest, rest))

    def _round_step(self, terms: int, element: Callable[[Expr], Expr], left: Expr, at: Expr) -> None:
        """A step of so many terms, of one part; behind them, zeros."""
        k, data = self.k, Narrow(left)
        for begin, end in ((0, terms), (terms, DEPTH)):
            if begin < end:
                with k.loop(end - begin, "vectorized" if end - begin > 1 else "serial", "v") as v:
                    self.ctx.ranged(v, end - begin)
                    number = element(begin + v) if begin == 0 else tirx.FloatImm("float32", 0.0)
                    k.store(data, at * 2 + begin + v, number)

    def _split_rest(self, rest: int, element: Callable[[Expr], Expr], left: Expr, at: Expr) -> None:
        """The last step, of fewer than DEPTH terms."""
        k, both, one = self.k, max(rest - PAIRS, 0), min(rest, PAIRS)
        for begin, end, pair in ((0, both, True), (both, one, False)):
            if begin < end:
                self._split_run(element, left, at, (begin, end), pair)
        if one < PAIRS:
            for part in range(self.parts):
                with k.loop(PAIRS - one, "vectorized", "v") as v:
                    k.store(left, at + part * WORDS + one + v, tirx.const(0, "int32"))

    def _split_run(
        self, element: Callable[[Expr], Expr], left: Expr, at: Expr, run: tuple[int, int], pair: bool
    ) -> None:
        """Words ``run`` of a step; without ``pair`` their second halves are zero."""
        begin, end = run
        with self.k.loop(end - begin, "vectorized", "v") as v:
            self.ctx.ranged(v, end - begin)
            second = element(PAIRS + begin + v) if pair else None
            words = split(self.k, element(begin + v), second, self.parts)
            for part, word in enumerate(words):
                self.k.store(left, at + part * WORDS + begin + v, word)

    def _panels_of_task(
        self,
        region: Region,
        memory: tuple[Buffer, Buffer, Buffer],
        place: tuple[Expr, Expr, Expr],
        panels: tuple[Expr, Expr],
    ) -> None:
        """Emits the products of all rows of a task (``place``: batch, block of rows, first row) with a run of panels
        (``panels``: first, count). Rows go in blocks of equal height, then one lower block. Where sums are long, a
        block's epilogue runs beside the sums of the next block."""
        k, (batch, block, first), (begin, count) = self.k, place, panels
        tall, whole, most, ends = self._heights(region.vectors, block)
        beside = self.shape.steps >= BESIDE
        size = tall * region.vectors * ROWS * self.lanes

        def behind(panel: Expr, register: Expr, rows: int, at: Expr) -> Behind:
            row = self.bind(first + register * ROWS, self.rows)
            cut = self.open or self.rows % ROWS
            left = tirx.min(self.rows - row, rows * ROWS) if cut else rows * ROWS
            return Behind(batch, panel, row, left, at)

        def before(number: Expr) -> Behind:
            """The block before the one of this number among all of the run."""
            panel, t = tirx.floordiv(number - 1, whole), tirx.floormod(number - 1, whole)
            return behind(self.bind(begin + panel, region.panels), t * tall, tall, tirx.floormod(number - 1, 2) * size)

        with k.loop(count, name="n") as n:
            panel = self.bind(begin + n, region.panels)
            if most:
                with k.loop(whole, name="t") as t:
                    self.ctx.ranged(t, most)
                    number = self.bind(n * whole + t, region.panels * most)
                    waiting = before(number) if beside else None
                    if waiting is not None:
                        waiting = replace(waiting, rows=tirx.Select(number > 0, waiting.rows, 0))
                    at = tirx.floormod(number, 2) * size
                    self._block(region, memory, (tall, region.vectors), (panel, t * tall, at), (t, most), waiting)
                    if not beside:
                        self._finish(region, memory[2], behind(panel, t * tall, tall, at), 0, tall * ROWS)
            for rows, register, there in ends:
                with k.when(there) if there is not None else nullcontext():
                    self._block(region, memory, (rows, region.vectors), (panel, register, 2 * size))
                    self._finish(region, memory[2], behind(panel, register, rows, 2 * size), 0, rows * ROWS)
        if most and beside:
            with k.when(count * whole > 0):
                self._finish(region, memory[2], before(count * whole), 0, tall * ROWS)

    def _heights(self, width: int, block: Expr) -> tuple[int, Expr, int, list[tuple[int, int, Expr]]]:
        """How the rows of a task meet a panel of ``width`` registers: registers of a whole block, how many such blocks,
        how many at most, and lower last ones (registers, the first one, whether it is there; None: it is). The last
        task has fewer rows, and so another number of blocks and another lower one; of open rows any has."""
        chosen = self.chosen
        if self.open:
            tall, most, _ = heights(chosen.rows, width)
            lower = sorted({heights(n, width)[2] for n in range(1, chosen.rows + 1)} - {0})
            rest = tirx.floormod(self.registers, tall)
            if 3 in lower and width == 2:
                rest = tirx.Select(tirx.all(rest > 0, self.registers > tall), 3, rest)
            rest = self.bind(rest, tall + 2)
            whole = self.bind(tirx.floordiv(self.registers - rest, tall), most + 2)
            return tall, whole, chosen.rows // tall, [(n, whole * tall, tirx.EQ(rest, n)) for n in lower]
        last_rows = self.shape.row_registers - (chosen.row_blocks - 1) * chosen.rows
        tall, blocks, last = heights(chosen.rows, width)
        _, fewer, end = heights(last_rows, width)
        final = block == chosen.row_blocks - 1
        count: Expr = fewer if chosen.row_blocks == 1 else blocks
        if fewer != count:
            count = self.bind(tirx.Select(final, fewer, blocks), blocks + 1)
        several = chosen.row_blocks > 1
        ends = [(end, fewer * tall, final if several else None)]
        if several:
            ends.append((last, blocks * tall, block < chosen.row_blocks - 1))
        return tall, count, max(blocks, fewer), [e for e in ends if e[0]]

    def _block(
        self,
        region: Region,
        memory: tuple[Buffer, Buffer, Buffer],
        shape: tuple[int, int],
        place: tuple[Expr, Expr, Expr],
        turn: tuple[Expr, int] | None = None,
        waiting: Behind | None = None,
    ) -> None:
        """Registers of rows by one panel (``place``: panel, first register, and where the sums lie then). ``turn``: the
        number of the block, of how many that meet the panel; ``waiting`` is finished between its steps."""
        k, unit, steps = self.k, self.unit, self.shape.steps
        (left, b, sums), (panel, register, at), (rows, width) = memory, place, shape
        column = self.bind(region.first // self.lanes + panel * width, self.shape.column_registers)
        right = self.bind(column * (steps * self.parts * WORDS), 1 << 31)
        for high, begin, wide in pieces(rows, width):
            for c in range(high * wide):
                unit.zero(c)
            with k.loop(steps, name="s") as s:
                self.ctx.ranged(s, steps)
                unit.step(
                    (high, wide),
                    self.shape.products,
                    lambda i, part: RegisterRows(left, self._place(register + i, s, part)),  # noqa: B023
                    lambda j, part: RegisterRows(b, right + ((s * self.parts + part) * width + begin + j) * WORDS),  # noqa: B023
                )
                if turn is not None:
                    self._ask_ahead(b, column + width, turn, s)
                if waiting is not None:
                    each = -(-rows * ROWS // steps)
                    self._finish(region, sums, waiting, s * each, each)
            for i in range(high):
                for j in range(wide):
                    begins = at + (i * ROWS * width + begin + j) * self.lanes
                    unit.store(i * wide + j, RegisterRows(sums, begins, width * self.lanes * BYTES))

    def _place(self, register: Expr, step: Expr, part: int) -> Expr:
        """Where a register of the split rows begins."""
        return ((register * self.shape.steps + step) * self.parts + part) * (WORDS * self.words)

    def _ask_ahead(self, b: Buffer, column: Expr, turn: tuple[Expr, int], step: Expr) -> None:
        """Hints for the share of the panel from register ``column`` on that falls to a step of one of the turns
        (number, how many) before it."""
        size, steps = self.parts * WORDS, self.shape.steps
        follow(self.k, b, column * (steps * size), turn[0] * steps + step, self.chosen.width * size, turn[1], BYTES)

    def _finish(self, region: Region, sums: Buffer, behind: Behind, begin: Expr, most: int) -> None:
        """What follows the sums of up to ``most`` rows of a block, from row ``begin`` on."""
        k, lanes = self.k, self.lanes
        column = region.first + behind.panel * region.vectors * lanes
        whole = region.vectors if region.last == lanes else region.vectors - 1
        count = self.ctx.analyzer.simplify(tirx.max(tirx.min(behind.rows - begin, most), 0))
        with k.loop(count, name="r") as r:
            self.ctx.ranged(r, most)
            for first, vectors, width in ((0, whole, lanes), (whole, region.vectors - whole, region.last)):
                if vectors:
                    kind = "serial" if self.costly else "unroll"
                    with k.loop(vectors, kind, "b") as j, k.loop(width, "vectorized", "v") as v:
                        self.ctx.ranged(v, width)
                        at = sums[behind.at + ((begin + r) * region.vectors + first + j) * lanes + v]
                        self._element(at, behind.batch, behind.row + begin + r, column + (first + j) * lanes + v)
