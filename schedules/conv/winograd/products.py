"""What a Winograd kernel does between its transforms, by multiply-adds: V[xi] * U[xi] in register tiles.

V lies as [xi][register tile][block][row][lane]: a product reads it from start to end, with broadcasts at
constant distances. M lies as [xi][tile][vector][lane].

In float16 sums of RUN products are added to the sum of all before the next begins, which leaves a third of the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tvm import tirx

from ...emit.builder import KernelBuilder
from ...instructions.by_element import each_line, most_rows, multiply_elements, takes_elements
from ...instructions.prefetch import FIRST_LEVEL, hint, wanted_level
from ...kernel.half_sums import HALF
from ...kernel.unrolled_steps import unrolled
from ...words.tvm_types import Buffer, Expr
from ..kernel import ConvKernel
from .plan import WinogradPlan
from .prefetch import Ahead
from .transform import RUN
from .weights import Weights

if TYPE_CHECKING:
    from ...words.size_like import SizeLike


@dataclass(frozen=True)
class ScratchPart:
    """A core's part of scratch memory: the ``buffer``, from ``base`` on."""

    buffer: Buffer
    base: Expr


@dataclass(frozen=True)
class BlockRun:
    """Blocks of channels that are transformed in one loop: ``count`` times ``together`` of them, from ``first`` on.
    ``tail``: among them are such with lanes past the last channel, where anything may lie."""

    first: int
    count: int
    together: int = 1
    tail: bool = False

    def blocks(self, number: Expr) -> list[Expr]:
        """The blocks of channels of iteration ``number``."""
        return [self.first + number * self.together + i for i in range(self.together)]


class Products:
    """The products between the transforms of a strip, and where their operands lie: V, the transformed data, and M, the
    products."""

    dtype: str  # of V
    short = 0  # tiles that a strip may end with and that are computed in a register tile of as many

    def __init__(self, conv: ConvKernel, plan: WinogradPlan) -> None:
        self.conv, self.plan = conv, plan
        self.k, self.ctx, self.facts = conv.k, conv.ctx, conv.facts
        self.lanes, self.t = conv.lanes, plan.transform
        self.blocks = -(-self.facts.channels // self.lanes)  # of one plane of the kernel
        self.blocks_in = self.blocks * plan.planes
        self.padded = plan.row_tiles * plan.rows
        # an extra vector between planes: at a power of two apart, all of them would fall into one set of the cache
        self.data_plane: SizeLike = self.block_elements * self.padded + self.lanes
        self.product_plane: SizeLike = self.padded * plan.vectors * self.lanes + self.lanes

    @property
    def block_elements(self) -> int:
        """Elements of V for each tile and xi."""
        return self.blocks_in * self.lanes

    @property
    def data_elements(self) -> int:
        """Elements of V of one strip."""
        return self.t.products * self.data_plane

    @property
    def product_elements(self) -> int:
        """Elements of M of one strip and a chunk of output channels."""
        return self.t.products * self.product_plane

    def product_at(self, slot: Expr, vector: Expr) -> Expr:
        """Where a vector of the products of tile ``slot`` of the strip begins within those of one xi."""
        return (slot * self.plan.vectors + vector) * self.lanes

    def elements(self, tiles: SizeLike) -> tuple[SizeLike, SizeLike]:
        """Elements of V and M of so many tiles, a multiple of those that are computed at a time, where they were laid
        out for these."""
        each = self.block_elements, self.plan.vectors * self.lanes
        data, products = (self.t.products * (own * tiles + self.lanes) for own in each)
        return data, products

    def lay_out(self, padded: SizeLike) -> None:
        """Makes V and M those of ``padded`` tiles, a number known at run time, in memory for the most there may be. The
        last of them, where they fill no more than half a register tile, have one of half as many."""
        self.data_plane = self.k.hold(self.block_elements * padded + self.lanes, "plane")
        self.product_plane = self.k.hold(padded * (self.plan.vectors * self.lanes) + self.lanes, "plane")
        elements = takes_elements(self.conv.request.target, self.dtype)  # whose channels lie in registers
        self.short = 0 if elements else self.plan.rows // 2

    def begin(self) -> None:
        """Emits what comes before a core's tasks."""

    def end(self) -> None:
        """Emits what comes behind a core's tasks."""

    def give(self) -> None:
        """Declares the weights."""
        raise NotImplementedError

    def runs(self) -> list[BlockRun]:
        """All blocks of channels, in the order in which their data is transformed."""
        raise NotImplementedError

    def place(self, slot: Expr, block: Expr) -> Expr:
        """Position where the transformed data of tile ``slot`` of the strip begins, of one block of channels or of
        several from it on."""
        raise NotImplementedError

    def keep(self, data: ScratchPart, place: Expr, xi: int, values: Sequence[Expr], lane: Expr) -> None:
        """Emits the stores of the transformed ``values`` for ``xi``: a vector for each of the blocks that are
        transformed together."""
        raise NotImplementedError

    def fill(self, data: ScratchPart, count: Expr) -> None:
        """Emits what products read behind V of ``count`` tiles."""

    def multiply(
        self, data: ScratchPart, products: ScratchPart, chunk: Expr, count: Expr, hints: tuple[Ahead, Expr]
    ) -> None:
        """Emits M[xi] = V[xi] * U[xi] for one chunk of output channels and ``count`` tiles; ``hints`` gives the
        prefetches beside them."""
        raise NotImplementedError

    def _matrix(self, xi: Expr) -> Expr:
        """The matrix of weights for the products ``xi``."""
        down, across = self.t.axes
        if self.t.matrices == self.t.products:
            return xi
        row, column = tirx.floordiv(xi, across.extent), tirx.floormod(xi, across.extent)
        return tirx.min(row, down.rows - 1) * across.rows + tirx.min(column, across.rows - 1)


class Sums:
    """The sums of ``vectors`` accumulators of float16 in ``acc``, run by run."""

    def __init__(self, k: KernelBuilder, acc: Buffer, vectors: int, lanes: int) -> None:
        self.k, self.acc, self.vectors, self.lanes = k, acc, vectors, lanes
        self.sums = k.local("sums", HALF, vectors * lanes, "global")
        self._each(lambda at: k.store(self.sums, at, tirx.const(0, HALF)))

    def add(self) -> None:
        """Adds a run to the sums; the next one begins."""

        def one(at: Expr) -> None:
            self.k.store(self.sums, at, self.sums[at] + self.acc[at])
            self.k.store(self.acc, at, tirx.const(0, HALF))

        self._each(one)

    def _each(self, body: Callable[[None], None]) -> None:
        with self.k.loop(self.vectors, "unroll", "z") as z, self.k.loop(self.lanes, "vectorized", "v") as v:
            body(z * self.lanes + v)


class RegisterTiles(Products):
    """Rows x vectors accumulators; few steps written out (conv/direct/reduction_steps.py)."""

    def __init__(self, conv: ConvKernel, plan: WinogradPlan) -> None:
        super().__init__(conv, plan)
        self.dtype = self.facts.output.dtype
        self.weights = Weights(conv, plan)

    def give(self) -> None:
        # the transformations multiply errors: by thirty for 4x4 outputs
        self.weights.given = self.ctx.packed(self.weights.packed(), narrow=False)

    def runs(self) -> list[BlockRun]:
        return [BlockRun(0, self.blocks_in)]

    def place(self, slot: Expr, block: Expr) -> Expr:
        rows = self.plan.rows
        panel = self.conv.bind(tirx.floordiv(slot, rows), self.plan.row_tiles)
        row = self.conv.bind(tirx.floormod(slot, rows), rows)
        at = ((panel * self.blocks_in + block) * rows + row) * self.lanes
        return self.conv.bind(at, self.data_plane - self.lanes + 1)

    def keep(self, data: ScratchPart, place: Expr, xi: int, values: Sequence[Expr], lane: Expr) -> None:
        self.k.store(data.buffer, data.base + place + xi * self.data_plane + lane, values[0])

    def fill(self, data: ScratchPart, count: Expr) -> None:
        """Zeros in the slots of the last register tile that have no tile. Whatever lay there does no harm to results,
        but x86 processors take a hundred times as long for products of numbers below the normal ones (7x7/2 of two
        channels, whose V lies on the stack, took 2.5 of the time)."""
        rows = self.plan.rows
        if isinstance(count, int) and count % rows == 0:
            return
        used: Expr = tirx.floormod(count, rows) if not isinstance(count, int) else count % rows
        with ExitStack() as scopes:
            if not isinstance(used, int):
                used = self.conv.bind(used, rows)
                scopes.enter_context(self.k.when(used > 0))
            slot = scopes.enter_context(self.k.loop(rows - used, name="slot"))
            self.ctx.ranged(slot, rows)
            self._clear(data, count + slot)

    def _clear(self, data: ScratchPart, slot: Expr) -> None:
        """Zeros for one tile's V."""
        k = self.k
        with k.loop(self.blocks_in, name="cb") as block, k.loop(self.t.products, name="xi") as xi:
            self.ctx.ranged(block, self.blocks_in)
            self.ctx.ranged(xi, self.t.products)
            at = data.base + self.place(slot, block) + xi * self.data_plane
            with k.loop(self.lanes, "vectorized", "v") as v:
                k.store(data.buffer, at + v, tirx.const(0, self.dtype))

    def multiply(
        self,
        data: ScratchPart,
        products: ScratchPart,
        chunk: Expr,
        count: Expr,
        hints: tuple[Ahead, tuple[Expr, Expr, Expr]],
    ) -> None:
        k, plan, rows = self.k, self.plan, self.plan.rows
        tiles: Expr = plan.row_tiles
        if not isinstance(count, int):
            tiles = tirx.floordiv(count + (rows - 1 - self.short), rows)
            tiles = self.conv.bind(tiles, plan.row_tiles + 1) if self.short else tiles
        share = None
        if self.conv.of_any_size and not takes_elements(self.conv.request.target, self.dtype):
            share = self.weights.share_of(tirx.floordiv(count + (rows - 1), rows))
        with k.loop(self.t.products, name="xi") as xi:
            self.ctx.ranged(xi, self.t.products)
            with k.loop(tiles, name="r") as panel:
                self.ctx.ranged(panel, plan.row_tiles)
                self._multiply_tile(data, products, (xi, panel, chunk), rows, (*hints, share))
            if self.short:
                with k.when(tiles * rows < count):
                    self._multiply_tile(data, products, (xi, tiles, chunk), self.short, (*hints, share))

    def _multiply_tile(
        self,
        data: ScratchPart,
        products: ScratchPart,
        at: tuple[Expr, Expr, Expr],
        rows: int,
        hints: tuple[Ahead, tuple[Expr, Expr, Expr], Expr | None],
    ) -> None:
        """The products of the first ``rows`` tiles of a register tile; ``at``: xi, the register tile, the chunk; the
        last of ``hints``: a step's share of the weights that follow."""
        k, lanes, vectors = self.k, self.lanes, self.plan.vectors
        (xi, panel, chunk), (ahead, where, share) = at, hints
        matrix = self.weights.matrix(chunk, self._matrix(xi))
        ask = self.weights.hints(panel, matrix, share)
        runs = ahead.of(where, xi, panel)
        acc = k.local("acc", self.dtype, rows * vectors * lanes)
        with k.loop(rows * vectors, "unroll", "z") as z, k.loop(lanes, "vectorized", "v") as v:
            k.store(acc, z * lanes + v, tirx.const(0, self.dtype))
        sums = Sums(k, acc, rows * vectors, lanes) if self._adds_up else None
        for first, step, blocks, depth in self._runs():
            with self._blocks(blocks, depth, sums) as cb, ExitStack() as steps:
                # the simplifier must not know cb's range: boxes' addresses come out otherwise, U-Net takes 1.03
                beside = runs(first + cb * step)
                for run in beside if ahead.at_once else ():
                    run.ask_for_lines(k)
                held = self._held(data, xi, panel, first + cb * step)
                if held is not None:
                    c = steps.enter_context(k.loop(depth, "unroll", "c"))
                else:
                    c = steps.enter_context(unrolled(self.ctx, self.conv.request.target, depth, "c"))
                left = data.base + self._left(xi, panel, first + cb * step, c)
                channel = self._channel(first + cb * step, c)
                right = self.weights.at(matrix, channel)
                lines = nullcontext if held is None else partial(each_line, k, c)
                with lines(self.weights.hinted * self.plan.element_bytes):
                    ask(right, channel)
                self._ask_for_block(data, left, c)
                for run in beside if not ahead.at_once else ():
                    with lines(run.step * self.plan.data_bytes):
                        run.ask(k, c)
                if held is not None:
                    self._multiply_held(acc, held, right, c)
                    continue
                with k.loop(rows, "unroll", "y") as y, k.loop(vectors, "unroll", "b") as b:
                    with k.loop(lanes, "vectorized", "v") as v:
                        slot = (y * vectors + b) * lanes + v
                        value = data.buffer[left + y * self.apart]
                        factor = self.weights.given[right + b * lanes + v]
                        k.store(acc, slot, acc[slot] + value * factor)
        made = acc if sums is None else sums.sums
        with k.loop(rows * vectors, "unroll", "e") as e, k.loop(lanes, "vectorized", "v") as v:
            at = products.base + xi * self.product_plane + (panel * (self.plan.rows * vectors) + e) * lanes + v
            k.store(products.buffer, at, made[e * lanes + v])

    def _held(self, data: ScratchPart, xi: Expr, panel: Expr, block: Expr) -> Buffer | None:
        """[row][channel] of a block of channels, in registers; None where multiply-adds take no elements of these."""
        plan, lanes, target = self.plan, self.lanes, self.conv.request.target
        blocked = not plan.plain and self.apart == lanes
        if not blocked or not takes_elements(target, self.dtype) or plan.rows > most_rows(target, plan.vectors):
            return None
        first = data.base + self._left(xi, panel, block, tirx.IntImm("int32", 0))
        held = self.k.local("x", self.dtype, plan.rows * lanes)
        for row in range(plan.rows):
            vector = data.buffer[tirx.Ramp(first + row * self.apart, 1, lanes)]
            self.k.store(held, tirx.Ramp(row * lanes, 1, lanes), vector)
        return held

    def _multiply_held(self, acc: Buffer, held: Buffer, right: Expr, channel: Expr) -> None:
        """The products of one channel of a block that is held."""
        lanes, given, tile = self.lanes, self.weights.given, (self.plan.rows, self.plan.vectors, self.lanes)

        def element(row: int) -> Expr:
            return held[row * lanes + channel]

        multiply_elements(self.k, self.conv.request.target, acc, element, lambda i: given[right + i], tile)

    @property
    def _adds_up(self) -> bool:
        return self.dtype == HALF and self.plan.planes * self.facts.channels > RUN

    @contextmanager
    def _blocks(self, blocks: int, depth: int, sums: Sums | None) -> Iterator[Expr]:
        """The loop over blocks of channels, in runs of RUN of them where these are summed."""
        k = self.k
        if sums is None:
            with k.loop(blocks, name="cb") as cb:
                yield cb
            return
        each = max(1, RUN // depth)
        with k.loop(-(-blocks // each), name="sum") as number:
            count: Expr = each if blocks % each == 0 else tirx.min(blocks - number * each, each)
            with k.loop(count, name="cb") as cb:
                yield number * each + cb
            sums.add()

    def _ask_for_block(self, data: ScratchPart, left: Expr, channel: Expr) -> None:
        """Hints, beside the channels of a block of V, for the next one, which lies behind it (and behind the last of a
        xi that of the next): its rows are read at once, when the first channel's turn comes. 0.985 of the time of 64
        channels at 640 x 360 (Emerald Rapids)."""
        if not self.plan.plain and wanted_level(self.conv.request.target) == FIRST_LEVEL:
            hint(self.k, data.buffer, left - channel + self.plan.rows * (self.lanes + channel), FIRST_LEVEL)

    @property
    def apart(self) -> int:
        """Floats between what two rows of a register tile read."""
        return self.lanes

    def _left(self, xi: Expr, panel: Expr, block: Expr, channel: Expr) -> Expr:
        """Where the first row reads a channel of a block."""
        return xi * self.data_plane + ((panel * self.blocks_in + block) * self.plan.rows) * self.lanes + channel

    def _runs(self) -> list[tuple[int, int, int, int]]:
        """Blocks of channels as runs (first, step, count, channels of each): the full ones, and those that are not."""
        whole, rest = divmod(self.facts.channels, self.lanes)
        planes, runs = self.plan.planes, []
        if not rest:
            return [(0, 1, self.blocks_in, self.lanes)]
        if whole:
            runs = [(plane * self.blocks, 1, whole, self.lanes) for plane in range(planes)]
        return [*runs, (whole, self.blocks, planes, rest)]

    def _channel(self, block: Expr, lane: Expr) -> Expr:
        """Which term of a sum a channel of a block is: planes follow each other without what fills up blocks."""
        missing = self.blocks * self.lanes - self.facts.channels
        if self.plan.planes == 1 or not missing:
            return block * self.lanes + lane
        return block * self.lanes + lane - tirx.floordiv(block, self.blocks) * missing
