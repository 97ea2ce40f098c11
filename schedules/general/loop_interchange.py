"""Loop order of maps that read across memory: transposes, and conversions between layouts.

    for c: for w, 16 at a time: y[c, w] = x[w, c]        16 cache lines a vector, gone when the next c comes
    for w, 16 at a time: for c: y[c, w] = x[w, c]        the same 16 lines for as many c as lie in them

Vectors still run over the last axis, since stores must be contiguous; the axis along which reads are contiguous becomes
the innermost loop. At most BLOCK of it at a time, so that the lines of one vector stay in L1 (16 x 64 x 4 = 4 KiB).
Where all reads across memory run along that axis, squares are transposed in registers
(:mod:`..emit.register_transpose`):

    for w, 8 at a time: for c, 8 at a time: y[c : c + 8, w : w + 8] = transposed x[w : w + 8, c : c + 8]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.ir.prim import expr as prim

from ..emit.register_transpose import Square
from ..words.dims import Open, is_open, to_index
from ..words.sizes import dim_of, surely
from ..words.tvm_types import Expr
from .axes import Merged
from .loop_nest import Nest

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

BLOCK = 64
SQUARES = 16  # the same for squares: more lines of rows that lie 2 KiB apart share too few sets
NOTE = "squares transposed in registers"

Positions = Callable[[Sequence[Expr]], "list[Expr]"]
Line = Callable[[Merged, "list[Any]"], None]


def innermost_axis(
    extents: Sequence[int], vector_axis: int, positions: Positions, simplify: Callable[[Expr], Expr]
) -> int | None:
    """The axis before ``vector_axis`` along which an access that strides over ``vector_axis`` is contiguous.

    ``positions`` gives the flat positions of all accesses of the element at some coordinates; strides are their
    differences at the origin. None where no axis fits, or where the accesses differ from element to element.
    """
    start = positions([tirx.IntImm("int32", 0)] * len(extents))
    across = _strides(start, extents, vector_axis, positions, simplify)
    if across is None or all(s in (0, 1) for s in across):
        return None
    for axis in reversed(range(vector_axis)):
        if extents[axis] == 1:
            continue
        along = _strides(start, extents, axis, positions, simplify)
        if along is not None and any(a == 1 and s not in (0, 1) for a, s in zip(along, across)):
            return axis
    return None


def _strides(
    start: list[Expr], extents: Sequence[Expr], axis: int, positions: Positions, simplify: Callable[[Expr], Expr]
) -> list[Expr] | None:
    """How far each access moves along ``axis``, in numbers and dims; None where it moves by anything else."""
    unit = [tirx.IntImm("int32", 1 if i == axis else 0) for i in range(len(extents))]
    end = positions(unit)
    if len(end) != len(start) or surely(lambda: extents[axis] < 2):
        return None
    steps = [simplify(b - a) for a, b in zip(start, end)]
    if not is_open(extents):
        return [int(s.value) for s in steps] if all(isinstance(s, prim.IntImm) for s in steps) else None
    try:
        return [dim_of(s) for s in steps]
    except Open:
        return None


def block_of(extent: int) -> int:
    """The largest divisor of ``extent`` up to BLOCK; all of it where that would be a small one."""
    best = max(d for d in range(1, min(extent, BLOCK) + 1) if extent % d == 0)
    return best if best * 4 >= min(extent, BLOCK) else extent


def emit_interchanged(nest: Nest, merged: Merged, axis: int, line: Line) -> bool:
    """Vectors of the last axis with ``axis``, along which reads are contiguous, as the innermost loop; False where
    squares would not do and that axis is open. ``line`` emits one in order."""
    if emit_squares(nest, merged, axis, line):
        return True
    outer = list(merged.outer)
    extent = outer.pop(axis)
    if is_open([extent]):
        return False
    block = block_of(extent)
    vectors, tail = divmod(merged.inner, nest.lanes)

    def columns(loops: list[Expr], part: Expr, start: Expr, width: int) -> None:
        with nest.k.loop(block, name="i") as i:
            nest.ctx.ranged(i, block)
            nest._vector(merged, [*loops[:axis], part * block + i, *loops[axis:]], start, width)

    extents = [*outer, extent // block]
    nest._loops(
        [*extents, vectors],
        lambda loops: columns(loops[:-2], loops[-2], loops[-1] * nest.lanes, nest.lanes),
    )
    if is_open([tail]):
        _open_tail(nest, merged.inner, extents, columns)
    elif tail:
        first = vectors * nest.lanes
        start = to_index(first) if is_open([first]) else tirx.IntImm("int32", first)
        nest._loops(extents, lambda loops: columns(loops[:-1], loops[-1], start, tail))
    return True


def _open_tail(
    nest: Nest, inner: SizeLike, extents: Sequence[SizeLike], columns: Callable[[list[Expr], Expr, Expr, int], None]
) -> None:
    """What whole vectors leave of an open number of elements: a vector that ends there, which computes some again, if
    there is room and nothing that it reads was overwritten, else one by one."""
    whole, lanes = to_index(inner), nest.lanes
    first, again = inner // lanes * lanes, lanes > 1 and nest.s.repeats()
    with nest.k.when(whole < lanes) if again else nullcontext():
        nest._loops(
            [*extents, inner - first],
            lambda loops: columns(loops[:-2], loops[-2], loops[-1] + to_index(first), 1),
        )
    if again:
        with nest.k.when(tirx.all(whole >= lanes, to_index(inner - first) > 0)):
            nest._loops(extents, lambda loops: columns(loops[:-1], loops[-1], whole - lanes, lanes))


def emit_squares(nest: Nest, merged: Merged, axis: int, line: Line) -> bool:
    """Emits the interchange in squares that are transposed in registers; False where they would not do.

    The last square of a line and the last block overlap those before, and are written twice: not where an output may
    lie in the memory of an input, which has then changed.
    """
    side, outer = nest.square_side(axis), list(merged.outer)
    extent = outer.pop(axis)
    if is_open((*outer, extent, merged.inner)):
        few = side < 2 or surely(lambda: extent < side) or surely(lambda: merged.inner < side)
        return not few and _open_squares(nest, merged, axis, side, line)
    if side < 2 or extent < side or merged.inner < side:
        return False
    block = min(SQUARES, extent // side * side)
    inputs = sum(v.constant is None for v in nest.ctx.graph.group.inputs)
    if inputs > 1 and (extent % block or merged.inner % side):
        return False
    k, overlaps = nest.k, extent % block > 0

    def squares(loops: list[Expr]) -> None:
        part, vector = loops[-2:]
        first = k.hold(tirx.min(part * block, extent - block)) if overlaps else part * block
        start = tirx.min(vector * side, merged.inner - side) if merged.inner % side else vector * side
        _block(nest, merged, axis, loops[:-2], (first, block), (start, side))

    nest.s.notes.append(NOTE)
    nest._loops([*outer, -(-extent // block), -(-merged.inner // side)], squares)
    return True


def _block(
    nest: Nest, merged: Merged, axis: int, loops: list[Expr], rows: tuple[Expr, int], columns: tuple[Expr, int]
) -> None:
    """The squares from ``rows`` (first, how many) of ``axis`` and one vector of ``columns`` (first, side)."""
    k, (first, block), (start, side) = nest.k, rows, columns
    with k.loop(block // side, name="i") as i:
        nest.ctx.ranged(i, block // side)
        k.square = Square(side, nest.ctx.analyzer.simplify)
        for column in range(side):
            k.square.column = column
            nest._vector(merged, [*loops[:axis], first + i * side + column, *loops[axis:]], start, side)
        k.square = None


def _open_squares(nest: Nest, merged: Merged, axis: int, side: int, line: Line) -> bool:
    """As :func:`emit_squares`, of open sizes: lines too short for a square, and what whole squares leave where nothing
    may be written twice, are computed element by element as by any map."""
    k, outer = nest.k, list(merged.outer)
    extent, inner = outer.pop(axis), merged.inner
    block = SQUARES if not surely(lambda: extent < SQUARES) else side
    again = nest.s.repeats()

    def squares(loops: list[Expr]) -> None:
        first, start = loops[-2] * block, loops[-1] * side
        if again:
            first = k.hold(tirx.min(first, to_index(extent) - block)) if extent % block != 0 else first
            start = tirx.min(start, to_index(inner) - side) if inner % side != 0 else start
        _block(nest, merged, axis, loops[:-2], (first, block), (start, side))

    def rest(rows: tuple[Expr, Expr], columns: tuple[Expr, Expr]) -> None:
        """The elements from ``rows`` and ``columns``, (first, how many)."""
        if rows[1] == 0 or columns[1] == 0:
            return

        def element(loops: list[Expr]) -> None:
            row, column = loops[-2] + to_index(rows[0]), loops[-1] + to_index(columns[0])
            nest._vector(merged, [*loops[: -2][:axis], row, *loops[: -2][axis:]], column, 1)

        nest._loops([*outer, rows[1], columns[1]], element)

    room = [] if surely(lambda: extent >= block) else [to_index(extent) >= block]
    room += [] if surely(lambda: inner >= side) else [to_index(inner) >= side]
    nest.s.notes.append(NOTE)
    with k.when(tirx.all(*room)) if room else nullcontext():
        if again:
            nest._loops([*outer, -(-extent // block), -(-inner // side)], squares)
        else:
            whole = extent // block * block, inner // side * side
            nest._loops([*outer, extent // block, inner // side], squares)
            rest((whole[0], extent - whole[0]), (0, inner))
            rest((0, whole[0]), (whole[1], inner - whole[1]))
    if room:
        with k.when(tirx.Not(tirx.all(*room))):
            nest._loops(merged.outer, lambda loops: line(merged, loops))
    return True
