"""Winograd convolution in NCHW[v]c, with few taps along rows and columns, stride 1 or 2, or dilation: three steps on
strips of tiles whose scratch stays in cache.

    parallel for core: its run of groups of output channels and strips of tiles (counted over the batch)
      for tile, block of input channels               V[xi] = BT d B           one vector of channels at a time
      for chunk of output channels
        for xi of the products, register tile         M[xi] = V[xi] * U[xi]    and hints for what transforms will read
                                                      from memory (prefetch.py)
        for tile, vector                              y = AT M A, epilogue

The products are multiply-adds (products.py), or the matrix unit's (amx_products.py); how V and U lie is
theirs to say. With stride 2 several xi share a matrix of U. Large scratch comes from the memory plan, a part for each
core. The last tile of an axis that m doesn't divide is moved back, so that no read leaves the margins a direct
convolution needs, and stores only what the tile before it did not: which bits are written never depends on the order
of tasks.

A convolution of one spatial axis has one row. Along further axes than two a tile stands for one position of the
outputs, and a block of channels for one of the kernel's planes too: depth taps are more terms of the same sums. So are
the parts of a long kernel (transform.py).

With dilation d, the outputs d apart are a convolution of their own on inputs d apart: tiles of d * d of these, next to
each other, take turns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from tvm import tirx

from ...instructions.opaque_numbers import fence
from ...words.dims import is_open, minimum
from ...words.group import Kernel, Request, Scratch, dtype_bytes
from ...words.tvm_types import Buffer, Expr
from ..facts import ConvFacts
from ..kernel import PARALLEL_FLOPS, ConvKernel, finish, new_context
from ..register_tile import Tile
from .amx_products import MatrixProducts
from .axis_transform import Apply
from .plan import STACK_BYTES, WinogradPlan
from .prefetch import Ahead
from .products import Products, RegisterTiles, ScratchPart

if TYPE_CHECKING:
    from ...words.size_like import SizeLike

LINE = 64  # bytes of a cache line, which two cores must not share


def emit_winograd(conv: ConvKernel, plan: WinogradPlan, shared: dict[str, object]) -> Tile:
    """Emits a convolution by ``plan`` into ``conv``, whose scratch several convolutions share by name; gives the tile
    of its outputs."""
    WinogradKernel(conv, plan, shared).emit()
    return Tile(*plan.transform.tile, plan.vectors)


def build_winograd(
    request: Request, facts: ConvFacts, plan: WinogradPlan,
    made: Callable[[ConvKernel, WinogradPlan], WinogradKernel] | None = None,
) -> Kernel:  # fmt: skip
    """The kernel of a convolution by ``plan``; ``made`` makes the emitter, by default :class:`WinogradKernel`."""
    lanes = request.layout(request.group.outputs[0]).block
    conv = ConvKernel(request, facts, Tile(1, 1, plan.vectors), lanes, new_context(request))
    emitter = WinogradKernel(conv, plan, alone=True) if made is None else made(conv, plan)
    emitter.emit()
    tile = Tile(*plan.transform.tile, plan.vectors)
    kernel = finish(conv.ctx, f"{plan} C{lanes}", facts.flops, [tile], facts.plane.dilation)
    return replace(kernel, fitted=emitter.fitted) if emitter.fits else kernel


def workers_of(request: Request, facts: ConvFacts, plan: WinogradPlan) -> int:
    """Number of cores that share the tasks; a box has one."""
    return min(request.workers, plan.tasks) if facts.flops >= PARALLEL_FLOPS else 1


@dataclass(frozen=True)
class TilePlace:
    """A tile's image of the batch, its position along further axes, the first of its outputs, and how far back along
    rows and columns it was moved (None where tiles divide the axis); outputs are ``dilation`` apart, along ``axes``."""

    n: Expr
    deep: list[Expr]
    origins: list[Expr]
    moved: list[Expr | None]
    dilation: tuple[int, int]
    axes: int

    def position(self, own: tuple[Expr, Expr]) -> list[Expr]:
        """Coordinates of one of its outputs."""
        return [*self.deep, *(o + at * d for o, at, d in zip(self.origins, own, self.dilation))][-self.axes :]


@dataclass
class WinogradKernel:
    """``shared``: scratch of several convolutions, by name."""

    conv: ConvKernel
    plan: WinogradPlan
    shared: dict[str, object] = field(default_factory=dict)
    alone: bool = False  # the kernel is nothing else

    def __post_init__(self) -> None:
        self.products = self._products()
        box = self.conv.request.box
        self.open = self.alone and box is not None and box.open and is_open(self.conv.request.group.outputs[0].shape)
        if self.open and isinstance(self.products, MatrixProducts):
            self.products.by_panels()
        self.sizes = (self.products.data_elements, self.products.product_elements)
        self.k, self.ctx, self.facts = self.conv.k, self.conv.ctx, self.conv.facts
        self.lanes, self.t = self.conv.lanes, self.plan.transform
        self.dtype = self.facts.output.dtype
        self.images = self.facts.data.shape[0] * math.prod(self.facts.out_spatial[:-2])
        self.plane = self.facts.plane
        self.dilation = self.plane.dilation

    def _products(self) -> Products:
        return (MatrixProducts if self.plan.products else RegisterTiles)(self.conv, self.plan)

    @property
    def workers(self) -> int:
        """Cores that share the tasks; each has scratch of its own."""
        return workers_of(self.conv.request, self.facts, self.plan)

    @property
    def fits(self) -> bool:
        """True for images of any size whose strips lie in the plan: their memory follows from the size."""
        return self.open and any(self._planned) and type(self.products) in (RegisterTiles, MatrixProducts)

    @property
    def _bytes(self) -> tuple[int, int]:
        """Bytes of an element of V, and of M."""
        return dtype_bytes(self.products.dtype), dtype_bytes(self.dtype)

    @property
    def _planned(self) -> list[bool]:
        """Of V and M, whether they lie in the plan."""
        return [elements * size > STACK_BYTES for elements, size in zip(self.sizes, self._bytes)]

    def fitted(self, rows: SizeLike, columns: SizeLike) -> list[SizeLike]:
        """Bytes of V and M, of those that lie in the plan, for the tiles that an image has."""
        made, step = self.products, self.plan.rows
        tiles = self.images
        for extent, d, m in zip((rows, columns), self.dilation, self.t.tile):
            tiles = tiles * (-(-extent // (m * d)) * d)
        padded = minimum(made.padded, -(-tiles // step) * step)
        found = (size * elements for size, elements in zip(self._bytes, made.elements(padded)))
        return [bytes_ for bytes_, planned in zip(found, self._planned) if planned]

    def emit(self) -> None:
        k, plan = self.k, self.plan
        self.products.give()
        self.tiles = self._tiles()
        self.own = self.ctx.parts.own(plan.chunks if plan.groups == 1 and not plan.products else 1)
        total = self.images * self.tiles[0] * self.tiles[1]
        strips = tirx.floordiv(total + (plan.strip - 1), plan.strip) if self.conv.is_open else plan.strips
        if self.fits and type(self.products) is RegisterTiles:
            filled = tirx.floordiv(total + (plan.rows - 1), plan.rows) * plan.rows
            self.products.lay_out(k.hold(tirx.min(filled, self.products.padded), "padded"))
        ahead = Ahead(self.conv, plan, self._origin, total)
        workers, tasks = self.workers, strips * plan.groups
        shares = self.ctx.shares_margins(workers)
        with k.loop(workers, "parallel" if workers > 1 else "serial", "w") as worker:
            if shares:
                self.ctx.fill_share(worker, workers, plan.groups == 1)
            begin: Expr = tirx.IntImm("int32", 0)
            if workers > 1:
                self.ctx.ranged(worker, workers)
                begin = self.ctx.analyzer.simplify(tirx.floordiv(worker * tasks, workers))
                end = self.ctx.analyzer.simplify(tirx.floordiv((worker + 1) * tasks, workers))
                tasks = self.ctx.analyzer.simplify(end - begin)
            self.products.begin()
            with k.loop(tasks, name="p", begin=begin) as p:
                self.ctx.ranged(p, self._bound(strips * plan.groups))
                number = tirx.floordiv(p, strips) if plan.groups > 1 else tirx.IntImm("int32", 0)
                group = self.conv.bind(number, plan.groups)
                first = self.conv.bind(tirx.floormod(p, strips) * plan.strip, self._bound(total))
                self._strip(worker, group, first, total, ahead)
            self.products.end()

    def _strip(self, worker: Expr, group: Expr, first: Expr, total: Expr, ahead: Ahead) -> None:
        """The tiles from ``first`` on, and a group of output channels."""
        k, plan, made = self.k, self.plan, self.products
        count: Expr = plan.strip
        if self.conv.is_open or total % plan.strip:
            count = self.conv.bind(tirx.min(total - first, plan.strip), plan.strip + 1)
        data = self._scratch("data", self.sizes[0], worker, made.dtype)
        products = self._scratch("products", self.sizes[1], worker, self.dtype)
        self._transform(data, first, count)
        made.fill(data, count)
        begin, chunks = (group * plan.chunks_per_group, plan.chunks_per_group) if self.own is None else self.own
        with k.loop(chunks, name="chunk") as within:
            self.ctx.ranged(within, plan.chunks_per_group)
            chunk = self.conv.bind(begin + within, plan.chunks_per_group * plan.groups)
            made.multiply(data, products, chunk, count, (ahead, (first, chunk, within)))
            with k.loop(count, name="tile") as tile:
                self.ctx.ranged(tile, plan.strip)
                self._transform_products(products, first + tile, tile, chunk)

    def _scratch(self, name: str, elements: int, worker: Expr, dtype: str) -> ScratchPart:
        """Memory of one task: on the stack if small, else in the plan, which gives it bytes that no value needs just
        then, a part for each worker."""
        size = dtype_bytes(dtype)
        if elements * size <= STACK_BYTES:
            return ScratchPart(self.k.local(name, dtype, elements, "global"), 0)
        line = LINE // size
        each = -(-elements // line) * line
        buffer = self.shared.get(name)
        if buffer is None:
            buffer = self.k.pointer(name, dtype, each * self.workers)
            self.ctx.operands.append(Scratch(each * self.workers * size))
        return ScratchPart(buffer, worker * each if self.workers > 1 else 0)

    def _tiles(self) -> tuple[Expr, Expr]:
        """Tiles along rows and columns."""
        if not self.conv.is_open:
            return self.plan.tiles
        rows, columns = (
            tirx.floordiv(e + (m * d - 1), m * d) * d
            for e, d, m in zip(self.conv.spatial, self.dilation, self.t.tile)
        )
        return self.k.bind(rows, "tr"), self.k.bind(columns, "tc")

    def _bound(self, extent: Expr) -> int:
        """An upper bound of a number of elements or tiles of one image, for the simplifier."""
        return extent if isinstance(extent, int) else 1 << 24

    # -- where a tile lies -----------------------------------------------------------------------

    def _origin(self, tile: Expr) -> TilePlace:
        """Where a tile lies that is counted over all images: the batch's, and the positions along further axes."""
        rows, columns = self.tiles
        images = self.images
        row = self.conv.bind(tirx.floordiv(tile, columns), images * self._bound(rows))
        numbers = [(row if images == 1 else tirx.floormod(row, rows), rows), (tile - row * columns, columns)]
        n = tirx.IntImm("int32", 0) if images == 1 else self.conv.bind(tirx.floordiv(row, rows), images)
        deep: list[Expr] = []
        for extent in reversed(self.facts.out_spatial[:-2]):
            images //= extent
            deep.insert(0, self.conv.bind(tirx.floormod(n, extent), extent))
            n = self.conv.bind(tirx.floordiv(n, extent), images)
        origins, moved = [], []
        extents = self.plane.outputs if len(self.conv.spatial) == 1 else self.conv.spatial[-2:]
        for (number, tiles), extent, d, m in zip(numbers, extents, self.dilation, self.t.tile):
            phase: Expr = 0
            if d > 1:
                phase = self.conv.bind(tirx.floormod(number, d), d)
                number = tirx.floordiv(number, d)
            at = self.conv.bind(number * m, self._bound(tiles) * m - m + 1)
            if self.conv.is_open or extent % (m * d):
                own = tirx.floordiv(extent - 1 - phase, d) + 1 if d > 1 else extent  # outputs of this phase
                start = self.conv.bind(tirx.min(at, own - m), self._bound(extent))
                moved.append(self.conv.bind(at - start, m + 1 if d > 1 else m))
            else:
                start = at
                moved.append(None)
            origins.append(start if d == 1 else self.conv.bind(start * d + phase, self._bound(extent)))
        if self.ctx.origin is not None:
            origins = [self.conv.corner(i) + at for i, at in enumerate(origins)]
        return TilePlace(n, deep, origins, moved, self.dilation, len(self.facts.out_spatial))

    # -- the three steps -------------------------------------------------------------------------

    def _transform(self, data: ScratchPart, first: Expr, count: Expr) -> None:
        """V of ``count`` tiles from ``first`` on."""
        k = self.k
        for run in self.products.runs():
            with k.loop(run.count, name="cb") as block, k.loop(count, name="tile") as tile:
                self.ctx.ranged(block, run.count)
                self.ctx.ranged(tile, self.plan.strip)
                self._transform_data(data, first + tile, tile, run.blocks(block), run.tail)

    def _transform_data(self, data: ScratchPart, tile: Expr, slot: Expr, blocks: list[Expr], tail: bool) -> None:
        """V[xi] = BT d B of one tile, for blocks of channels that are kept together."""
        k, lanes, down, across = self.k, self.lanes, *self.t.axes
        at = self._origin(tile)
        held = [self._columns(at, block, tail) for block in blocks]
        place, number = self.products.place(slot, blocks[0]), self._numbers(across.apply_data, across.extent)
        for i in range(down.extent):
            with k.loop(lanes, "vectorized", "v") as v:
                rows = [[part[(i * across.extent + j) * lanes + v] for j in range(across.extent)] for part in held]
                made = [self._applied(across.apply_data, row, number) for row in rows]
                for j, values in enumerate(zip(*made)):
                    self.products.keep(data, place, i * across.extent + j, values, v)

    def _columns(self, at: TilePlace, block: Expr, tail: bool) -> Buffer:
        """BT d of one tile, for one block of channels."""
        k, lanes, facts = self.k, self.lanes, self.facts
        down, width = self.t.down, self.t.across.extent
        number = self._numbers(down.apply_data, down.extent)
        plane, within = tirx.IntImm("int32", 0), block
        if self.plan.planes > 1:
            plane = self.conv.bind(tirx.floordiv(block, self.products.blocks), self.plan.planes)
            within = self.conv.bind(tirx.floormod(block, self.products.blocks), self.products.blocks)
        held = k.local("t", self.data_dtype, self.t.products * lanes)
        place = self._places(at, plane)
        self._begin(at.n, (within, tirx.IntImm("int32", 0)), place(0, 0))
        for j in range(width):
            with k.loop(lanes, "vectorized", "v") as v:
                places = [place(i, j) for i in range(down.extent)]
                given = [k.bind(self._shrunk(self.conv.element_at(at.n, (within, v), p))) for p in places]
                column = self._applied(down.apply_data, given, number)
                inside = within * lanes + v < facts.channels
                for i in range(down.extent):
                    value = tirx.Select(inside, column[i], tirx.const(0, self.data_dtype)) if tail else column[i]
                    k.store(held, (i * width + j) * lanes + v, value)
        self.ctx.starts.clear()
        return held

    def _shrunk(self, value: Expr) -> Expr:
        """An input as the transform takes it: in float16 so small that none of its sums leaves the range."""
        return value if self.t.shrink == 1 else value * tirx.FloatImm(self.dtype, self.t.shrink)

    def _begin(self, n: Expr, channel: Expr, first: list[Expr]) -> None:
        """What is read from here on lies behind ``first``, if in a window."""
        if self.conv.is_windowed(self.facts.data) and not self.conv.has_prologue:
            self.ctx.begin(self.facts.data, self.conv.offset(n, channel, first))

    def _places(self, at: TilePlace, plane: Expr) -> Callable[[int, int], list[Expr]]:
        """Coordinates of a tile's inputs, by row and column, for a plane or part of the kernel."""
        facts = self.facts
        corner = [o * s - b for o, s, b in zip(at.origins, self.plane.strides, self.plane.before)]
        if self.t.planes > 1:
            corner = self._further(corner, tirx.floormod(plane, self.t.planes))
            plane = tirx.floordiv(plane, self.t.planes)
        deep: list[Expr] = []
        for axis in reversed(range(len(at.deep))):
            tap, plane = tirx.floormod(plane, facts.kernel[axis]), tirx.floordiv(plane, facts.kernel[axis])
            deep.insert(0, at.deep[axis] * facts.strides[axis] + tap * facts.dilation[axis] - facts.before[axis])
        steps = [d * s for d, s in zip(self.dilation, self.t.steps)]

        def place(i: int, j: int) -> list[Expr]:
            return [*deep, corner[0] + i * steps[0], corner[1] + j * steps[1]][-at.axes :]

        return place

    def _further(self, corner: list[Expr], part: Expr) -> list[Expr]:
        """Where the inputs of a part of the kernel begin."""
        along = self.t.parts[1]
        numbers = tirx.floordiv(part, along), tirx.floormod(part, along)
        starts = (self.t.start(axis, number, tirx.min) for axis, number in enumerate(numbers))
        return [c + self.conv.bind(s * d, k * d) for c, s, d, k in zip(corner, starts, self.dilation, self.t.kernel)]

    def _transform_products(self, products: ScratchPart, tile: Expr, slot: Expr, chunk: Expr) -> None:
        """y = AT M A of one tile and the epilogue, for each vector of the chunk."""
        k, lanes, t, vectors = self.k, self.lanes, self.t, self.plan.vectors
        at = self._origin(tile)
        with ExitStack() as scopes:
            b = scopes.enter_context(k.loop(vectors, name="b"))
            self.ctx.ranged(b, vectors)
            block = chunk * vectors + b
            total = self.plan.chunks_per_group * self.plan.groups * vectors
            if total != self.conv.channel_blocks:
                scopes.enter_context(k.when(block < self.conv.channel_blocks))
            block = self.conv.bind(block, self.conv.channel_blocks)
            width = t.across.extent
            held = k.local("t", self.dtype, t.down.m * width * lanes)
            number = self._numbers(t.down.apply_result, t.down.extent)
            place = self.products.product_at(slot, b)
            for j in range(width):
                with k.loop(lanes, "vectorized", "v") as v:
                    first, plane = products.base + place + v, self.products.product_plane
                    column = [k.bind(products.buffer[first + (i * width + j) * plane]) for i in range(t.down.extent)]
                    for i, value in enumerate(self._applied(t.down.apply_result, column, number)):
                        k.store(held, (i * width + j) * lanes + v, value)
            self.number = self._numbers(t.across.apply_result, width)
            self._finish(held, at, block)

    @property
    def data_dtype(self) -> str:
        """Of data that is being transformed."""
        return self.dtype

    def _applied(self, apply: Apply, values: Sequence[Expr], number: Callable[[float], Expr]) -> list[Expr]:
        """What a matrix makes of ``values``."""
        return apply(values, number, self.k.bind)

    def _outputs(self, values: Sequence[Expr]) -> list[Expr]:
        """A row of outputs of a tile."""
        return self._applied(self.t.across.apply_result, values, self.number)

    def _numbers(self, apply: Callable[..., list[Expr]], extent: int) -> Callable[[float], Expr]:
        """Makes the numbers that a transform multiplies by. Where they have to be loaded, LLVM does so at each use, an
        instruction for every other multiply-add; numbers that it does not know lie on the stack in every lane, where
        multiply-adds take them (0.8 of the instructions of F(6x6, 3x3))."""
        if not self.conv.request.target.loads_factors:
            return lambda number: tirx.FloatImm(self.dtype, float(number))
        used: list[float] = []

        def seen(number: float) -> float:
            used.append(number)
            return number

        apply([0.0] * extent, seen, lambda x: x)
        found = {x: self.k.bind(fence(tirx.FloatImm("float32", float(x)))) for x in sorted(set(used))}
        return found.__getitem__

    def _finish(self, held: Buffer, at: TilePlace, block: Expr) -> None:
        """The last product by A, and the epilogue at each of the tile's outputs that are its own."""
        first = at.position((0, 0))
        for value in dict.fromkeys(v for v, _ in self.conv.places() if self.conv.is_windowed(v)):
            self.ctx.begin(value, self.conv.result(value, at.n, block, first))
        self._finish_at(held, at, block)
        self.ctx.starts.clear()

    def _finish_at(self, held: Buffer, at: TilePlace, block: Expr) -> None:
        k = self.k
        shifts = [m for m in at.moved if m is not None]
        whole = self._finish_part if self.conv.costly else self._finish_whole
        if not shifts:
            whole(held, at, block)
            return
        total = shifts[0] if len(shifts) == 1 else shifts[0] + shifts[1]
        with k.when(tirx.EQ(total, tirx.IntImm("int32", 0))):
            whole(held, replace(at, moved=[None, None]), block)
        with k.when(tirx.GT(total, tirx.IntImm("int32", 0))):
            self._finish_part(held, at, block)

    def _finish_part(self, held: Buffer, at: TilePlace, block: Expr) -> None:
        """A tile that may have been moved back: the outputs that the tile before it did not make."""
        k, lanes, t = self.k, self.lanes, self.t
        (down, across), width = t.tile, t.across.extent
        outputs = k.local("y", self.dtype, t.outputs * lanes, "global")
        for i in range(down):
            with k.loop(lanes, "vectorized", "v") as v:
                values = [held[(i * width + j) * lanes + v] for j in range(width)]
                for j, value in enumerate(self._outputs(values)):
                    k.store(outputs, (i * across + j) * lanes + v, value)
        skip = [tirx.IntImm("int32", 0) if m is None else m for m in at.moved]
        with k.loop(down - skip[0], name="i") as i, k.loop(across - skip[1], name="j") as j:
            y, x = self.conv.bind(i + skip[0], down), self.conv.bind(j + skip[1], across)
            with k.loop(lanes, "vectorized", "v") as v:
                element = outputs[(y * across + x) * lanes + v]
                self.conv.element(lambda: element, at.n, block, v, at.position((y, x)))

    def _finish_whole(self, held: Buffer, at: TilePlace, block: Expr) -> None:
        k, lanes, t = self.k, self.lanes, self.t
        width = t.across.extent
        for i in range(t.down.m):
            with k.loop(lanes, "vectorized", "v") as v:
                values = [held[(i * width + j) * lanes + v] for j in range(width)]
                for j, value in enumerate(self._outputs(values)):
                    self.conv.element(partial(k.bind, value), at.n, block, v, at.position((i, j)))
