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

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tvm import tirx

from ...instructions.amx import COLUMNS, ROW_BYTES, ROWS, SUMS, MatrixUnit, RegisterRows
from ...words.dims import is_open, minimum, to_index
from ...words.tvm_types import Expr
from ..kernel import ConvKernel

if TYPE_CHECKING:
    from ...words.size_like import SizeLike

SHORT = 2  # steps of a sum, beside which there is no room for the epilogue of the block before
TOGETHER = 4  # places whose epilogues are computed in turns, by two registers of outputs


@dataclass
class AmxTask:
    """What a task computes: an image, output channels (the first panel, how many), the first output of its strip and
    how many rows and columns."""

    n: Expr
    panel: Expr
    panels: SizeLike
    origin: list[Expr]
    size: list[Expr]


@dataclass
class StripPlaces:
    """The places (output positions) of one strip, computed by registers of sums; kernels derive from it and add up
    products in :meth:`_sums`. ``strip`` says where its data lies, ``groups`` is the number of parts that tasks cut the
    output channels into, ``steps`` the length of a sum, ``sums`` the scratch of the last block, and ``last`` its first
    place, the end of its places, and its first register of outputs."""

    conv: ConvKernel
    strip: Any  # Strip, or PixelStrip of few channels
    groups: int
    steps: int = 0  # of a sum
    sums: Expr = None  # of the last block
    last: Expr = None  # its first place, the end of its places, and its first register of outputs

    def __post_init__(self) -> None:
        self.k, self.ctx, self.facts = self.conv.k, self.conv.ctx, self.conv.facts
        self.unit, self.blocks = MatrixUnit(self.k), self.conv.channel_blocks
        self.images = to_index(self.facts.data.shape[0])
        self.pitch: SizeLike = self.strip.pitch  # places of a row of the strip's data
        self.most = [self.strip.rows, self.strip.columns]  # outputs of a strip
        self.varies = is_open(self.conv.request.group.outputs[0].shape[2:])  # the image's rows or columns are open

    def _begin(self) -> None:
        """At the beginning of a core's part."""
        k = self.k
        self.sums = k.local("sums", self.facts.output.dtype, SUMS * ROWS * COLUMNS, "global")
        self.last = [k.local(name, "int32", 1) for name in ("first", "end", "block")]
        self.unit.configure()
        if self.varies:
            self._fit()

    @property
    def fits(self) -> bool:
        """True for boxes of images of any size: the memory of a strip follows from the size."""
        box = self.conv.request.box
        return self.varies and box is not None and box.open and len(self.facts.out_spatial) == 2

    def places(self, rows: SizeLike, columns: SizeLike) -> tuple[SizeLike, SizeLike]:
        """The most places of a strip, and of a row of it, in a box of at most ``rows x columns`` outputs."""
        strip = self.strip
        pitch = minimum(columns, strip.columns) + (strip.pitch - strip.columns)
        return minimum((rows + (strip.height - strip.rows)) * pitch, strip.places), pitch

    def _fit(self) -> None:
        """Lays strips out for the image that there is: its columns in parts of about equal width, as many rows of them
        as the scratch has room for, and about as many in each strip. Names are held in memory, since TVM puts whole
        expressions back at every use."""
        hold, strip, spatial = self.k.hold, self.strip, self.conv.spatial

        def even(size: SizeLike, most: SizeLike, name: str) -> SizeLike:
            """The size of each of the fewest parts."""
            size = tirx.max(size, 1)
            parts = hold(tirx.floordiv(size + (most - 1), most), f"{name}_parts")
            return hold(tirx.floordiv(size + (parts - 1), parts), name)

        columns = even(spatial[-1], strip.columns, "columns")
        self.pitch = hold(columns + (strip.pitch - strip.columns), "pitch")
        rows: Expr = tirx.IntImm("int32", 1)
        if len(spatial) > 1:
            room = hold(tirx.floordiv(strip.places, self.pitch) - (strip.height - strip.rows), "room")
            rows = even(spatial[-2], room, "rows")
        self.most = [rows, columns]

    @contextmanager
    def _own_tasks(self, worker: Expr, workers: int) -> Iterator[AmxTask]:
        """The tasks of one core: images first, then groups of output channels, then strips from the top."""
        k, conv, simplify = self.k, self.conv, self.ctx.analyzer.simplify
        spatial = list(conv.spatial)[-2:] if len(conv.spatial) > 1 else [tirx.IntImm("int32", 1), *conv.spatial]
        most = self.most
        counts = [tirx.floordiv(s + (m - 1), m) for s, m in zip(spatial, most)]
        down, across = (simplify(c) if not isinstance(c, int) else c for c in counts)
        total = simplify(down * across * (self.groups * self.images))
        begin: Expr = tirx.IntImm("int32", 0)
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
            n = conv.bind(rest, self.images)
            origin = [conv.bind(number * m, 1 << 24) for number, m in zip((numbers[1], numbers[0]), most)]
            size = [
                m if isinstance(s, (int, tirx.IntImm)) and int(s) % m == 0 else conv.bind(tirx.min(s - o, m), m + 1)
                for s, o, m in zip(spatial, origin, most)
            ]
            panels = -(-self.blocks // 2)
            each = -(-panels // self.groups)
            first = conv.bind(numbers[2] * each, panels)
            count = each if panels % self.groups == 0 else conv.bind(tirx.min(panels - first, each), each + 1)
            yield AmxTask(n, first, count, origin, size)

    def _position(self, task: AmxTask, row: Expr, column: Expr) -> list[Expr]:
        """Coordinates in the tensor of an output of the strip."""
        own = [task.origin[0] + row, task.origin[1] + column]
        if self.ctx.origin is not None:
            own = [self.conv.corner(i) + at for i, at in enumerate(own)]
        return own[-len(self.facts.out_spatial) :]

    def _read_at(self, task: AmxTask, phase: tuple[int, int], row: Expr, column: Expr) -> list[Expr]:
        """Coordinates in the tensor of a place of a plane."""
        facts = self.facts
        rank = len(facts.out_spatial)
        output = self._position(task, row, column)
        return [o * s + p - b for o, s, p, b in zip(output, facts.strides, phase[-rank:], facts.before)]

    def _panels(self, task: AmxTask) -> None:
        """All outputs of the strip, two registers of channels at a time; one where their number is odd."""
        whole, odd = self.blocks // 2, self.blocks % 2
        last = self.conv.bind(task.panel + task.panels, -(-self.blocks // 2) + 1)
        if whole:
            count = task.panels if not odd else tirx.min(last, whole) - task.panel
            with self._follows(task, 2), self.k.loop(self.ctx.analyzer.simplify(count), name="panel") as panel:
                self.ctx.ranged(panel, whole)
                self._places(task, self.conv.bind(2 * (task.panel + panel), self.blocks), 2)
        if odd:
            alone = self.groups == 1
            with nullcontext() if alone else self.k.when(tirx.EQ(last, tirx.IntImm("int32", whole + 1))):
                with self._follows(task, 1):
                    self._places(task, tirx.IntImm("int32", 2 * whole), 1)

    def _places(self, task: AmxTask, block: Expr, columns: int) -> None:
        """All places of the strip by ``columns`` registers of outputs from ``block`` on."""
        k, height, simplify = self.k, SUMS // columns, self.ctx.analyzer.simplify
        total = _number((task.size[0] - 1) * self.pitch + task.size[1])
        registers = simplify(tirx.floordiv(total + (ROWS - 1), ROWS))
        whole, blocks = (simplify(tirx.floordiv(registers + more, height)) for more in (0, height - 1))

        def block_of(rows: int, number: Expr) -> None:
            first = self.conv.bind(number * (height * ROWS), self.strip.places + SUMS * ROWS)
            self._block(task, block, (rows, columns), first, (number, blocks))
            for buffer, value in zip(self.last, (first, tirx.min(first + rows * ROWS, total), block)):
                k.store(buffer, 0, value)
            if self.steps <= SHORT:
                self._own(task, columns, rows)

        with k.loop(whole, name="r") as r:
            self.ctx.ranged(r, -(-self.strip.places // (height * ROWS)))
            block_of(height, r)
        rest = simplify(registers - whole * height)
        for rows in range(1, height):
            if not isinstance(rest, tirx.IntImm):
                with k.when(tirx.EQ(rest, tirx.IntImm("int32", rows))):
                    block_of(rows, whole)
            elif int(rest) == rows:
                block_of(rows, whole)

    def _block(self, task: AmxTask, block: Expr, shape: tuple[int, int], first: Expr, turn: tuple[Expr, Expr]) -> None:
        """The sums of ``shape`` registers of places from ``first`` on, beside the epilogue of the block before."""
        for i in range(shape[0] * shape[1]):
            self.unit.zero(i)
        each = -(-SUMS // shape[1] * ROWS // (self.steps * TOGETHER))

        def beside(step: Expr) -> None:
            if self.steps <= SHORT:
                return
            with self.k.loop(each, name="e") as e:
                self._some(task, shape[1], (step * each + self.ctx.ranged(e, each)) * TOGETHER)

        self._sums(shape, block, first, turn, beside)
        for i in range(shape[0]):
            for j in range(shape[1]):  # the outputs of a place lie together
                begin = (i * ROWS * shape[1] + j) * COLUMNS
                self.unit.store(i * shape[1] + j, RegisterRows(self.sums, begin, ROW_BYTES * shape[1]))

    def _sums(
        self, shape: tuple[int, int], block: Expr, first: Expr, turn: tuple[Expr, Expr], beside: Callable[[Expr], None]
    ) -> None:
        """Emits the sum of products of one block: ``shape`` registers (of places, of outputs), the first of place
        ``first`` and of output register ``block``. ``beside`` is called in each step, to emit what runs beside the
        unit's products."""
        raise NotImplementedError

    @contextmanager
    def _follows(self, task: AmxTask, columns: int) -> Iterator[None]:
        """A context in which blocks are software-pipelined: the epilogue of each is emitted beside the sums of the next
        one, and on leaving the last one's by itself. Sums of at most SHORT steps leave no room for that: each is
        followed by its own epilogue."""
        k = self.k
        for buffer in self.last:
            k.store(buffer, 0, tirx.IntImm("int32", 0))
        yield
        if self.steps > SHORT:
            self._own(task, columns, SUMS // columns)

    def _own(self, task: AmxTask, columns: int, rows: int) -> None:
        """Emits the whole epilogue of the last block, of ``rows`` registers of places by ``columns`` of outputs."""
        groups = rows * ROWS // TOGETHER
        with self.k.loop(groups, name="e") as e:
            self._some(task, columns, self.ctx.ranged(e, groups) * TOGETHER)

    def _some(self, task: AmxTask, columns: int, number: Expr) -> None:
        """Emits the epilogues of the TOGETHER places of the last block from ``number`` on, as far as these are outputs;
        interleaved where all of them lie in one row."""
        k, most = self.k, TOGETHER - 1
        number = k.bind(number, "e")
        place, row, column = self._output(number)
        whole = tirx.all(place + most < self.last[1][0], column + most < task.size[1])
        together = k.bind(whole, "t")
        with k.when(together):
            self._write(task, columns, [(number + i, [row, column + i]) for i in range(TOGETHER)])
        with k.when(tirx.Not(together)), k.loop(TOGETHER, name="i") as i:
            one = k.bind(number + i, "e")
            place, row, column = self._output(one)
            with k.when(tirx.all(place < self.last[1][0], column < task.size[1])):
                self._write(task, columns, [(one, [row, column])])

    def _output(self, number: Expr) -> tuple[Expr, Expr, Expr]:
        """Position of place ``number`` of the last block: its number in the strip, its row and its column."""
        k, pitch = self.k, self.pitch
        place = k.bind(self.last[0][0] + number, "p")
        row = tirx.floordiv(place, pitch)
        row = k.bind(row, "y") if isinstance(pitch, int) else k.hold(row, "y")
        return place, row, k.bind(place - row * pitch, "x")

    def _write(self, task: AmxTask, columns: int, places: list[tuple[Expr, list[Expr]]]) -> None:
        """Emits the epilogues of ``places``, each (number in the last block, [row, column] in the strip),
        interleaved."""
        k, block = self.k, self.last[2][0]
        with k.loop(COLUMNS, "vectorized", "v") as v:

            def one(number: Expr, at: list[Expr], j: int) -> None:
                sums = self.sums[(number * columns + j) * COLUMNS + v]
                self.conv.element(lambda: k.bind(sums), task.n, block + j, v, self._position(task, *at))

            k.interleave([partial(one, *place, j) for place in places for j in range(columns)])


def _number(value: Expr) -> Expr:
    return tirx.IntImm("int32", value) if isinstance(value, int) else value


