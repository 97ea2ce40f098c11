"""Products of bytes on a matrix unit, of any number of rows.

    parallel for block of rows, as high as half of the second level holds
      rows of A -> scratch                       each as long as whole windows; what a last register lacks is anything
      for panel of B
        for 32 rows                              or the last 16, if there are no more
          sums, and the epilogue of the rows that there are

:mod:`.amx_int8` has the rest: panels, windows, sums.
"""

from __future__ import annotations

from functools import partial

from tvm import tirx

from ..instructions.amx import COLUMNS, ROW_BYTES, ROWS, MatrixUnit
from ..words.dims import to_index
from ..words.group import Kernel, Packed, Request
from ..words.sizes import usual
from ..words.tvm_types import Expr
from .amx_blocks import STAYS
from .amx_int8 import TOGETHER, WORDS, MatrixBytes
from .amx_kernel import STACK_BYTES
from .facts import MatmulFacts
from .regions import Region

TALL = 2 * ROWS  # rows of a whole block


def build_open_bytes(request: Request, facts: MatmulFacts) -> Kernel:
    """The kernel of a product of bytes with an open number of rows on the matrix unit; its sums are exact in int32."""
    return _OpenBytes(request, facts).build()


class _OpenBytes(MatrixBytes):
    def __init__(self, request: Request, facts: MatmulFacts) -> None:
        super().__init__(request, facts, (2, min(2, -(-facts.n // COLUMNS))))
        self.unit, self.rows = MatrixUnit(self.k), to_index(facts.rows)
        most = max(TALL, int(STAYS * request.target.l2_bytes) // self.pitch // TALL * TALL)
        each = -(-usual(facts.rows) // request.workers)
        self.block = min(most, max(TALL, -(-each // TALL) * TALL))  # rows of a task

    def build(self) -> Kernel:
        k, facts = self.k, self.facts
        a = self.ctx.buffer(facts.a)
        elements = -(-facts.n // COLUMNS) * self.windows * WORDS
        b = self.ctx.packed(Packed(f"w_{facts.b.name}", self._registers_of_b, elements, "int32"), narrow=False)
        blocks, size = to_index(-(-facts.rows // self.block)), self.block * self.pitch
        with k.loop(blocks, "parallel" if self.shared and self.request.workers > 1 else "serial", "p") as p:
            first = self.bind(p * self.block, self.rows)
            count = self.bind(tirx.min(self.rows - first, self.block), self.block + 1)
            rows = k.local("rows", "uint8", size, "global")
            self._copy_rows(a, rows, self.bind(0 - first * self.pitch, self.rows), first, first + count)
            self.unit.configure()
            whole = self.bind(tirx.floordiv(count + (ROWS - 1), TALL), self.block // TALL + 1)
            for region in self._regions():
                with k.loop(region.panels, name="n") as panel:
                    with k.loop(whole, name="t") as t:
                        self._rows_of(region, (rows, b), panel, (first, t * TALL, count), 2)
                    with k.when(whole * TALL < count):
                        self._rows_of(region, (rows, b), panel, (first, whole * TALL, count), 1)
            self.unit.release()
        return Kernel(
            function=k.finish(),
            operands=tuple(self.ctx.operands),
            outputs=self.request.group.outputs,
            schedule=f"matmul of bytes packed, matrix unit, {self.windows} windows, blocks of {self.block} rows",
            flops=usual(facts.flops),
            workspace=-(-size // ROW_BYTES) * ROW_BYTES + ROW_BYTES if size > STACK_BYTES else 0,
        )

    def _rows_of(
        self, region: Region, operands: tuple[Expr, Expr], panel: Expr, place: tuple[Expr, Expr, Expr], high: int
    ) -> None:
        """``high`` registers of rows by one panel; ``place``: the first row of the task, that of the block in it, and
        how many rows the task has."""
        k, (first, begin, count) = self.k, place
        begin = self.bind(begin, self.block)
        origin = self.bind(begin * self.pitch, self.block * self.pitch)
        sums, width = self._sums(region, *operands, panel, origin, high), region.vectors
        left = self.bind(tirx.min(count - begin, high * ROWS), high * ROWS + 1)
        column = region.first + panel * (self.width * COLUMNS)
        whole = width if region.last == COLUMNS else width - 1
        vectors = [(0, whole, COLUMNS), (whole, width - whole, region.last)]

        def some(r: Expr, together: int) -> None:
            for at, columns, lanes in vectors:
                if columns:
                    with k.loop(lanes, "vectorized", "v") as v:
                        self.ctx.ranged(v, lanes)

                        def one(i: int, j: int) -> None:
                            value = sums[((r + i) * width + j) * COLUMNS + v]  # noqa: B023
                            row = first + begin + r + i
                            self._element(k.bind(value), 0, row, column + j * COLUMNS + v)  # noqa: B023

                        k.interleave([partial(one, i, at + j) for i in range(together) for j in range(columns)])

        groups = self.bind(tirx.floordiv(left, TOGETHER), high * ROWS // TOGETHER + 1)
        with k.loop(groups, name="r") as r:
            some(r * TOGETHER, TOGETHER)
        with k.loop(left - groups * TOGETHER, name="r") as r:
            some(groups * TOGETHER + r, 1)
