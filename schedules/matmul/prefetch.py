"""Asks for the part of B that comes next, while all tiles of rows meet the present one.

    part of B: D steps of V vectors          the first of T tiles of rows brings it, the others find it near

Alone, the first tile would take B as fast as memory beyond the second level gives it, and nothing would be under way
while the others compute. So each step of each tile asks for V / T vectors of what lies behind the part: spread evenly,
hints never hold up a load, and the whole part has arrived when its turn comes. A product of 128 rows by 384 x 1536
weights takes 0.83 of the time where it meets them far away (Emerald Rapids), one of 49 rows by 3072 x 768 0.79, 49 by
768 x 3072 0.88, 64 by 1024 x 1024 0.89 (Zen 3, tiles of four and five rows).
"""

from __future__ import annotations

from ...targets.target import Target
from ..emit.builder import KernelBuilder
from ..instructions.prefetch import LINE, hint
from ..math.float16 import Widened
from ..words.tvm_types import Buffer, Expr

MOST = 4  # hints for rows of A in one step
CLOSE = 0.85  # of what memory can give, of which a tile that asks for nothing ahead gets less
FEWEST_ROWS = 4  # fewer wait for memory whatever is asked for
ROWS = 8  # of a tall tile: where memory gives a vector in the cycles that these take for it, nothing is asked for


def follows_late(target: Target, b: Buffer | Widened, element: int, height: int) -> bool:
    """True if a tile of ``height`` rows passes B faster than it comes from beyond the second-level cache: 16 registers
    hold few rows, which take a vector of 32 bytes as fast as twice as many rows one of 64."""
    stored = b.itemsize if isinstance(b, Widened) else element
    rows = min(max(height, FEWEST_ROWS), ROWS)
    bytes_wanted = target.vector_bits // 8 * stored // element * target.fma_ports  # in the cycles of ``rows`` rows
    return bytes_wanted > CLOSE * rows * target.far_bytes


def follow(k: KernelBuilder, b: Buffer, behind: Expr, step: Expr, elements: int, tiles: int, element: int) -> None:
    """Emits the prefetches of the next part of B that fall to one step: ``elements`` of B are read in a step, ``tiles``
    times. ``behind`` is where the next part starts, ``step`` counts from the beginning of the present one."""
    stored, size = (b.stored, b.itemsize) if isinstance(b, Widened) else (b, element)
    each = -(-elements // tiles)
    for first in range(0, each, LINE // size):
        hint(k, stored, behind + step * each + first)


def ask_for_rows(k: KernelBuilder, a: Buffer, behind: Expr, step: Expr, elements: int, element: int) -> None:
    """Emits the prefetches of the next ``elements`` of A, from ``behind`` on, that fall to one ``step`` (number, of how
    many); none where that is a burst."""
    line = LINE // element
    each = -(-elements // (line * step[1]))
    for i in range(each if each <= MOST else 0):
        hint(k, a, behind + (step[0] * each + i) * line)
