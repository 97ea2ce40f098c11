"""Rows that move: views, transposed axes, slices, pads, and rows taken from places of a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from ...schedules.operators.regions.attributes import integer, ints
from ...schedules.operators.registry import attributes, call
from ...schedules.words.group import Node
from ...schedules.words.tvm_types import Expr
from .rules import Arguments, Global, Planned, Read, Rows, Rule, StreamRows, carried
from .words import Gather

if TYPE_CHECKING:
    from .heights import Height

Table = Callable[[int], Any]  # where the rows of an image of that height come from

_SMALL = 64  # images of fewer units are looked at one by one
_FAR = 4096  # rows of an image in whose middle a table of places is looked at


def reshape(node: Node, stream: StreamRows) -> Planned:
    """Rows merged with what is within them, or split: (h, r) -> h r, h -> (h / r, r), row by row."""
    data, result = node.inputs[0], node.results[0]
    rows, (axis, count, height, least), before = stream.rows[data], stream.result(result), stream.shape(data)
    shape = list(result.shape)
    channels, groups = math.prod(before[: rows.axis]), math.prod(shape[:axis])
    if channels != groups and axis == len(shape) - 1 and channels % groups == 0 and data not in stream.shapes:
        # channels in groups, each with all its rows: a step keeps them apart
        stream.shapes[result] = (*shape[:axis], channels // groups, *before[rows.axis :])
        stream.heights[result] = axis + 1, rows.height
        apart = [*shape[:axis], channels // groups, rows.count, *before[rows.axis + 1 :]]
        return Planned(
            {data: Read(rows.delay, rows.count)}, [Rows(axis + 1, rows.count, rows.delay, rows.height)],
            lambda arguments: relax.op.reshape(arguments[data], relax.ShapeExpr(apart)),
        )  # fmt: skip
    if channels != groups:
        raise Global(f"it mixes the rows of {list(data.shape)} with another axis")
    inner, within = math.prod(before[rows.axis + 1 :]), math.prod(shape[axis + 1 :])
    shape[axis] = count
    if inner % within == 0:
        factor = inner // within
        delay = max(factor * rows.delay, -(-least // factor) * factor)
        back = delay // factor
    elif within % inner == 0 and rows.count % (within // inner) == 0:
        factor = within // inner
        delay = max(-(-rows.delay // factor), least)
        back = delay * factor
    else:
        raise Global(f"rows of {list(data.shape)} are not whole rows of {list(node.results[0].shape)}")
    return Planned(
        {data: Read(back, rows.count)}, [Rows(axis, count, delay, height)],
        lambda arguments: relax.op.reshape(arguments[data], relax.ShapeExpr(shape)),
    )  # fmt: skip


def permute(node: Node, stream: StreamRows) -> Planned:
    """Axes in another order."""
    (data,) = stream.streaming(node)
    return carried(node, stream, lambda v: stream.rows[data].axis)


def strided_slice(node: Node, stream: StreamRows) -> Planned:
    """Every k-th row from one on; along other axes as it is."""
    data, *bounds = node.operands
    rows, (axis, count, height, least) = stream.rows[data], stream.result(node.results[0])
    axes = [a % len(data.shape) for a in ints(bounds[0])]
    if rows.axis not in axes:
        return carried(node, stream, lambda v: rows.axis)
    at = axes.index(rows.axis)
    steps = ints(bounds[3]) if len(bounds) > 3 else [1] * len(axes)
    begin, step = int(ints(bounds[1])[at]), steps[at]
    if step < 1 or begin < 0 or rows.count != count * step:
        raise Global("it counts rows from the end of the image")
    delay = max(least, math.ceil((rows.delay + begin + 1 - step) / step))
    read = Read(step * delay - begin, (count - 1) * step + 1)
    starts, stops = ints(bounds[1]), [_end(e) for e in _parts(bounds[2])]
    starts[at], stops[at] = 0, read.length

    def emit(arguments: Arguments) -> Expr:
        return relax.op.strided_slice(arguments[data], axes, starts, stops, steps)

    return Planned({data: read}, [Rows(axis, count, delay, height)], emit)


def _parts(operand: Expr) -> Sequence[Expr]:
    return operand.fields if hasattr(operand, "fields") else operand.values if hasattr(operand, "values") else operand


def _end(value: Expr) -> int:
    """An end of a slice; of the axis that streams whatever it is, as it is replaced."""
    try:
        return integer(value)
    except (TypeError, ValueError, AttributeError):
        return 0


def pad(node: Node, stream: StreamRows) -> Planned:
    """A number before and behind the rows."""
    (data,) = stream.streaming(node)
    rows, (axis, count, height, least) = stream.rows[data], stream.result(node.results[0])
    own = node.operator == "halotile.pad"
    if own:
        number = node.operands[1].constant
        begin, end = ([int(n) for n in attributes(node.call)[k]] for k in ("begin", "end"))
        fill = float(number.reshape(-1)[0]) if number is not None else math.nan
        if number is None:
            raise Global("the number it pads with is computed")
    else:
        if str(node.call.attrs.pad_mode) != "constant":
            raise Global(f"streams have no rule for padding mode {node.call.attrs.pad_mode}")
        width = ints(node.call.attrs.pad_width)
        begin, end, fill = width[::2], width[1::2], float(node.call.attrs.pad_value)
    delay = max(least, rows.delay - begin[axis])
    read = Read(delay + begin[axis], count, fill if begin[axis] or end[axis] else None)
    begin[axis] = end[axis] = 0

    def emit(arguments: Arguments) -> Expr:
        if not any(begin + end):
            return arguments[data]
        if own:
            return call("halotile.pad", arguments[data], arguments[node.operands[1]], begin=begin, end=end)
        width = [n for pair in zip(begin, end) for n in pair]
        return relax.op.nn.pad(arguments[data], width, pad_mode="constant", pad_value=fill)

    return Planned({data: read}, [Rows(axis, count, delay, height)], emit)


def take(node: Node, stream: StreamRows) -> Planned:
    """Rows from the places of a table that follows from the height."""
    data, index = node.operands[:2]
    if integer(node.call.attrs.axis) % len(data.shape) != stream.rows[data].axis:
        return carried(node, stream, lambda v: stream.rows[data].axis)
    if index not in stream.tables or len(index.shape) != 1:
        raise Global("it takes rows from places that are no border of the image")
    return _taken(node, stream, stream.tables[index])


def mirror(node: Node, stream: StreamRows) -> Planned:
    """Rows before and behind an image that are mirrored or repeated."""
    (data,) = node.inputs
    rows, own = stream.rows[data], attributes(node.call)
    begin, end, mode = [*own["begin"]], [*own["end"]], own["mode"]
    around: Any = (begin[rows.axis], end[rows.axis])
    begin[rows.axis] = end[rows.axis] = 0

    def emit(arguments: Arguments) -> Any:
        if not any(begin + end):
            return arguments[data]
        return call("halotile.mirror", arguments[data], begin=begin, end=end, mode=mode)

    if around == (0, 0):
        return carried(node, stream, lambda v: rows.axis)

    def table(image: int) -> Any:
        height = rows.height.at(image)
        if mode == "reflect" and height <= max(around):
            return ()  # a border has fewer rows than the image
        return np.pad(np.arange(height), around, mode)

    return _taken(node, stream, table, emit)


def _taken(node: Node, stream: StreamRows, table: Table, emit: Callable[[Arguments], Any] | None = None) -> Planned:
    """Rows from the places of a table that is borders and a shift between them; ``emit`` does what else is done."""
    data = node.operands[0]
    rows, (axis, count, height, least) = stream.rows[data], stream.result(node.results[0])
    if count != rows.count:
        raise Global("it takes rows from places that are no border of the image")
    gather = _border(stream, table, rows, height)
    low = min([gather.shift, *(r - y for y, r in enumerate(gather.top))])
    high = max([gather.shift, *(r - y for y, r in enumerate(gather.top))])
    grown = rows.height.rest[0] - height.rest[0]  # of rows: those of the source less those of the result
    for i, b in enumerate(gather.bottom):  # row height - 1 - i is row source - b
        distance = grown - b + 1 + i
        low, high = min(low, distance), max(high, distance)
    delay = max(least + len(gather.bottom), rows.delay + high)
    back = delay - low
    length = count + high - low
    read = Read(back, length, None, gather, (count, delay, count, height))
    return Planned({data: read}, [Rows(axis, count, delay, height)], emit or (lambda a: a[data]))


def _border(stream: StreamRows, at: Table, rows: Rows, height: Height) -> Gather:
    """The table as a shift between two borders, found at several heights and checked on others."""
    unit = stream.unit
    samples = [-(-_FAR // unit) * unit + n * unit for n in (0, 1, 3)]
    table, size = np.asarray(at(samples[0])), rows.height.at(samples[0])
    middle = len(table) // 2
    shift = int(table[middle]) - middle
    off = np.flatnonzero(table != np.arange(len(table)) + shift)
    top = int(off[off < middle].max(initial=-1)) + 1
    bottom = len(table) - int(off[off >= middle].min(initial=len(table)))
    found = Gather(
        shift, tuple(int(n) for n in table[:top]), tuple(int(size - n) for n in table[len(table) - bottom :][::-1])
    )
    if not all(_same(found, at, rows, height, n) for n in samples):
        raise Global("it takes rows from places that are no border of the image")
    small = range(stream.least, unit * _SMALL, stream.multiple)
    wrong = [n for n in small if not _same(found, at, rows, height, n)]
    stream.least = max(stream.least, *(n + stream.multiple for n in wrong), 0)
    return found


def _same(found: Gather, at: Table, rows: Rows, height: Height, image: int) -> bool:
    """Whether that is the table where the image has ``image`` rows."""
    result, source = height.at(image), rows.height.at(image)
    expected = np.asarray(at(image))
    return len(expected) == result and np.array_equal(found.rows(np.arange(result), result, source), expected)


RULES: dict[str, Rule] = {
    "relax.reshape": reshape,
    "relax.expand_dims": reshape,
    "relax.squeeze": reshape,
    "relax.flatten": reshape,
    "relax.permute_dims": permute,
    "relax.strided_slice": strided_slice,
    "relax.nn.pad": pad,
    "halotile.pad": pad,
    "relax.take": take,
    "halotile.mirror": mirror,
}
