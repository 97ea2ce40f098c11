"""Maps into blocks of channels from what lies otherwise: squares of channels and columns transposed in registers.

    for each pixel: y[block, h, w, 0:16] = x[16 block + (0:16), h, w]         16 lines for a vector, an element of each
    for w, 16 at a time: y[block, h, w : w + 16, 0:16] = transposed x[16 block + (0:16), h, w : w + 16]

So lie images of many channels that a model is given, and what transformers hand to convolutions. The last square of a
row overlaps the one before: nothing that is read may lie where the map writes. Rows shorter than a square, and blocks
that channels do not fill, are computed pixel after pixel.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx

from ..emit.register_transpose import Square, side_of
from ..words.dims import is_open, to_index
from ..words.group import dtype_bytes
from ..words.sizes import surely
from ..words.tvm_types import Expr
from .axes import linear_coefficients
from .loop_interchange import NOTE
from .loop_nest import Nest


def has_block_squares(nest: Nest, extents: Sequence[Expr]) -> bool:
    """True for a map over [N, blocks, H, W] of which a read runs along columns where its lanes are apart."""
    request, graph = nest.s.request, nest.ctx.graph
    if len(extents) != 4 or nest.row or request.box is not None or nest.ctx.size or not nest.s.repeats():
        return False
    channels, width = nest.phase.shape[1], extents[3]
    widest = max(dtype_bytes(v.dtype) for v in (*graph.group.inputs, *graph.group.outputs))
    if is_open([channels]) or channels % nest.lanes or nest.lanes != side_of(request.target.vector_bits, widest):
        return False
    if nest.lanes < 2 or surely(lambda: width < nest.lanes):
        return False
    marks = [nest.ctx.ranged(tirx.Var(f"m{i}", "int32"), e) for i, e in enumerate(extents)]
    lane = nest.ctx.ranged(tirx.Var("v", "int32"), nest.lanes)
    log, _ = nest._dry(marks, 0, lane)
    steps = linear_coefficients(log, [lane, marks[-1]])
    if steps is None or not any(column == 1 and apart not in (0, 1) for apart, column in steps):
        return False
    with nest.k.capture():
        square = _square(nest, marks[:3], marks[3])
    return bool(square.found)


def emit_block_squares(nest: Nest, extents: Sequence[Expr]) -> None:
    """Emits a map that :func:`has_block_squares`."""
    k, side, width = nest.k, nest.lanes, extents[3]

    def rows(loops: list[Expr]) -> None:
        count = -(-width // side)
        with k.loop(count, name="x") as part:
            first = nest.ctx.ranged(part, count) * side
            if width % side != 0:
                first = nest.ctx.ranged(k.bind(tirx.min(first, to_index(width - side)), "x"), width - side + 1)
            _square(nest, loops, first)

    nest.s.notes.append(NOTE)
    room = surely(lambda: width >= side)
    if room:
        nest._loops(list(extents[:3]), rows)
        return
    with k.when(to_index(width) >= side):
        nest._loops(list(extents[:3]), rows)
    with k.when(to_index(width) < side):
        nest._loops(list(extents), nest._lanes)


def _square(nest: Nest, loops: Sequence[Expr], first: Expr) -> Square:
    """The square of the columns from ``first`` on, and what was read of it."""
    nest.k.square = square = Square(nest.lanes, nest.ctx.analyzer.simplify)
    for column in range(nest.lanes):
        square.column = column
        nest._each_lane([*loops, first + column])
    nest.k.square = None
    return square
