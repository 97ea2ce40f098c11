"""What the convolution kernels share: tasks, tile origins, and the epilogue that turns accumulators into outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import te, tirx

from ..emit.inline import key
from ..kernel.context import Channel, Context
from ..kernel.work_sharing import bands
from ..matmul.folded_moves import producers
from ..operators.kind import facts_of, is_long
from ..operators.te_graph import GroupGraph
from ..words.dims import is_open
from ..words.group import Kernel, Request, Value
from ..words.sizes import product, usual
from ..words.tvm_types import Buffer, Expr
from .cut_residuals import CutPlace, cuts_of
from .facts import ConvFacts
from .flat_images import in_rows, pixels_across, rows_of
from .panel_sums import make_sums
from .register_tile import Tile
from .weight_prefetch import NextPanel, Runs, ask

if TYPE_CHECKING:
    pass

PARALLEL_FLOPS = 100_000  # below this a launch costs more than the second core saves, its data moving included


def new_context(request: Request) -> Context:
    """A kernel under construction whose anchor the caller computes by loops of its own."""
    anchor = request.group.anchor
    assert anchor is not None
    ctx = Context(request, GroupGraph(request.group, [anchor]), request.group.name)
    if request.box is None:
        ctx.expect_margins()
    return ctx


def finish(
    ctx: Context, schedule: str, flops: int, tiles: Sequence[Tile] = (Tile(1, 1, 1),), steps: tuple[int, ...] = (1, 1)
) -> Kernel:
    """The finished kernel of what :func:`new_context` began. ``tiles`` are its register tiles: a box is no smaller than
    the largest; ``steps``: distance of neighbouring outputs of a tile."""
    rows = max(t.rows for t in tiles) * (steps[-2] if len(steps) > 1 else 1)
    return Kernel(
        function=ctx.k.finish(),
        operands=tuple(ctx.operands),
        outputs=ctx.request.group.outputs,
        schedule=schedule,
        flops=flops,
        scalars=tuple(ctx.scalars),
        groups=ctx.parts.groups,
        least=(rows, max(t.columns for t in tiles) * steps[-1]),
    )


@dataclass
class ConvKernel:
    """A convolution kernel under construction."""

    request: Request
    facts: ConvFacts
    tile: Tile
    lanes: int
    ctx: Context
    place: Callable[[list[Expr]], list[Expr]] = list  # from the kernel's own output coordinates to the tensor's
    steps: tuple[int, ...] = ()  # distance of neighbouring outputs of this kernel in the tensor, where not 1
    far: bool = False  # the weights don't stay in the second-level cache
    outputs: int = 0  # channels that this part of the kernel writes, whole vectors, where not all
    begin: int = 0  # the first vector of this part of the kernel, where not that of all
    base: int = 0  # where its weights begin
    whole: Tile | None = None  # the tile of all others, where this one is of rows or columns that are left over
    narrow: Tile | None = None  # the tile of the columns that are left over, where they have one
    mixed: bool = False  # rows that are left over have a tile of their own
    order: str = "bands"  # of rows and groups of channels, and how cores share them: see bands()
    next: NextPanel | None = None  # how the panel of weights behind the present one is asked for
    below: NextPanel | None = None  # how the input of the next row of tiles is
    distance: int = 0  # blocks of channels by which data is asked for before it is multiplied
    parts: int = 1  # that a panel of weights is passed in
    sums: Expr = None  # where what one part has summed waits for the next
    sums_base: int = 0  # where those of this core begin
    sums_room: int = 0  # elements that another part of the kernel needs there
    across: Expr = 0  # the tile that is being computed, counted over a row
    row: Expr = 0  # of tiles: the one that is being computed
    number: Expr = 0  # of the tile, counted over the rows of an image
    started: Value | None = None  # the sum of the convolution and a constant that its accumulators begin with
    first: Expr = None  # where the first element of the input lies that a tile of a box reads
    rows_of: Buffer | None = None  # see flat_images.py

    def __post_init__(self) -> None:
        anchor = self.request.group.anchor
        assert anchor is not None
        self.graph = self.ctx.graph
        self.k = self.ctx.k
        self.output = self.request.group.outputs[-1]
        before = producers(self.request.group, self.facts.data)
        self.has_prologue = bool(before)
        behind = [n for n in self.request.group.nodes if n is not anchor and n not in before]
        self.costly = is_long(behind) or any(facts_of(n).interpolates for n in behind)

    @property
    def tap_steps(self) -> int:
        """Steps of the loops over taps: those of a window are one."""
        return self.facts.taps // (self.tile.window.taps if self.tile.window is not None else 1)

    @property
    def channel_blocks(self) -> int:
        """Vectors of output channels."""
        return -(-self.facts.outputs // self.lanes)

    def continues(self, other: ConvKernel) -> None:
        """Makes this part of the kernel one of the tasks of ``other``."""
        self.row, self.sums, self.sums_base = other.row, other.sums, other.sums_base

    def block_of(self, group: Expr) -> Expr:
        """Number of the first vector of outputs of group ``group`` of a register tile's vectors."""
        return self.begin + group * self.tile.blocks

    @property
    def spatial(self) -> tuple[Expr, ...]:
        """Outputs along each spatial axis: numbers, or variables in an open box."""
        box = self.request.box
        if box is None or not box.open:
            return self.facts.sizes or self.facts.out_spatial
        steps = self.steps or (1, 1)
        return tuple(tirx.floordiv(e, s) if s > 1 else e for e, s in zip(self.ctx.size, steps))

    @property
    def is_open(self) -> bool:
        """True if the size of the kernel's box is given at run time."""
        return self.request.box is not None and self.request.box.open

    @property
    def of_any_size(self) -> bool:
        """True if that box is of images of open size: one function for layers of several sizes (shared_kernels.py)."""
        return self.is_open and is_open(self.output.shape)

    @property
    def varies(self) -> bool:
        """True if the extents of the kernel's outputs are given at run time, in a box or of the whole."""
        return self.is_open or self.facts.sizes is not None

    def input(self, n: Expr, channel: Expr, position: list[Expr], taps: list[Expr]) -> Expr:
        """The input of ``channel`` (or, for blocked inputs, of a (block, lane) pair) that one tap of an output reads.

        Behind a prologue that is its expression; the padding around it is zero whatever the prologue makes of zero.
        """
        return self.element_at(n, channel, self._read_at(position, taps))

    def place_of(self, n: Expr, channel: Expr, position: list[Expr], taps: list[Expr]) -> Expr:
        """Where that lies in the memory of an input without a prologue."""
        return self._parted(self.offset(n, channel, self._read_at(position, taps)))

    def _read_at(self, position: list[Expr], taps: list[Expr]) -> list[Expr]:
        facts = self.facts
        by_axis = zip(position, taps, facts.strides, facts.dilation, facts.before)
        return [p * s + t * d - b for p, t, s, d, b in by_axis]

    def element_at(self, n: Expr, channel: Expr, at: list[Expr]) -> Expr:
        """The input at coordinates of the tensor, which may lie in the padding."""
        data, layout = self.facts.data, self.request.layout(self.facts.data)
        block, lane = channel if isinstance(channel, tuple) else (None, None)
        if not self.has_prologue:
            return self.read(data)[self._parted(self.offset(n, channel, at))]
        if lane is None:
            self.ctx.channel = None
        else:
            channel = block * layout.block + lane
            self.ctx.channel = Channel(channel, block, lane, layout.block, self.facts.channels)
        inside, held = [], []
        for index, size, (before, after) in zip(at, data.shape[2:], self.facts.margins()[2:]):
            index = self.ctx.analyzer.simplify(index)
            if before or after:
                inside += [index >= 0, index < size]
                index = tirx.max(tirx.min(index, size - 1), 0)
            held.append(index)
        value = self.ctx.inliner().at(self.graph.tensors[data], [n, channel, *held])
        return tirx.Select(tirx.all(*inside), value, tirx.const(0, data.dtype)) if inside else value

    def offset(self, n: Expr, channel: Expr, at: list[Expr]) -> Expr:
        """Where an element of the input lies in its memory."""
        assert not self.has_prologue, "what a prologue makes lies nowhere"
        data = self.facts.data
        block, lane = channel if isinstance(channel, tuple) else (None, None)
        indices = self.ctx.place(data, [n, channel if lane is None else 0, *at])
        position = self.request.layout(data).offset(indices, block, lane)
        return self.ctx.begun(data, self.ctx.analyzer.simplify(position))

    def _parted(self, offset: Expr) -> Expr:
        """``offset`` as a sum of 64 bits: of ``first``, which stays through a box's reduction, and what its loops add.
        Behind numbers of run time, 32 bits are widened by two instructions a load, which take the slots of
        multiply-adds."""
        if self.first is None:
            return offset
        rest = self.ctx.analyzer.simplify(offset - self.first)
        return tirx.Cast("int64", self.first) + tirx.Cast("int64", rest)

    def begins(self, n: Expr, channel: Expr, origins: list[Expr], column: Expr) -> None:
        """Makes the element that a box's tile reads first, at ``channel`` and its first tap, the common start of
        positions in the input."""
        if self.request.box is None or self.has_prologue:
            return
        position = self.positions(origins, column, 0, 0)
        at = [p * s - b for p, s, b in zip(position, self.facts.strides, self.facts.before)]
        self.first = self.offset(n, channel, at)

    def corner(self, axis: int) -> Expr:
        """The first of this kernel's outputs along a spatial axis, in its own coordinates."""
        if self.ctx.origin is None:
            return 0
        origin = self.ctx.origin[axis]
        return tirx.floordiv(origin, self.steps[axis]) if self.steps else origin

    @contextmanager
    def tasks(self, channel_groups: int) -> Iterator[tuple[Expr, Expr, list[Expr]]]:
        """The parallel loop over batch, groups of channel blocks and rows of tiles; gives n, the channel group and
        the origins of all spatial axes but the last."""
        if self.is_open:
            with self._open_tasks(channel_groups) as at:
                yield at
            return
        outer = list(self.spatial[:-1])
        counts = [-(-s // (self.tile.rows if i == len(outer) - 1 else 1)) for i, s in enumerate(outer)]
        batch, rows = self.facts.data.shape[0], product(counts)
        parallel = usual(batch * channel_groups * rows) > 1 and self.facts.flops >= PARALLEL_FLOPS
        if len(self.output.shape) != 4:
            self.ctx.fill_pending()

        def first(image: Expr, part: Expr, parts: int) -> None:
            self.ctx.fill_parts(None, image, part, parts, self.order != "groups")
            if self.parts > 1:
                task, size = (image * parts + part, batch * parts), max(self.sums_elements, self.sums_room)
                self.sums, self.sums_base = make_sums(self.ctx, size, self.facts.output.dtype, task, self.bind)

        step, short = (self.tile.rows, -outer[-1] % self.tile.rows) if self.mixed else (1, 0)
        shared = (batch, channel_groups, rows, parallel, self.order, first, self.parts, step, short)
        with bands(self.ctx, *shared) as (n, group, row):
            rest: Expr = row
            self.row = row
            origins: list[Expr] = []
            for i in reversed(range(len(outer))):
                index = tirx.floormod(rest, counts[i]) if i else rest
                rest = tirx.floordiv(rest, counts[i])
                step = self.tile.rows if i == len(outer) - 1 else 1
                moved = step > 1 and outer[i] % step and not self.mixed
                start = tirx.min(index * step, outer[i] - step) if moved else index * step
                origins.append(self.bind(start, outer[i] if self.mixed else outer[i] - step + 1))
            yield n, group, origins[::-1]

    @property
    def sums_elements(self) -> int:
        """Elements of the sums that the tiles of one group of channels leave from part to part of a panel."""
        tiles = math.prod(-(-s // t) for s, t in zip(self.spatial, (self.tile.rows, self.tile.columns)))
        return tiles * self.tile.positions * self.tile.blocks * self.lanes

    @contextmanager
    def _open_tasks(self, channel_groups: int) -> Iterator[tuple[Expr, Expr, list[Expr]]]:
        """The same loops over a box whose size is known at run time (and no smaller than the tile)."""
        rows, step = self.spatial[0], self.tile.rows
        batch, height = self.facts.data.shape[0], self.output.shape[2]
        kept = self.of_any_size
        begin, count = self.ctx.parts.own(channel_groups) or (0, channel_groups)
        with self.k.loop(batch, name="n") as n, self.k.loop(count, name="g", begin=begin, kept=kept) as group:
            self.ctx.ranged(n, batch)
            self.ctx.ranged(group, max(channel_groups, 1 + kept))
            with self.k.loop(tirx.floordiv(rows + (step - 1), step), name="y") as y:
                self.ctx.ranged(y, height)
                origin = self.bind(tirx.min(y * step, rows - step), height) if step > 1 else y
                yield n, group, [origin]

    def bind(self, value: Expr, extent: int) -> Expr:
        """Names an index and tells the simplifier its range."""
        value = self.ctx.analyzer.simplify(value)
        if isinstance(value, (int, tirx.IntImm, tirx.Var)):
            return value
        if self.is_open:
            # TVM would put the whole expression back at every use; a constant bound makes it short, a variable doesn't
            return self.k.hold(value, "o")
        return self.ctx.ranged(self.k.bind(value, "o"), extent)

    @contextmanager
    def columns(self) -> Iterator[Expr]:
        """The loop over tiles of the last axis; the last tile moves back where the width doesn't divide."""
        width, step = self.spatial[-1], self.tile.columns
        if self.is_open:
            most = pixels_across(self.request)
            with self.k.loop(tirx.floordiv(width + (step - 1), step), name="x") as x:
                self.ctx.ranged(x, most)
                column = self.bind(tirx.min(x * step, width - step), most) if step > 1 else x
                first = self.positions([0], column, 0, 0)[-1]
                self.rows_of = rows_of(self.k, self.request, self.facts.data, first, self.tile.columns)
                yield column
            return
        if self.narrow is not None:
            with self.k.loop(width // step, name="x") as x:
                self._count(self.ctx.ranged(x, width // step))
                yield self.bind(x * step, width - step + 1)
            return
        if self.whole is not None and self.whole.columns > step:
            first = width - step
            self._count(first // self.whole.columns)
            yield tirx.IntImm("int32", first)
            return
        with self.k.loop(-(-width // step), name="x") as x:
            self.ctx.ranged(x, -(-width // step))
            moved = step > 1 and (self.varies or width % step)
            start = tirx.min(x * step, width - step) if moved else x * step
            self._count(x)
            yield self.bind(start, width - step + 1)

    def _count(self, across: Expr) -> None:
        """Numbers the tile: in its row, and in the image."""
        self.across = across
        self.number = self.row * -(-self.spatial[-1] // (self.whole or self.tile).columns) + across

    @contextmanager
    def taps(self, index: Expr) -> Iterator[tuple[Expr, list[Expr]]]:
        """Loops over the taps; gives ``index * taps + tap``, and the tap of each axis. The taps of a tile's window are
        no loop: its steps are counted, and the last axis left out."""
        with ExitStack() as loops:
            taps = []
            for size in self.facts.kernel if self.tile.window is None else self.facts.kernel[:-1]:
                tap = loops.enter_context(self.k.loop(size, name="t"))
                self.ctx.ranged(tap, size)
                taps.append(tap)
                index = index * size + tap
            yield index, taps

    def positions(self, origins: list[Expr], column: Expr, dy: Expr, dx: Expr) -> list[Expr]:
        """Output coordinates of one position in the tile."""
        own = [column + dx] if not origins else [*origins[:-1], origins[-1] + dy, column + dx]
        return own if self.ctx.origin is None else [self.corner(i) + at for i, at in enumerate(own)]

    def results_at(self, origins: list[Expr], column: Expr, dy: Expr, dx: Expr) -> list[Expr]:
        """The same of what it writes, which the pixels of a flat box may not follow."""
        at = self.positions(origins, column, dy, dx)
        return at if self.rows_of is None else in_rows(self.rows_of, dx, at[1], self.output.shape)

    def epilogue(
        self, accumulators: Buffer, n: Expr, first_block: Expr, origins: list[Expr], column: Expr, blocks: int
    ) -> None:
        """Writes the group's output for every position of the tile, fused operators included."""
        k, lanes, tile = self.k, self.lanes, self.tile
        source, kind = accumulators, "unroll"
        if self.costly:
            # the epilogue is long: one copy of it in a loop, with the accumulators spilled once
            size = tile.positions * blocks * lanes
            source, kind = k.local("spill", self.facts.output.dtype, size, "global"), "serial"
            with k.loop(tile.positions * blocks, "unroll", "e") as e, k.loop(lanes, "vectorized", "v") as v:
                k.store(source, e * lanes + v, accumulators[e * lanes + v])
        with k.loop(tile.rows, kind, "dy") as dy, k.loop(tile.columns, kind, "dx") as dx:
            with k.loop(blocks, kind, "b") as b, k.loop(lanes, "vectorized", "v") as v:
                slot = ((dy * tile.columns + dx) * blocks + b) * lanes + v
                self.element(lambda: source[slot], n, first_block + b, v, self.results_at(origins, column, dy, dx))

    def ask_for_results(self, n: Expr, first_block: Expr, origins: list[Expr], column: Expr, blocks: int) -> None:
        """Hints, before a tile's reduction starts, for the lines that its epilogue reads and writes: no cache holds
        them yet, and the wait for them would show after a short reduction."""
        k, tile = self.k, self.tile
        with k.loop(tile.rows, "unroll", "dy") as dy, k.loop(tile.columns, "unroll", "dx") as dx:
            with k.loop(blocks, "unroll", "b") as b:
                for value, written in self.results():
                    place = self.result(value, n, first_block + b, self.results_at(origins, column, dy, dx))
                    ask(k, self.ctx.buffer(value), place, written)

    def result_runs(
        self, n: Expr, first_block: Expr, origins: list[Expr], column: Expr, run: Runs, step: Expr
    ) -> list[tuple[Buffer, Expr, bool]]:
        """The same lines in runs along a row, for hints beside the reduction: (buffer, first element, written) of each
        of those that step ``step`` of the loops around the channels asks for."""
        found = []
        for first in range(0, run.count, run.steps):
            number = tirx.min(step + first, run.count - 1)
            part, rest = tirx.floormod(number, run.parts), tirx.floordiv(number, run.parts)
            b, dy = tirx.floormod(rest, self.tile.blocks), tirx.floordiv(rest, self.tile.blocks)
            for value, written in self.results():
                place = self.result(value, n, first_block + b, self.results_at(origins, column, dy, 0))
                begin = self.bind(place + part * run.reach, self.request.layout(value).elements + run.reach * run.parts)
                found.append((self.ctx.buffer(value), begin, written))
        return found

    def results(self) -> list[tuple[Value, bool]]:
        """(value, written) of what an epilogue reads at its own place or writes, but for values in windows of their
        own."""
        return [(v, written) for v, written in self.places() if not self.is_windowed(v)]

    def is_windowed(self, value: Value) -> bool:
        """True if ``value`` lies in memory as a part that moves."""
        return self.request.box is not None and value in self.request.box.windowed

    def places(self) -> list[tuple[Value, bool]]:
        """(value, written) of what an epilogue reads at its own place or writes."""
        group, shape = self.request.group, self.output.shape
        reads = [v for v in group.inputs if v.constant is None and v is not self.facts.data and v.shape == shape]
        places = [(v, False) for v in reads] + [(v, True) for v in group.outputs]
        return [(v, w) for v, w in places if self.request.layout(v).block == self.lanes]

    def cuts(self) -> list[CutPlace]:
        """What an epilogue reads of larger images, beside its own place."""
        found = cuts_of(self.request.group.nodes, self.output) if self.place is list else []
        own = [p for p in found if p.value in self.request.group.inputs and p.value is not self.facts.data]
        return [p for p in own if self.request.layout(p.value).block == self.lanes]

    def result(self, value: Value, n: Expr, block: Expr, position: list[Expr]) -> Expr:
        channel, zero = block * self.lanes, tirx.IntImm("int32", 0)
        self.ctx.channel = Channel(channel, block, zero, self.lanes, self.outputs or self.facts.outputs)
        return self.ctx.offset(value, [n, channel, *self.place(position)])

    def element(self, value: Callable[[], Expr], n: Expr, block: Expr, lane: Expr, position: list[Expr]) -> None:
        """Emits one vector of outputs: the epilogue on one accumulator, and its store."""
        channel = block * self.lanes + lane
        self.ctx.ranged(lane, self.lanes)
        self.ctx.channel = Channel(channel, block, lane, self.lanes, self.outputs or self.facts.outputs)
        self._write(value, [n, channel, *self.place(position)])

    def plain_element(self, value: Callable[[], Expr], n: Expr, channel: Expr, position: list[Expr]) -> None:
        """Emits one element of outputs that are not in channel blocks."""
        self.ctx.channel = None
        self._write(value, [n, channel, *self.place(position)])

    @property
    def summed(self) -> te.Tensor:
        """What the accumulators hold: the convolution, and what they began with."""
        anchor = self.request.group.anchor
        assert anchor is not None
        return self.graph.tensors[anchor.results[0] if self.started is None else self.started]

    def _write(self, value: Callable[[], Expr], indices: list[Expr]) -> None:
        inliner = self.ctx.inliner({key(self.summed): lambda _indices: value()})
        for output in self.request.group.outputs:
            self.ctx.write(output, indices, inliner.at(self.graph.tensors[output], indices))

    def read(self, value: Value) -> Buffer:
        return self.ctx.buffer(value)
