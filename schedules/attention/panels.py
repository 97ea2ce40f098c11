"""Panels of a product's right operand: [columns / (width * lanes)][depth][width * lanes], filled up with zeros."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from ..words.dims import is_open
from ..words.tvm_types import Expr

if TYPE_CHECKING:
    from ..words.size_like import SizeLike


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
