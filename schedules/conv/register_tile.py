"""Chooses the register tile of a direct convolution from the target's facts and the shape.

A tile is ``rows x columns`` output positions by ``blocks`` vectors of output channels. Each step of the reduction takes
``rows * columns * blocks`` multiply-adds, ``blocks`` vector loads of weights and ``rows * columns`` broadcasts:

    cycles = max(fmas / ports, 0.6 * loads, 2 * blocks, latency)      (targets/fitted.toml, ``registers``)

Two loads start in a cycle at best on every core we target. Weights come from the second-level cache, a vector every
second cycle: where two multiply-adds start in a cycle, tiles of fewer than four positions wait for them. All
accumulators, one step's weights and one broadcast must fit the vector registers. The tile that needs the fewest cycles
over the whole output, waste at its edges included, wins.

On ARM more registers stay free (:mod:`..kernel.register_budget`). Its cores with one multiply-add port load once a
cycle, and those that execute in order load vectors between multiply-adds, not beside them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from ...targets.target import Target
from ..instructions.by_element import FREE, MOST, most_rows
from ..kernel.register_budget import free_registers

NARROW = 0.02  # of the cycles, for twice as much code
FEWER = 1e-6  # of a cycle for each multiply-add, which counts only between tiles that wait for something else
RAGGED = 1.03  # times the cycles, for twice as much code and a short run of the last vectors
SMALLER = 3  # times fewer columns has the next smaller tile of images of open size
#: (scale of the usual size, weight): sizes that a tile for images of open size is chosen for.
SPREAD = ((1 / 4, 1.0), (1 / 2, 1.0), (3 / 4, 1.0), (1.0, 7.0), (1.5, 1.0), (2.0, 1.0), (3.0, 1.0))
PLANNED = SPREAD[0][0], SPREAD[-1][0]  # times the usual rows and columns: the least and the most that builds plan for
STREAMED = 0.25  # of the cycles in which weights arrive or are multiplied, whichever are fewer, are not hidden
ALIKE = 0.02  # of the cycles, by which tiles for many sizes may differ
USUAL = 1.01  # times the cycles of the best tile at the usual size may one for many sizes take there
RAGGED_VECTORS = 3  # of a tile that leaves some over: more have few positions, and need weights as fast as they come

Sizes = tuple[tuple[int, int, float], ...]  # rows, columns, weight


@dataclass(frozen=True)
class TapWindow:
    """Taps of the last axis, which neighbouring positions share (:mod:`.direct.shared_taps`). ``lanes``: of vectors
    that hold the columns they read (:mod:`.direct.row_vectors`); 0 where each is loaded by itself."""

    taps: int
    stride: int
    dilation: int
    lanes: int = 0

    def loads(self, columns: int) -> tuple[list[int], int]:
        """Where vectors begin that hold all that so many positions read, none beyond it, and their elements."""
        reach = (columns - 1) * self.stride + self.taps
        size = next(n for n in (self.lanes, self.lanes // 2, 1) if n and n <= reach)
        starts = list(range(0, reach - size + 1, size))
        return (starts if starts[-1] + size == reach else [*starts, reach - size]), size

    def reads(self, columns: int) -> dict[int, list[tuple[int, int]]]:
        """Columns of the input from the first that so many positions read on -> the (position, tap) pairs that read
        them."""
        found: dict[int, list[tuple[int, int]]] = {}
        for position in range(columns):
            for tap in range(self.taps):
                found.setdefault(position * self.stride + tap * self.dilation, []).append((position, tap))
        return dict(sorted(found.items()))


@dataclass(frozen=True)
class Tile:
    """Register tile: output rows, output columns, vectors of output channels; ``parts`` input channels share a vector
    (:mod:`.direct.last_vector`), and the taps of a ``window`` their data (:mod:`.direct.shared_taps`)."""

    rows: int
    columns: int
    blocks: int
    parts: int = 1
    window: TapWindow | None = None

    @property
    def positions(self) -> int:
        """Output positions: rows times columns."""
        return self.rows * self.columns

    def is_flatter(self, other: Tile) -> bool:
        """True if this tile has as many positions and vectors as ``other``, in fewer rows."""
        return (self.positions, self.blocks) == (other.positions, other.blocks) and self.rows < other.rows

    def smaller(self, times: int) -> Tile | None:
        """The tile of one row, or if it has one, of so many times fewer columns; None where channels share vectors."""
        if self.parts > 1:
            return None
        return replace(self, rows=1, columns=self.columns if self.rows > 1 else max(1, self.columns // times))

    def __str__(self) -> str:
        text = f"{self.rows}x{self.columns}x{self.blocks}" + (f"/{self.parts}" if self.parts > 1 else "")
        return text if self.window is None else f"{text} for {self.window.taps} taps"


@dataclass(frozen=True)
class Space:
    """What a register tile is chosen for: ``height x width`` outputs in ``blocks`` vectors, of which ``limit`` (a
    divisor bound) may share a tile. ``window``: taps that share their data in tiles of one vector. ``mixed``,
    ``narrowed``: rows or columns that are left over have tiles of their own; ``ragged``: so may vectors. ``once``: no
    output is computed twice, whatever multiple of so many columns there is, however many rows (0: some may be).
    ``elements``: a position's channels lie in a register, of which multiply-adds take elements. ``streamed``: weights
    take time beside the arithmetic."""

    height: int
    width: int
    blocks: int
    limit: int
    mixed: bool = False
    window: TapWindow | None = None
    narrowed: bool = False
    once: int = 0
    ragged: bool = False
    elements: bool = False
    streamed: bool = False

    def tiles(self, target: Target) -> Iterator[tuple[float, Tile]]:
        """(cycles of a step of the reduction over the whole output, tile) of every tile that fits the registers."""
        known = _steps(target, self.window, self.elements)
        for blocks in range(1, min(8, self.limit) + 1):
            whole, rest = divmod(self.blocks, blocks)
            ragged = self.ragged and not self.once and whole > 0 and blocks <= RAGGED_VECTORS
            if (self.limit % blocks or rest) and not ragged:
                continue
            most = self._most(target, blocks)
            for columns in range(1, min(self.width, most) + 1):
                if self.once and self.once % columns:
                    continue
                for rows in range(1, min(self.height, most // columns, 1 if self.once else 4) + 1):
                    if (rows, columns, blocks) not in known:
                        tile = Tile(rows, columns, blocks, 1, self.window)
                        known[rows, columns, blocks] = tile, _step(target, tile, self.elements)
                    tile, step = known[rows, columns, blocks]
                    if step == math.inf:
                        continue
                    if self.mixed or self.narrowed or self.streamed:
                        cost = whole * self._cost(target, tile)
                    else:
                        cost = whole * (tiles_of(tile, self.height, self.width) * step)
                    if rest:
                        cost = RAGGED * (cost + self._cost(target, rest_tile(target, self, tile)))
                    yield cost, tile

    def _most(self, target: Target, blocks: int) -> int:
        """Positions of a tile of so many vectors that the registers have room for."""
        if self.elements:
            return most_rows(target, blocks)
        if self.window is not None and self.window.lanes:
            return (target.vector_registers - FREE) // blocks
        held = self.window.taps if self.window is not None else blocks
        return (target.vector_registers - held - free_registers(target, blocks, unrolled=True)) // blocks

    def cost_within(self, target: Target, tile: Tile) -> float:
        """Cycles of a step over the whole output by this tile, or the first smaller one that fits."""
        fitting: Tile | None = tile
        while fitting is not None and (fitting.rows > self.height or fitting.columns > self.width):
            fitting = fitting.smaller(SMALLER)
        assert fitting is not None
        cost = self.blocks // tile.blocks * self._cost(target, fitting)
        if self.blocks % tile.blocks:
            cost = RAGGED * (cost + self._cost(target, rest_tile(target, self, fitting)))
        left = self.height % fitting.rows
        if left and self.height > left:  # the next smaller tile may compute those rows
            above, below = (replace(self, height=h) for h in (self.height - left, left))
            lower = replace(fitting, rows=1)
            cost = min(cost, above.cost_within(target, fitting) + below.cost_within(target, lower))
        return cost

    def tile_cycles(self, target: Target, tile: Tile) -> float:
        """Cycles of a step by one tile of each group of vectors, of which the last may have fewer."""
        whole, rest = divmod(self.blocks, tile.blocks)
        own = whole * replace(self, height=tile.rows, width=tile.columns)._cost(target, tile)
        if not rest:
            return own
        last = rest_tile(target, self, tile)
        return RAGGED * (own + step_cycles(target, last, self.elements) * tile.columns / last.columns)

    def _cost(self, target: Target, tile: Tile) -> float:
        left = left_over(tile, self.height) if self.mixed else None
        if left is not None:
            whole, rest = replace(self, height=self.height - left.rows), replace(self, height=left.rows, mixed=False)
            return whole._cost(target, tile) + rest._cost(target, left)
        narrow = narrow_tile(tile, self.width) if self.narrowed else None
        if narrow is not None:
            whole = replace(self, width=self.width - narrow.columns)
            return whole._cost(target, tile) + replace(self, width=narrow.columns)._cost(target, narrow)
        step = step_cycles(target, tile, self.elements)
        if self.streamed and tile.window is None:
            fmas, stream = tile.positions * tile.blocks / target.fma_ports, target.fitted.registers.stream * tile.blocks
            step += STREAMED * min(fmas, stream)
        return tiles_of(tile, self.height, self.width) * step


def _step(target: Target, tile: Tile, elements: bool) -> float:
    """Cycles of one step; infinitely many where the registers have no room for the tile."""
    return step_cycles(target, tile, elements) if _fits(target, tile) else math.inf


def _fits(target: Target, tile: Tile) -> bool:
    """True if rows that are held have registers beside the accumulators."""
    if tile.window is None or not tile.window.lanes:
        return True
    held = tile.rows * len(tile.window.loads(tile.columns)[0])
    return held <= MOST and held + tile.positions * tile.blocks + FREE <= target.vector_registers


@lru_cache(maxsize=256)
def _steps(target: Target, window: TapWindow | None, elements: bool) -> dict[tuple[int, int, int], tuple[Tile, float]]:
    """Tiles by rows, columns and blocks, with the cycles of a step: whatever the output, they are the same. Filled by
    whoever asks first."""
    return {}


@lru_cache(maxsize=4096)
def choose_tile(target: Target, space: Space, workers: int = 1, flat: bool = False) -> Tile:
    """The register tile of the fewest cycles. Of tiles that cost the same, one whose rows can be dealt evenly to
    ``workers``: none of them is shared, and what the next layer reads lies with the core that reads it. ``flat``: rows
    have no taps in common, so that one of few rows is better, whose lines follow each other."""
    best, best_cost, best_uneven = Tile(1, 1, 1), float("inf"), True
    for cost, tile in space.tiles(target):
        uneven = -(-space.height // tile.rows) % workers > 0
        flatter = flat and uneven == best_uneven and tile.is_flatter(best)
        if cost < best_cost - 1e-9 or (cost < best_cost + 1e-9 and (uneven < best_uneven or flatter)):
            best, best_cost, best_uneven = tile, cost, uneven
    return best


@lru_cache(maxsize=1024)
def spread_tile(target: Target, space: Space, sizes: Sizes) -> Tile:
    """The register tile for images of many ``sizes``: what it takes at them is nearest to what the best tile of each
    takes, in the mean of squares of logarithms, and at the size of the space, where that is among them, at most USUAL
    times as much. Images that are too small for it take smaller ones of the same vectors, where these leave none over.
    Of tiles that do about as well, the one of most positions reads weights least."""
    space = replace(space, streamed=True)
    own = [(replace(space, height=h, width=w), weight) for h, w, weight in sizes]
    least = [min(cost for cost, _ in one.tiles(target)) for one, _ in own]
    largest = replace(space, height=max(one.height for one, _ in own), width=max(one.width for one, _ in own))
    most = min((USUAL * cost for (one, _), cost in zip(own, least) if one == space), default=math.inf)

    def excess(tile: Tile) -> float:
        over = ((math.log(one.cost_within(target, tile) / best), weight) for (one, weight), best in zip(own, least))
        return math.sqrt(sum(weight * ratio * ratio for ratio, weight in over) / sum(weight for _, weight in own))

    found = [(excess(tile), tile) for _, tile in largest.tiles(target) if space.cost_within(target, tile) <= most]
    enough = min(found, key=lambda f: f[0])[0] + ALIKE
    alike = ((t.positions, space.blocks % t.blocks == 0, -t.rows, -e, t) for e, t in found if e <= enough)
    return max(alike, key=lambda entry: entry[:-1])[-1]


def sizes_about(height: int, width: int) -> Sizes:
    """(rows, columns, weight) of images of which so large a one is the usual."""
    found = []
    for scale, weight in SPREAD:
        h, w = (max(1, round(n * scale)) for n in (height, width))
        found += [(h, w, weight), (h + 1, w + 1, 0.5)]
    return tuple(found)


def sizes_below(height: int, width: int) -> Sizes:
    """The same of images of fewer rows and columns, which are all alike."""
    return tuple((max(1, height - n), max(1, width - n), 1.0) for n in range(1, max(2, height, width)))


def best_tiles(target: Target, space: Space) -> list[Tile]:
    """All tiles that fit, those that :func:`choose_tile` likes best first."""
    return [tile for _, tile in sorted(space.tiles(target), key=lambda entry: entry[0])]


@lru_cache(maxsize=1024)
def narrow_pays(target: Target, space: Space) -> bool:
    """True if tiles of their own for the columns that are left over save more than NARROW of the cycles."""
    without, with_them = (
        min(cost for cost, _ in replace(space, narrowed=narrowed).tiles(target)) for narrowed in (False, True)
    )
    return with_them < (1 - NARROW) * without


def rest_tile(target: Target, space: Space, tile: Tile) -> Tile:
    """The register tile of the vectors of outputs that whole tiles leave over, of as many rows as ``tile``."""
    return _rest_tile(target, space, space.blocks % tile.blocks, tile.rows)


@lru_cache(maxsize=4096)
def _rest_tile(target: Target, space: Space, blocks: int, rows: int) -> Tile:
    window = space.window if space.window is not None and space.window.lanes else None
    most = replace(space, window=window)._most(target, blocks) // rows
    tiles = [Tile(rows, columns, blocks, 1, window) for columns in range(1, max(1, min(space.width, most)) + 1)]
    tiles = [t for t in tiles if _fits(target, t)] or tiles[:1]
    return min(tiles, key=lambda t: (space._cost(target, t), -t.columns))


def left_over(tile: Tile, height: int) -> Tile | None:
    """The register tile of the rows that whole tiles leave over; None if none are."""
    return replace(tile, rows=height % tile.rows) if height % tile.rows else None


def narrow_tile(tile: Tile, width: int) -> Tile | None:
    """The register tile of the columns that whole tiles leave over; None if none are."""
    return replace(tile, columns=width % tile.columns) if width % tile.columns else None


def tiles_of(tile: Tile, height: int, width: int) -> int:
    """Number of tiles that cover ``height x width`` outputs."""
    return -(-height // tile.rows) * -(-width // tile.columns)


def step_cycles(target: Target, tile: Tile, elements: bool = False) -> float:
    """Cycles of one step of a tile's reduction: one channel and tap. ``elements``: as in :class:`Space`."""
    if tile.window is not None:
        return _shared_cycles(target, tile, tile.window) / tile.window.taps
    fmas = tile.positions * tile.blocks / target.fma_ports
    fitted = target.fitted.registers
    loads = fitted.load * ((0 if elements else tile.positions) + tile.blocks)
    if target.in_order:
        fmas += tile.blocks + tile.positions / 10  # a tenth of the broadcasts finds no multiply-add to start with
    elif target.is_aarch64 and target.fma_ports == 1:
        loads *= 2
    stream = fitted.stream * tile.blocks
    # a few cycles of loop control a step, which larger tiles spread over more work; of equal ones that waste least wins
    step = fitted.step / (target.lanes("float16") if elements else 1)
    return max(fmas, loads, stream, float(target.fma_latency)) + step + FEWER * tile.positions * tile.blocks


@lru_cache(maxsize=1024)
def _distinct(window: TapWindow, columns: int) -> int:
    """How many columns of the input so many positions read."""
    return len(window.reads(columns))


def _shared_cycles(target: Target, tile: Tile, window: TapWindow) -> float:
    """Cycles of one channel and all taps of a window; of equal tiles one in fewer rows, which loads less, wins."""
    fmas = tile.positions * tile.blocks * window.taps / target.fma_ports
    fitted = target.fitted.registers
    reads = len(window.loads(tile.columns)[0]) if window.lanes else _distinct(window, tile.columns)
    loads = fitted.load * (tile.rows * reads + window.taps * tile.blocks)
    stream = max(fitted.stream * tile.blocks, float(target.fma_latency)) * window.taps
    return max(fmas, loads, stream) + fitted.step + loads / 100
