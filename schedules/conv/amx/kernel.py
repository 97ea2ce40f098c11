"""Direct convolution on a matrix unit, float32 in parts (:mod:`...instructions.bf16_parts`), in NCHW[16]c.

    parallel for core: its run of images, groups of output channels and strips of outputs (:mod:`.strips`)
      for pair of channel blocks, plane, row, column         words of parts, in scratch that stays in cache
      for panel of 32 output channels
        for 32 places                                        16 are a register; the last block may have fewer
          for pair of channel blocks, tap                    rolled: four registers of sums, products of parts
            sums += parts of the data * parts of the weights
          for row of outputs, column                         registers pass through the first-level cache
            epilogue(sums)

A register's rows are 16 places that follow each other in the scratch, whatever the taps, strides and dilation are: for
a tap they lie a constant distance behind. Panels of one register of outputs have 64 places instead of 32, so that four
registers of sums take turns all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from tvm import tirx

from ...instructions.amx import COLUMNS, DEPTH, PAIRS, ROWS, RegisterRows
from ...instructions.bf16_parts import THREE, WORDS, order_of_blocks, pack, parts_of, split, told
from ...math.bfloat16 import BITS, Narrow, bits_of
from ...words.group import Kernel, Packed, Request
from ...words.tvm_types import Expr
from ..facts import ConvFacts
from ..kernel import ConvKernel, finish, new_context
from ..register_tile import Tile
from .choose import LINE, MatrixPlan, held_bytes, workers_of
from .prefetch import NextAmxPanel, NextData
from .tasks import AmxTask, StripPlaces

if TYPE_CHECKING:
    from ...words.size_like import SizeLike


def build_matrix(request: Request, facts: ConvFacts, plan: MatrixPlan) -> Kernel:
    """The kernel of a convolution of float32 on the matrix unit by ``plan``, in bf16 parts."""
    conv = ConvKernel(request, facts, Tile(1, 1, 1), COLUMNS, new_context(request))
    emitter = MatrixConv(conv, plan)
    emitter.emit()
    kernel = finish(conv.ctx, f"{plan} C{COLUMNS}, {told(plan.products)}", facts.flops)
    return replace(kernel, fitted=emitter.fitted) if emitter.fits else kernel


class MatrixConv(StripPlaces):
    """``data`` lies in scratch, of which each core has a part from ``base`` on."""

    def __init__(self, conv: ConvKernel, plan: MatrixPlan) -> None:
        super().__init__(conv, plan.strip, plan.groups)
        self.plan, self.parts = plan, plan.parts
        self.image = self.origin = tirx.IntImm("int32", 0)  # of the strip: its image, and its first row
        self.pairs = -(-self.facts.channels // DEPTH)
        self.words = 2 if self.in_order else 1  # elements of the scratch in one
        self.apart = PAIRS * self.words  # elements from place to place
        self.plane: SizeLike = self.strip.places * self.apart  # elements of one part of one pair of blocks
        self.phase: SizeLike = self.pairs * self.parts * self.plane
        self.taps = self.facts.taps  # of each pair of blocks
        self.first_tap = self.first_word = 0  # of these, among all whose places and weights there are
        self.steps = self.pairs * self.taps

    @property
    def in_order(self) -> bool:
        """True if numbers of one part lie in scratch as they lie in memory, sixteen bits each."""
        return self.parts == 1

    @property
    def _reach(self) -> int:
        """Rows of the input below those of the first taps of the strip's outputs."""
        facts = self.facts
        return (facts.kernel[-2] - 1) * facts.dilation[-2] + 1 - facts.strides[-2] if len(facts.kernel) > 1 else 0

    def _below(self) -> NextData | None:
        """Who asks for the data of the next strip, where strips are whole rows below one another."""
        strip, (rows, columns) = self.strip, (1, *self.facts.out_spatial)[-2:]
        if self.conv.is_open or strip.columns < columns or strip.rows >= rows:
            return None
        registers = -(-strip.spread(strip.rows, columns) // (2 * ROWS))
        return NextData.of(self.conv, strip.rows, -(-self.blocks // (2 * self.plan.groups)) * registers * self.steps)

    def emit(self) -> None:
        k, ctx = self.k, self.ctx
        weight, workers = self.facts.weight, workers_of(self.facts, self.plan, self.conv.request.workers)
        packed = Packed(f"w_{weight.name}", self._packed(), self._elements, "int32")
        self.weights = ctx.packed(packed, narrow=False)
        offsets, self.offsets = self._offsets(), None
        if len(offsets) > 1 and not self.varies:
            self.offsets = ctx.packed(Packed("taps", offsets), narrow=False)
        each = held_bytes(self.facts.channels, self.plan) // 4 * self.words
        self.data, self.below = ctx.scratch(each * workers, BITS if self.in_order else "int32"), self._below()
        shares = ctx.shares_margins(workers)
        with ExitStack() as scopes:
            worker = scopes.enter_context(k.loop(workers, "parallel" if workers > 1 else "serial", "w"))
            if shares:
                ctx.fill_share(worker, workers, self.plan.groups == 1)
            self.base = worker * each if workers > 1 else 0
            self._begin()
            with self._own_tasks(worker, workers) as task:
                self.image, self.origin = task.n, task.origin[0]
                self._split(task)
                self._panels(task)
            self.unit.release()

    def fitted(self, rows: SizeLike, columns: SizeLike) -> list[SizeLike]:
        """Bytes of the strip that a box of at most ``rows x columns`` outputs has."""
        words = self.strip.words(self.pairs * self.parts, *self.places(rows, columns))
        return [-(-words // LINE) * LINE * 4]

    def _fit(self) -> None:
        super()._fit()
        if self.fits:
            places = (self.most[0] + (self.strip.height - self.strip.rows)) * self.pitch
            self.plane = self.k.hold(places * self.apart, "plane")
            self.phase = self.k.hold(self.plane * (self.pairs * self.parts), "phase")
        if len(self.strip.taps) > 1:
            k = self.k
            self.offsets = k.local("taps", "int32", len(self.strip.taps), "global")
            for number, tap in enumerate(self.strip.taps):
                at = (tap.row * self.pitch + tap.column) * self.apart + tap.phase * self.phase
                k.store(self.offsets, number, at)

    @property
    def _elements(self) -> int:
        """Words of the packed weights."""
        return self.blocks * self.steps * self.parts * WORDS

    def _packed(self) -> Callable[[], np.ndarray]:
        return partial(pack_weights, self.facts, self.parts)

    def _offsets(self) -> np.ndarray:
        """How far behind a place each tap reads, in words."""
        return np.array(self.strip.offsets(self.phase // self.apart), np.int32) * self.apart

    # -- the data ---------------------------------------------------------------------------------

    def _split(self, task: AmxTask) -> None:
        """Words of all that the strip's taps read."""
        k, facts = self.k, self.facts
        blocks = -(-facts.channels // COLUMNS)
        for first, count, both in ((0, blocks // 2, True), (blocks // 2, blocks % 2, False)):
            if count == 0:
                continue
            with k.loop(count, name="cb") as number:
                self.ctx.ranged(number, count)
                pair = first + number
                for i, phase in enumerate(self.strip.phases):
                    reach = self.strip.reach(i)
                    rows, columns = (s + r for s, r in zip(task.size, reach))
                    with k.loop(rows, name="y") as y, k.loop(columns, name="x") as x:
                        self.ctx.ranged(y, self.strip.places if self.varies else self.strip.height)
                        self.ctx.ranged(x, self.strip.pitch)
                        at = self._read_at(task, phase, y, x)
                        place = self.base + i * self.phase + pair * (self.parts * self.plane)
                        place += (y * self.pitch + x) * self.apart
                        if self.in_order:
                            self._round(task.n, pair, at, place, both)
                            continue
                        with k.loop(COLUMNS, "vectorized", "v") as v:
                            given = [self._number(task.n, 2 * pair + half, v, at) for half in range(1 + both)]
                            words = split(k, given[0], given[1] if both else None, self.parts)
                            for part, word in enumerate(words):
                                k.store(self.data, place + part * self.plane + v, word)

    def _round(self, n: Expr, pair: Expr, at: list[Expr], place: Expr, both: bool) -> None:
        """The numbers of a place, of a pair of blocks or of the last one; behind that, zeros."""
        data = Narrow(self.data)
        for half in range(2):
            with self.k.loop(COLUMNS, "vectorized", "v") as v:
                there = both or half == 0
                number = self._number(n, 2 * pair + half, v, at) if there else tirx.FloatImm("float32", 0.0)
                self.k.store(data, place + half * COLUMNS + v, number)

    def _number(self, n: Expr, block: Expr, lane: Expr, at: list[Expr]) -> Expr:
        value = self.conv.element_at(n, (block, lane), at)
        value = value if bits_of(value) is not None else self.k.bind(value)
        if not self.conv.has_prologue or self.facts.channels % COLUMNS == 0:
            return value  # blocks hold zeros past the last channel
        inside = block * COLUMNS + lane < self.facts.channels
        return tirx.Select(inside, value, tirx.const(0, "float32"))

    # -- the products -----------------------------------------------------------------------------

    def _sums(
        self, shape: tuple[int, int], block: Expr, first: Expr, turn: tuple[Expr, Expr], beside: Callable[[Expr], None]
    ) -> None:
        k = self.k
        ahead = NextAmxPanel(turn[1], self.steps, shape[1] * self.parts * WORDS)
        below = (self.origin + self.strip.rows) * self.facts.strides[0] + self._reach - self.facts.before[0]
        below = k.bind(below, "y") if self.below is not None else None
        with k.loop(self.pairs, name="cb") as pair, k.loop(self.taps, name="t") as tap:
            start = self.base + first * self.apart + pair * (self.parts * self.plane)
            if self.offsets is not None:
                start = start + self.offsets[self.first_tap + tap]
            start = k.bind(start, "a")
            number = pair * self.taps + tap
            step = k.bind(self.first_word + (block * self.steps + number) * (self.parts * WORDS), "b")

            def data(row: int, part: int) -> RegisterRows:
                begin = start + (part * self.plane + row * (ROWS * self.apart))  # noqa: B023
                return RegisterRows(self.data, begin, 4 // self.words * self.apart)

            def weights(column: int, part: int) -> RegisterRows:
                return RegisterRows(self.weights, step + (column * self.steps * self.parts + part) * WORDS)  # noqa: B023

            ahead.ask(k, self.weights, self.first_word + block * (self.steps * self.parts * WORDS), turn[0], number)
            if self.below is not None and isinstance(ahead.count, int):
                panel = tirx.floordiv(block, 2) * ahead.count + turn[0]
                self.below.ask(self.image, below, panel * self.steps + number)
            self.unit.step(shape, self.plan.products, data, weights)
            beside(number)


def pack_weights(facts: ConvFacts, parts: int = parts_of(THREE)) -> np.ndarray:
    """Registers of outputs by steps, pair of channel blocks by pair and tap by tap."""
    weight = np.asarray(facts.weight.constant, np.float32).reshape(facts.outputs, facts.channels * facts.taps)
    return pack(weight.T, order_of_blocks(facts.channels, facts.taps, parts), parts)
