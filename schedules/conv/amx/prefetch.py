"""Hints beside a matrix unit's products of a convolution. The unit multiplies for 192 cycles on eight registers that it
has loaded, and meanwhile nothing else is asked for; a hint takes no slot that it needs.

    weights    all blocks of places that multiply by a panel share the hints for the one behind it, evenly over their
               steps: it lies beyond the second-level cache in a network whose layers' weights are more than that
    data       what the next strip will split, evenly over all steps of this one, where the image doesn't stay in that
               cache
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from ...instructions.amx import COLUMNS
from ...instructions.prefetch import LINE, hint
from ...words.group import dtype_bytes
from ...words.tvm_types import Buffer, Expr
from ..kernel import ConvKernel

if TYPE_CHECKING:
    from ...emit.builder import KernelBuilder

LINE_WORDS = 16
FEW = 4  # lines of data, the same
MOST = 11  # lines that one step asks for: more don't come in its time, and hold up its own loads


@dataclass(frozen=True)
class NextAmxPanel:
    """Prefetches of the next panel of weights, shared by the ``blocks`` of places that multiply by the present one; a
    panel has ``words`` for each of ``steps``."""

    blocks: Expr
    steps: int
    words: int

    @property
    def count(self) -> int | None:
        """Number of blocks; None if it is known at run time only."""
        return int(self.blocks) if isinstance(self.blocks, (int, tirx.IntImm)) else None

    def ask(self, k: KernelBuilder, weights: Buffer, panel: Expr, number: Expr, step: Expr) -> None:
        """Emits the prefetches of block ``number`` in one step; ``panel`` is the position where the present panel
        begins."""
        if self.count is None:
            return
        lines = -(-self.words // (LINE_WORDS * self.count))
        if lines > MOST:
            return
        share = panel + self.steps * self.words + (number * self.steps + step) * (lines * LINE_WORDS)
        for line in range(lines):
            hint(k, weights, share + line * LINE_WORDS)


@dataclass(frozen=True)
class NextData:
    """Prefetches of rows that the strip below reads and this one doesn't: each step asks for ``lines`` cache lines, and
    ``runs`` steps cover one block of channels."""

    conv: ConvKernel
    lines: int
    runs: int
    line: int  # elements of one

    @staticmethod
    def of(conv: ConvKernel, rows: int, slots: int) -> NextData | None:
        """What strips of ``rows`` whole rows prefetch in their ``slots`` steps; None where the image stays in the
        second-level cache, is not read where it lies, or would come in bursts (256 channels to 64 at 56 x 56 take
        1.09 of the time)."""
        facts = conv.facts
        layout = conv.request.layout(facts.data)
        size = dtype_bytes(layout.held(facts.data.dtype))
        near = layout.elements * size // facts.batch <= conv.request.target.l2_bytes // 2
        if near or conv.has_prologue or conv.is_windowed(facts.data) or len(facts.out_spatial) != 2:
            return None
        run = -(-rows * facts.strides[0] * layout.physical_shape[3] * COLUMNS * size // LINE)  # lines of a block
        blocks = layout.physical_shape[1]
        lines = -(-run * blocks // slots)
        return NextData(conv, lines, -(-run // lines), LINE // size) if lines <= FEW else None

    def ask(self, n: Expr, row: Expr, number: Expr) -> None:
        """Emits the prefetches of step ``number`` of the strip; ``row`` is the first row of the input that is to
        come."""
        conv, facts = self.conv, self.conv.facts
        layout = conv.request.layout(facts.data)
        block = tirx.floordiv(number, self.runs)
        own = (number - block * self.runs) * (self.lines * self.line)
        begin = layout.offset([n, 0, row, -facts.before[1]], block, 0) + own
        begin = conv.k.bind(tirx.min(begin, layout.elements - 1), "h")
        for line in range(self.lines):
            hint(conv.k, conv.read(facts.data), begin + line * self.line)
