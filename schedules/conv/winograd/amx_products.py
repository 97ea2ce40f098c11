"""What a Winograd kernel does between its transforms, on the matrix unit: V[xi] * U[xi] as products of the parts of
both (schedules/instructions/bf16_parts.py).

    transform of the data     two neighbouring blocks of channels at a time, each word a part of one channel of both
    for xi                    registers of sixteen tiles by registers of sixteen outputs, four sums at a time
      for step                1 to 4 registers of V and of U for each part: 32 channels

V lies as [xi][sixteen tiles][two blocks][part][tile][word]: every register is a run of 1 KiB, and those of the next
step follow. U lies as [chunk][matrix][step][part][vector], read in that order. M is written from the registers to
where register tiles would leave it. Tiles past a strip's last are multiplied with the others: whatever lies there is
a row of its own.

F(2x2, 3x3) takes three products of parts, which leave an error of 2**-15 at most, and mostly doubles it. The
transforms of larger tiles multiply errors by ten and more: they take six, which are as exact as float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from tvm import tirx

from ...instructions.amx import COLUMNS, PAIRS, ROW_BYTES, ROWS, SUMS, MatrixUnit, RegisterRows
from ...instructions.bf16_parts import WORDS, pack, parts_of, split
from ...instructions.prefetch import LINE, hint
from ...words.group import Packed
from ...words.tvm_types import Buffer, Expr
from ..kernel import ConvKernel
from .plan import WinogradPlan
from .prefetch import Ahead
from .products import BlockRun, Products, ScratchPart
from .transform import Transform
from .weights import transformed

if TYPE_CHECKING:
    from ...words.size_like import SizeLike

FAR = 1 << 30  # more than any position
WORDS_OF_LINE = LINE // 4
AHEAD = 16384  # bytes: what a step of 200 cycles multiplies by, four times


class MatrixProducts(Products):
    """``plan.rows`` is a register's; ``plan.vectors`` registers of outputs are a chunk."""

    dtype = "int32"

    def __init__(self, conv: ConvKernel, plan: WinogradPlan) -> None:
        self.parts = parts_of(plan.products)
        super().__init__(conv, plan)
        self.unit = MatrixUnit(self.k)
        self.weights: Buffer | None = None
        self.panel = self.steps * self.parts * WORDS  # elements of V from sixteen tiles to the next
        self.product_panel = ROWS * plan.vectors * COLUMNS  # of M
        self.panels = 0  # that begin with all of their xi; 0: xi by xi, each with all of its panels

    def by_panels(self) -> None:
        """V and M lie as [sixteen tiles][xi]: fewer tiles take less memory, and no stride depends on their number."""
        self.panels = self.plan.row_tiles
        self.data_plane, self.product_plane = self.panel + self.lanes, self.product_panel + self.lanes
        self.panel = self.t.products * self.data_plane
        self.product_panel = self.t.products * self.product_plane

    @property
    def data_elements(self) -> int:
        return self.panels * self.panel if self.panels else super().data_elements

    @property
    def product_elements(self) -> int:
        return self.panels * self.product_panel if self.panels else super().product_elements

    def product_at(self, slot: Expr, vector: Expr) -> Expr:
        if not self.panels:
            return super().product_at(slot, vector)
        row = self.conv.bind(tirx.floormod(slot, ROWS), ROWS)
        return tirx.floordiv(slot, ROWS) * self.product_panel + super().product_at(row, vector)

    def elements(self, tiles: SizeLike) -> tuple[SizeLike, SizeLike]:
        panels = -(-tiles // ROWS)
        return panels * self.panel, panels * self.product_panel

    @property
    def steps(self) -> int:
        return -(-self.blocks_in // 2)

    @property
    def block_elements(self) -> int:
        return self.steps * self.parts * PAIRS

    def begin(self) -> None:
        self.unit.configure()

    def end(self) -> None:
        self.unit.release()

    def give(self) -> None:
        plan, weight = self.plan, self.facts.weight
        chunks = plan.chunks_per_group * plan.groups
        terms = terms_of(self.facts.channels, plan.planes)
        elements = chunks * plan.transform.matrices * self._matrix_words
        given = np.asarray(weight.constant)
        make = partial(pack_parts, given, plan.transform, (chunks, plan.vectors), terms, self.parts)
        self.weights = self.ctx.packed(Packed(f"w_{weight.name}", make, elements, "int32"), narrow=False)

    @property
    def _matrix_words(self) -> int:
        """Of one chunk's weights for one matrix."""
        return self.steps * self.parts * self.plan.vectors * WORDS

    # -- the transformed data ---------------------------------------------------------------------

    def runs(self) -> list[BlockRun]:
        """Pairs of blocks; by itself the last, where it has lanes past the last channel or none beside it."""
        tail = self.facts.channels % self.lanes > 0
        if self.plan.planes > 1:
            pairs = self.blocks_in // 2
            runs = [BlockRun(0, pairs, 2, tail)]
            return runs if self.blocks_in == 2 * pairs else [*runs, BlockRun(2 * pairs, 1, 1, tail)]
        pairs = self.facts.channels // (2 * self.lanes)
        rest = self.blocks - 2 * pairs
        whole = [BlockRun(0, pairs, 2)] if pairs else []
        return [*whole, BlockRun(2 * pairs, 1, rest, tail)] if rest else whole

    def place(self, slot: Expr, block: Expr) -> Expr:
        panel = self.conv.bind(tirx.floordiv(slot, ROWS), self.plan.row_tiles)
        row = self.conv.bind(tirx.floormod(slot, ROWS), ROWS)
        step = tirx.floordiv(block, 2)
        at = ((panel * self.steps + step) * self.parts) * WORDS + row * PAIRS
        if self.panels:
            at = panel * self.panel + step * (self.parts * WORDS) + row * PAIRS
        return self.conv.bind(at, FAR)

    def keep(self, data: ScratchPart, place: Expr, xi: int, values: Sequence[Expr], lane: Expr) -> None:
        words = split(self.k, values[0], values[1] if len(values) > 1 else None, self.parts)
        for part, word in enumerate(words):
            self.k.store(data.buffer, data.base + place + (xi * self.data_plane + part * WORDS) + lane, word)

    # -- the products -----------------------------------------------------------------------------

    def multiply(
        self,
        data: ScratchPart,
        products: ScratchPart,
        chunk: Expr,
        count: Expr,
        hints: tuple[Ahead, tuple[Expr, Expr, Expr]],
    ) -> None:
        k, plan = self.k, self.plan
        high = SUMS // plan.vectors
        registers: Expr = plan.row_tiles
        if not isinstance(count, int):
            registers = self.conv.bind(tirx.floordiv(count + (ROWS - 1), ROWS), plan.row_tiles + 1)
        whole = registers // high if isinstance(registers, int) else tirx.floordiv(registers, high)
        rest = registers % high if isinstance(registers, int) else tirx.floormod(registers, high)
        with k.loop(self.t.products, name="xi") as xi:
            self.ctx.ranged(xi, self.t.products)
            number = chunk * plan.transform.matrices + self._matrix(xi)
            right = self.conv.bind(number * self._matrix_words, FAR)
            block = partial(self._block, data, products, xi, right, -(-plan.row_tiles // high))
            if not isinstance(whole, int) or whole:
                with k.loop(whole, name="r") as panel:
                    self.ctx.ranged(panel, max(1, plan.row_tiles // high))
                    block(panel * high, high)
            if isinstance(rest, int):
                if rest:
                    block(tirx.IntImm("int32", whole * high), rest)
                return
            for fewer in range(1, high):
                with k.when(tirx.EQ(rest, tirx.IntImm("int32", fewer))):
                    block(self.conv.bind(whole * high, plan.row_tiles), fewer)

    def _block(
        self,
        data: ScratchPart,
        products: ScratchPart,
        xi: Expr,
        right: Expr,
        blocks: int,
        first: Expr,
        high: int,
    ) -> None:
        """The sums of ``high`` registers of tiles from ``first`` on, by the chunk's outputs."""
        k, unit, vectors, parts = self.k, self.unit, self.plan.vectors, self.parts
        for i in range(high * vectors):
            unit.zero(i)
        panel = self.panel
        left = self.conv.bind(data.base + xi * self.data_plane + first * panel, FAR)
        ask = self._hints(right, tirx.floordiv(first, SUMS // vectors), blocks)
        with k.loop(self.steps, name="step") as step:
            self.ctx.ranged(step, self.steps)
            lines = ask(step)

            def a(row: int, part: int) -> RegisterRows:
                next(lines, None)
                return RegisterRows(data.buffer, left + step * (parts * WORDS) + (row * panel + part * WORDS))

            def b(column: int, part: int) -> RegisterRows:
                next(lines, None)
                place = right + step * (parts * vectors * WORDS) + (part * vectors + column) * WORDS
                return RegisterRows(self.weights, place)

            unit.step((high, vectors), self.plan.products, a, b)
        begin = products.base + xi * self.product_plane + first * self.product_panel
        for i in range(high):
            for j in range(vectors):
                at = begin + i * self.product_panel + j * COLUMNS
                unit.store(i * vectors + j, RegisterRows(products.buffer, at, vectors * ROW_BYTES))

    def _hints(self, right: Expr, number: Expr, blocks: int) -> Callable[[Expr], Iterator[None]]:
        """Hints for the weights that follow, some before each load of a register. The ``blocks`` of registers of tiles
        that share a matrix of weights ask for the next one, each for its part."""
        size, loads = self._matrix_words // self.steps, self.parts * (1 + self.plan.vectors)
        lines = -(-size // (WORDS_OF_LINE * blocks))  # a step's
        each = -(-lines // loads)
        begin = AHEAD // 4 if blocks == 1 else self._matrix_words
        if blocks > 1:
            right = self.conv.bind(right + number * (self.steps * lines * WORDS_OF_LINE), FAR)

        def ask(step: Expr) -> Iterator[None]:
            for first in range(0, lines, each):
                for line in range(first, min(first + each, lines)):
                    hint(self.k, self.weights, right + step * (lines * WORDS_OF_LINE) + (begin + line * WORDS_OF_LINE))
                yield

        return ask


def terms_of(channels: int, planes: int) -> np.ndarray:
    """Which channel, counted over all planes, stands where in the steps of a sum: [steps][pair][2], -1 for none. Each
    plane begins with a block of its own."""
    blocks = -(-channels // PAIRS)
    lane = np.arange(blocks * PAIRS)
    one = np.where(lane < channels, lane, -1)
    every = np.concatenate([np.where(one < 0, -1, one + plane * channels) for plane in range(planes)])
    steps = -(-len(every) // (2 * PAIRS))
    every = np.concatenate([every, np.full(steps * 2 * PAIRS - len(every), -1)])
    return every.reshape(steps, 2, PAIRS).transpose(0, 2, 1)


def pack_parts(
    weight: np.ndarray, transform: Transform, chunks: tuple[int, int], terms: np.ndarray, parts: int
) -> np.ndarray:
    """[O, I, planes..., rows, columns] -> [chunk][matrix][step][part][vector][words], of float32 that are rounded once.
    ``chunks``: how many, and vectors of each."""
    count, vectors = chunks
    packed = np.zeros((count, transform.matrices, len(terms), parts, vectors, WORDS), np.int32)
    for chunk, matrices in transformed(weight, transform, count, vectors * COLUMNS):
        for number, matrix in enumerate(matrices):
            made = pack(matrix.astype(np.float32), terms, parts)  # [vector][step][part][words]
            packed[chunk, number, :, :, : len(made)] = made.transpose(1, 2, 0, 3)
    return packed
