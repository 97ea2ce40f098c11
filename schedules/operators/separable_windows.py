"""Windows over rows and columns as two reductions: the columns of each row of windows first, then along that row.

    y[i, j] = max over k, l of x[i s + k, j t + l]     ->     v[p] = max over k of x[i s + k, p]     one row, in cache
                                                             y[i, j] = max over l of v[j t + l]

K x L taps become K t + L for an output: ten instead of 25 for 5 x 5, 26 instead of 169 for 13 x 13. What pads the image
left and right pads the row, so no choice is left in the second step. Sums are added in another order: boxes of an
image, which store no row, add each window's columns first too (:func:`folded`), and so round as the whole does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tvm import sym, te, tirx
from tvm.ir import Call
from tvm.ir.prim import expr as prim

from ..words.dims import is_open
from ..words.sizes import dim_of
from ..words.tvm_types import Expr

GAIN = 1.4  # how many times fewer taps pay for the row that is stored


class _Windows(NamedTuple):
    """``read(n, c, y, k, p)``: what tap ``k`` of the first axis reads at column ``p`` of the rows; of the second axis,
    ``taps`` are ``step`` apart, and windows ``stride``."""

    reduce: Expr
    read: Callable[..., Expr]
    lines: int
    taps: int
    stride: int
    step: int

    def over(self, value: Expr, axis: Expr) -> Expr:
        return tirx.Reduce(self.reduce.combiner, [value], [axis], self.reduce.condition, 0, [])


def separated(tensor: te.Tensor) -> tuple[te.Tensor, te.Tensor] | None:
    """The rows' reduction and that along them, which is as good as ``tensor``; None where there is nothing to gain."""
    found = _windows(tensor)
    if found is None:
        return None
    shape = [dim_of(d) for d in tensor.shape]
    width = (shape[3] - 1) * found.stride + (found.taps - 1) * found.step + 1
    down, along = (te.reduce_axis((0, n), name=f"r{i}") for i, n in enumerate((found.lines, found.taps)))
    rows = te.compute(
        [*shape[:3], width],
        lambda n, c, y, x: found.over(found.read(n, c, y, down.var, x), down),
        name=f"{tensor.op.name}_rows",
    )
    whole = te.compute(
        shape,
        lambda n, c, y, x: found.over(rows(n, c, y, x * found.stride + along.var * found.step), along),
        name=tensor.op.name,
    )
    return rows, whole


def folded(tensor: te.Tensor) -> te.Tensor:
    """``tensor``, whose windows can be :func:`separated`, with the columns of a window added within its second
    reduction: the same operations on each element, and no row between them. What is as good in any order stays."""
    found = _windows(tensor)
    assert found is not None
    along = te.reduce_axis((0, found.taps), name="r1")
    combiner = found.reduce.combiner
    if not isinstance(combiner.result[0], prim.Add):
        return tensor

    def column(n: Expr, c: Expr, y: Expr, x: Expr) -> Expr:
        value, place = combiner.identity_element[0], x * found.stride + along.var * found.step
        for k in range(found.lines):
            value = value + found.read(n, c, y, k, place)
        return value

    return te.compute(tensor.shape, lambda n, c, y, x: found.over(column(n, c, y, x), along), name=tensor.op.name)


def _windows(tensor: te.Tensor) -> _Windows | None:
    """Two axes of taps over rows and columns, where separating them saves enough."""
    reduce = tensor.op.body[0]
    if len(tensor.op.body) > 1 or len(tensor.op.reduce_axis) != 2 or len(tensor.shape) != 4 or len(reduce.source) > 1:
        return None
    source, (first, second) = reduce.source[0], tensor.op.reduce_axis
    if not _is_load(source) or not (isinstance(reduce.condition, prim.IntImm) and reduce.condition.value):
        return None
    data, at = source.args[0], list(source.args[1:])
    axes = [a.var for a in tensor.op.axis]
    if len(at) != 4 or not all(a.same_as(v) for a, v in zip(at[:2], axes)):
        return None
    taps, lines = dim_of(second.dom.extent), dim_of(first.dom.extent)
    if is_open((taps, lines)):
        return None
    linear = sym.detect_linear_equation(at[3], [axes[3], second.var])
    if not len(sym.detect_linear_equation(at[2], [axes[2], first.var])) or not len(linear):
        return None
    if not all(isinstance(c, prim.IntImm) for c in linear) or _uses(at[2], axes[3], second.var):
        return None
    stride, step, start = (int(c.value) for c in linear)
    if stride < 1 or step < 1 or start or taps < 2 or lines * taps < GAIN * (lines * stride + taps):
        return None

    def read(n: Expr, c: Expr, y: Expr, k: Expr, p: Expr) -> Expr:
        return data(n, c, _replaced(at[2], {axes[2]: y, first.var: k}), p)

    return _Windows(reduce, read, lines, taps, stride, step)


def _replaced(index: Expr, values: dict[Expr, Expr]) -> Expr:
    """A linear index with other variables."""
    linear = sym.detect_linear_equation(index, list(values))
    result = linear[len(values)]
    for factor, value in zip(linear, values.values()):
        result = result + factor * value
    return result


def _is_load(expr: Expr) -> bool:
    return isinstance(expr, Call) and getattr(expr.op, "name", "") == "te.tensor_load"


def _uses(index: Expr, *variables: Expr) -> bool:
    return any(v.same_as(u) for v in variables for u in tirx.analysis.undefined_vars(index))
