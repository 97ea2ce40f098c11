"""Matrix multiplication by panels of B.

    parallel for batch, block of rows, group of panels        (:mod:`.blocking`)
      for panel of B
        for part of K                       one part: the accumulators go straight to the epilogue
          for tile of rows                  last one moved back, never smaller
            acc[rows][vectors][lanes] = 0, or what the part before left in scratch
            for k                           rolled, or few steps written out (unrolled_steps.py): registers hold it
              acc[r][v] += a[row r, k] (broadcast) * b[panel][k][v]
                                            after every few of the first steps, hints for a row of the results
        epilogue(acc)

Where all of B stays in half of the second-level cache, tiles of rows come first, each meets every panel, and A and the
results pass by once: 784 x 768 x 192 takes 0.99, 3136 x 96 x 384 0.98 of the time so (Emerald Rapids).

A constant B lies in panels [N / (vectors * lanes)][K][vectors][lanes], zero-padded, and each panel is read from start
to end, or its vectors side by side (:mod:`.streamed_panels`). A variable B is brought into that form first where it is
large and many rows of A meet it; else it is read in place, a row of the panel at a time, its last, narrower panel as a
nest of its own. A is read through whatever moves lie before it, and the output written through those behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from tvm import tirx

from ..emit.inline import key
from ..instructions.prefetch import FIRST_LEVEL, LINE, SECOND_LEVEL, hint
from ..kernel.context import Context
from ..kernel.half_sums import HalfSums, in_runs
from ..operators.kind import is_long
from ..operators.te_graph import GroupGraph
from ..words.dims import Dim, is_open, maximum, to_index
from ..words.group import Kernel, Packed, Request, Value, dtype_bytes
from ..words.sizes import product, usual
from ..words.tvm_types import Buffer, Expr
from .blocking import PARALLEL_FLOPS, MatmulBlocks, choose_blocks
from .facts import MatmulFacts
from .folded_moves import outgoing, producers
from .open_heights import ALL, open_heights, within
from .prefetch import ask_for_rows, follow, follows_late
from .regions import Region, in_panels, whole_regions
from .row_elements import each_group, holds_rows, multiply_rows
from .shared_weights import shared_tile
from .streamed_panels import reads_streams
from .variable_panels import panels_of

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

ROW_STEPS = 4  # steps of K after the hints for one row of a tile's results: no burst holds up the loads
LONG = 512  # steps of K after which waiting for the lines of the results counts for nothing
STAYS = 0.5  # of the second-level cache: a B that stays there beside what passes by
STAYS_TILES = 32  # of rows, beside which the first one counts little, whose B comes from afar and with no hints
PACK_ROWS = 128  # rows of A for which packing a variable B pays: it costs as much as a few of them
ALIASED = 2048  # bytes: rows of B that lie a multiple apart share few sets of a first-level cache

Rows = tuple[Buffer | None, Expr, Expr, Expr]  # A, where its matrix begins, batch, and first row of a tile
Right = tuple[Buffer, Expr]  # B, and where the vectors of a step begin


def build_packed(request: Request, facts: MatmulFacts, tile: tuple[int, int] | None = None) -> Kernel:
    """The kernel of a product by panels of B, in register tiles ``tile``; by default those of :func:`shared_tile`."""
    return _Matmul(request, facts, tile or shared_tile(request, facts)).build()


class _Matmul:
    family = "matmul"

    def __init__(self, request: Request, facts: MatmulFacts, tile: tuple[int, int]) -> None:
        self.request, self.facts, self.stored = request, facts, facts.output.dtype
        anchor = request.group.anchor
        assert anchor is not None
        self.anchor = anchor
        self.graph = GroupGraph(request.group, [anchor])
        self.ctx = Context(request, self.graph, request.group.name)
        self.k = self.ctx.k
        self.lanes, self.element = request.target.lanes(facts.output.dtype), dtype_bytes(facts.output.dtype)
        self.open = is_open(facts.output.shape)
        self.moved = bool(producers(request.group, facts.a))  # A is read through moves
        self.packs_first = self._packs_first()
        self.panelled = facts.packs or self.packs_first  # B lies in panels
        self.height, self.width = tile
        self.streams = reads_streams(request.target, facts, tile, self.element)  # vectors of a panel lie apart
        self.most = 0  # rows that the tiles at hand are for
        self.cut = 0  # steps at the end that are not like the others
        self.passes = facts.flat and not self.moved  # A, as its rows meet the panels
        self.together = self.lanes if holds_rows(request.target, request.group, facts) else 1  # steps of a load of A
        self.costly = is_long(n for n in request.group.nodes if n is not anchor)
        places = outgoing(request.group, anchor)
        assert places is not None
        self.places = places

    def _packs_first(self) -> bool:
        """True where so many rows of A meet a variable B that it is brought into panels: one that leaves the
        second-level cache, or whose own rows meet in few sets of the first; from fewer on where it does both."""
        facts = self.facts
        large = facts.k * facts.n * self.element > (self.request.target.l2_bytes or 1 << 20) // 2
        aliased = facts.n * self.element % ALIASED == 0
        least = PACK_ROWS / 4 if large and aliased else PACK_ROWS
        return not facts.packs and (large or aliased) and usual(facts.rows) >= least

    def build(self) -> Kernel:
        a = None if self.moved else self.ctx.buffer(self.facts.a)
        if self.facts.packs:
            b = self.ctx.packed(Packed(f"w_{self.facts.b.name}", self._panels, self._panel_elements, self.stored))
        else:
            b = self.ctx.buffer(self.facts.b)
        self._all_rows(a, self._pack(b) if self.packs_first else b)
        form = "packed" if self.facts.packs else "packed first" if self.packs_first else "in place"
        form = f"{self.family} {form}, tile {self.height}x{self.width}x{self.lanes}"
        return Kernel(
            function=self.k.finish(),
            operands=tuple(self.ctx.operands),
            outputs=self.request.group.outputs,
            schedule=f"{form}{', in streams' * self.streams}",
            flops=usual(self.facts.flops),
            workspace=self.k.workspace, since=self.ctx.launches.since,  # fmt: skip
        )

    def _all_rows(self, a: Buffer | None, b: Buffer) -> None:
        """All regions, where rows are open by tiles of several heights."""
        facts, target, tallest = self.facts, self.request.target, self.height
        heights = [(tallest, [ALL])]
        if isinstance(facts.rows, Dim):
            busy = target.fma_ports * target.fma_latency
            heights = open_heights(facts.rows, tallest, lambda height: height * self.width >= busy)
        for self.height, spans in heights:
            self.most = spans[-1][1] - 1
            condition = within(to_index(facts.rows), spans)
            with nullcontext() if condition is None else self.k.when(condition):
                for region in self._regions():
                    self._region(region, a, b)
        self.height = tallest

    def _regions(self) -> list[Region]:
        return whole_regions(self.facts.n, self.width, self.lanes)

    def _pack(self, b: Buffer) -> Buffer:
        """B in panels, brought into them first."""
        return panels_of(self, b)

    def _panels(self) -> np.ndarray:
        return in_panels(self._steps_of_b(), self._regions(), self.lanes, self.streams)

    def _steps_of_b(self) -> np.ndarray:  # [steps, N]
        return np.asarray(self.facts.b.constant).reshape(self.facts.k, self.facts.n)

    @property
    def _panel_elements(self) -> int:
        """Elements of one B in panels."""
        return self.facts.steps * sum(r.panels * r.vectors * self.lanes for r in self._regions())

    # -- one region ------------------------------------------------------------------------------

    def _region(self, region: Region, a: Buffer | None, b: Buffer) -> None:
        facts, k, ctx = self.facts, self.k, self.ctx
        batches = 1 if facts.flat else product(facts.batch)
        blocks = self._blocks_of(region, batches)
        if self.streams or self.cut or in_runs(facts.output.dtype, facts.steps):
            blocks = replace(blocks, depth=facts.steps, parts=1)
        run = maximum(1, -(-region.panels // blocks.groups))  # not 0 where panels are open: LLVM may divide ahead
        groups = -(-region.panels // run)
        total = batches * blocks.row_blocks * groups
        parallel = (is_open([total]) or total > 1) and ctx.launches.pays(usual(facts.work), PARALLEL_FLOPS, [total])
        with k.loop(total, "parallel" if parallel else "serial", "p") as p:
            ctx.ranged(p, total)
            group = self.bind(tirx.floormod(p, groups), groups)
            block = self.bind(tirx.floormod(tirx.floordiv(p, groups), blocks.row_blocks), blocks.row_blocks)
            batch = self.bind(tirx.floordiv(p, groups * blocks.row_blocks), batches)
            first = self.bind(block * blocks.rows, facts.rows)
            left, scratch = self._left_of_task(a, batch, first, blocks), None
            if blocks.parts > 1:
                size = -(-blocks.rows // self.height) * self.height * region.vectors * self.lanes
                scratch = k.local("sums", facts.output.dtype, size, "global")
            count: SizeLike = run if region.panels % run == 0 else tirx.min(region.panels - group * run, run)
            if self._stays(blocks, b):
                with self._rows(blocks, first) as (_, row), k.loop(count, name="n") as n:
                    ctx.ranged(n, run)
                    panel = self.bind(group * run + n, region.panels)
                    self._whole(region, left, b, (batch, panel, row), (0, 1), (n, run))
            else:
                with k.loop(count, name="n") as n:
                    panel = self.bind(group * run + n, region.panels)
                    self._panel(region, blocks, left, b, (batch, panel, first), scratch)

    def _left_of_task(self, a: Buffer | None, batch: Expr, first: Expr, blocks: MatmulBlocks) -> Buffer | None:
        """What tiles of a task read rows of A from."""
        return a

    def _blocks_of(self, region: Region, batches: int) -> MatmulBlocks:
        target, facts, tile = self.request.target, self.facts, (self.height, region.vectors)
        workers = self.request.workers
        return choose_blocks(target, facts.rows, facts.steps, region.panels, tile, batches, self.element, workers)

    def _stays(self, blocks: MatmulBlocks, b: Buffer) -> bool:
        """True if all of B stays in the second-level cache, and is read faster from there than from beyond: then a tile
        of rows meets all panels before the next one, and A and the results pass by once, in order."""
        target, size = self.request.target, self._panel_elements * self.element
        near = size <= STAYS * target.l2_bytes and follows_late(target, b, self.element, self.height)
        many = usual(self.facts.rows) >= STAYS_TILES * self.height
        return near and many and self.panelled and blocks.parts == 1

    @contextmanager
    def _rows(self, blocks: MatmulBlocks, first: Expr) -> Iterator[tuple[Expr, Expr]]:
        """The tiles of a block of rows: number, and first row."""
        height, total = self.height, self.facts.rows
        tiles = to_index(-(-blocks.rows // height))
        count: Expr = tiles
        if is_open([total, blocks.rows]) or total % blocks.rows:  # the last block has fewer
            count = tirx.min(tirx.floordiv(total - first + (height - 1), height), tiles)
        with self.k.loop(count, name="t") as t:
            self.ctx.ranged(t, tiles)
            row = first + t * height
            cut = height > 1 and (is_open([total]) or total % height)
            yield t, self.bind(tirx.min(row, total - height) if cut else row, total - height + 1)

    def _column(self, region: Region, panel: Expr) -> Expr:
        """Where a panel begins."""
        column = region.first + panel * region.vectors * self.lanes
        return column if region.back is None else self.k.hold(tirx.min(column, region.back), "c")

    def _whole(
        self, region: Region, a: Buffer | None, b: Buffer, place: tuple[Expr, Expr, Expr],
        tile: tuple[Expr, int], run: tuple[Expr, int] | None = None,
    ) -> None:  # fmt: skip
        """A tile over all of K, and its epilogue; ``run``: panel, and how many of them this tile of rows meets."""
        batch, panel, row = place
        asked = self._asked(run is not None)
        acc = self._tile(region, a, b, batch, panel, row, (0, self.facts.steps), tile, None, asked, run)
        self._epilogue(region, acc, batch, panel, row)

    def _asked(self, passing: bool) -> int:
        """Steps of K beside which a tile asks for the lines of its results, row by row, and of A if that is
        ``passing``: none where they are most of K, or K is so long, or passes so slowly, that the wait for these lines
        counts for nothing."""
        steps = usual(self.facts.steps)
        asked = self.height * max(ROW_STEPS, self.together)
        short = 2 * asked <= steps and (passing or steps <= LONG)
        return asked if self.request.target.fma_ports > 1 and short else 0

    def _panel(
        self, region: Region, blocks: MatmulBlocks, a: Buffer | None, b: Buffer, place: tuple[Expr, Expr, Expr],
        scratch: Buffer,
    ) -> None:  # fmt: skip
        """One block of rows by one panel of B; ``place``: batch, panel, first row."""
        k, height, width = self.k, self.height, region.vectors * self.lanes
        batch, panel, first = place
        tiles = -(-blocks.rows // height)
        if scratch is None:
            with self._rows(blocks, first) as (t, row):
                self._whole(region, a, b, (batch, panel, row), (t, tiles))
            return
        size = height * width  # each tile has sums of its own: rows that two tiles share are summed twice, apart
        with k.loop(tiles * height * region.vectors, name="z") as z, k.loop(self.lanes, "vectorized", "v") as v:
            k.store(scratch, z * self.lanes + v, tirx.const(0, self.facts.output.dtype))
        with k.loop(blocks.parts, name="c") as c:
            depth, start = blocks.depth, c * blocks.depth
            if self.facts.steps % depth:
                depth = tirx.min(self.facts.steps - start, depth)
            with self._rows(blocks, first) as (t, row):
                self._tile(region, a, b, batch, panel, row, (start, depth), (t, tiles), (scratch, t * size))
        with self._rows(blocks, first) as (t, row):
            acc = k.local("acc", self.facts.output.dtype, height * width)
            with k.loop(height * region.vectors, "unroll", "z") as z, k.loop(self.lanes, "vectorized", "v") as v:
                k.store(acc, z * self.lanes + v, scratch[t * size + z * self.lanes + v])
            self._epilogue(region, acc, batch, panel, row)

    def bind(self, value: Expr, extent: SizeLike) -> Expr:
        """A name for an index. Of open rows it is one that TVM does not see through: it would put whole expressions
        back at every use, and the code of a kernel would grow a hundred times."""
        value = self.ctx.analyzer.simplify(value)
        if isinstance(value, (int, tirx.IntImm, tirx.Var)):
            return value
        if self.open:
            return self.k.hold(value, "o")
        return self.ctx.ranged(self.k.bind(value, "o"), extent)

    def _batch_indices(self, batch: Expr) -> list[Expr]:
        """Logical batch coordinates of the output from the flat batch number."""
        indices, rest = [], batch
        for s in reversed(self.facts.batch):
            indices.append(tirx.floormod(rest, s))
            rest = tirx.floordiv(rest, s)
        return [self.ctx.analyzer.simplify(i) for i in reversed(indices)]

    def _matrix(self, value: Value, batch: list[Expr]) -> Expr:
        """The number of the matrix of A or B that a batch reads; axes of size 1 broadcast."""
        shape = value.shape[:-2]
        base: Expr = 0
        for s, i in zip(shape, batch[len(batch) - len(shape):]):
            base = base * s + (0 if s == 1 else i)
        return base

    def _base(self, value: Value, batch: list[Expr]) -> Expr:
        """Its flat position."""
        return self._matrix(value, batch) * (value.shape[-2] * value.shape[-1])

    def _tile(
        self, region: Region, a: Buffer | None, b: Buffer, batch: Expr, panel: Expr, row: Expr,
        part: tuple[int, int], tile: tuple[Expr, int], sums: Buffer, asked: int = 0,
        run: tuple[Expr, int] | None = None,
    ) -> Buffer:  # fmt: skip
        """The accumulated tile over ``part`` (first step, steps), the one of all that meet it that ``tile`` says
        (number, how many); with ``sums`` (scratch, position) it is taken from there and put back. In its first
        ``asked`` steps it asks for the lines of its results."""
        facts, k, lanes, height = self.facts, self.k, self.lanes, self.height
        vectors = region.vectors
        indices = [] if facts.flat else self._batch_indices(batch)
        a_base = 0 if facts.flat or self.moved else self._base(facts.a, indices)
        column = self._column(region, panel)
        acc = k.local("acc", facts.output.dtype, height * vectors * lanes)
        with k.loop(height * vectors, "unroll", "z") as z, k.loop(lanes, "vectorized", "v") as v:
            begin = tirx.const(0, facts.output.dtype) if sums is None else sums[0][sums[1] + z * lanes + v]
            k.store(acc, z * lanes + v, begin)
        first, steps = part
        wide = HalfSums(k, acc, height * vectors, lanes) if in_runs(facts.output.dtype, facts.steps) else None
        asks = run is None and self.panelled and follows_late(self.request.target, b, self.element, self.height)
        asks = asks and not self.streams
        self.apart = facts.steps * lanes if self.streams else lanes  # from vector to vector of a panel

        def multiply(s: Expr, count: int = 1) -> None:
            step = s if isinstance(first, int) else first + s
            b_at = self._right(region, indices, (panel, column), step)
            for i in range(count if asks else 0):
                behind = b_at + (steps - s) * (vectors * lanes)
                follow(k, b, behind, tile[0] * steps + s + i, vectors * lanes, tile[1], self.element)
            self._steps(region, acc, (a, a_base, batch, row), (b, b_at), (step, count))

        if asked:
            with k.loop(height, name="h") as h:
                self.ctx.ranged(h, height)
                self._ask_for_results(region, batch, row + h, column)
                if run is not None and self.passes:
                    share = (run[0] * height + h, run[1] * height)
                    ask_for_rows(k, a, (row + height) * facts.k, share, height * facts.k, dtype_bytes(facts.a.dtype))
                each = asked // height
                begun = lambda s, count=1: multiply(h * each + s, count)  # noqa: B023, E731
                each_group(self.ctx, self.request.target, each, begun, self.together)
        if wide is not None:
            wide.each_run(self.ctx, asked, steps - asked, multiply, self.together)
        elif not self.cut or steps > self.cut:
            each_group(self.ctx, self.request.target, steps - asked - self.cut, multiply, self.together, asked)
        if self.cut:
            multiply(steps - self.cut)
        if sums is not None:
            with k.loop(height * vectors, "unroll", "z") as z, k.loop(lanes, "vectorized", "v") as v:
                k.store(sums[0], sums[1] + z * lanes + v, acc[z * lanes + v])
        return acc

    def _right(self, region: Region, indices: list[Expr], place: tuple[Expr, Expr], step: Expr) -> Expr:
        """Where the vectors of B begin that meet a step of A; ``indices``: the batch, if each has a B of its own,
        ``place``: the panel, and its column."""
        panel, column = place
        facts, lanes, width = self.facts, self.lanes, region.vectors * self.lanes
        if not self.panelled:
            return (self._base(facts.b, indices) if indices else 0) + step * facts.n + column
        at = region.first * facts.steps + panel * facts.steps * width
        at += step * (lanes if self.streams else width)
        return at + self._matrix(facts.b, indices) * self._panel_elements if self.packs_first and indices else at

    def _steps(self, region: Region, acc: Buffer, rows: Rows, right: Right, steps: tuple[Expr, int]) -> None:
        """A first step, and as many of those behind it as are taken together, of all rows of a tile."""
        (a, base, batch, row), depth = rows, self.facts.k
        if steps[1] > 1:
            elements, tile = (a, base + row * depth + steps[0], depth), (self.height, region.vectors, self.lanes)
            multiply_rows(self.k, self.request.target, acc, elements, right, tile)
            return
        with self.k.loop(self.height, "unroll", "r") as r:
            self._multiply(region, acc, r, self._left(a, base, batch, row + r, steps[0]), right)

    def _multiply(self, region: Region, acc: Buffer, r: Expr, left: Expr, right: Right) -> None:
        """One step of row ``r`` of a tile."""
        k, lanes, vectors, (b, at) = self.k, self.lanes, region.vectors, right
        whole = vectors if region.last == lanes or self.panelled else vectors - 1
        for begin, count, width in ((0, whole, lanes), (whole, vectors - whole, region.last)):
            if count:
                with k.loop(count, "unroll", "b") as j, k.loop(width, "vectorized", "v") as v:
                    slot = (r * vectors + begin + j) * lanes + v
                    k.store(acc, slot, acc[slot] + left * b[at + (begin + j) * self.apart + v])

    def _ask_for_results(self, region: Region, batch: Expr, row: Expr, column: Expr) -> None:
        """Hints for what the epilogue reads and writes of one row."""
        k, facts, group = self.k, self.facts, self.request.group
        at = [*self._lead(batch, row), column]
        beside = [v for v in group.inputs if v.constant is None and v not in (facts.a, facts.b)]
        moved = any(v.shape != facts.output.shape for v in group.outputs)
        reads = [(v, at, False) for v in beside if v.shape == facts.output.shape and not moved]
        for value, indices, written in [*reads, *((v, self.places[v](at), True) for v in group.outputs)]:
            begin = self.ctx.offset(value, [self.ctx.analyzer.simplify(i) for i in indices])
            for line in range(0, region.vectors * self.lanes, LINE // self.element):
                hint(k, self.ctx.buffer(value), begin + line, FIRST_LEVEL if written else SECOND_LEVEL, written)

    def _left(self, a: Buffer, base: Expr, batch: Expr, row: Expr, step: Expr) -> Expr:
        """One element of A, through the moves before it if there are any."""
        if not self.moved:
            return a[base + row * self.facts.k + step]
        shape = self.facts.a.shape
        lead = self._lead(batch, row)
        indices = lead[len(lead) - len(shape) + 1 :]
        indices = [tirx.IntImm("int32", 0) if e == 1 else i for i, e in zip(indices, shape)]
        return self.ctx.inliner(bind=False).at(self.graph.tensors[self.facts.a], [*indices, step])

    def _epilogue(self, region: Region, acc: Buffer, batch: Expr, panel: Expr, row: Expr) -> None:
        k, lanes = self.k, self.lanes
        column = self._column(region, panel)
        source, kind = acc, "unroll"
        if self.costly:
            source, kind = k.local("spill", self.facts.output.dtype, self.height * region.vectors * lanes), "serial"
            with k.loop(self.height * region.vectors, "unroll", "e") as e, k.loop(lanes, "vectorized", "v") as v:
                k.store(source, e * lanes + v, acc[e * lanes + v])
        whole = region.vectors if region.last == lanes else region.vectors - 1
        with k.loop(self.height, kind, "r") as r:
            for first, count, width in ((0, whole, lanes), (whole, region.vectors - whole, region.last)):
                if count:
                    with k.loop(count, kind, "b") as j, k.loop(width, "vectorized", "v") as v:
                        self.ctx.ranged(v, width)
                        at = source[(r * region.vectors + first + j) * lanes + v]
                        self._element(at, batch, row + r, column + (first + j) * lanes + v)

    def _lead(self, batch: Expr, row: Expr) -> list[Expr]:
        """Indices of all axes but the last, of the output, from the batch's number and the row."""
        facts = self.facts
        if not facts.flat:
            return [*self._batch_indices(batch), row]
        if all(s == 1 for s in facts.batch):
            return [*([tirx.IntImm("int32", 0)] * len(facts.batch)), row]
        return self.ctx.rows.indices(row, (*facts.batch, facts.m), self.ctx.analyzer)

    def _element(self, value: Expr, batch: Expr, row: Expr, column: Expr) -> None:
        made = self.graph.tensors[self.anchor.results[0]]
        inliner = self.ctx.inliner({key(made): lambda _indices: value})
        indices = [*self._lead(batch, row), column]
        for output in self.request.group.outputs:
            place = [self.ctx.analyzer.simplify(i) for i in self.places[output](indices)]
            self.ctx.write(output, place, inliner.at(self.graph.tensors[output], place))
