"""Attention in blocks of queries: the scores of one block live in scratch, the score matrix nowhere.

    parallel for head, block of queries
      K -> panels [S / (vectors * lanes)][D][vectors * lanes],  V -> panels [E / (vectors * lanes)][S][vectors * lanes]
      Q -> [rows][D]
      for panel of K, tile of rows:   acc = sum over d of q[row, d] * k[panel, d]       scores[rows][S], in cache
      for row:                        the phases between the products (scale, mask, softmax), in place
      for panel of V, tile of rows:   acc = sum over s of p[row, s] * v[panel, s]       the output, where it belongs

A whole row of scores is there when its softmax begins, so nothing is rescaled. Under ``exact`` the sums are those of
the operators one by one, in the same order; else a softmax leaves its division to the rows of the output
(:mod:`.softmax`). Where there are enough heads for the cores, a task is a head and packs for itself; else one launch
packs and another computes. Packing reads Q, K and V through whatever lies before them; the output goes through whatever
lies behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tvm import tirx

from ...errors import several
from ..emit.inline import key
from ..general.phases import plan_phases
from ..kernel.context import Context
from ..matmul.folded_moves import outgoing
from ..matmul.open_heights import open_heights, within
from ..operators.kind import is_long
from ..operators.te_graph import GroupGraph
from ..words.dims import Dim, is_open, minimum, to_index
from ..words.group import Kernel, Request, Scratch, Value, dtype_bytes
from ..words.sizes import product, usual
from ..words.tvm_types import Buffer, Expr
from .facts import AttentionFacts
from .half_products import half_sums
from .panels import PanelRun, Panels, block_rows, panels_of
from .rows import AttentionRows
from .softmax import SoftmaxRows, softmax_source
from .transposed_pack import lies_turned, turn

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

PARALLEL_FLOPS = 200_000
STACK_BYTES = 64 * 1024  # larger locals come from the worker's workspace


def build_attention(request: Request, facts: AttentionFacts) -> Kernel:
    """A kernel whose operands and outputs are plain."""
    return _Attention(request, facts).build()


class _Attention:
    def __init__(self, request: Request, facts: AttentionFacts) -> None:
        self.request, self.facts = request, facts
        self.graph = GroupGraph(request.group, facts.opaque)
        self.ctx = Context(request, self.graph, request.group.name)
        self.k = self.ctx.k
        self.dtype, self.stored = facts.scores.dtype, facts.q.dtype  # of scores, and of what is multiplied
        self.heads = product(facts.batch)
        target = request.target
        lanes = target.lanes(self.stored)
        self.block_rows = block_rows(target, facts)
        self.blocks = -(-facts.rows // self.block_rows)
        self.count: Expr = self.block_rows  # rows of the block that is being computed
        self.keys = panels_of(target, self.stored, self.block_rows, facts.keys, facts.depth)
        self.values = panels_of(target, self.stored, self.block_rows, facts.width, facts.keys)
        # an odd number of lines from row to row, so that the rows of a tile lie in different sets of the cache
        line = max(1, target.line_bytes // dtype_bytes(self.dtype))
        self.room = self.keys.padded + 2 * line  # of a row of scores
        if is_open([facts.keys]):
            lines = tirx.floordiv(to_index(self.keys.padded) + (line - 1), line)
            self.stride: Expr = self.k.bind(tirx.bitwise_or(lines, 1) * line, "stride")
        else:
            self.stride = self.room = (-(-self.keys.padded // line) | 1) * line
        self.turned = facts.depth >= lanes > 1 and lies_turned(request.group, self.graph, facts.k)
        self.rows = AttentionRows(request, self.ctx, self.graph, plan_phases(self.graph, (facts.weights,)), facts)
        source = None if request.policy.exact else softmax_source(request.group, self.graph, facts)
        wide = target.lanes(self.dtype)
        self.softmax = None if source is None else SoftmaxRows(self.ctx, self.graph, facts, source, wide)
        places = outgoing(request.group, facts.second)
        assert places is not None
        self.places = places
        self.costly = is_long(facts.epilogue)
        self.workspace = 0

    # -- the whole kernel ------------------------------------------------------------------------

    def build(self) -> Kernel:
        cores = max(1, self.request.target.cores)
        sizes = (self.heads, self.facts.rows, self.facts.keys)
        parallel = self.ctx.launches.pays(self.facts.flops, PARALLEL_FLOPS, sizes)
        together = not parallel or self.blocks == 1 or self.heads % cores == 0 or usual(self.heads) >= 4 * cores
        if together:
            self._heads(parallel)
        else:
            self._packed_first()
        form = "a task is a head" if together else "packed first"
        if self.turned:
            form += ", keys turned in registers"
        if self.softmax is not None:
            form += ", rows of the output scaled"
        if self.facts.casts:
            form += ", products in float16"
        return Kernel(
            function=self.k.finish(),
            operands=tuple(self.ctx.operands),
            outputs=self.request.group.outputs,
            schedule=f"attention, {several(self.block_rows, 'row')}, tiles {self.keys} and {self.values}, {form}",
            flops=self.facts.flops,
            workspace=self.k.workspace if is_open(sizes) else self.workspace,
            since=self.ctx.launches.since,
        )

    def _heads(self, parallel: bool) -> None:
        """A task is a head: it packs K and V into scratch of its own, then goes through the blocks."""
        inside = parallel and self.heads != 1
        keys, values = (None, None) if inside else self._operand_memory(1, False)
        scratch = None if inside else self._scratch(False)
        with self.k.loop(self.heads, "parallel" if inside else "serial", "h") as head:
            self.ctx.ranged(head, self.heads)
            batch = self._batch(head)
            if inside:
                keys, values = self._operand_memory(1, True)
                scratch = self._scratch(True)
            self._pack_keys(keys, 0, batch, 0, self.facts.depth)
            self._pack_values(values, 0, batch, 0, self.facts.keys)
            with self.k.loop(self.blocks, name="q") as block:
                self.ctx.ranged(block, self.blocks)
                self._block(batch, block, (keys, 0), (values, 0), scratch)

    def _packed_first(self) -> None:
        """Few heads: launches pack them all, a line of K and a chunk of V a task; another computes blocks."""
        k, facts, heads = self.k, self.facts, self.heads
        keys, values = self._operand_memory(heads, False)
        line = max(1, 64 // dtype_bytes(self.stored))
        for size, extent, pack, memory, panels in (
            (line, facts.depth, self._pack_keys, keys, self.keys),
            (64, facts.keys, self._pack_values, values, self.values),
        ):
            parts = -(-extent // size)
            with k.loop(heads * parts, "parallel", "p") as p:
                self.ctx.ranged(p, heads * parts)
                head, part = self._split(p, parts, heads)
                whole = not is_open([extent]) and (extent % size == 0 or parts == 1)
                count: Expr = min(size, extent) if whole else tirx.min(extent - part * size, size)
                pack(memory, head * panels.elements, self._batch(head), part * size, count)
        total = heads * self.blocks
        with k.loop(total, "parallel", "p") as p:
            self.ctx.ranged(p, total)
            head, block = self._split(p, self.blocks, heads)
            scratch = self._scratch(True)
            places = ((keys, head * self.keys.elements), (values, head * self.values.elements))
            self._block(self._batch(head), block, *places, scratch)

    # -- memory and coordinates ------------------------------------------------------------------

    def _memory(self, name: str, elements: SizeLike, task: bool, dtype: str) -> Buffer:
        """Memory of one task (the stack, or the worker's workspace), or of the whole kernel, from the plan."""
        size = elements * dtype_bytes(dtype)
        if task:
            if not is_open([size]) and size > STACK_BYTES:
                self.workspace += -(-size // 64) * 64 + 64
            return self.k.local(name, dtype, elements, "global")
        buffer = self.k.pointer(self.k.fresh(name), dtype, elements)
        self.ctx.operands.append(Scratch(size))
        return buffer

    def _operand_memory(self, heads: int, task: bool) -> tuple[Buffer, Buffer]:
        return (
            self._memory("keys", heads * self.keys.elements, task, self.stored),
            self._memory("values", heads * self.values.elements, task, self.stored),
        )

    def _scratch(self, task: bool) -> tuple[Buffer, Buffer, Buffer, list[Buffer]]:
        """Queries, scores, what the second product reads of them, and rows for phases that can't work in place; or one
        of inverse sums, if it is a softmax."""
        rows = minimum(self.block_rows, self.facts.rows) if is_open([self.facts.rows]) else self.block_rows
        queries = self._memory("queries", rows * self.facts.depth, task, self.stored)
        scores = self._memory("scores", rows * self.room, task, self.dtype)
        weights = self._memory("weights", rows * self.room, task, self.stored) if self.facts.casts else scores
        if self.softmax is not None:
            return queries, scores, weights, [self._memory("inverses", rows, task, self.dtype)]
        spare = [self._memory("row", self.room, task, self.dtype) for _ in range(self.rows.own_rows)]
        return queries, scores, weights, spare

    def _split(self, p: SizeLike, inner: SizeLike, outer: SizeLike) -> tuple[SizeLike, SizeLike]:
        return self._bind(tirx.floordiv(p, inner), outer), self._bind(tirx.floormod(p, inner), inner)

    def _bind(self, value: Expr, extent: Expr) -> Expr:
        value = self.ctx.analyzer.simplify(value)
        if isinstance(value, (int, tirx.IntImm, tirx.Var)):
            return value
        return self.ctx.ranged(self.k.bind(value, "o"), extent)

    def _batch(self, head: Expr) -> list[Expr]:
        """Indices of the batch axes from the number of a head."""
        found: list[Expr] = []
        for extent in reversed(self.facts.batch):
            found.append(self._bind(tirx.floormod(head, extent), extent))
            head = tirx.floordiv(head, extent)
        return found[::-1]

    # -- packing ---------------------------------------------------------------------------------

    def _read(self, value: Value, batch: list[Expr], row: Expr, column: Expr) -> Expr:
        """The element of an operand of a product; batch axes of size 1 broadcast, missing ones are not there."""
        lead = value.shape[:-2]
        own = batch[len(batch) - len(lead) :]
        indices = [tirx.IntImm("int32", 0) if e == 1 else i for e, i in zip(lead, own)]
        return self.ctx.inliner().at(self.graph.tensors[value], [*indices, row, column])

    def _pack_keys(self, keys: Buffer, base: Expr, batch: list[Expr], first: Expr, count: Expr) -> None:
        """Depths ``first + [0, count)`` of all panels: squares that are turned where K lies along its depth, else a
        vector of keys at a time, so that lines serve all depths."""
        if self.turned:
            self._turn_keys(keys, base, batch, first, count)
            return

        def line(start: Expr, width: int, zero: bool) -> None:
            self._columns(keys, base, batch, first, count, start, width, zero)

        self._lines(self.keys, line)

    def _columns(
        self, keys: Buffer, base: int, batch: list[Expr], first: Expr, count: SizeLike, start: Expr, width: int,
        zero: bool,
    ) -> None:  # fmt: skip
        """``width`` keys from ``start`` on at the same depths, or zeros in their place."""
        with self.k.loop(count, name="d") as d:
            if isinstance(count, int):
                self.ctx.ranged(d, count)
            depth = first + d
            at = self.keys.position(base, depth, start)
            with self.k.loop(width, "vectorized" if width > 1 else "serial", "v") as v:
                self.ctx.ranged(v, width)
                value = tirx.const(0, self.stored) if zero else self._read(self.facts.k, batch, depth, start + v)
                self.k.store(keys, at + v, value)

    def _turn_keys(self, keys: Buffer, base: Expr, batch: list[Expr], first: Expr, count: Expr) -> None:
        """The last square of depths is moved back where lanes don't divide them."""
        k, depth, lanes = self.k, self.facts.depth, self.keys.lanes

        def line(start: Expr, width: int, zero: bool) -> None:
            if is_open([self.facts.keys]) and (zero or width == 1):
                self._columns(keys, base, batch, first, count, start, width, zero)
                return
            if zero:
                return  # the square writes the zeros beside its columns
            squares = tirx.floordiv(count + (lanes - 1), lanes)
            with k.loop(self.ctx.analyzer.simplify(squares), name="d") as d:
                self.ctx.ranged(d, -(-depth // lanes))
                at = self._bind(tirx.min(first + d * lanes, depth - lanes), depth - lanes + 1)

                def read(i: int, local: Buffer) -> None:
                    with k.loop(lanes, "vectorized", "v") as v:
                        self.ctx.ranged(v, lanes)
                        k.store(local, v, self._read(self.facts.k, batch, at + v, start + i))

                def write(j: int, vector: Expr) -> None:
                    k.store(keys, tirx.Ramp(self.keys.position(base, at + j, start), 1, lanes), vector)

                turn(k, lanes, self.stored, width, read, write)

        self._lines(self.keys, line)

    def _pack_values(self, values: Buffer, base: Expr, batch: list[Expr], first: Expr, count: Expr) -> None:
        """Rows ``first + [0, count)`` of V."""
        with self.k.loop(count, name="s") as s:
            if isinstance(count, int):
                self.ctx.ranged(s, count)

            def line(start: Expr, width: int, zero: bool) -> None:
                at = self.values.position(base, first + s, start)
                with self.k.loop(width, "vectorized", "v") as v:
                    self.ctx.ranged(v, width)
                    zeros = tirx.const(0, self.stored)
                    value = zeros if zero else self._read(self.facts.v, batch, first + s, start + v)
                    self.k.store(values, at + v, value)

            self._lines(self.values, line)

    def _lines(self, panels: Panels, line: Callable[..., None]) -> None:
        """Whole vectors of columns, then the last one's columns and the zeros beside them."""
        whole, rest = divmod(panels.columns, panels.lanes)
        if is_open([panels.columns]):
            self._open_lines(panels, line, whole, rest)
            return
        if whole:
            with self.k.loop(whole, name="j") as j:
                self.ctx.ranged(j, whole)
                line(j * panels.lanes, panels.lanes, False)
        if rest:
            line(tirx.IntImm("int32", whole * panels.lanes), panels.lanes, True)
            line(tirx.IntImm("int32", whole * panels.lanes), rest, False)

    def _open_lines(self, panels: Panels, line: Callable[..., None], whole: SizeLike, rest: SizeLike) -> None:
        """Whole vectors, zeros to the end of the last panel, and the last columns over them, one by one."""
        k, lanes = self.k, panels.lanes
        with k.loop(whole, name="j") as j:
            line(self.ctx.ranged(j, whole) * lanes, lanes, False)
        with k.loop(panels.padded // lanes - whole, name="z") as z:
            line((z + whole) * lanes, lanes, True)
        with k.loop(rest, name="e") as e:
            line(self.ctx.ranged(e, lanes) + whole * lanes, 1, False)

    # -- one block of queries --------------------------------------------------------------------

    def _block(
        self, batch: list[Expr], block: Expr, keys: Buffer, values: Buffer, scratch: Any
    ) -> None:
        k, facts, rows = self.k, self.facts, self.block_rows
        queries, scores, weights, spare = scratch
        if is_open([facts.rows]):
            first = self._bind(block * rows, facts.rows)
            self.count = k.bind(tirx.min(facts.rows - first, rows), "n")
        else:
            start = block * rows if facts.rows % rows == 0 else tirx.min(block * rows, facts.rows - rows)
            first = self._bind(start, facts.rows - rows + 1)
        with k.loop(self.count, name="r") as r:
            self.ctx.ranged(r, rows)
            self._pack_row(queries, r, batch, first + r)
        stride = self.stride

        def keep(region: PanelRun, acc: Buffer, panel: Expr, row: Expr, height: int) -> None:
            lanes, width = self.keys.lanes, region.vectors
            with k.loop(height, "unroll", "r") as r, k.loop(width, "unroll", "b") as b:
                with k.loop(lanes, "vectorized", "v") as v:
                    at = (row + r) * stride + (panel * self.keys.width + b) * lanes + v
                    k.store(scores, at, acc[(r * width + b) * lanes + v])

        for region in self.keys.regions():
            self._product(self.keys, region, (queries, facts.depth), keys, keep)
        with k.loop(self.count, name="r") as r:
            self.ctx.ranged(r, rows)
            indices = [*batch, self._bind(first + r, facts.rows)]
            if self.softmax is not None:
                self.softmax.emit(indices, scores, weights, r * stride, spare[0], r)
            else:
                self.rows.emit(indices, scores, r * stride, spare)

        def write(region: PanelRun, acc: Buffer, panel: Expr, row: Expr, height: int) -> None:
            self._out(region, acc, batch, panel, first, row, None if self.softmax is None else spare[0], height)

        for region in self.values.regions():
            self._product(self.values, region, (weights, stride), values, write)

    def _pack_row(self, queries: Buffer, r: Expr, batch: list[Expr], row: Expr) -> None:
        depth, lanes = self.facts.depth, self.keys.lanes
        whole, rest = divmod(depth, lanes)
        for count, begin, width in ((whole, 0, lanes), (1, whole * lanes, rest)):
            if count and width:
                with self.k.loop(count, name="j") as j, self.k.loop(width, "vectorized", "v") as v:
                    self.ctx.ranged(j, count)
                    self.ctx.ranged(v, width)
                    d = begin + j * lanes + v
                    self.k.store(queries, r * depth + d, self._read(self.facts.q, batch, row, d))

    def _product(self, panels: Panels, region: PanelRun, left: Expr, right: Expr, then: Callable[..., None]) -> None:
        """All tiles of one region; ``then`` takes the region, each accumulated tile, its panel, its first row and its
        height. An open number of rows may have tiles of half the height, and too few for these tiles of one row."""
        if isinstance(self.count, int) or panels.height == 1:
            self._tiles(panels, region, left, right, then, panels.height)
            return
        busy = self.request.target.fma_ports * self.request.target.fma_latency
        heights = open_heights(Dim.symbol("rows", 1), panels.height, lambda height: height * region.vectors >= busy)
        lower: list[Expr] = []
        for height, spans in heights[: 2 if panels.height > 2 else 1]:
            own = within(self.count, spans)
            with self.k.when(own):
                self._tiles(panels, region, left, right, then, height)
            lower.append(tirx.Not(own))
        with self.k.when(tirx.all(*lower)):
            self._tiles(panels, region, left, right, then, 1)

    def _tiles(
        self, panels: Panels, region: PanelRun, left: Expr, right: Expr, then: Callable[..., None], height: int
    ) -> None:
        k, lanes, width = self.k, panels.lanes, region.vectors
        rows, size = self.count, panels.width * panels.lanes
        (source, stride), (packed, base) = left, right
        known = isinstance(rows, int)
        tiles = -(-rows // height) if known else tirx.floordiv(rows + (height - 1), height)
        with k.loop(region.count, name="p") as number, k.loop(tiles, name="t") as t:
            self.ctx.ranged(number, region.count)
            self.ctx.ranged(t, tiles)
            panel = region.first + number
            cut = height > 1 and (not known or rows % height)
            row = self._bind(tirx.min(t * height, rows - height) if cut else t * height, rows)
            acc = k.local("acc", self.stored, height * width * lanes)
            with k.loop(height * width, "unroll", "z") as z, k.loop(lanes, "vectorized", "v") as v:
                k.store(acc, z * lanes + v, tirx.const(0, self.stored))
            if self.facts.casts:
                places = ((source, row * stride, stride), (packed, base + panel * panels.depth * size, size))
                tile = (height, width, lanes)
                acc = half_sums(self.ctx, self.request.target, acc, *places, tile, panels.depth)
            else:
                self._multiply(panels, acc, left, right, (panel, row), (height, width))
            then(region, acc, panel, row, height)

    def _multiply(
        self, panels: Panels, acc: Buffer, left: Expr, right: Expr, place: tuple[Expr, Expr], tile: tuple[int, int]
    ) -> None:
        """Adds all of a product to ``acc``, a ``tile`` of rows and vectors at a panel and a first row."""
        k, lanes, (panel, row), (height, width) = self.k, panels.lanes, place, tile
        (source, stride), (packed, base) = left, right
        with k.loop(panels.depth, name="k") as step:
            at = base + (panel * panels.depth + step) * (panels.width * lanes)
            with k.loop(height, "unroll", "r") as r, k.loop(width, "unroll", "b") as b:
                with k.loop(lanes, "vectorized", "v") as v:
                    slot = (r * width + b) * lanes + v
                    factor = source[(row + r) * stride + step]
                    k.store(acc, slot, acc[slot] + factor * packed[at + b * lanes + v])

    def _out(
        self, region: PanelRun, acc: Buffer, batch: list[Expr], panel: Expr, first: Expr, row: Expr,
        factors: Buffer, height: int,
    ) -> None:  # fmt: skip
        """The tile of the output from ``row`` of the block on, each row times its factor, through the epilogue; columns
        past the last are left out."""
        k, panels, vectors = self.k, self.values, region.vectors
        lanes = panels.lanes
        source, kind = acc, "unroll"
        if self.costly:
            source, kind = k.local("spill", self.dtype, height * vectors * lanes), "serial"
            with k.loop(height * vectors, "unroll", "e") as e, k.loop(lanes, "vectorized", "v") as v:
                k.store(source, e * lanes + v, acc[e * lanes + v])
        whole = vectors if region.last == lanes else vectors - 1
        with k.loop(height, kind, "r") as r:
            self.ctx.ranged(r, height)
            for begin, count, wide in ((0, whole, lanes), (whole, vectors - whole, region.last)):
                if count:
                    with k.loop(count, kind, "b") as b, k.loop(wide, "vectorized", "v") as v:
                        self.ctx.ranged(b, count)
                        self.ctx.ranged(v, wide)
                        at = source[(r * vectors + begin + b) * lanes + v]
                        if factors is not None:
                            at = at * factors[row + r]
                        column = (panel * panels.width + begin + b) * lanes + v
                        self._element(at, [*batch, first + row + r, column])

    def _element(self, value: Expr, indices: list[Expr]) -> None:
        made = self.graph.tensors[self.facts.output]
        value = tirx.Cast(self.stored, value) if self.facts.casts else value
        inliner = self.ctx.inliner({key(made): lambda _indices: value})
        for output in self.request.group.outputs:
            place = [self.ctx.analyzer.simplify(i) for i in self.places[output](indices)]
            self.ctx.write(output, place, inliner.at(self.graph.tensors[output], place))
