"""Products whose columns, or whose depth, is open: scores of any length, weights by any number of pixels.

    columns = n // (vectors * lanes) panels of a register tile                  where there are so many
              the columns that are left, a vector at a time                     the last one moved back
              less than one vector: of 4 columns, or one by one

B is a variable, since a constant has a fixed shape, and is read in place; before many rows meet them, the columns of a
panel are brought together. Which panels there are is decided once a call; within, each is the loop of :mod:`.packed`.
Vectors that are moved back compute columns again, so that nothing is read or written outside, and no value has lanes to
be masked. Sums of an open depth are not cut in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from tvm import tirx

from ..words.dims import Dim, bounds, floor_div, is_open, maximum, minimum, to_index
from ..words.group import Kernel, Request
from ..words.sizes import surely, usual
from ..words.tvm_types import Buffer, Expr
from .blocking import FEWEST_ROWS, MatmulBlocks, choose_blocks
from .facts import MatmulFacts
from .packed import _Matmul
from .regions import Region
from .register_tile import MANY_ROWS, WAY_BYTES, WIDEST, Space, best_tiles, choose_tile

FEW = 4  # columns of a narrow vector
MANY_ROWS_MEET = 128  # of A, for which a panel of any depth is brought together: it costs as much as a few of them
SOME_ROWS_MEET, DEEP = 48, 256  # from so many rows and steps on too
MANY_VECTORS = 3 * WIDEST  # that open columns may be: what is left over has panels of its own

Tile = tuple[int, int]


def columns_tile(request: Request, facts: MatmulFacts) -> Tile:
    """Rows by vectors in registers, where there are many columns."""
    return choose_tile(request.target, *_space(request, facts))


def columns_tiles(request: Request, facts: MatmulFacts) -> list[Tile]:
    """All register tiles that fit, those that are expected to be fastest first."""
    return best_tiles(request.target, *_space(request, facts))


def build_open_columns(request: Request, facts: MatmulFacts, tile: Tile) -> Kernel:
    """The kernel of a product with open columns or depth, in register tiles ``tile``."""
    return _OpenColumns(request, facts, tile).build()


def _space(request: Request, facts: MatmulFacts) -> Space:
    """What the tile is chosen for. Rows of an open length may
    lie a way of the first-level cache apart, where only as many stay as it has ways."""
    vectors = -(-usual(facts.n) // request.target.lanes(facts.output.dtype))
    vectors = max(MANY_VECTORS, vectors) if is_open([facts.n]) else vectors
    rows = max(MANY_ROWS, usual(facts.rows)) if is_open([facts.rows]) else facts.rows
    return rows, vectors, WAY_BYTES if is_open([facts.k]) else facts.row_bytes, False


class _OpenColumns(_Matmul):
    family = "matmul of open columns"

    def __init__(self, request: Request, facts: MatmulFacts, tile: Tile) -> None:
        super().__init__(request, facts, tile)
        self.open = True
        self.current: list[Region] = []  # the region under way
        self.tallest = 0  # rows of its tiles, where there are enough
        self.panel: Buffer = None  # of B, on the stack

    def _packs_first(self) -> bool:
        return False

    def _regions(self) -> list[Region]:
        return self.current or super()._regions()

    def _asked(self, passing: bool) -> int:
        return 0 if is_open([self.facts.steps]) else super()._asked(passing)

    def _blocks_of(self, region: Region, batches: Expr) -> MatmulBlocks:
        """Blocks for the usual number of panels and steps. Of an open depth they are one part, and of fewer rows the
        deeper it is."""
        target, facts, tile = self.request.target, self.facts, (self.height, region.vectors)
        panels, steps = max(1, usual(region.panels)), max(1, usual(facts.steps))
        workers = self.request.workers
        found = choose_blocks(target, facts.rows, steps, panels, tile, batches, self.element, workers)
        if not is_open([facts.steps]):
            return found
        size = self.height * self._tiles_near(-(-found.rows // self.height))
        return MatmulBlocks(size, -(-facts.rows // size), facts.steps, 1, found.groups)

    def _tiles_near(self, most: int) -> Expr:
        """Tiles of a block of rows, at most ``most``: no more than stay in the second-level cache, however deep."""
        least = min(most, -(-FEWEST_ROWS // self.height))
        held = self.request.target.l2_bytes * 3 // 4 // (self.element * self.height)
        return maximum(least, minimum(most, floor_div(held, maximum(self.facts.steps, 1))))

    def _stays(self, blocks: MatmulBlocks, b: Buffer) -> bool:
        return False  # B is no run of panels

    def _all_rows(self, a: Buffer, b: Buffer) -> None:
        n: Expr = self.facts.n
        wide, lanes = self.width * self.lanes, self.lanes
        if not is_open([n]):
            super()._all_rows(a, b)
            return
        tile = self.height, self.width
        with self._where(n, wide) as may:
            if may:
                self._in(Region(0, n // wide, self.width, lanes), a, b)
        self.height, self.width = choose_tile(self.request.target, *_space(self.request, self.facts), 1)
        with self._where(n, lanes, lambda: n % wide) as may:
            if may:
                first = (n // wide) * wide
                self._in(Region(first, -(-(n - first) // lanes), 1, lanes, n - lanes), a, b)
        below = lanes
        for narrow in (FEW, 1):
            if narrow < below:
                self.lanes = narrow
                with self._where(n, narrow, below=below) as may:
                    if may:
                        self._in(Region(0, -(-n // narrow), 1, narrow, n - narrow), a, b)
                below = narrow
        self.lanes, (self.height, self.width) = lanes, tile

    def _in(self, region: Region, a: Buffer, b: Buffer) -> None:
        self.current, self.tallest = [region], self.height
        super()._all_rows(a, b)
        self.current = []

    def _panel(self, region: Region, blocks: MatmulBlocks, a: Buffer, b: Buffer, place: Expr, scratch: Buffer) -> None:
        """As there, with the panel's columns of B brought together before many rows meet them."""
        if self._brings(region):
            self.panel = self._brought(region, b, place)
        super()._panel(region, blocks, a, b if self.panel is None else self.panel, place, scratch)
        self.panel = None

    def _brings(self, region: Region) -> bool:
        """True if so many rows meet a panel that it pays to bring its columns together: rows of B that lie a multiple
        of 2 KB apart, as those of many images do, meet in few sets of the caches, and others on as many pages."""
        rows, steps = usual(self.facts.rows), usual(self.facts.steps)
        many = rows >= MANY_ROWS_MEET or (rows >= SOME_ROWS_MEET and steps >= DEEP)
        return many and self.height == self.tallest and self.lanes >= FEW

    def _brought(self, region: Region, b: Buffer, place: Expr) -> Expr:
        facts, k, lanes, (batch, panel, _) = self.facts, self.k, self.lanes, place
        width = region.vectors * lanes
        brought = k.local("panel", facts.output.dtype, facts.steps * width, "global")
        base = 0 if facts.flat else self._base(facts.b, self._batch_indices(batch))
        begin = k.hold(base + self._column(region, panel), "b")
        with k.loop(facts.steps, name="s") as s, k.loop(region.vectors, "unroll", "j") as j:
            with k.loop(lanes, "vectorized", "v") as v:
                k.store(brought, s * width + j * lanes + v, b[begin + s * facts.n + j * lanes + v])
        return brought

    def _right(self, region: Region, indices: list[Expr], place: Expr, step: Expr) -> Expr:
        if self.panel is not None:
            return step * (region.vectors * self.lanes)
        return super()._right(region, indices, place, step)

    @contextmanager
    def _where(
        self, n: Dim, least: int, some: Callable[[], object] | None = None, below: int | None = None
    ) -> Iterator[bool]:
        """A scope that runs where ``n`` is at least ``least``, and less than ``below``, and ``some`` is not zero; gives
        False where that is never so."""
        low, high = bounds(n)
        if high < least or (below is not None and low >= below) or (some is not None and surely(lambda: some() == 0)):
            yield False
            return
        conditions = [] if low >= least else [to_index(n) >= least]
        conditions += [] if below is None or high < below else [to_index(n) < below]
        conditions += [] if some is None else [tirx.NE(to_index(some()), 0)]
        with self.k.when(tirx.all(*conditions)) if conditions else nullcontext():
            yield True
