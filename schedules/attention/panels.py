"""Panels of a product's right operand: [columns / (width * lanes)][depth][width * lanes], filled up with zeros; and
the sizes of their register tiles, and of blocks of queries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from ...targets.target import Target
from ..instructions.by_element import takes_elements
from ..matmul.register_tile import choose_tile, least_cost
from ..words.dims import is_open
from ..words.group import dtype_bytes
from ..words.sizes import usual
from ..words.tvm_types import Expr
from .facts import AttentionFacts

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

BLOCK_ROWS, LEAST_ROWS = 64, 16  # queries of a block: each panel of K serves that many
FAR_COST = 1.03  # of products whose left operand comes from the second level
NEAR_BEST = 1.01  # of the least estimate: then the larger block


@dataclass(frozen=True)
class PanelRun:
    """``count`` panels from ``first`` on, of ``vectors`` vectors, of which the very last has ``last`` columns."""

    first: int
    count: SizeLike
    vectors: int
    last: int


@dataclass(frozen=True)
class Panels:
    """``depth x columns`` elements, of which both may be open; a register tile is ``height`` rows by ``width`` vectors
    of ``lanes`` columns."""

    columns: Expr
    depth: Expr
    lanes: int
    width: int
    height: int

    @property
    def count(self) -> SizeLike:
        return -(-self.columns // (self.width * self.lanes))

    @property
    def padded(self) -> Expr:
        """Columns with those that hold zeros."""
        return self.count * self.width * self.lanes

    @property
    def elements(self) -> SizeLike:
        return self.padded * self.depth

    def position(self, base: Expr, depth: Expr, column: Expr) -> Expr:
        """Where a vector lies that begins at ``column``, a multiple of the lanes."""
        size = self.width * self.lanes
        panel, inside = tirx.floordiv(column, size), tirx.floormod(column, size)
        return base + (panel * self.depth + depth) * size + inside

    def regions(self) -> list[PanelRun]:
        """Whole panels, then one of the vectors that are left; open columns fill panels up with zeros."""
        if is_open([self.columns]):
            return [PanelRun(0, self.count, self.width, self.lanes)]
        whole, rest = divmod(self.columns, self.lanes)
        count, left = divmod(whole, self.width)
        found = [PanelRun(0, count, self.width, self.lanes)] if count else []
        if left or rest:
            found.append(PanelRun(count, 1, left + (1 if rest else 0), rest or self.lanes))
        return found

    def __str__(self) -> str:
        return f"{self.height}x{self.width}x{self.lanes}"


def panels_of(target: Target, dtype: str, rows: int, columns: SizeLike, depth: SizeLike) -> Panels:
    """The panels of a right operand of ``dtype`` that blocks of so many ``rows`` meet."""
    lanes = target.lanes(dtype)
    vectors = -(-max(1, usual(columns)) // lanes)
    height, width = choose_tile(target, rows, vectors, elements=by_elements(target, dtype, depth))
    return Panels(columns, depth, lanes, width, height)


def by_elements(target: Target, dtype: str, depth: SizeLike) -> bool:
    """True if tiles hold vectors of the left operand (:mod:`..matmul.row_elements`)."""
    return takes_elements(target, dtype) and usual(depth) >= target.lanes(dtype)


def block_rows(target: Target, facts: AttentionFacts) -> int:
    """Queries of a block: few where a row is long, so that a block's scores stay in the second-level cache. Blocks of
    equal size, and a size that wastes little in tiles; scores that leave room in the first level are read faster from
    there."""
    dtype = facts.q.dtype
    lanes, keys = target.lanes(dtype), usual(facts.keys)
    row = -(-max(1, keys) // lanes) * lanes * dtype_bytes(facts.scores.dtype)
    fit = max(8, (target.l2_bytes or 1 << 18) // 4 // row)
    total = max(BLOCK_ROWS, usual(facts.rows)) if is_open([facts.rows]) else facts.rows
    fewest = -(-total // min(BLOCK_ROWS, fit, total))
    elements = [by_elements(target, dtype, d) for d in (facts.depth, keys)]
    costs: dict[int, float] = {}
    for blocks in range(fewest, 1 + max(fewest, total // LEAST_ROWS)):
        rows = -(-total // blocks)
        cost = facts.depth * least_cost(target, rows, -(-keys // lanes), elements=elements[0])
        cost += keys * least_cost(target, rows, -(-facts.width // lanes), elements=elements[1])
        far = rows * row > target.l1_bytes * 3 // 4 > 0
        costs[rows] = min(costs.get(rows, math.inf), blocks * cost * (FAR_COST if far else 1))
    return max(rows for rows, cost in costs.items() if cost <= NEAR_BEST * min(costs.values()))
