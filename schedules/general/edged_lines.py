"""Where a choice stops to depend on the place: the lines and the outputs between an image's edges.

    max over k of if_then_else(0 <= x + k - 1 < w, ..)     x from 1 to w - 2: no choice is left

Edges are as narrow as proofs allow, of open sizes too (:mod:`..kernel.open_ranges`).
"""

from __future__ import annotations

from tvm import tirx

from ..words.dims import Dim
from ..words.sizes import dim_of
from ..words.tvm_types import Expr
from .axes import Merged
from .loop_nest import Nest

EDGE = 16  # outputs at either end of a row that may be computed apart from the vectors between


class EdgedLines(Nest):
    """A nest of outputs that reduce."""

    def _whole_lines(self, merged: Merged, loops: list[Expr]) -> tuple[int, int] | None:
        """The indices of the axis before the last between its edges, if a choice depends on it beside those only."""
        if merged.count != 1 or not (loops or self.row) or self.ctx.origin is not None:
            return None
        lines = merged.outer[-1] if loops else self.phase.shape[len(self.row) - 1]
        few = not isinstance(lines, Dim) and lines < 4
        if few or not self._chooses(merged, 0, merged.inner, (0, lines)):
            return None
        edge = EDGE if isinstance(lines, Dim) else min(EDGE, lines // 4)
        width = merged.inner

        def free(first: int, last: int) -> bool:
            return not self._chooses(merged, 0, width, (first, last))

        first = next((e for e in range(edge + 1) if free(e, lines - edge)), None)
        if first is None:
            return None
        return first, next(lines - e for e in range(edge + 1) if free(first, lines - e))

    def _inside(self, merged: Merged) -> tuple[int, int]:
        """The positions of the last axis between its edges, where no choice depends on them; all, if there are none."""
        whole = merged.inner
        if merged.count != 1 or not self._chooses(merged, 0, whole):
            return 0, whole
        edge = EDGE if isinstance(whole, Dim) else min(EDGE, whole // 4)
        first = next((e for e in range(edge + 1) if not self._chooses(merged, e, whole - edge)), None)
        if first is None:
            return 0, whole
        return first, next(whole - e for e in range(edge + 1) if not self._chooses(merged, first, whole - e))

    def _chooses(self, merged: Merged, first: int, last: int, lines: tuple[int, int] | None = None) -> bool:
        """True if a choice is left that depends on the position, known to be in [first, last); or, with ``lines``, on
        the index of the line, known to be among them."""
        op = self.phase.tensors[0].op
        position = tirx.Var("x", "int32")
        self.ctx.between(position, first, last)
        line = tirx.Var("y", "int32")
        own = self.row
        if lines is not None:
            self.ctx.between(line, *lines)
        known = len(self.k.guards)
        with self.k.capture():
            inliner = self.ctx.inliner(self.sources())
            inliner.declare(op)
            outer: list[Expr] = [self.ctx.ranged(tirx.Var("o", "int32"), e) for e in merged.outer]
            if lines is not None and outer:
                outer[-1] = line
            elif lines is not None:
                self.row = [*own[:-1], line]
            axes = {a.var: i for a, i in zip(op.axis, self.indices(merged.expand(outer, position), None))}
            for a in op.reduce_axis:
                axes[a.var] = self.ctx.ranged(tirx.Var("r", "int32"), dim_of(a.dom.extent)) + a.dom.min
            for source in op.body[0].source:
                inliner.expression(source, axes)
        self.row = own
        found = self.k.guards[known:]
        del self.k.guards[known:]
        wanted = position if lines is None else line
        return any(v.same_as(wanted) for c in found for v in tirx.analysis.undefined_vars(c))
