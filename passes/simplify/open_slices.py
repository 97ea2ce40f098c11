"""Slices of open axes as runs of positions, which compose for every length.

    x[0:-2:2] of n    begins at 0, steps by 2, of (max(n - 2, 0) + 1) // 2 elements
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import relax

from ...schedules.words.dims import Dim, Open, bounds, is_open, maximum, terms_of
from ...schedules.words.sizes import dim_of
from ...schedules.words.tvm_types import Expr
from .graph import GraphNode
from .patterns import ints
from .rule import RewriteBuilder

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

END = 2**31 - 1


@dataclass(frozen=True)
class OpenRun:
    """``count`` positions from ``begin`` on in steps of ``stride``: numbers and dims, never negative."""

    begin: SizeLike
    count: SizeLike
    stride: int = 1

    def then(self, after: OpenRun) -> OpenRun:
        """The run of ``after`` among the elements of this one."""
        return OpenRun(self.begin + self.stride * after.begin, after.count, self.stride * after.stride)

    @property
    def stop(self) -> SizeLike:
        """The position behind the last that is taken, where one is."""
        return self.begin + self.stride * (self.count - 1) + 1

    def within(self, first: SizeLike, stop: SizeLike) -> bool:
        """Whether all positions lie from ``first`` to before ``stop``, for every size at which there are any."""
        count = if_any(self.count)
        last = self.begin + self.stride * (count - 1)
        return at_least(self.begin - first, 0, count) and at_least(stop - last, 1, count)


def at_least(value: SizeLike, least: int, count: SizeLike) -> bool:
    """Whether the value is at least so much at every size at which there is a count."""
    return any(bounds(value - (count - 1) * times)[0] >= least for times in (0, 1))


def if_any(count: SizeLike) -> SizeLike:
    """A count of elements without the max(p, 0) that only keeps it from being negative: equal wherever it is not 0."""
    terms = dict(terms_of(count))
    rest = terms.pop((), 0)
    ((monomial, factor),) = terms.items() if len(terms) == 1 else [((), 0)]
    if len(monomial) != 1 or factor != 1:
        return count
    kind, operands = monomial[0].kind, monomial[0].operands
    if kind == "max" and rest <= 0 and any(not isinstance(o, Dim) and o <= 0 for o in operands):
        return rest + next(o for o in operands if isinstance(o, Dim))
    if kind == "floor" and rest <= 0 and isinstance(operands[1], int):
        return rest + if_any_above(operands[0], operands[1]) // operands[1]
    return count


def if_any_above(value: SizeLike, least: int) -> SizeLike:
    """What :func:`if_any` gives, of a value that is at least ``least`` wherever it counts."""
    over = terms_of(value).get((), 0)
    return value if over >= least else over + if_any(value - over)


def dims(shape: tuple[Expr, ...] | None) -> list[SizeLike] | None:
    """The shape of a node as numbers and dims; None where it can't be told."""
    try:
        return None if shape is None else [dim_of(d) for d in shape]
    except Open:
        return None


def runs(node: GraphNode) -> dict[int, OpenRun] | None:
    """Axis -> run of a slice with positive strides; None for any other node, or bounds that are not clear."""
    if node.op != "relax.strided_slice":
        return None
    axes, steps = ints(node.raw(1)), ints(node.raw(4)) if len(node.operands) > 4 else None
    lengths, counts, begin = dims(node.inputs[0].shape), dims(node.shape), node.raw(2)
    if axes is None or lengths is None or counts is None or not isinstance(begin, list):
        return None
    steps = [1] * len(axes) if steps is None else steps
    found = {}
    for axis, first, step in zip(axes, begin, steps):
        axis %= len(lengths)
        try:
            start = dim_of(first)
        except Open:
            return None
        if not isinstance(start, Dim) and start < 0:
            start = maximum(lengths[axis] + start, 0)
        if step < 1 or bounds(start)[0] < 0:
            return None
        found[axis] = OpenRun(start, counts[axis], step)
    return found


def composed(first: dict[int, OpenRun], second: dict[int, OpenRun]) -> dict[int, OpenRun]:
    """What ``second`` takes of what ``first`` takes, axis by axis."""
    return {**first, **{a: first[a].then(r) if a in first else r for a, r in second.items()}}


def parts(run: OpenRun, lengths: list[SizeLike]) -> tuple[int, int, OpenRun | None] | None:
    """(first piece, one behind the last, the run in it) of what ``run`` takes of pieces of these lengths: a part of one
    piece, or all of several (None); None where that is not clear for every size."""
    starts: list[SizeLike] = [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    for k, (start, stop) in enumerate(zip(starts, starts[1:])):
        if run.within(start, stop):
            return k, k + 1, OpenRun(run.begin - start, run.count, run.stride)
    at = [k for k, start in enumerate(starts) if start == run.begin]
    to = [k for k, start in enumerate(starts) if start == run.begin + run.count]
    return (at[-1], to[0], None) if run.stride == 1 and at and to and to[0] > at[-1] else None


def taken(b: RewriteBuilder, x: GraphNode, wanted: dict[int, OpenRun], shape: tuple[SizeLike, ...]) -> GraphNode:
    """``x`` at the runs, which make it ``shape``; itself where that is everything."""
    lengths = dims(x.shape) or []
    real = {a: r for a, r in wanted.items() if r != OpenRun(0, lengths[a])}
    if not real:
        return x
    axes = sorted(real)
    begin = [b.dim(_start(real[a], lengths[a])) for a in axes]
    end = [b.dim(_stop(real[a], lengths[a])) for a in axes]
    strides = [real[a].stride for a in axes]
    shape = tuple(map(b.dim, shape))
    if all(isinstance(d, int) for d in shape):
        return b.call(relax.op.strided_slice, x, axes, begin, end, strides)
    return b.shaped(shape, relax.op.strided_slice, x, axes, begin, end, strides)


def _start(run: OpenRun, length: SizeLike) -> SizeLike:
    """A number where it can be one: from the end, or from the front."""
    left = length - run.begin
    return run.begin if not isinstance(run.begin, Dim) or isinstance(left, Dim) or left < 1 else -left


def _stop(run: OpenRun, length: SizeLike) -> SizeLike:
    """An end that does not lie before the beginning for any size."""
    if not is_open([run.begin, run.count]):
        return run.stop if run.count else run.begin
    if maximum(length - run.begin + (run.stride - 1), 0) // run.stride == run.count:
        return END
    left = length - run.stop
    simple = not isinstance(left, Dim) and left > 0 and (run.begin == 0 or not isinstance(length - run.begin, Dim))
    return -left if simple else run.begin + run.stride * run.count
