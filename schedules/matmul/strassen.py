"""Matrix multiplication by seven products of halves instead of eight (Strassen 1969, in Winograd's form).

    A = [A11 A12]   B = [B11 B12]     S1 = A21 + A22    T1 = B12 - B11    P1 = A11 B11   P5 = S1 T1
        [A21 A22]       [B21 B22]     S2 = S1 - A11     T2 = B22 - T1     P2 = A12 B21   P6 = S2 T2
                                      S3 = A11 - A21    T3 = B22 - B12    P3 = S4 B22    P7 = S3 T3
    C11 = P1 + P2                     S4 = A12 - S2     T4 = T2 - B21     P4 = A22 T4
    C12 = P1 + P6 + P5 + P3     C21 = P1 + P6 + P7 - P4     C22 = P1 + P6 + P7 + P5

One level, for a constant B: its combinations are made at compile time, in panels of [7][K / 2]. Those of A are made for
a block of rows and its counterpart in the lower half, by the task that works on them, or by a launch before where tasks
share them. A task takes a panel at a time, product after product, so that sums which outputs share stay in the second
level (U: P1, P1 + P6, P1 + P6 + P7; W: P5). An eighth of the multiply-adds is saved for ``product_state`` cycles
(targets/fitted.toml) to each vector of a quarter of the outputs and ``product_sum`` to each of a quarter of A, on a
core with one port; half of that are loads and stores, of which one with more ports does more at a time.

Error: that of a sum of K products, times a small constant, of the largest elements of A and B rather than of each row
and column: rows of the two halves mix, also what is infinite or NaN in them. So images (what the first axis counts)
stay apart: each is halved by itself. Off under ``exact``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from tvm import tirx

from ...targets.target import Target
from ..kernel.half_sums import HALF
from ..kernel.unrolled_steps import each_step
from ..words.group import Kernel, Packed, Request, Scratch
from ..words.tvm_types import Buffer, Expr
from .blocking import PARALLEL_FLOPS, SUMS_BYTES, MatmulBlocks
from .facts import MatmulFacts
from .folded_moves import producers
from .packed import _Matmul
from .prefetch import follow, follows_late
from .regions import Region
from .register_tile import choose_tile, first_level_ways, rows_in_cache

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

PRODUCTS = 7
GAIN = 0.95  # of the plain product's multiply-adds: nearer than that, the plain form is taken
LEAST_ROWS = 48  # of a half
ROW_CHUNK = 8  # rows of A that a task combines


def strassen_pays(request: Request, facts: MatmulFacts) -> bool:
    """True if seven products are allowed and estimated to be faster. B is one constant matrix, but not of whole
    numbers, whose sums are exact, and A is read from memory."""
    if not request.policy.strassen or request.target.memory_kind == "scratchpad" or facts.output.dtype == HALF:
        return False
    if not facts.packs or not facts.flat or facts.b.is_whole:
        return False
    if producers(request.group, facts.a):
        return False
    cycles = seven_cycles(request.target, rows_of_image(facts), facts.k, facts.n, facts.output.dtype)
    return cycles is not None


def seven_cycles(target: Target, rows: int, depth: int, columns: int, dtype: str) -> float | None:
    """Estimated cycles of one image's ``rows x depth`` times ``depth x columns`` by seven products; None where the
    halves are too few, are not whole, or gain too little."""
    lanes, half = target.lanes(dtype), -(-rows // 2)
    if columns % (2 * lanes) or depth % 2 or half < LEAST_ROWS:
        return None
    vectors, steps = columns // 2 // lanes, depth // 2
    plain = rows * 2 * vectors * depth / target.fma_ports
    fewer = PRODUCTS * half * vectors * steps / target.fma_ports
    fitted = target.fitted.strassen
    passing = half * vectors * fitted.product_state + half * steps / lanes * fitted.product_sum
    total = fewer + passing * (1 + 1 / target.fma_ports) / 2
    return total if total < GAIN * plain else None


def linear_halves(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The seven right operands of B [K, N] as a linear map of its quarters b11, b12, b21, b22: [7, 4], [4, K N / 4]."""
    quarters = [np.split(half, 2, axis=1) for half in np.split(b, 2)]
    plain = np.stack([part.reshape(-1) for half in quarters for part in half]).astype(np.float32)
    seven = ((1, 0, 0, 0), (0, 0, 1, 0), (1, -1, 0, 1), (-1, 1, 0, 0), (0, 0, 0, 1), (0, -1, 0, 1), (-1, 1, 1, -1))
    return np.array(seven, np.float64), plain


def rows_of_image(facts: MatmulFacts) -> int:
    """Rows of A that belong together: all but its first axis, which counts what is independent."""
    shape = facts.a.shape
    return facts.rows // (shape[0] if len(shape) > 2 else 1)


def build_strassen(request: Request, facts: MatmulFacts, tile: tuple[int, int] | None = None) -> Kernel:
    """The kernel of a product by Strassen's seven products of halves."""
    half, vectors = -(-rows_of_image(facts) // 2), facts.n // 2 // request.target.lanes(facts.output.dtype)
    return _Strassen(request, facts, tile or choose_tile(request.target, half, vectors)).build()


class _Strassen(_Matmul):
    def __init__(self, request: Request, facts: MatmulFacts, tile: tuple[int, int]) -> None:
        super().__init__(request, facts, tile)
        self.m = rows_of_image(facts)
        self.images = facts.rows // self.m
        self.half = -(-self.m // 2)  # the last row of the lower half is missing if there is an odd number
        self.depth = facts.k // 2
        line = max(1, request.target.line_bytes // self.element)
        self.stride = (-(-self.depth // line) | 1) * line  # an odd number of lines: rows in different sets of a cache
        self.odd = self.m % 2 == 1
        self.below = False  # which half the epilogue is at
        self.workspace = 0
        far = rows_in_cache(facts.k * self.element, first_level_ways(request.target)) < self.height
        copied = [0, 1, 2, 3, 4, 5, 6] if far else [2, 3, 4, 5, 6] if self.odd else [2, 3, 4, 5]
        self.slots = {number: slot for slot, number in enumerate(copied)}  # left operands that are not read in place

    def build(self) -> Kernel:
        a = self.ctx.buffer(self.facts.a)
        b = self.ctx.packed(Packed(f"w_{self.facts.b.name}", self._panels(), linear=self._linear))
        regions = self._regions()
        blocks = {r: self._blocks(r) for r in regions}
        large = self.facts.flops >= PARALLEL_FLOPS
        together = not large or any(b.groups > 1 or self.images * b.row_blocks == 1 for b in blocks.values())
        lefts = self._lefts_first(a, large) if together else None
        for region in regions:
            self._quarters(region, blocks[region], a, b, lefts)
        return Kernel(
            function=self.k.finish(),
            operands=tuple(self.ctx.operands),
            outputs=self.request.group.outputs,
            schedule=f"matmul by seven products of halves, tile {self.height}x{self.width}x{self.lanes}",
            flops=self.facts.flops,
            workspace=self.workspace,
        )

    def _regions(self) -> list[Region]:
        """Of the left half of the columns, in whole vectors."""
        panels, left = divmod(self.facts.n // 2 // self.lanes, self.width)
        found = [Region(0, panels, self.width, self.lanes)] if panels else []
        return [*found, Region(panels * self.width * self.lanes, 1, left, self.lanes)] if left else found

    def _panels(self) -> np.ndarray:
        b = np.asarray(self.facts.b.constant, np.float64).reshape(self.facts.k, self.facts.n)
        top, bottom = b[: self.depth], b[self.depth :]
        (b11, b12), (b21, b22) = np.split(top, 2, axis=1), np.split(bottom, 2, axis=1)
        t1 = b12 - b11
        t2 = b22 - t1
        parts = []
        seven = np.stack([b11, b21, t2, t1, b22, b22 - b12, b21 - t2]).astype(self.facts.output.dtype)
        for region in self._regions():
            columns = region.panels * region.vectors * self.lanes
            part = seven[:, :, region.first : region.first + columns]
            part = part.reshape(PRODUCTS, self.depth, region.panels, region.vectors * self.lanes)
            parts.append(part.transpose(2, 0, 1, 3).reshape(-1))
        return np.ascontiguousarray(np.concatenate(parts))

    def _linear(self) -> tuple[np.ndarray, np.ndarray]:
        return linear_halves(np.asarray(self.facts.b.constant).reshape(self.facts.k, self.facts.n))

    def _blocks(self, region: Region) -> MatmulBlocks:
        """Blocks of a half's rows, whole tiles each, that keep the cores busy with the least work done twice. U and W
        of a block fit the stack, its left operands the second level if the task makes them itself."""
        target, height = self.request.target, self.height
        tiles, cores = -(-self.half // height), max(1, target.cores)
        wanted = 4 * cores if cores > 1 else 1
        best: tuple[tuple[int, ...], MatmulBlocks] | None = None
        for number in range(1, tiles + 1):
            each = -(-tiles // number)
            groups = min(region.panels, -(-wanted // (self.images * number)))
            run = -(-region.panels // groups)
            tasks = self.images * number * -(-region.panels // run)
            if each > self._most_tiles(region, alone=tasks > 1 and groups == 1) and each > 1:
                continue
            if best is not None and each * height < LEAST_ROWS:
                break
            span, work = -(-tasks // cores) * each * run, self.images * number * each * region.panels
            order = (span, work, max(0, wanted - tasks), number)
            if best is None or order < best[0]:
                rows = min(self.half, each * height)
                best = order, MatmulBlocks(rows, -(-self.half // rows), self.depth, 1, groups)
        assert best is not None
        return best[1]

    def _most_tiles(self, region: Region, alone: bool) -> int:
        rows = SUMS_BYTES // 2 // (region.vectors * self.lanes * self.element)
        if alone:
            second = self.request.target.l2_bytes or 1 << 18
            rows = min(rows, max(LEAST_ROWS, second // (len(self.slots) * self.stride * self.element)))
        return max(1, rows // self.height)

    # -- left operands ---------------------------------------------------------------------------

    def _lefts_first(self, a: Buffer, parallel: bool) -> Buffer:
        """All left operands that are not in A, in memory of the plan: [images][slots][rows][stride]."""
        image_size = len(self.slots) * self.half * self.stride
        elements = self.images * image_size
        lefts = self.k.pointer("lefts", self.facts.output.dtype, elements)
        self.ctx.operands.append(Scratch(elements * self.element))
        chunk = min(ROW_CHUNK, self.half)
        chunks = -(-self.half // chunk)
        with self.k.loop(self.images * chunks, "parallel" if parallel else "serial", "p") as p:
            self.ctx.ranged(p, self.images * chunks)
            image = self.bind(tirx.floordiv(p, chunks), self.images)
            start: Expr = tirx.floormod(p, chunks) * chunk
            first = self.bind(tirx.min(start, self.half - chunk) if self.half % chunk else start, self.half)
            base = image * image_size + first * self.stride
            self._combine(a, image, first, chunk, lefts, base, self.half)
        return lefts

    def _combine(self, a: Buffer, image: Expr, first: Expr, count: int, lefts: Buffer, base: Expr, rows: int) -> None:
        """Rows ``first + [0, count)`` of the left operands, each matrix of ``rows`` rows from ``base`` on. The row that
        an odd lower half lacks repeats the one before."""
        facts, k, depth = self.facts, self.k, self.depth
        with k.loop(count, name="r") as r:
            self.ctx.ranged(r, count)
            upper = self.bind(image * self.m + first + r, facts.rows)
            lower: Expr = first + r + self.half
            if self.odd:
                lower = tirx.min(lower, self.m - 1)
            lower = self.bind(image * self.m + lower, facts.rows)
            whole, rest = divmod(depth, self.lanes)
            for vectors, begin, width in ((whole, 0, self.lanes), (1, whole * self.lanes, rest)):
                if not vectors or not width:
                    continue
                with k.loop(vectors, name="j") as j, k.loop(width, "vectorized", "v") as v:
                    at = begin + j * self.lanes + v
                    a11, a12 = (k.bind(a[upper * facts.k + d + at]) for d in (0, depth))
                    a21, a22 = (k.bind(a[lower * facts.k + d + at]) for d in (0, depth))
                    s1 = k.bind(a21 + a22)
                    s2 = k.bind(s1 - a11)
                    values = (a11, a12, s2, s1, a12 - s2, a11 - a21, a22)
                    for number, slot in self.slots.items():
                        k.store(lefts, base + (slot * rows + r) * self.stride + at, values[number])

    # -- products --------------------------------------------------------------------------------

    def _quarters(self, region: Region, blocks: MatmulBlocks, a: Buffer, b: Buffer, lefts: Buffer) -> None:
        """All products and outputs of some columns of the left half, and of those as far right in the other."""
        facts, k, ctx = self.facts, self.k, self.ctx
        run = -(-region.panels // blocks.groups)
        groups = -(-region.panels // run)
        total = self.images * blocks.row_blocks * groups
        parallel = total > 1 and facts.flops >= PARALLEL_FLOPS
        with k.loop(total, "parallel" if parallel else "serial", "p") as p:
            ctx.ranged(p, total)
            group = self.bind(tirx.floormod(p, groups), groups)
            block = self.bind(tirx.floormod(tirx.floordiv(p, groups), blocks.row_blocks), blocks.row_blocks)
            image = self.bind(tirx.floordiv(p, groups * blocks.row_blocks), self.images)
            start: Expr = block * blocks.rows
            if self.half % blocks.rows:
                start = tirx.min(start, self.half - blocks.rows)
            first = self.bind(start, self.half - blocks.rows + 1)
            elements = -(-blocks.rows // self.height) * self.height * region.vectors * self.lanes
            state = tuple(k.local(name, facts.output.dtype, elements, "global") for name in ("u", "w"))
            rows, base = self.half, image * (len(self.slots) * self.half * self.stride) + first * self.stride
            memory = lefts
            if lefts is None:
                rows, base = blocks.rows, tirx.IntImm("int32", 0)
                size = len(self.slots) * rows * self.stride
                memory = k.local("lefts", facts.output.dtype, size, "global")
                self.workspace = max(self.workspace, -(-size * self.element // 64) * 64 + 64)
                self._combine(a, image, first, rows, memory, base, rows)
            count: Expr = run if region.panels % run == 0 else tirx.min(region.panels - group * run, run)
            with k.loop(count, name="n") as n:
                panel = self.bind(group * run + n, region.panels)
                lines = [self._source(n, a, image * self.m + first, (memory, base, rows)) for n in range(PRODUCTS)]
                self._panel_products(region, blocks, lines, b, state, (image, panel, first))

    def _source(
        self, number: int, a: Buffer, first: Expr, copies: tuple[Buffer, Expr, SizeLike]
    ) -> Callable[[Expr, Expr], Expr]:
        """How the left operand of a product is read: by row of the block, and step."""
        memory, base, rows = copies
        slot = self.slots.get(number)
        if slot is not None:
            return lambda row, step: memory[base + (slot * rows + row) * self.stride + step]
        start = first + self.half if number == 6 else first
        column = self.depth if number in (1, 6) else 0
        return lambda row, step: a[(start + row) * self.facts.k + column + step]

    def _panel_products(
        self,
        region: Region,
        blocks: MatmulBlocks,
        lefts: Buffer,
        b: Buffer,
        state: tuple[Buffer, Buffer],
        place: tuple[Expr, Expr, Expr],
    ) -> None:
        image, panel, first = place
        right = replace(region, first=region.first + self.facts.n // 2)
        u, w = state
        tiles = -(-blocks.rows // self.height)

        def product(number: int, begin: tuple[Buffer, ...], then: Callable[[Buffer, Expr, Expr], None]) -> None:
            with self.k.loop(tiles, name="t") as t:
                self.ctx.ranged(t, tiles)
                inside: Expr = t * self.height
                if blocks.rows % self.height:
                    inside = tirx.min(inside, blocks.rows - self.height)
                inside = self.bind(inside, blocks.rows - self.height + 1)
                at = t * (self.height * region.vectors * self.lanes)
                acc = self._begin(region, [(s, at) for s in begin])
                self._accumulate(
                    region, acc, lambda r, step: lefts[number](inside + r, step), b, panel, number, (t, tiles)
                )
                then(acc, at, self.bind(first + inside, self.half - self.height + 1))

        def keep(memory: Buffer) -> Callable[[Buffer, Expr, Expr], None]:
            return lambda acc, at, _row: self._store(region, memory, at, acc)

        def write(where: Region, below: bool) -> Callable[[Buffer, Expr, Expr], None]:
            return lambda acc, _at, row: self._out(where, acc, image, panel, row, below)

        def both(acc: Buffer, at: Expr, row: Expr) -> None:
            """P1 + P6 + P7: with P5 it is C22."""
            self._store(region, u, at, acc)
            self._out(right, self._begin(region, [(u, at), (w, at)]), image, panel, row, True)

        product(0, (), keep(u))
        product(1, (u,), write(region, False))
        product(2, (u,), keep(u))
        product(3, (), keep(w))
        product(4, (u, w), write(right, False))
        product(5, (u,), both)
        product(6, (u,), write(region, True))

    def _begin(self, region: Region, sources: list[tuple[Buffer, Expr]]) -> Buffer:
        """Accumulators that hold a sum of tiles of U and W."""
        k, lanes = self.k, self.lanes
        acc = k.local("acc", self.facts.output.dtype, self.height * region.vectors * lanes)
        with k.loop(self.height * region.vectors, "unroll", "z") as z, k.loop(lanes, "vectorized", "v") as v:
            value: Expr = tirx.const(0, self.facts.output.dtype)
            for number, (memory, place) in enumerate(sources):
                part = memory[place + z * lanes + v]
                value = value + part if number else part
            k.store(acc, z * lanes + v, value)
        return acc

    def _accumulate(
        self,
        region: Region,
        acc: Buffer,
        left: Expr,
        b: Buffer,
        panel: Expr,
        number: int,
        tile: tuple[Expr, int],
    ) -> None:
        k, lanes, vectors, size = self.k, self.lanes, region.vectors, region.vectors * self.lanes
        first = region.first * self.depth * PRODUCTS
        asks = follows_late(self.request.target, b, self.element, self.height)

        def multiply(step: Expr) -> None:
            at = first + ((panel * PRODUCTS + number) * self.depth + step) * size
            if asks:
                follow(k, b, at + (self.depth - step) * size, tile[0] * self.depth + step, size, tile[1], self.element)
            with k.loop(self.height, "unroll", "r") as r:
                factor = left(r, step)
                with k.loop(vectors, "unroll", "b") as j, k.loop(lanes, "vectorized", "v") as v:
                    slot = (r * vectors + j) * lanes + v
                    k.store(acc, slot, acc[slot] + factor * b[at + j * lanes + v])

        each_step(self.ctx, self.request.target, self.depth, multiply)

    def _store(self, region: Region, memory: Buffer, place: Expr, acc: Buffer) -> None:
        k, lanes = self.k, self.lanes
        with k.loop(self.height * region.vectors, "unroll", "z") as z, k.loop(lanes, "vectorized", "v") as v:
            k.store(memory, place + z * lanes + v, acc[z * lanes + v])

    def _out(self, region: Region, acc: Buffer, image: Expr, panel: Expr, row: Expr, below: bool) -> None:
        self.below = below
        self._epilogue(region, acc, image, panel, row + self.half if below else row)

    def _lead(self, batch: Expr, row: Expr) -> list[Expr]:
        """``batch`` is the image's number, ``row`` counts within it."""
        return super()._lead(batch, self.ctx.analyzer.simplify(batch * self.m + row))

    def _element(self, value: Expr, batch: Expr, row: Expr, column: Expr) -> None:
        if not (self.below and self.odd):
            super()._element(value, batch, row, column)
            return
        with self.k.when(row < self.m):  # the last row of the lower half may be none
            super()._element(value, batch, row, column)
