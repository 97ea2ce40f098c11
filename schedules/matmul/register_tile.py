"""Chooses the register tile of a matrix multiplication: rows of A by vectors of B.

Each step of K takes ``rows * vectors`` multiply-adds, ``vectors`` loads of B and ``rows`` broadcasts of A. As for
convolutions, the tile with the fewest cycles over the whole output wins, waste at the edges included; of tiles that
are equal so, one with fewer loads. With few rows (one, for a fully connected layer) more vectors hide the latency of
the multiply-add, and B's bandwidth is the limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ...targets.target import Target
from ..instructions.by_element import FREE, most_rows
from ..instructions.int8_dot import row_multiplier
from ..kernel.register_budget import free_registers
from ..words.dims import is_open
from ..words.group import Group, Request, dtype_bytes
from ..words.sizes import usual
from .blocking import PARALLEL_FLOPS
from .facts import MatmulFacts
from .folded_moves import producers
from .row_elements import holds_rows
from .streamed_panels import even_width, reads_streams

WAY_BYTES = 4096  # lines of a first-level cache that lie so far apart share a set: sets times line
WIDEST = 8  # vectors of a tile
MANY_ROWS = 64  # that open rows may be: fewer have lower tiles of their own
HALF = "float16"
SLACK, TIGHT = 4, 1.04  # registers beside held elements; with fewer LLVM moves some about: times the cycles
WAYS = 8  # where the cache does not tell

# rows of A, vectors of B, bytes from row to row, and whether elements of rows lie in registers
Space = tuple[int, int, int, bool]


def own_tile(request: Request, facts: MatmulFacts, width: int | None = None) -> tuple[int, int]:
    """Rows by vectors in registers: those of :func:`choose_tile`, but what one row of A meets is shared evenly.
    ``width``: how many vectors others read of the same weights, unless those that this product reads lie apart."""
    space = tile_space(request, facts)
    target, element = row_multiplier(request.target, facts.a.dtype), dtype_bytes(facts.output.dtype)
    tile = choose_tile(target, *space)
    streams = reads_streams(request.target, facts, tile, element)
    if streams and facts.rows == 1 and facts.work >= PARALLEL_FLOPS:
        return tile[0], even_width(space[1], tile[1], request.workers)
    return tile if streams or width is None else choose_tile(target, *space, width)


def tile_space(request: Request, facts: MatmulFacts) -> Space:
    """What the request's register tile is chosen for."""
    return group_space(request.target, request.group, facts)


def group_space(target: Target, group: Group, facts: MatmulFacts) -> Space:
    """What the register tile of ``facts`` in ``group`` is chosen for: 0 bytes from row to row where A is moved."""
    vectors = max(1, -(-usual(facts.n) // target.lanes(facts.output.dtype)))
    moved = bool(producers(group, facts.a))
    rows = max(MANY_ROWS, usual(facts.rows)) if is_open([facts.rows]) else facts.rows
    return rows, vectors, 0 if moved or is_open([facts.k]) else facts.row_bytes, holds_rows(target, group, facts)


def choose_tile(
    target: Target, rows: int, vectors: int, row_bytes: int = 0, elements: bool = False, width: int = 0
) -> tuple[int, int]:
    """(rows, vectors) of the register tile for an output of ``rows`` by ``vectors`` vectors; ``row_bytes`` from one
    row of A to the next; ``elements`` of A lie in registers (:mod:`.row_elements`); ``width`` is how many vectors it
    has, if not 0."""
    best, best_cost = (1, 1), float("inf")
    for cost, tile in _tiles(target, rows, vectors, row_bytes, elements):
        if cost < best_cost - 1e-9 and width in (0, tile[1]):
            best, best_cost = tile, cost
    return best


def best_tiles(
    target: Target, rows: int, vectors: int, row_bytes: int = 0, elements: bool = False
) -> list[tuple[int, int]]:
    """All register tiles that fit, those that :func:`choose_tile` likes best first."""
    return [tile for _, tile in sorted(_tiles(target, rows, vectors, row_bytes, elements))]


def least_cost(
    target: Target, rows: int, vectors: int, row_bytes: int = 0, elements: bool = False, width: int = 0
) -> float:
    """Estimated cycles of one step of K over the whole output, with the best tile, or the best of ``width``."""
    return min(cost for cost, tile in _tiles(target, rows, vectors, row_bytes, elements) if width in (0, tile[1]))


def widest(spaces: Sequence[Space]) -> int:
    """Vectors of the widest register tile that all of ``spaces`` could have."""
    return min(WIDEST, *(vectors for _, vectors, *_ in spaces))


def _tiles(
    target: Target, rows: int, vectors: int, row_bytes: int, elements: bool
) -> Iterator[tuple[float, tuple[int, int]]]:
    fitted = target.fitted.registers
    tallest = min(rows, rows_in_cache(row_bytes, first_level_ways(target)))
    for width in range(1, min(WIDEST, vectors) + 1):
        most = max(1, (target.vector_registers - width - free_registers(target, width)) // width)
        # one that serves one vector becomes the sum's new register in what LLVM makes of two steps, so rows take two
        # each: with 16, the sums of 8 x 1 and 10 x 1 pass through the stack (1.6 times the cycles)
        if width == 1 and target.loads_factors:
            most = max(1, (target.vector_registers - 2) // 2)
        if elements:
            most = most_rows(target, width)
        for height in range(1, min(tallest, most) + 1):
            steps = -(-rows // height) * -(-vectors // width)
            fmas = height * width / target.fma_ports
            broadcasts = height / target.lanes(HALF) if elements else height
            if elements and height * (width + 1) + FREE > target.vector_registers - SLACK:
                fmas *= TIGHT
            loads = (broadcasts + width) / 2
            front = fitted.product_load * (broadcasts + 2 * width)
            cost = fitted.product * steps * (max(fmas, loads, float(target.fma_latency)) + fitted.step + front)
            yield cost, (height, width)


def first_level_ways(target: Target) -> int:
    """Ways of the first-level cache: lines of one set. On x86 a page's offset alone tells the set, so a way has a
    page's size: eight ways of 32 KB, twelve of 48 KB."""
    return max(1, target.l1_bytes // WAY_BYTES) if target.triple.startswith("x86_64") else WAYS


def rows_in_cache(row_bytes: int, ways: int = WAYS) -> int:
    """Rows whose lines at one column fit the first-level cache side by side: few if their distance is near a power of
    two, since they share sets then. A quarter of the ways is left to B."""
    line = 64
    sets = WAY_BYTES // line
    distance = row_bytes // line % sets
    if row_bytes % line or row_bytes == 0:
        return 1 << 30
    return max(1, sets // math.gcd(sets, distance) * ways * 3 // 4)
