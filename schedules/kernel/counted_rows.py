"""Rows that are counted through several axes: the number that indices come of is the position, and is not divided.

    n, t = row // length % batch, row % length          (n * length + t) * 64 + c  is  row * 64 + c

TVM's simplifier sees that of numbers. Where the length is open, above all a product of sizes, as of an image's tokens,
every element that is read or written may take two divisions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tvm_ffi
from tvm import tirx

from ..words.dims import is_open
from ..words.layout import Layout
from ..words.tvm_types import Analyzer, Expr

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

LATEST = 4  # rows that are remembered: those of the loops around


class CountedRows:
    """The rows that a kernel's loops are at, by the indices that were made of them."""

    def __init__(self) -> None:
        self._known: deque[tuple[list[Expr], list[SizeLike], Expr]] = deque(maxlen=LATEST)

    def indices(self, row: Expr, extents: Sequence[SizeLike], analyzer: Analyzer) -> list[Expr]:
        """The indices of ``row`` in axes of these ``extents``."""
        found, rest = [], row
        for extent in reversed(extents):
            found.append(tirx.floormod(rest, extent))
            rest = tirx.floordiv(rest, extent)
        return self.noted([analyzer.simplify(i) for i in reversed(found)], extents, row)

    def noted(self, indices: list[Expr], extents: Sequence[SizeLike], row: Expr) -> list[Expr]:
        """``indices``, after it is remembered that they are those of ``row``, which is below the product of the
        ``extents``; of numbers alone the simplifier knows it."""
        if len(extents) > 1 and is_open(extents):
            self._known.append((indices, list(extents), row))
        return indices

    def position(self, layout: Layout, indices: list[Expr], block: Expr | None, lane: Expr | None) -> Expr:
        """The flat position of ``indices``, as :meth:`Layout.offset` has it: by the row that some of them, one axis
        after the other, come of, where there is one."""
        for parts, extents, row in reversed(self._known) if layout.is_plain else ():
            for first in range(len(indices) - len(extents) + 1):
                end = first + len(extents)
                if list(layout.shape[first:end]) == extents and all(map(_same, indices[first:end], parts)):
                    steps = list(zip(indices, layout.strides))
                    return sum((i * step for i, step in (*steps[:first], *steps[end:])), row * steps[end - 1][1])
        return layout.offset(indices, block, lane)


def _same(one: Expr, other: Expr) -> bool:
    if isinstance(one, int) or isinstance(other, int):
        return all(isinstance(i, (int, tirx.IntImm)) for i in (one, other)) and int(one) == int(other)
    return bool(tvm_ffi.structural_equal(one, other))
