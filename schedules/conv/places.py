"""Strips of outputs by panels of output channels for a matrix unit: who computes what, and how sums become outputs.

    for core: its run of images, groups of output channels and strips of outputs (:mod:`.strips`)
      data of the strip                                      what the kernel makes of it, in scratch that stays in cache
      for panel of 32 output channels
        for 32 places                                        16 are a register; the last block may have fewer
          sums                                               of the kernel's own
          for row of outputs, column                         registers pass through the first-level cache
            epilogue(sums)

Panels of one register of outputs have 64 places instead of 32, so that four registers of sums take turns all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from ..matrix.unit import COLUMNS, ROW_BYTES, ROWS, SUMS, MatrixUnit, Rows
from .strips import Strip
from .tile import PARALLEL_FLOPS, ConvKernel


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
class Places:
    """``groups``: parts of the output channels that tasks are cut into."""

    conv: ConvKernel
    strip: Strip
    groups: int

    def __post_init__(self) -> None:
        self.k, self.ctx, self.facts = self.conv.k, self.conv.ctx, self.conv.facts
        self.unit, self.blocks = MatrixUnit(self.k), self.conv.channel_blocks

    @property
    def workers(self) -> int:
        return min(self.conv.request.workers, self._tasks) if self.facts.flops >= PARALLEL_FLOPS else 1

    @property
    def _tasks(self) -> int:
        rows, columns = (1, *self.facts.out_spatial)[-2:]
        strips = -(-rows // self.strip.rows) * -(-columns // self.strip.columns)
        return self.facts.batch * self.groups * strips

    @contextmanager
    def _own_tasks(self, worker: Any, workers: int) -> Iterator[Task]:
        """The tasks of one core: images first, then groups of output channels, then strips from the top."""
        k, conv, simplify = self.k, self.conv, self.ctx.analyzer.simplify
        spatial = list(conv.spatial)[-2:] if len(conv.spatial) > 1 else [tirx.IntImm("int32", 1), *conv.spatial]
        most = [self.strip.rows, self.strip.columns]
        counts = [tirx.floordiv(s + (m - 1), m) for s, m in zip(spatial, most)]
        down, across = (simplify(c) if not isinstance(c, int) else c for c in counts)
        total = simplify(down * across * (self.groups * self.facts.batch))
        begin: Any = tirx.IntImm("int32", 0)
        if workers > 1:
            self.ctx.ranged(worker, workers)
            begin = simplify(tirx.floordiv(worker * total, workers))
            total = simplify(tirx.floordiv((worker + 1) * total, workers) - begin)
        with k.loop(total, name="p", begin=begin) as p:
            rest = p
            numbers = []
            for count in (across, down, self.groups):
                numbers.append(conv.bind(tirx.floormod(rest, count), 1 << 24))
                rest = tirx.floordiv(rest, count)
            n = conv.bind(rest, self.facts.batch)
            origin = [conv.bind(number * m, 1 << 24) for number, m in zip((numbers[1], numbers[0]), most)]
            size = [
                m if isinstance(s, (int, tirx.IntImm)) and int(s) % m == 0 else conv.bind(tirx.min(s - o, m), m + 1)
                for s, o, m in zip(spatial, origin, most)
            ]
            panels = -(-self.blocks // 2)
            each = -(-panels // self.groups)
            first = conv.bind(numbers[2] * each, panels)
            count = each if panels % self.groups == 0 else conv.bind(tirx.min(panels - first, each), each + 1)
            yield Task(n, first, count, origin, size)

    def _position(self, task: Task, row: Any, column: Any) -> list[Any]:
        """Coordinates in the tensor of an output of the strip."""
        own = [task.origin[0] + row, task.origin[1] + column]
        if self.ctx.origin is not None:
            own = [self.conv.corner(i) + at for i, at in enumerate(own)]
        return own[-len(self.facts.out_spatial) :]

    def _read_at(self, task: Task, phase: tuple[int, int], row: Any, column: Any) -> list[Any]:
        """Coordinates in the tensor of a place of a plane."""
        facts = self.facts
        rank = len(facts.out_spatial)
        output = self._position(task, row, column)
        return [o * s + p - b for o, s, p, b in zip(output, facts.strides, phase[-rank:], facts.before)]

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
            alone = self.groups == 1
            with nullcontext() if alone else self.k.when(tirx.EQ(last, tirx.IntImm("int32", whole + 1))):
                self._places(task, tirx.IntImm("int32", 2 * whole), 1)

    def _places(self, task: Task, block: Any, columns: int) -> None:
        """All places of the strip by ``columns`` registers of outputs from ``block`` on."""
        k, height = self.k, SUMS // columns
        total = self.strip.spread(task.size[0], task.size[1])
        registers = tirx.floordiv(_number(total) + (ROWS - 1), ROWS)
        registers = self.ctx.analyzer.simplify(registers)
        whole = self.ctx.analyzer.simplify(tirx.floordiv(registers, height))
        with k.loop(whole, name="r") as r:
            self.ctx.ranged(r, -(-self.strip.places // (ROWS * height)))
            self._block(task, block, (height, columns), r, total)
        rest = self.ctx.analyzer.simplify(registers - whole * height)
        for rows in range(1, height):
            if isinstance(rest, tirx.IntImm):
                if int(rest) == rows:
                    self._block(task, block, (rows, columns), whole, total)
                continue
            with k.when(tirx.EQ(rest, tirx.IntImm("int32", rows))):
                self._block(task, block, (rows, columns), whole, total)

    def _block(self, task: Task, block: Any, shape: tuple[int, int], number: Any, total: Any) -> None:
        """The sums of block ``number`` of places, of ``shape`` registers, and their epilogue."""
        first = self.conv.bind(number * (SUMS // shape[1] * ROWS), self.strip.places + 4 * ROWS)
        for i in range(shape[0] * shape[1]):
            self.unit.zero(i)
        self._sums(shape, block, first)
        sums = self.k.local("sums", self.facts.output.dtype, shape[0] * shape[1] * ROWS * COLUMNS, "global")
        for i in range(shape[0]):
            for j in range(shape[1]):  # the outputs of a place lie together
                begin = (i * ROWS * shape[1] + j) * COLUMNS
                self.unit.store(i * shape[1] + j, Rows(sums, begin, ROW_BYTES * shape[1]))
        self._epilogue(task, block, shape, first, total, sums)

    def _sums(self, shape: tuple[int, int], block: Any, first: Any) -> None:
        """Adds all products of ``shape`` registers, from place ``first`` and register ``block`` of outputs on."""
        raise NotImplementedError

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
            begin = k.bind((row * pitch - first) * (shape[1] * COLUMNS), "o")
            with k.loop(tirx.max(right - left, 0), name="x") as x:
                column = left + x
                position = self._position(task, row, column)
                for j in range(shape[1]):
                    with k.loop(COLUMNS, "vectorized", "v") as v:
                        at = begin + (column * shape[1] + j) * COLUMNS + v
                        conv.element(lambda: k.bind(sums[at]), task.n, block + j, v, position)  # noqa: B023


def _number(value: Any) -> Any:
    return tirx.IntImm("int32", value) if isinstance(value, int) else value


