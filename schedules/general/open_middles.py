"""Maps of open sizes whose reads change near the edges: a padding, a mirror, a concatenation.

    for w: y[w] = x[w - 3] if 3 <= w < n + 3 else 0

has a question for every lane, and a mirror's position is arithmetic for every lane. Each line has three spans, whose
bounds are dims, and in each the questions that its bounds settle are gone:

    for w in [0, 3):          y[w] = 0
    for w in [3, n + 3):      y[w] = x[w - 3]           whole vectors, the last one moved back
    for w in [n + 3, n + 6):  y[w] = 0

and so have the rows around lines. (Of fixed sizes, ranges of rows do this: :mod:`.row_ranges`.)
"""

from __future__ import annotations

from collections.abc import Callable

import tvm_ffi
from tvm import sym, tirx
from tvm.ir.prim import expr as prim

from ..emit.vector_reads import index
from ..emit.written_out import children
from ..words.dims import Open, is_open, maximum, minimum, to_index
from ..words.sizes import dim_of, usual
from ..words.tvm_types import Expr
from .axes import Merged
from .loop_interchange import Line
from .loop_nest import Nest
from .row_ranges import HOLDS_FROM

NOTE = "open lines in spans"
ROUNDS = 3  # a mirror's second question is seen once its first is settled
MOST_CHOICES = 16  # of an element; each span is code of its own

Span = tuple[Expr, Expr]  # first, end


def emit_spans(nest: Nest, merged: Merged, extents: list[Expr], line: Line) -> bool:
    """Emits lines in spans, and rows in ranges, if questions are settled so; False if none are. ``line`` emits one
    that is whole."""
    if not is_open(extents) or nest.ctx.origin is not None:
        return False
    column = _middle(nest, extents, len(extents) - 1) if merged.count == 1 else None
    row = _middle(nest, extents, len(merged.outer) - 1) if merged.outer else None
    if column is None and row is None:
        return False
    nest.s.notes.append(NOTE)

    def lines(loops: list[Expr]) -> None:
        if column is None:
            line(merged, loops)
        else:
            _line(nest, merged, loops, column)

    if row is None:
        nest._loops(merged.outer, lines)
    else:
        nest._loops(merged.outer, lambda loops: _in_ranges(nest, row, merged.outer[-1], loops, lines))
    return True


def _middle(nest: Nest, extents: list[Expr], axis: int) -> Span | None:
    """The span of ``axis`` between the edges at which answers change, at the sizes that are planned for; None if
    there are no such edges."""
    whole: Span = (0, extents[axis])
    span = whole
    for _ in range(ROUNDS):
        cuts = _cuts_within(nest, extents, axis, span)
        first, end = span
        for cut in cuts:
            if 2 * usual(cut) <= usual(extents[axis]):
                first = maximum(first, cut)
            else:
                end = minimum(end, cut)
        if (first, end) == span:
            break
        span = first, end
    return None if span == whole else span


def _cuts_within(nest: Nest, extents: list[Expr], axis: int, span: Span) -> list[Expr]:
    marks = [nest.ctx.ranged(tirx.Var(f"m{i}", "int32"), e) for i, e in enumerate(extents)]
    nest.ctx.between(marks[axis], *span)
    nest._dry(marks, 0)
    if len({tvm_ffi.structural_hash(c) for c in nest.choices}) > MOST_CHOICES:
        return []
    return [cut for condition in nest.choices for cut in _cuts(condition, marks[axis])]


def _cuts(condition: Expr, mark: Expr) -> list[Expr]:
    """The first places at which a condition's answer is another one, where these are numbers or dims."""
    at = HOLDS_FROM.get(type(condition))
    if at is None:
        return [cut for part in children(condition) for cut in _cuts(part, mark)]
    linear = sym.detect_linear_equation(condition.a - condition.b, [mark])
    if len(linear) != 2 or not isinstance(linear[0], prim.IntImm) or int(linear[0].value) == 0:
        return []
    try:
        factor, rest = int(linear[0].value), dim_of(linear[1])
    except Open:
        return []
    return [-((rest - at) // factor) if factor > 0 else (rest - at) // -factor + 1]


def _in_ranges(
    nest: Nest, middle: Span, extent: Expr, loops: list[Expr], body: Callable[[list[Expr]], None]
) -> None:
    """``body`` for the last of ``loops``, once for each range of it."""
    k, row, (first, end) = nest.k, loops[-1], middle
    if first != 0:
        with k.when(row < to_index(first)):
            body([*loops[:-1], _known(nest, row, 0, first)])
    inside = [row >= to_index(first)] * (first != 0) + [row < to_index(end)] * (end != extent)
    with k.when(tirx.all(*inside)):
        body([*loops[:-1], _known(nest, row, first, end)])
    if end != extent:
        with k.when(tirx.all(*inside[:-1], row >= to_index(end))):
            body([*loops[:-1], _known(nest, row, maximum(first, end), extent)])


def _known(nest: Nest, place: Expr, first: Expr, end: Expr) -> Expr:
    """``place``, which lies in a span, under a name that is known to."""
    named = nest.k.bind(place + 0 if isinstance(place, tirx.Var) else place, "y")
    if isinstance(named, tirx.Var):
        nest.ctx.between(named, first, end)
    return named


def _line(nest: Nest, merged: Merged, loops: list[Expr], middle: Span) -> None:
    k, whole, (first, last) = nest.k, index(to_index(merged.inner)), middle
    begin: Expr = k.hold(tirx.min(to_index(first), whole), "b") if first != 0 else index(0)
    end: Expr = k.hold(tirx.max(tirx.min(to_index(last), whole), begin), "e") if last != merged.inner else whole
    if first != 0:
        _span(nest, merged, loops, (index(0), begin), (0, first))
    _span(nest, merged, loops, (begin, end), middle)
    if last != merged.inner:
        _span(nest, merged, loops, (end, whole), (last, merged.inner))


def _span(nest: Nest, merged: Merged, loops: list[Expr], place: Span, known: Span) -> None:
    """The elements in ``place``, expressions, which lie in ``known``, dims: vectors, and what is left of them."""
    k, lanes, (start, stop) = nest.k, nest.lanes, place
    width = known[1] - known[0]

    def one_by_one(first: Expr) -> None:
        with k.loop(stop - first, name="x") as x:
            nest._vector(merged, loops, _known(nest, x + first, *known), 1)

    if lanes == 1 or not is_open([width]) and width < lanes:
        one_by_one(start)
        return
    done = k.hold(start + tirx.floordiv(stop - start, lanes) * lanes, "d")
    with k.loop(tirx.floordiv(stop - start, lanes), name="j") as j:
        nest._vector(merged, loops, _known(nest, start + j * lanes, known[0], known[1] - lanes + 1), lanes)
    if not nest.s.repeats():
        one_by_one(done)
        return
    with k.when(tirx.all(stop - start >= lanes, done < stop)):
        nest._vector(merged, loops, _known(nest, stop - lanes, known[0], known[1] - lanes + 1), lanes)
    with k.when(stop - start < lanes):
        one_by_one(start)
