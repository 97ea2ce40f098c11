"""Convolution of bytes on a matrix unit, in NCHW[16]c or of up to four channels.

    parallel for core: its run of images, groups of output channels and strips of outputs (:mod:`.strips`)
      for row, column                                        bytes of the input, copied: places of a strip
      for panel of 32 output channels
        for 32 places                                        16 are a register; the last block may have fewer
          for window                                         rolled: four registers of sums
            sums += 64 bytes behind each place * weights
          for row of outputs, column                         registers pass through the first-level cache
            epilogue(sums)

A place of a strip holds all channels of its position, one phase of the strides behind the other, and the next place
follows: a row of a register is any 64 neighbouring bytes, and taps of a row that are neighbours share them. So three
taps of 16 channels are one multiply-add, 7 x 7 taps of three channels with strides of two (16 bytes a place) are four,
and 512 channels eight a tap. Bytes that no tap reads, or no channel has, meet zero weights.

Sums are integers, the same in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from tvm import tirx

from ...instructions.amx import COLUMNS, REGISTER_BYTES, ROW_BYTES, ROWS, UNSIGNED_SIGNED, RegisterRows
from ...words.group import Kernel, Packed, Request
from ...words.tvm_types import Expr
from ..facts import ConvFacts
from ..kernel import ConvKernel, finish, new_context
from ..register_tile import Tile
from .int8_choose import BytesPlan, ByteWindow, bytes_of, held_bytes, workers_of
from .prefetch import NextAmxPanel
from .tasks import AmxTask, StripPlaces

if TYPE_CHECKING:
    from ...words.size_like import SizeLike

WORDS = REGISTER_BYTES // 4


def build_matrix_bytes(request: Request, facts: ConvFacts, plan: BytesPlan) -> Kernel:
    """The kernel of a convolution of bytes on the matrix unit by ``plan``; its sums are exact in int32."""
    conv = ConvKernel(request, facts, Tile(1, 1, 1), COLUMNS, new_context(request))
    emitter = _BytePlaces(conv, plan.strip, plan.groups, plan=plan)
    emitter.emit()
    kernel = finish(conv.ctx, f"dot products of bytes C{COLUMNS}, {plan}", facts.flops)
    return replace(kernel, fitted=emitter.fitted) if emitter.fits else kernel


@dataclass
class _BytePlaces(StripPlaces):
    plan: BytesPlan = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.windows = self.plan.windows
        self.steps = len(self.windows)
        self.offsets: Expr = None

    def emit(self) -> None:
        k, ctx = self.k, self.ctx
        weight, workers = self.facts.weight, workers_of(self.facts, self.plan, self.conv.request.workers)
        elements = self.blocks * self.steps * WORDS
        pack = partial(pack_weights, self.facts, self.windows)
        self.weights = ctx.packed(Packed(f"w_{weight.name}", pack, elements, "int32"), narrow=False)
        offsets = np.array([w.begin for w in self.windows], np.int32)
        if len(offsets) > 1 and not self.varies:
            self.offsets = ctx.packed(Packed("windows", offsets), narrow=False)
        each = held_bytes(self.plan)
        self.data = ctx.scratch(each * workers, "uint8")
        shares = ctx.shares_margins(workers)
        with k.loop(workers, "parallel" if workers > 1 else "serial", "w") as worker:
            if shares:
                ctx.fill_share(worker, workers, self.plan.groups == 1)
            self.base = worker * each if workers > 1 else 0
            self._begin()
            with self._own_tasks(worker, workers) as task:
                self._copy(task)
                self._panels(task)
            self.unit.release()

    def fitted(self, rows: SizeLike, columns: SizeLike) -> list[SizeLike]:
        """Bytes of the strip that a box of at most ``rows x columns`` outputs has."""
        return [bytes_of(self.plan, *self.places(rows, columns))]

    def _fit(self) -> None:
        super()._fit()
        if len(self.windows) > 1:
            self.offsets = self.k.local("windows", "int32", len(self.windows), "global")
            for number, window in enumerate(self.windows):
                self.k.store(self.offsets, number, window.row * self.pitch * self.plan.place + window.begin)

    # -- the data ---------------------------------------------------------------------------------

    def _copy(self, task: AmxTask) -> None:
        """Bytes of all that the strip's taps read, four blocks of a place at a time: a line where they have 16."""
        k, block = self.k, self.plan.block
        blocks = self.plan.channels // block
        for i, phase in enumerate(self.strip.phases):
            rows, columns = (s + r for s, r in zip(task.size, self.strip.reach(i)))
            with k.loop(rows, name="y") as y:
                self.ctx.ranged(y, self.strip.places if self.varies else self.strip.height)
                for first, number, each in ((0, blocks // 4, 4), (blocks - blocks % 4, 1, blocks % 4)):
                    if number * each:
                        with k.loop(number, name="cb") as cb, k.loop(columns, name="x") as x:
                            self.ctx.ranged(x, self.strip.pitch)
                            self._copy_place(task, i, phase, (y, x), first + 4 * self.ctx.ranged(cb, number), each)

    def _copy_place(
        self, task: AmxTask, number: int, phase: tuple[int, int], place: tuple[Expr, Expr], first: Expr, count: int
    ) -> None:
        """``count`` blocks from ``first`` on of one place of a phase."""
        k, block = self.k, self.plan.block
        data, at = self.conv.read(self.facts.data), self._read_at(task, phase, *place)
        begin = self.base + (place[0] * self.pitch + place[1]) * self.plan.place + number * self.plan.channels
        for b in range(count):
            source = self.conv.offset(task.n, (first + b, 0), at)
            with k.loop(block, "vectorized", "v") as v:
                k.store(self.data, begin + (first + b) * block + v, data[source + v])

    # -- the products -----------------------------------------------------------------------------

    def _sums(
        self, shape: tuple[int, int], block: Expr, first: Expr, turn: tuple[Expr, Expr], beside: Callable[[Expr], None]
    ) -> None:
        k, place = self.k, self.plan.place
        blocks = int(turn[1]) if isinstance(turn[1], (int, tirx.IntImm)) else None
        ahead = NextAmxPanel(blocks, self.steps, shape[1] * WORDS)
        origin = k.bind(self.base + first * place, "a")
        with k.loop(self.steps, name="s") as step:
            ahead.ask(k, self.weights, block * (self.steps * WORDS), turn[0], step)
            beside(step)
            start = k.bind(origin if self.offsets is None else origin + self.offsets[step], "a")
            right = k.bind((block * self.steps + step) * WORDS, "b")

            def data(row: int, part: int) -> RegisterRows:
                return RegisterRows(self.data, start + row * (ROWS * place), place)  # noqa: B023

            def weights(column: int, part: int) -> RegisterRows:
                return RegisterRows(self.weights, right + column * (self.steps * WORDS))  # noqa: B023

            self.unit.step(shape, ((0, 0),), data, weights, UNSIGNED_SIGNED)


def pack_weights(facts: ConvFacts, windows: tuple[ByteWindow, ...]) -> np.ndarray:
    """Registers of outputs by windows: int32 of four bytes each."""
    weight = np.asarray(facts.weight.constant, np.int8).reshape(facts.outputs, facts.channels * facts.taps)
    blocks = -(-facts.outputs // COLUMNS)
    whole = np.zeros((blocks * COLUMNS, facts.channels * facts.taps + 1), np.int8)  # the last one, -1, is zero
    whole[: facts.outputs, :-1] = weight
    terms = np.array([w.terms for w in windows]).reshape(-1)
    taken = whole[:, terms].reshape(blocks, COLUMNS, len(windows), ROW_BYTES // 4, 4)
    return np.ascontiguousarray(taken.transpose(0, 2, 3, 1, 4)).view("<i4").reshape(blocks, len(windows), WORDS)
