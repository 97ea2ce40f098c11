"""Slices, concatenations and splits: composed, merged, and cancelled against one another."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import relax

from ...schedules import operators as _operators  # noqa: F401  (registers them)
from ...schedules.operators.movement import MOST_PARTS
from ...schedules.operators.registry import call as own_call
from ...schedules.words.size_like import SizeLike
from ...schedules.words.sizes import dim_of
from .graph import ITEM, Graph, GraphNode
from .open_slices import OpenRun, composed, dims, parts, runs, taken
from .patterns import ints
from .rule import EXACT, Declined, Rewrite, RewriteBuilder, Rule

if TYPE_CHECKING:
    pass

op = relax.op
OPEN = sys.maxsize


@dataclass(frozen=True)
class SliceAxis:
    """One axis of a slice with a positive stride; ``end`` counts from the back when negative, OPEN is to the end."""

    begin: int
    end: int
    stride: int

    def then(self, after: SliceAxis) -> SliceAxis | None:
        """The single cut that equals ``after`` applied to the result of this one, for every length; None if none does.

            0:-2:2 then 0:-2:2     ->    0:-6:4
            2:10 then 1:5          ->    3:7

        Element i of the second is element begin + stride * i of the first. With an end that counts from the back,
        i + e < ceil(A / s) is s * (i + e) < A, which gives the closed rule without knowing the length.
        """
        if self.begin < 0 or after.begin < 0:
            return None
        begin, stride = self.begin + self.stride * after.begin, self.stride * after.stride
        if after.end == OPEN:
            end = self.end
        elif after.end >= 0:
            bound = self.begin + self.stride * after.end
            if self.end < 0:
                return None
            end = min(self.end, bound)
        elif self.end == OPEN:
            end = self.stride * after.end
        elif self.end < 0:
            end = self.end + self.stride * after.end
        else:
            return None
        return SliceAxis(begin, end, stride)

    def on(self, length: int) -> SliceAxis:
        """The cut that takes the same elements of an axis of known ``length``, with 0 <= begin <= end <= length."""
        chosen = range(
            *slice(self.begin, None if self.end == OPEN else self.end, self.stride).indices(length)
        )
        if not len(chosen):
            return SliceAxis(0, 0, self.stride)
        return SliceAxis(chosen[0], chosen[-1] + 1, self.stride)


WHOLE = SliceAxis(0, OPEN, 1)


def cuts(node: GraphNode) -> dict[int, SliceAxis] | None:
    """Axis -> cut of a strided slice with known bounds and positive strides; ends beyond any length become OPEN."""
    if node.op != "relax.strided_slice":
        return None
    rank = node.inputs[0].rank
    axes, begin, end = (ints(node.raw(k)) for k in (1, 2, 3))
    strides = ints(node.raw(4)) if len(node.operands) > 4 and node.raw(4) is not None else None
    if axes is None or begin is None or end is None:
        return None
    strides = strides if strides is not None else [1] * len(axes)
    if any(s < 1 for s in strides):
        return None
    shape = node.inputs[0].shape or ()
    result = {}
    for axis, b, e, s in zip(axes, begin, end, strides):
        cut = SliceAxis(b, OPEN if e >= 2**31 - 1 else e, s)
        length = shape[axis % rank] if shape else None
        result[axis % rank] = cut.on(length) if isinstance(length, int) else cut
    return result


def emit_slice(
    b: RewriteBuilder, x: GraphNode, wanted: dict[int, SliceAxis], result: tuple[int, ...] | None = None
) -> GraphNode:
    """``x`` cut along the axes of ``wanted``, to the shape ``result``; nothing where that is everything."""
    shape = x.shape or ()
    real = {a: c for a, c in wanted.items() if c not in (WHOLE, SliceAxis(0, shape[a] if shape else -1, 1))}
    if not real:
        return x
    axes = sorted(real)
    begin, strides = [real[a].begin for a in axes], [real[a].stride for a in axes]
    ends: list[SizeLike] = [min(real[a].end, 2**31 - 1) for a in axes]
    if result is None or all(isinstance(d, int) for d in result):
        return b.call(op.strided_slice, x, axes, begin, ends, strides)
    for k, axis in enumerate(axes):
        if begin[k] > 0 > ends[k]:  # of a short axis the end would lie before the beginning
            ends[k] = b.dim(begin[k] + strides[k] * dim_of(result[axis]))
    return b.shaped(result, op.strided_slice, x, axes, begin, ends, strides)


class SliceOfSlice(Rule):
    """x[2:10][1:5] -> x[3:7];  x[0:-2:2][0:-2:2] -> x[0:-6:4];  slices of different axes -> one slice

    Strides are positive; where the length is open, the composition holds for every length: bounds that are numbers
    have a closed form, others are expressions of the length. Tried at the inner slice, all of whose readers must be
    slices: then it goes.
    """

    name = "slice-of-slice"
    family = "shape_slice"
    modes = EXACT
    roots = frozenset(("relax.strided_slice",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        if node.outputs or not node.users or any(u.op != node.op for u in node.users):
            return None
        x, merged = node.inputs[0], {}
        for user in node.users:
            found = _of_numbers(cuts(node), cuts(user)) or _of_dims(runs(node), runs(user))
            if found is None:
                return Declined("a bound is computed at run time, or a stride is negative")
            merged[user] = found
        return Rewrite(lambda b: {user: emit(b, x, user.shape or ()) for user, emit in merged.items()})


Emit = Callable[[RewriteBuilder, GraphNode, tuple[SizeLike, ...]], GraphNode]


def _of_numbers(first: dict[int, SliceAxis] | None, second: dict[int, SliceAxis] | None) -> Emit | None:
    both = None if first is None or second is None else _composed(first, second)
    return None if both is None else lambda b, x, shape: emit_slice(b, x, both, shape)


def _of_dims(first: dict[int, OpenRun] | None, second: dict[int, OpenRun] | None) -> Emit | None:
    both = None if first is None or second is None else composed(first, second)
    return None if both is None else lambda b, x, shape: taken(b, x, both, shape)


def _composed(first: dict[int, SliceAxis], second: dict[int, SliceAxis]) -> dict[int, SliceAxis] | None:
    result = dict(first)
    for axis, cut in second.items():
        both = first[axis].then(cut) if axis in first else cut
        if both is None:
            return None
        result[axis] = both
    return result


class StepsOfSteps(Rule):
    """x[::-1][::-1] -> x;  x[8::-2][1:3] -> x[6:2:-2]: slices of which one walks backwards, of known lengths"""

    name = "steps-of-steps"
    family = "shape_slice"
    modes = EXACT
    roots = frozenset(("halotile.slice",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        inner = node.inputs[0]
        if inner.op != node.op or inner.uses != 1 or not node.static or not inner.static:
            return None
        x, shape = inner.inputs[0], [int(d) for d in node.shape or ()]
        b1, s1, b2, s2 = ([int(v) for v in n.attr(k)] for n in (inner, node) for k in ("begin", "step"))
        begin = [p + q * r for p, q, r in zip(b1, s1, b2)]
        step = [p * q for p, q in zip(s1, s2)]
        if not any(begin) and all(s == 1 for s in step) and graph.same_shape(x.shape, tuple(shape)):
            return Rewrite(lambda b: x)
        if all(s > 0 for s in step):
            end = [p + q * (n - 1) + 1 for p, q, n in zip(begin, step, shape)]
            return Rewrite(lambda b: b.call(op.strided_slice, x, list(range(len(shape))), begin, end, step))
        attributes = {"begin": begin, "step": step, "shape": shape}
        return Rewrite(lambda b: b.call(lambda v: own_call("halotile.slice", v, **attributes), x))


class SliceOfConcat(Rule):
    """concat(a, b)[part that lies in b]    ->    b[part];  concat(a, b, c)[b and c] -> concat(b, c)

    Lengths may be open where it is clear for every size in which part the slice lies.
    """

    name = "slice-of-concat"
    family = "shape_slice"
    modes = EXACT
    roots = frozenset(("relax.strided_slice",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        joined = node.inputs[0]
        wanted = cuts(node)
        if joined.op != "relax.concat":
            return None
        if wanted is None:
            return _open_part(node, joined)
        axis = int(joined.attr("axis") or 0) % joined.rank
        if axis not in wanted:
            return None
        lengths = [(i.shape or ())[axis] for i in joined.inputs]
        cut = wanted[axis]
        if 0 <= cut.end <= cut.begin:
            return None
        found = _pieces(cut, lengths)
        if found is None:
            return None if all(isinstance(n, int) for n in lengths) else _open_part(node, joined)
        first, last, inside = found
        pieces, rest = joined.inputs[first:last], {a: c for a, c in wanted.items() if a != axis}
        if len(pieces) > 1 and (rest or inside != WHOLE):
            return None

        def build(b: RewriteBuilder) -> GraphNode:
            if len(pieces) > 1:
                return b.call(op.concat, pieces, axis=axis)
            return emit_slice(b, pieces[0], {**rest, axis: inside})

        return Rewrite(build)


def _open_part(node: GraphNode, joined: GraphNode) -> Rewrite | Declined | None:
    """The same in dims."""
    axis, wanted = int(joined.attr("axis") or 0) % joined.rank, runs(node)
    shapes = [dims(i.shape) for i in joined.inputs]
    if wanted is None or axis not in wanted or any(s is None for s in shapes):
        return None
    found = parts(wanted.pop(axis), [s[axis] for s in shapes if s is not None])
    if found is None:
        return Declined("the length of a piece is open")
    first, last, inside = found
    pieces, shape = joined.inputs[first:last], node.shape or ()
    if inside is not None:
        return Rewrite(lambda b: taken(b, pieces[0], {**wanted, axis: inside}, shape))
    return None if wanted else Rewrite(lambda b: b.call(op.concat, pieces, axis=axis))


def _pieces(cut: SliceAxis, lengths: list[SizeLike]) -> tuple[int, int, SliceAxis] | None:
    """(first piece, one behind the last, the cut within them) of what ``cut`` takes of pieces of these lengths."""
    starts = _running(lengths)
    ends_behind = [None if n is None else -n for n in _running(lengths[::-1])[::-1]]  # from the end: 0 is the end
    for k, (start, stop) in enumerate(zip(starts, starts[1:])):  # all of it in one piece, counted from the front
        if start is None or cut.begin < start:
            break
        if stop is not None and 0 <= cut.end <= stop:
            return k, k + 1, SliceAxis(cut.begin - start, cut.end - start, cut.stride)
        if k == len(lengths) - 1 and cut.end == OPEN:
            return k, k + 1, SliceAxis(cut.begin - start, OPEN, cut.stride)
    for k, (start, stop) in enumerate(zip(ends_behind, ends_behind[1:])):  # counted from the end
        if start is None or stop is None or cut.begin >= 0 or cut.begin < start:
            continue
        end = 0 if cut.end == OPEN else cut.end
        if cut.end == OPEN and stop == 0 or 0 > end and end <= stop:
            return k, k + 1, SliceAxis(cut.begin - start, end - start, cut.stride)
    if cut.stride != 1 or cut.begin < 0:
        return None
    at = [k for k, start in enumerate(starts) if start == cut.begin]
    to = [len(lengths)] if cut.end == OPEN else [k for k, start in enumerate(starts) if start == cut.end]
    return (at[-1], to[0], WHOLE) if at and to and to[0] > at[-1] else None


def _running(lengths: list[SizeLike]) -> list[int | None]:
    """The sums of the first 0, 1, 2 ... lengths; None from an open one on."""
    sums: list[int | None] = [0]
    for n in lengths:
        last = sums[-1]
        sums.append(last + n if last is not None and isinstance(n, int) else None)
    return sums


class ConcatOfConcat(Rule):
    """concat(concat(a, b), c)    ->    concat(a, b, c) along one axis, where the inner one has no other reader

    Up to so many parts as one kernel may choose among.
    """

    name = "concat-of-concat"
    family = "shape_slice"
    modes = EXACT
    roots = frozenset(("relax.concat",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        axis = int(node.attr("axis") or 0) % node.rank
        inner = [
            i.op == "relax.concat" and i.uses == 1 and int(i.attr("axis") or 0) % i.rank == axis
            for i in node.inputs
        ]
        if not any(inner):
            return None
        flat = [p for i, n in zip(node.inputs, inner) for p in (i.inputs if n else [i])]
        if len(flat) > MOST_PARTS:
            return Declined(f"it would join {len(flat)} parts, and kernels choose among {MOST_PARTS}")
        return Rewrite(lambda b: b.call(op.concat, flat, axis=axis))


@dataclass(frozen=True)
class _Piece:
    source: GraphNode
    others: tuple[tuple[int, OpenRun], ...]
    run: OpenRun
    shape: tuple[SizeLike, ...]


class ConcatOfSlices(Rule):
    """concat(x[0:2], x[2:5], y)    ->    concat(x[0:5], y);  concat of all pieces of a split in order -> x

    Neighbouring pieces of one source that touch along the axis, with stride 1, alike along every other axis.
    """

    name = "concat-of-slices"
    family = "shape_slice"
    modes = EXACT
    roots = frozenset(("relax.concat",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        axis = int(node.attr("axis") or 0) % node.rank
        pieces = [self._piece(i, axis) for i in node.inputs]
        merged: list[GraphNode | _Piece] = []
        for original, piece in zip(node.inputs, pieces):
            last = merged[-1] if merged else None
            if piece is not None and isinstance(last, _Piece) and _touch(last, piece):
                merged[-1] = _joined(last, piece, axis)
            else:
                merged.append(piece if piece is not None else original)
        if len(merged) == len(node.inputs):
            return None

        def build(b: RewriteBuilder) -> GraphNode:
            parts = [
                taken(b, p.source, {**dict(p.others), axis: p.run}, p.shape) if isinstance(p, _Piece) else p
                for p in merged
            ]
            return parts[0] if len(parts) == 1 else b.call(op.concat, parts, axis=axis)

        return Rewrite(build)

    @staticmethod
    def _piece(node: GraphNode, axis: int) -> _Piece | None:
        if node.op == ITEM and node.inputs[0].op == "relax.split":
            return _split_piece(node, axis)
        found = runs(node)
        if found is None or axis not in found or found[axis].stride != 1:
            return None
        others = tuple((a, found[a]) for a in sorted(found) if a != axis)
        return _Piece(node.inputs[0], others, found[axis], node.shape or ())


def _split_piece(node: GraphNode, axis: int) -> _Piece | None:
    split = node.inputs[0]
    x = split.inputs[0]
    if int(split.attr("axis")) % x.rank != axis:
        return None
    lengths = [f.shape.values[axis] for f in split.ty.fields]
    sizes = [getattr(n, "value", n) for n in lengths]
    if not all(type(n) is int for n in sizes):
        return None
    start = sum(sizes[: node.attrs])
    return _Piece(x, (), OpenRun(start, sizes[node.attrs]), node.shape or ())


def _touch(a: _Piece, b: _Piece) -> bool:
    return a.source is b.source and a.others == b.others and a.run.begin + a.run.count == b.run.begin


def _joined(a: _Piece, b: _Piece, axis: int) -> _Piece:
    run = OpenRun(a.run.begin, a.run.count + b.run.count)
    return _Piece(a.source, a.others, run, tuple(run.count if k == axis else d for k, d in enumerate(a.shape)))
