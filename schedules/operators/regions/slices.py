"""Slices with steps, split, concatenation, repetition, and positions from a table known at compile time."""

from __future__ import annotations

import numpy as np

from ...words.group import Node, Value
from .attributes import integer, ints, own
from .box import Box, BoxRefusal, Needs, Span, intersect, is_empty, need, whole


def stepped(span: Span, begin: int, step: int) -> Span:
    """Positions begin + i * step for i in ``span``: from the smallest to the largest, whichever way the step goes."""
    ends = begin + span[0] * step, begin + (span[1] - 1) * step
    return min(ends), max(ends) + 1


def strided_slice(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
    """Starts below zero count from the end, and are clamped to the tensor as NumPy's are."""
    data, *bounds = node.operands
    axes, begin, end = (ints(b) for b in bounds[:3])
    steps = ints(bounds[3]) if len(bounds) > 3 else [1] * len(axes)
    spans = list(box)
    for axis, start, stop, step in zip(axes, begin, end, steps):
        axis %= len(box)
        chosen = range(*slice(start, stop, step).indices(data.shape[axis]))
        spans[axis] = stepped(box[axis], chosen.start, step)
    return (need(data, spans),)


def own_slice(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
    a = own(node)
    return (need(node.inputs[0], [stepped(*axis) for axis in zip(box, a["begin"], a["step"])]),)


def split(node: Node, output: int, box: Box) -> Needs | BoxRefusal:
    axis = int(node.call.attrs.axis) % len(box)
    start = sum(r.shape[axis] for r in node.results[:output])
    spans = list(box)
    spans[axis] = (box[axis][0] + start, box[axis][1] + start)
    return (need(node.inputs[0], spans),)


def concat(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
    """Each part that the box meets; the others are not read at all."""
    attrs = node.call.attrs
    axis = 0 if attrs.axis is None else integer(attrs.axis) % len(box)
    start, needs = 0, []
    for part in node.inputs:
        spans = list(box)
        spans[axis] = (box[axis][0] - start, box[axis][1] - start)
        read = intersect(tuple(spans), whole(part))
        if not is_empty(read):
            needs.append(need(part, read))
        start += part.shape[axis]
    return tuple(needs)


def upsample(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
    factors = own(node)["factors"]
    return (need(node.inputs[0], [(lo // f, (hi - 1) // f + 1) for (lo, hi), f in zip(box, factors)]),)


def tile(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
    """y[i] = x[i mod size]; repeats may name axes in front that x does not have."""
    data = node.inputs[0]
    own_axes = box[len(box) - len(data.shape) :]
    return (need(data, [_modulo(span, n) for span, n in zip(own_axes, data.shape)]),)


def _modulo(span: Span, size: int) -> Span:
    lo, hi = span
    if hi - lo >= size or lo % size > (hi - 1) % size:
        return 0, size
    return lo % size, (hi - 1) % size + 1


def table_span(table: np.ndarray, size: int) -> Span:
    """The positions in ``table``: negative ones count from the end, others are clamped to the axis."""
    positions = np.asarray(table, "int64")
    positions = np.clip(np.where(positions < 0, positions + size, positions), 0, size - 1)
    return int(positions.min()), int(positions.max()) + 1


def _known(node: Node, index: Value) -> BoxRefusal | None:
    return BoxRefusal(f"{node.operator} reads at positions computed at run time") if index.constant is None else None


def take(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
    """x at positions of a table along one axis. Resizing to the nearest and pads in "edge", "reflect" and "wrap" modes
    come as this; the table has their rounding and their borders, so nothing is left to be computed here."""
    data, index = node.operands[:2]
    axis = node.call.attrs.axis if node.operator == "relax.take" else own(node)["axis"]
    if axis is None:
        return BoxRefusal("it reads a tensor as if it had one axis")
    return _known(node, index) or _taken(data, index, integer(axis) % len(data.shape), box)


def _taken(data: Value, index: Value, axis: int, box: Box) -> Needs:
    assert index.constant is not None
    rank = len(index.shape)
    at = box[axis : axis + rank]
    chosen = index.constant[tuple(slice(*s) for s in at)]
    return (
        need(data, [*box[:axis], table_span(chosen, data.shape[axis]), *box[axis + rank :]]),
        need(index, at),
    )


def resample(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
    """Interpolation along one axis: output o reads index[o, :]. Positions and weights were computed for the whole axis,
    from the global lengths and scales, whatever box is asked for."""
    data, index, weight = node.inputs
    axis = int(own(node)["axis"])
    refusal = _known(node, index)
    if refusal is not None:
        return refusal
    assert index.constant is not None
    chosen = index.constant[slice(*box[axis])]
    rows = (box[axis], (0, index.shape[1]))
    spans = [*box[:axis], (int(chosen.min()), int(chosen.max()) + 1), *box[axis + 1 :]]
    return need(data, spans), need(index, rows), need(weight, rows)


RULES = {
    "relax.strided_slice": strided_slice,
    "halotile.slice": own_slice,
    "relax.split": split,
    "relax.concat": concat,
    "halotile.upsample": upsample,
    "relax.tile": tile,
    "relax.take": take,
    "halotile.gather": take,
    "halotile.resample": resample,
}
