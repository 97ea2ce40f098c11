"""Direct convolution on a matrix unit, float32 in parts (:mod:`..matrix`), in NCHW[16]c.

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

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from tvm import tirx

from ..group import Kernel, Packed, Request
from ..matrix.parts import WORDS, pack, split
from ..matrix.unit import COLUMNS, DEPTH, PAIRS, ROW_BYTES, ROWS, SUMS, MatrixUnit, Rows
from .choose import Tile
from .facts import ConvFacts
from .matrix_ahead import Next, NextData
from .matrix_choose import PARTS, PRODUCTS, MatrixPlan, held_bytes, workers_of
from .tile import ConvKernel, finish, new_context


def build_matrix(request: Request, facts: ConvFacts, plan: MatrixPlan) -> Kernel:
    conv = ConvKernel(request, facts, Tile(1, 1, 1), COLUMNS, new_context(request))
    MatrixConv(conv, plan).emit()
    return finish(conv.ctx, f"{plan} C{COLUMNS}, {len(PRODUCTS)} products", facts.flops)


@dataclass
class Task:
    """What a task computes: an image, output channels (the first panel, how many), the first output of its strip and
    how many rows and columns."""

    n: Any
    panel: Any
    panels: Any
    origin: list[Any]
    size: list[Any]


@dataclass
class MatrixConv:
    conv: ConvKernel
    plan: MatrixPlan
    strip: Any = field(init=False)

    def __post_init__(self) -> None:
        self.k, self.ctx, self.facts = self.conv.k, self.conv.ctx, self.conv.facts
        self.unit, self.strip = MatrixUnit(self.k), self.plan.strip
        self.pairs = -(-self.facts.channels // DEPTH)
        self.blocks = self.conv.channel_blocks
        self.apart = PAIRS  # words from place to place
        self.plane = self.strip.places * self.apart  # words of one part of one pair of blocks
        self.phase = self.pairs * PARTS * self.plane
        self.taps = self.facts.taps  # of each pair of blocks
        self.first_tap = self.first_word = 0  # of these, among all whose places and weights there are
        self.steps = self.pairs * self.taps

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
        offsets = self._offsets()
        self.offsets = ctx.packed(Packed("taps", offsets), narrow=False) if len(offsets) > 1 else None
        each = held_bytes(self.facts.channels, self.plan) // 4
        self.data, self.below = ctx.scratch(each * workers, "int32"), self._below()
        ctx.fill_pending()
        with ExitStack() as scopes:
            worker = scopes.enter_context(k.loop(workers, "parallel" if workers > 1 else "serial", "w"))
            self.base = worker * each if workers > 1 else 0
            self.unit.configure()
            with self._own_tasks(worker, workers) as task:
                self._split(task)
                self._panels(task)
            self.unit.release()

    @property
    def _elements(self) -> int:
        """Words of the packed weights."""
        return self.blocks * self.steps * PARTS * WORDS

    def _packed(self) -> Callable[[], np.ndarray]:
        return partial(pack_weights, self.facts)

    def _offsets(self) -> np.ndarray:
        """How far behind a place each tap reads, in words."""
        return np.array(self.strip.offsets(self.phase // self.apart), np.int32) * self.apart

    @contextmanager
    def _own_tasks(self, worker: Any, workers: int) -> Iterator[Task]:
        """The tasks of one core: images first, then groups of output channels, then strips from the top."""
        k, conv, simplify = self.k, self.conv, self.ctx.analyzer.simplify
        spatial = list(conv.spatial)[-2:] if len(conv.spatial) > 1 else [tirx.IntImm("int32", 1), *conv.spatial]
        most = [self.strip.rows, self.strip.columns]
        counts = [tirx.floordiv(s + (m - 1), m) for s, m in zip(spatial, most)]
        down, across = (simplify(c) if not isinstance(c, int) else c for c in counts)
        total = simplify(down * across * (self.plan.groups * self.facts.batch))
        begin: Any = tirx.IntImm("int32", 0)
        if workers > 1:
            self.ctx.ranged(worker, workers)
            begin = simplify(tirx.floordiv(worker * total, workers))
            total = simplify(tirx.floordiv((worker + 1) * total, workers) - begin)
        with k.loop(total, name="p", begin=begin) as p:
            rest = p
            numbers = []
            for count in (across, down, self.plan.groups):
                numbers.append(conv.bind(tirx.floormod(rest, count), 1 << 24))
                rest = tirx.floordiv(rest, count)
            n = conv.bind(rest, self.facts.batch)
            origin = [conv.bind(number * m, 1 << 24) for number, m in zip((numbers[1], numbers[0]), most)]
            size = [
                m if isinstance(s, (int, tirx.IntImm)) and int(s) % m == 0 else conv.bind(tirx.min(s - o, m), m + 1)
                for s, o, m in zip(spatial, origin, most)
            ]
            panels = -(-self.blocks // 2)
            each = -(-panels // self.plan.groups)
            first = conv.bind(numbers[2] * each, panels)
            count = each if panels % self.plan.groups == 0 else conv.bind(tirx.min(panels - first, each), each + 1)
            yield Task(n, first, count, origin, size)

    def _position(self, task: Task, row: Any, column: Any) -> list[Any]:
        """Coordinates in the tensor of an output of the strip."""
        own = [task.origin[0] + row, task.origin[1] + column]
        if self.ctx.origin is not None:
            own = [self.conv.corner(i) + at for i, at in enumerate(own)]
        return own[-len(self.facts.out_spatial) :]

    # -- the data ---------------------------------------------------------------------------------

    def _split(self, task: Task) -> None:
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
                        self.ctx.ranged(y, self.strip.height)
                        self.ctx.ranged(x, self.strip.pitch)
                        at = self._read_at(task, phase, y, x)
                        place = self.base + i * self.phase + pair * (PARTS * self.plane)
                        place += (y * self.strip.pitch + x) * ROWS
                        with k.loop(COLUMNS, "vectorized", "v") as v:
                            given = [self._number(task.n, 2 * pair + half, v, at) for half in range(1 + both)]
                            words = split(k, given[0], given[1] if both else None, PARTS)
                            for part, word in enumerate(words):
                                k.store(self.data, place + part * self.plane + v, word)

    def _read_at(self, task: Task, phase: tuple[int, int], row: Any, column: Any) -> list[Any]:
        """Coordinates in the tensor of a place of a plane."""
        facts = self.facts
        rank = len(facts.out_spatial)
        output = self._position(task, row, column)
        return [o * s + p - b for o, s, p, b in zip(output, facts.strides, phase[-rank:], facts.before)]

    def _number(self, n: Any, block: Any, lane: Any, at: list[Any]) -> Any:
        value = self.k.bind(self.conv.element_at(n, (block, lane), at))
        if not self.conv.has_prologue or self.facts.channels % COLUMNS == 0:
            return value  # blocks hold zeros past the last channel
        inside = block * COLUMNS + lane < self.facts.channels
        return tirx.Select(inside, value, tirx.const(0, "float32"))

    # -- the products -----------------------------------------------------------------------------

    def _panels(self, task: Task) -> None:
        """All outputs of the strip, two registers of channels at a time; one where their number is odd."""
        whole, odd = self.blocks // 2, self.blocks % 2
        last = self.conv.bind(task.panel + task.panels, -(-self.blocks // 2) + 1)
        if whole:
            count = task.panels if not odd else tirx.min(last, whole) - task.panel
            with self.k.loop(self.ctx.analyzer.simplify(count), name="panel") as panel:
                self.ctx.ranged(panel, whole)
                self._places(task, self.conv.bind(2 * (task.panel + panel), self.blocks), 2)
        if odd:
            alone = self.plan.groups == 1
            with nullcontext() if alone else self.k.when(tirx.EQ(last, tirx.IntImm("int32", whole + 1))):
                self._places(task, tirx.IntImm("int32", 2 * whole), 1)

    def _places(self, task: Task, block: Any, columns: int) -> None:
        """All places of the strip by ``columns`` registers of outputs from ``block`` on."""
        k, height = self.k, SUMS // columns
        total = self.strip.spread(task.size[0], task.size[1])
        registers = tirx.floordiv(_number(total) + (ROWS - 1), ROWS)
        registers = self.ctx.analyzer.simplify(registers)
        blocks = -(-int(registers) // height) if isinstance(registers, tirx.IntImm) else None
        ahead = Next(blocks, self.steps, columns * PARTS * WORDS)
        whole = self.ctx.analyzer.simplify(tirx.floordiv(registers, height))
        with k.loop(whole, name="r") as r:
            self.ctx.ranged(r, -(-self.strip.places // (ROWS * height)))
            self._block(task, block, (height, columns), r, total, ahead)
        rest = self.ctx.analyzer.simplify(registers - whole * height)
        for rows in range(1, height):
            if isinstance(rest, tirx.IntImm):
                if int(rest) == rows:
                    self._block(task, block, (rows, columns), whole, total, ahead)
                continue
            with k.when(tirx.EQ(rest, tirx.IntImm("int32", rows))):
                self._block(task, block, (rows, columns), whole, total, ahead)

    def _block(
        self, task: Task, block: Any, shape: tuple[int, int], number: Any, total: Any, ahead: Next
    ) -> None:
        """The sums of block ``number`` of places, of ``shape`` registers, and their epilogue."""
        k, unit = self.k, self.unit
        first = self.conv.bind(number * (SUMS // shape[1] * ROWS), self.strip.places + 4 * ROWS)
        below = (task.origin[0] + self.strip.rows) * self.facts.strides[0] + self._reach - self.facts.before[0]
        below = k.bind(below, "y") if self.below is not None else None
        for i in range(shape[0] * shape[1]):
            unit.zero(i)
        with k.loop(self.pairs, name="cb") as pair, k.loop(self.taps, name="t") as tap:
            start = self.base + first * self.apart + pair * (PARTS * self.plane)
            if self.offsets is not None:
                start = start + self.offsets[self.first_tap + tap]
            start = k.bind(start, "a")
            step = self.first_word + (block * self.steps + pair * self.taps + tap) * (PARTS * WORDS)
            step = k.bind(step, "b")

            def data(row: int, part: int) -> Rows:
                begin = start + (part * self.plane + row * (ROWS * self.apart))  # noqa: B023
                return Rows(self.data, begin, 4 * self.apart)

            def weights(column: int, part: int) -> Rows:
                return Rows(self.weights, step + (column * self.steps * PARTS + part) * WORDS)  # noqa: B023

            step_number = pair * self.taps + tap
            panel_begin = self.first_word + block * (self.steps * PARTS * WORDS)
            ahead.ask(k, self.weights, panel_begin, number, step_number)
            if self.below is not None and isinstance(ahead.blocks, int):
                panel = tirx.floordiv(block, 2) * ahead.blocks + number
                self.below.ask(task.n, below, panel * self.steps + step_number)
            unit.step(shape, PRODUCTS, data, weights)
        sums = k.local("sums", "float32", shape[0] * shape[1] * ROWS * COLUMNS, "global")
        for i in range(shape[0]):
            for j in range(shape[1]):  # the outputs of a place lie together
                begin = (i * ROWS * shape[1] + j) * COLUMNS
                unit.store(i * shape[1] + j, Rows(sums, begin, ROW_BYTES * shape[1]))
        self._epilogue(task, block, shape, first, total, sums)

    def _epilogue(self, task: Task, block: Any, shape: tuple[int, int], first: Any, total: Any, sums: Any) -> None:
        """Rows of outputs that have places in the block, and of each the columns that have."""
        k, conv, pitch = self.k, self.conv, self.strip.pitch
        count = shape[0] * ROWS
        end = tirx.min(first + count, _number(total))
        top = conv.bind(tirx.floordiv(_number(first), pitch), self.strip.rows)
        rows = conv.bind(tirx.floordiv(end - 1, pitch) - top + 1, self.strip.rows + 1)
        with k.loop(rows, name="y") as y:
            row = conv.bind(top + y, self.strip.rows)
            left = conv.bind(tirx.max(first - row * pitch, 0), pitch)
            right = conv.bind(tirx.min(end - row * pitch, task.size[1]), pitch + 1)
            begin = conv.bind((row * pitch - first) * (shape[1] * COLUMNS), 1 << 24)
            with k.loop(tirx.max(right - left, 0), name="x") as x:
                column = left + x
                position = self._position(task, row, column)
                for j in range(shape[1]):
                    with k.loop(COLUMNS, "vectorized", "v") as v:
                        at = begin + (column * shape[1] + j) * COLUMNS + v
                        conv.element(lambda: k.bind(sums[at]), task.n, block + j, v, position)  # noqa: B023


def _number(value: Any) -> Any:
    return tirx.IntImm("int32", value) if isinstance(value, int) else value


def pack_weights(facts: ConvFacts) -> np.ndarray:
    """Registers of outputs by steps, pair of channel blocks by pair and tap by tap."""
    weight = np.asarray(facts.weight.constant, np.float32).reshape(facts.outputs, facts.channels * facts.taps)
    pairs = -(-facts.channels // DEPTH)
    channels = np.arange(pairs * DEPTH).reshape(pairs, 1, 2, PAIRS).transpose(0, 1, 3, 2)
    terms = channels * facts.taps + np.arange(facts.taps)[None, :, None, None]
    terms = np.where(channels < facts.channels, terms, -1).reshape(pairs * facts.taps, PAIRS, 2)
    return pack(weight.T, terms, PARTS)
