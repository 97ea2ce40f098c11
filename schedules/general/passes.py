"""Lines that pass several times over what they read: a tensor side by side with itself, rows merged into one axis.

    for i in 3 * n: y[i] = x[i % n]     ->     for p in 3: for j in n, in vectors: y[p * n + j] = x[j]

A remainder by an open length is a division for every lane, and what it reads no vector. With loops of its own for the
passes, quotient and remainder of each index are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx

from ..emit.decided import Parted, divisor_of, without_casts
from ..kernel.context import Context
from ..words.dims import is_open, to_index
from ..words.sizes import surely, usual
from ..words.tvm_types import Expr
from .axes import Merged
from .loop_interchange import Line
from .loop_nest import Nest

NOTE = "passes over what is read"


@dataclass
class Passes(Merged):
    """A line of ``outer[-1]`` passes of ``inner`` elements each."""

    ctx: Context | None = None

    def expand(self, loops: Sequence[Expr], position: Expr) -> list[Expr]:
        assert self.ctx is not None
        place = loops[-1] * to_index(self.inner) + position
        self.ctx.parted = Parted(place, self.inner, loops[-1], position)
        return [*loops[:-1], place]


def emit_passes(nest: Nest, extents: list[Expr], line: Line) -> bool:
    """Emits a map's lines pass by pass, if its last axis is divided by the length of one; False if it is not."""
    length = _length(nest, extents)
    if length is None:
        return False
    nest.s.notes.append(NOTE)
    merged = Passes([*extents[:-1], extents[-1] // length], length, 1, False, nest.ctx)
    nest._loops(merged.outer, lambda loops: line(merged, loops))
    nest.ctx.parted = None
    return True


def _length(nest: Nest, extents: list[Expr]) -> Expr:
    """What the last axis is divided by, several times as long as that, at least two vectors; None if it is not, or by
    different lengths."""
    tiles = any(n.operator == "relax.tile" for n in nest.ctx.graph.group.nodes)
    if not extents or nest.ctx.origin is not None or not (tiles or is_open(extents)):
        return None
    marks = [nest.ctx.ranged(tirx.Var(f"m{i}", "int32"), e) for i, e in enumerate(extents)]
    nest._dry(marks, 0)
    own = {divisor_of(b) for a, b in nest.divided if without_casts(a).same_as(marks[-1])}
    length = own.pop() if len(own) == 1 else None
    if length is None or extents[-1] % length != 0 or surely(lambda: extents[-1] <= length):
        return None
    return length if usual(length) >= 2 * nest.lanes or is_open([length]) else None
