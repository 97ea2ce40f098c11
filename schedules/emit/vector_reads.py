"""Reads of a vector's lanes that whole vectors and a shuffle can do, and the indices they have."""

from __future__ import annotations

import tvm
from tvm import sym, tirx
from tvm.ir.expr import TensorLoad
from tvm.ir.prim import expr as prim

from ..words.dims import is_dim, to_index
from ..words.tvm_types import Buffer, Expr


def strided(value: Expr, lane: Expr, width: int) -> tuple[Expr | None, int]:
    """(base, stride) of a read at base + stride * lane with a stride of two to four; (None, 1) for anything else, and
    for vectors so short that those which hold the elements would end beyond the last."""
    if width < 4 or not isinstance(value, TensorLoad) or len(value.indices) != 1:
        return None, 1
    linear = sym.detect_linear_equation(value.indices[0], [lane])
    if not len(linear) or not isinstance(linear[0], prim.IntImm) or not 2 <= int(linear[0].value) <= 4:
        return None, 1
    return linear[1], int(linear[0].value)


def repeated(value: Expr, lane: Expr, width: int) -> tuple[Expr, int]:
    """(base, times) of a read at base + lane // times, with two to four times; (None, 1) for anything else."""
    if width < 4 or not isinstance(value, TensorLoad) or len(value.indices) != 1:
        return None, 1
    base: Expr = index(0)
    times, terms = 0, [value.indices[0]]
    while terms:
        term = terms.pop()
        if isinstance(term, prim.Add):
            terms += [term.a, term.b]
        elif isinstance(term, prim.FloorDiv) and term.a.same_as(lane) and isinstance(term.b, prim.IntImm) and not times:
            times = int(term.b.value)
        elif any(lane.same_as(u) for u in undefined(term)):
            return None, 1
        else:
            base = base + term
    return (base, times) if 2 <= times <= 4 and width % times == 0 else (None, 1)


def gathered(buffer: Buffer, base: Expr, stride: int, width: int) -> Expr:
    """Every ``stride``-th of the elements from ``base``: as many whole vectors as hold them, and a shuffle.

    TVM would read one element a lane. The last vector ends at the last element wanted, so nothing beyond it is read.
    """
    last = stride * (width - 1)
    starts = [*(i * width for i in range(stride - 1)), last - width + 1]
    vectors = [buffer[run(base + s, width)] for s in starts]
    order = [i * stride for i in range(width)]
    picks = [min(at // width, stride - 1) for at in order]
    return tirx.Shuffle(vectors, [index(p * width + at - starts[p]) for p, at in zip(picks, order)])


def undefined(expr: Expr | None) -> Expr:
    """The variables that ``expr`` uses and does not define."""
    return tirx.analysis.undefined_vars(expr) if isinstance(expr, tvm.ir.Expr) else []


def run(start: Expr, width: int) -> Expr:
    return tirx.Ramp(index(start), index(1), width)


def index(value: Expr) -> Expr:
    """A number or a dim as an index expression; expressions as they are."""
    return tirx.IntImm("int32", value) if isinstance(value, int) else to_index(value) if is_dim(value) else value
