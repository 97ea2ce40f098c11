"""Blocks of a product on the matrix unit (:mod:`.amx_kernel`), and the cycles that they take.

    task: registers of rows (16 rows each) by panels (two registers of columns each)
      rows are split once          ``product_split`` a vector (targets/fitted.toml, ``unit``)
      panel, block of rows         2 x 2 registers, a step of 32 terms after the other
        sums                       through memory to what follows: ``product_sum`` a register

An odd register of rows makes three of the last block, column by column: alone it would wait for its own sums. A single
one meets two registers of columns at a time: three or four, whose weights are all that is loaded, take twice as long
(16 x 384 x 384: 9.3 and 15.5 us). The rows of a task stay in half of the second level, beside a panel. Tasks that
share rows split them each for itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...targets.target import Target
from ..instructions.amx import COLUMNS, DEPTH, ROWS, SUMS, block_cycles
from ..instructions.bf16_parts import THREE, Products, parts_of
from .blocking import PARALLEL_FLOPS

STAYS = 0.5  # of the second level: the split rows of a task
PART_BYTES = 2  # of an element


@dataclass(frozen=True)
class AmxRegisters:
    """How a product is cut on the matrix unit, in registers: ``rows`` of a block and the number of ``row_blocks``, of
    which the last may have fewer; ``width`` of a panel; the ``groups`` that panels fall into."""

    rows: int
    row_blocks: int
    width: int
    groups: int


@dataclass(frozen=True)
class ProductShape:
    """``batches`` products of ``rows x depth`` by ``depth x columns``, ``products`` of parts for one of float32."""

    rows: int
    depth: int
    columns: int
    batches: int = 1
    products: Products = THREE

    @property
    def element_bytes(self) -> int:
        """Bytes of an element in all its parts."""
        return PART_BYTES * parts_of(self.products)

    @property
    def steps(self) -> int:
        return -(-self.depth // DEPTH)

    @property
    def row_registers(self) -> int:
        return -(-self.rows // ROWS)

    @property
    def column_registers(self) -> int:
        return -(-self.columns // COLUMNS)

    @property
    def large(self) -> bool:
        """True if the product is large enough for cores to share it."""
        return 2 * self.batches * self.rows * self.depth * self.columns >= PARALLEL_FLOPS


def heights(registers: int, width: int) -> tuple[int, int, int]:
    """How ``registers`` of rows meet a panel of ``width`` registers: (registers of a block, number of such blocks,
    registers of a last one)."""
    tall = max(1, SUMS // width)
    blocks, last = divmod(registers, tall)
    if width == 2 and last and blocks:
        return tall, blocks - 1, 3
    return tall, blocks, last


def pieces(rows: int, width: int) -> list[tuple[int, int, int]]:
    """Blocks that fit the unit at once: registers of rows, the first of columns, and how many."""
    if rows * width <= SUMS:
        return [(rows, 0, width)]
    return [(rows, column, 1) for column in range(width)]


def choose_registers(target: Target, shape: ProductShape, workers: int) -> tuple[float, AmxRegisters]:
    """The blocks with the fewest cycles on ``workers`` cores, and these cycles."""
    workers = workers if shape.large else 1
    width = min(2, shape.column_registers)
    panels = -(-shape.column_registers // width)
    room = max(1, int(STAYS * target.l2_bytes) // (shape.steps * DEPTH * shape.element_bytes * ROWS))
    best: tuple[float, AmxRegisters] | None = None
    fewest = -(-shape.row_registers // max(room, 2))
    for row_blocks in range(fewest, fewest + 4 * workers):
        rows = -(-shape.row_registers // row_blocks)
        rows += rows % 2 if row_blocks > 1 else 0
        blocks = -(-shape.row_registers // rows)
        for groups in range(1, min(panels, 2 * workers) + 1):
            run = -(-panels // groups)
            chosen = AmxRegisters(rows, blocks, width, -(-panels // run))
            cycles = _cycles(target, shape, chosen, run, workers)
            if best is None or cycles < best[0]:
                best = cycles, chosen
    assert best is not None
    return best


def _cycles(target: Target, shape: ProductShape, chosen: AmxRegisters, run: int, workers: int) -> float:
    """Of the core that has the most to do."""
    tasks = shape.batches * chosen.row_blocks * chosen.groups
    fitted = target.fitted.unit
    split = chosen.rows * ROWS * shape.steps * 2 * (
        fitted.product_split if parts_of(shape.products) > 1 else fitted.product_split_once
    )
    columns = min(run * chosen.width, shape.column_registers)
    panels, last = divmod(columns, chosen.width)
    multiply = panels * panel_cycles(target, chosen.rows, chosen.width, shape.steps, shape.products)
    multiply += panel_cycles(target, chosen.rows, last, shape.steps, shape.products) if last else 0
    weights = shape.steps * DEPTH * shape.element_bytes * COLUMNS
    if shape.column_registers * weights > STAYS * target.l2_bytes:
        multiply = max(multiply, columns * weights / target.far_bytes)
    return -(-tasks // workers) * (fitted.product_task + split + multiply)


def panel_cycles(target: Target, registers: int, width: int, steps: int, products: Products = THREE) -> float:
    """Predicted cycles of all rows of a task by one panel."""
    fitted, (tall, blocks, last) = target.fitted.unit, heights(registers, width)
    cycles = 0.0
    for rows, times in ((tall, blocks), (last, 1 if last else 0)):
        inside = pieces(rows, width) if times else []
        step = fitted.product_step * sum(block_cycles((r, c), len(products)) for r, _, c in inside)
        cycles += times * (steps * step + rows * width * fitted.product_sum + len(inside) * fitted.product_block)
    return cycles
