"""Products of bytes on a matrix unit (:mod:`..instructions.amx`).

    parallel for core: a run of blocks of 32 rows, or of panels of 32 columns
      rows of A -> scratch                       where K is no multiple of 64, which are a row of a register
      for panel of B: [register of 16 columns][K / 64][16 words][16 columns]
        for block of rows                        last one moved back, never smaller
          for window of 64 bytes of K            rolled: four registers of sums
            sums += rows of A * words of B
          for row, register of columns           sums pass through the first-level cache
            epilogue(sums)

Rows of A are read where they lie if they are whole windows. Sums are integers, the same in any order. Fewer than 16
rows are left to vectors: they wait for B in either way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
from tvm import tirx

from ...targets.target import Target
from ..instructions.amx import (
    COLUMNS,
    MULTIPLY_CYCLES,
    REGISTER_BYTES,
    ROW_BYTES,
    ROWS,
    SUMS,
    UNSIGNED_SIGNED,
    MatrixUnit,
    RegisterRows,
    has_matrix_unit,
)  # fmt: skip
from ..instructions.int8_dot import multiplier, per_word
from ..words.group import Kernel, Packed, Request
from ..words.sizes import usual
from ..words.tvm_types import Buffer, Expr
from .blocking import PARALLEL_FLOPS
from .facts import MatmulFacts
from .packed import _Matmul
from .regions import Region
from .register_tile import least_cost, tile_space

KIND = "amx-int8"
TOGETHER = 4  # rows whose epilogues are computed in turns
WORDS = REGISTER_BYTES // 4
VECTOR = 16  # bytes of the end of a row that are copied at a time
MARGIN = 0.9  # the estimate must beat that of vectors by this much


def bytes_pay(request: Request, facts: MatmulFacts) -> bool:
    """True if the target multiplies bytes on a matrix unit, and that is expected to be faster."""
    if not has_matrix_unit(request.target, KIND) or not request.policy.matrix:
        return False
    if not facts.of_bytes or facts.a.dtype != "uint8" or usual(facts.rows) < ROWS:
        return False
    target = multiplier(request.target, facts.a.dtype)
    vectors = least_cost(target, *tile_space(request, facts)) * -(-facts.k // per_word(facts.a.dtype))
    return unit_cycles(target, facts) < MARGIN * vectors


def unit_cycles(target: Target, facts: MatmulFacts) -> float:
    """Predicted cycles of the product on the unit, on one core."""
    (height, width), fitted = _block(facts), target.fitted.unit
    windows, rows = -(-facts.k // ROW_BYTES), usual(facts.rows)
    blocks = -(-rows // (height * ROWS)) * -(-facts.n // (width * COLUMNS))
    register = windows * MULTIPLY_CYCLES / fitted.product_bytes_full + fitted.product_bytes_sum
    cycles = blocks * height * width * register
    cycles += fitted.product_bytes_task
    cycles += fitted.product_bytes_copy * rows * windows * (facts.k % ROW_BYTES > 0)
    return float(cycles)


def _block(facts: MatmulFacts) -> tuple[int, int]:
    """Registers of rows and of columns."""
    return (2, 2) if usual(facts.rows) >= 2 * ROWS else (1, SUMS)


def build_matrix_bytes(request: Request, facts: MatmulFacts) -> Kernel:
    """The kernel of a product of bytes on the matrix unit; its sums are exact in int32."""
    return _MatrixBytes(request, facts).build()


class MatrixBytes(_Matmul):
    """What kernels of products of bytes on the unit share. ``block``: registers of rows and of columns."""

    def __init__(self, request: Request, facts: MatmulFacts, block: tuple[int, int]) -> None:
        self.registers, width = block
        super().__init__(request, facts, (self.registers * ROWS, width))
        self.streams = False
        self.unit = MatrixUnit(self.k)
        self.windows = -(-facts.k // ROW_BYTES)
        self.pitch = self.windows * ROW_BYTES
        self.shared = usual(facts.flops) >= PARALLEL_FLOPS

    def _registers_of_b(self) -> np.ndarray:
        """[register of columns][window][word][column][byte]"""
        columns = -(-self.facts.n // COLUMNS)
        whole = np.zeros((self.pitch, columns * COLUMNS), np.int8)
        whole[: self.facts.k, : self.facts.n] = self._steps_of_b()
        split = whole.reshape(self.windows, ROW_BYTES // 4, 4, columns, COLUMNS)
        return np.ascontiguousarray(split.transpose(3, 0, 1, 4, 2)).view("<i4").reshape(-1)

    def _copy_rows(self, a: Buffer, scratch: Buffer, base: Expr, start: Expr, end: Expr) -> None:
        k, depth = self.k, self.facts.k
        whole, rest = divmod(depth, ROW_BYTES)
        with k.loop(self.ctx.analyzer.simplify(end - start), name="r", begin=start) as row:
            self.ctx.ranged(row, self.facts.rows)
            source, place = row * depth, base + row * self.pitch
            for begin, count, width in (
                (0, whole, ROW_BYTES),
                (whole * ROW_BYTES, rest // VECTOR, VECTOR),
                (depth - depth % VECTOR, depth % VECTOR, 1),
            ):
                if count:
                    with k.loop(count, name="s") as s, k.loop(width, "vectorized", "v") as v:
                        k.store(scratch, place + begin + s * width + v, a[source + begin + s * width + v])

    def _sums(self, region: Region, a: Buffer, b: Buffer, panel: Expr, origin: Expr, height: int) -> Buffer:
        """``height`` registers of rows, from ``origin`` on, by one panel, through the first-level cache:
        [row][register][column]."""
        k, unit, width = self.k, self.unit, region.vectors
        register = self.bind(region.first // COLUMNS + panel * self.width, -(-self.facts.n // COLUMNS))
        for i in range(height * width):
            unit.zero(i)
        with k.loop(self.windows, name="s") as s:
            left = k.bind(origin + s * ROW_BYTES, "a")
            right = k.bind((register * self.windows + s) * WORDS, "b")
            unit.step(
                (height, width),
                ((0, 0),),
                lambda i, _: RegisterRows(a, left + i * (ROWS * self.pitch), self.pitch),
                lambda j, _: RegisterRows(b, right + j * (self.windows * WORDS)),
                UNSIGNED_SIGNED,
            )
        sums = k.local("sums", "int32", height * width * ROWS * COLUMNS, "global")
        for i in range(height):
            for j in range(width):
                unit.store(i * width + j, RegisterRows(sums, (i * ROWS * width + j) * COLUMNS, width * ROW_BYTES))
        return sums


class _MatrixBytes(MatrixBytes):
    def __init__(self, request: Request, facts: MatmulFacts) -> None:
        height, width = _block(facts)
        super().__init__(request, facts, (height, min(width, -(-facts.n // COLUMNS))))
        self.blocks = -(-facts.rows // self.height)
        self.copied = facts.k % ROW_BYTES > 0
        panels = sum(r.panels for r in self._regions())
        self.workers = min(request.workers, max(self.blocks, panels)) if self.shared else 1
        self.by_rows = self.blocks >= 2 * self.workers or panels < self.workers

    def build(self) -> Kernel:
        k, facts, workers = self.k, self.facts, self.workers
        a = self.ctx.buffer(facts.a)
        elements = -(-facts.n // COLUMNS) * self.windows * WORDS
        b = self.ctx.packed(Packed(f"w_{facts.b.name}", self._registers_of_b, elements, "int32"), narrow=False)
        each = self.pitch * (self.height * -(-self.blocks // workers) if self.by_rows else facts.rows)
        scratch = self.ctx.scratch(each * workers, "uint8") if self.copied else a
        with k.loop(workers, "parallel" if workers > 1 else "serial", "w") as worker:
            self.ctx.ranged(worker, workers)
            self.unit.configure()
            first, blocks = self._share(worker, self.blocks) if self.by_rows else (0, self.blocks)
            base: Expr = 0
            if self.copied:
                start = self._row(first)
                base = k.bind(worker * each - start * self.pitch, "o")
                end = tirx.min((first + blocks) * self.height, facts.rows)
                self._copy_rows(a, scratch, base, start, end)
            for region in self._regions():
                with self._panels_of(worker, region) as panel, k.loop(blocks, name="t") as t:
                    self.ctx.ranged(t, self.blocks)
                    self._product(region, scratch, b, base, panel, self._row(first + t))
            self.unit.release()
        form = f"matrix unit, {self.windows} windows, blocks of {self.registers}x{self.width} registers"
        return Kernel(
            function=k.finish(),
            operands=tuple(self.ctx.operands),
            outputs=self.request.group.outputs,
            schedule=f"matmul of bytes packed, {form}{', rows copied' * self.copied}",
            flops=facts.flops,
        )

    # -- who computes what ------------------------------------------------------------------------

    def _share(self, worker: Expr, count: int) -> tuple[Expr, Expr]:
        """The first of a core's part of ``count`` things, and how many."""
        if self.workers == 1:
            return 0, count
        first = self.bind(tirx.floordiv(worker * count, self.workers), count + 1)
        return first, self.bind(tirx.floordiv((worker + 1) * count, self.workers) - first, count + 1)

    @contextmanager
    def _panels_of(self, worker: Expr, region: Region) -> Iterator[Expr]:
        first, count = (0, region.panels) if self.by_rows else self._share(worker, region.panels)
        with self.k.loop(count, name="n") as n:
            self.ctx.ranged(n, region.panels)
            yield self.bind(first + n, region.panels)

    def _row(self, block: Expr) -> Expr:
        """The first row of a block, the last of which is moved back."""
        row = block * self.height
        if self.facts.rows % self.height:
            row = tirx.min(row, self.facts.rows - self.height)
        return self.bind(row, self.facts.rows) if not isinstance(row, int) else row

    # -- a block ----------------------------------------------------------------------------------

    def _product(self, region: Region, a: Buffer, b: Buffer, base: Expr, panel: Expr, row: Expr) -> None:
        k, width = self.k, region.vectors
        origin = k.bind(base + row * self.pitch, "a")
        sums = self._sums(region, a, b, panel, origin, self.registers)
        column = region.first + panel * (self.width * COLUMNS)
        whole = width if region.last == COLUMNS else width - 1
        with k.loop(self.height // TOGETHER, name="r") as r:
            first = self.ctx.ranged(r, self.height // TOGETHER) * TOGETHER
            for begin, count, lanes in ((0, whole, COLUMNS), (whole, width - whole, region.last)):
                if count:
                    with k.loop(lanes, "vectorized", "v") as v:
                        self.ctx.ranged(v, lanes)

                        def one(i: int, j: int) -> None:
                            at = sums[((first + i) * width + j) * COLUMNS + v]  # noqa: B023
                            self._element(k.bind(at), 0, row + first + i, column + j * COLUMNS + v)  # noqa: B023

                        k.interleave([partial(one, i, begin + j) for i in range(TOGETHER) for j in range(count)])
