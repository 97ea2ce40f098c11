"""Windows over images in channel blocks: neighbouring outputs of a row side by side, their taps written out.

    for column of tiles
      acc[SIDE][lanes]
      for tap row, tap column (unrolled)
        acc[x] = max(acc[x], in[row, x * stride + tap])        neighbours share what they read
      out[x] = acc[x]

Outputs beside the edges, where a tap may lie in the padding, are computed one by one; rows whose windows all lie
within the image have code of their own, without the choices of those above and below. One output after the other, in
loops over the taps, is a chain of operations with jumps between: 3x3 pools of stride 1 take 0.8 of the time so, 5x5
0.75, 3x3 of stride 2, which memory holds up, 0.9 (Zen 3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import tirx
from tvm.ir import Range

from ..words.dims import is_open
from ..words.sizes import dim_of, product
from ..words.tvm_types import Expr
from .reduction_nest import ReductionNest

SIDE = 4  # outputs side by side
TAPS = 32  # that are written out
EDGE = 16  # outputs or rows at either end that may be computed apart

NOTE = "windows side by side"

Bounds = dict[int, tuple[int, int]]


class WindowNest(ReductionNest):
    """Emits one reduction phase: windows side by side where they slide, all others as :class:`ReductionNest` does."""

    def _emit_windows(self) -> bool:
        if slides(self):
            emit_windows(self)
            return True
        return False


def slides(nest: ReductionNest) -> bool:
    """True for windows over rows of some length that are computed so: of whole images, in channel blocks."""
    op, shape = nest.phase.tensors[0].op, nest.phase.shape
    taps = product(dim_of(a.dom.extent) for a in op.reduce_axis)
    known = nest.ctx.origin is None and not nest.ctx.size and len(nest.row) < len(shape)  # else it is one output
    if not nest.blocked or not known or len(shape) != 4 or is_open(shape[2:]):
        return False
    return shape[3] >= SIDE and 1 < taps <= TAPS and _moves(nest)


def emit_windows(nest: ReductionNest) -> None:
    *outer, width = nest.extents()
    nest.s.notes.append(NOTE)
    nest._loops(outer, lambda loops: _row(nest, loops, width))


def _row(nest: ReductionNest, loops: list[Expr], width: int) -> None:
    """One row of outputs, which may lie beside the edges of the image."""
    whole = _free(nest, 2, {})
    if whole is None or whole == (0, nest.phase.shape[2]):
        _columns(nest, loops, width, {})
        return
    line = loops[-1] if loops else nest.row[-1]
    inside = tirx.all(line >= whole[0], line < whole[1])
    with nest.k.when(inside):
        known, row = nest.k.bind(line, "y"), nest.row
        nest.ctx.analyzer.bind(known, Range(*whole))
        if loops:
            _columns(nest, [*loops[:-1], known], width, {2: whole})
        else:
            nest.row = [*row[:-1], known]
            _columns(nest, loops, width, {2: whole})
            nest.row = row
    with nest.k.when(tirx.any(line < whole[0], line >= whole[1])):
        _columns(nest, loops, width, {})


def _columns(nest: ReductionNest, loops: list[Expr], width: int, known: Bounds) -> None:
    k, ctx = nest.k, nest.ctx
    first, last = _free(nest, 3, known) or (0, width)

    def at(start: Expr) -> Callable[[Expr, Expr], list[Expr]]:
        return lambda u, _: [*loops, start + u]

    tiles, rest = divmod(last - first, SIDE)
    inner = ((first, tiles, SIDE), (last - rest, min(rest, 1), rest))
    for begin, count, side in ((0, first, 1), *inner, (last, width - last, 1)):
        if count == 1:
            nest._across(at(tirx.IntImm("int32", begin)), nest.lanes, side, False, written=True)
        elif count:
            with k.loop(count, name="x") as x:
                nest._across(at(ctx.ranged(x, count) * side + begin), nest.lanes, side, False, written=True)


def _free(nest: ReductionNest, axis: int, known: Bounds) -> tuple[int, int] | None:
    """The part of ``axis`` in which no choice depends on it; None if there is no such part."""
    size = nest.phase.shape[axis]
    edge = min(EDGE, size // 4)
    first = next((e for e in range(edge + 1) if not _chooses(nest, axis, {**known, axis: (e, size - edge)})), None)
    if first is None:
        return None
    ends = (size - e for e in range(edge + 1))
    return first, next(e for e in ends if not _chooses(nest, axis, {**known, axis: (first, e)}))


def _moves(nest: ReductionNest) -> bool:
    """True if what a tap reads depends on the column of the output and on the taps."""
    marks, reduced, read = _dry(nest, {})
    used = [v for e in read for v in tirx.analysis.undefined_vars(e)]
    return all(any(v.same_as(m) for v in used) for m in (marks[3], reduced[-1]))


def _chooses(nest: ReductionNest, axis: int, known: Bounds) -> bool:
    """True if a choice is left that depends on ``axis``, where axes lie within ``known``."""
    guards = nest.k.guards
    before = len(guards)
    marks, _, _ = _dry(nest, known)
    found = guards[before:]
    del guards[before:]
    return any(v.same_as(marks[axis]) for c in found for v in tirx.analysis.undefined_vars(c))


def _dry(nest: ReductionNest, known: Bounds) -> tuple[list[Expr], list[Expr], Sequence[Expr]]:
    """The axes of the output, those that are reduced, and where an element reads; choices are left with the builder."""
    ctx, op = nest.ctx, nest.phase.tensors[0].op
    marks = []
    for axis, size in enumerate([*nest.phase.shape[:1], -(-nest.phase.shape[1] // nest.lanes), *nest.phase.shape[2:]]):
        mark = tirx.Var(f"m{axis}", "int32")
        ctx.analyzer.bind(mark, Range(*known.get(axis, (0, size))))
        marks.append(mark)
    reduced = [ctx.ranged(tirx.Var("r", "int32"), dim_of(a.dom.extent)) for a in op.reduce_axis]
    lane = ctx.ranged(tirx.Var("v", "int32"), nest.lanes)
    own, ctx.log = nest.row, []
    nest.row = marks[: len(own)]
    with nest.k.capture():
        inliner = ctx.inliner(nest.sources())
        inliner.declare(op)
        axes = {a.var: i for a, i in zip(op.axis, nest.indices(marks[len(own) :], lane))}
        axes.update({a.var: r + a.dom.min for a, r in zip(op.reduce_axis, reduced)})
        for source in op.body[0].source:
            inliner.expression(source, axes)
    nest.row, read, ctx.log = own, ctx.log, None
    return marks, reduced, [tirx.IntImm("int32", p) if isinstance(p, int) else p for p in read]
