"""What each operator reads of rows that stream, how far its own are behind, and the operator of one step.

    rule(node, stream) -> Planned      reads of values that stream, the rows of its results, and the call of a step

An operator without a rule of its own either reads every row where it is itself (elementwise, or over other axes), or it
is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax
from tvm.ir import Call

from ...schedules.operators.regions.attributes import integer, ints
from ...schedules.operators.regions.elementwise import is_elementwise
from ...schedules.operators.registry import attributes
from ...schedules.words.group import Node, Value
from ...schedules.words.tvm_types import Attribute, Expr
from .words import Gather, Height

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike


class Global(Exception):
    """An operator that needs all rows at once; the text says which and why."""


@dataclass(frozen=True)
class Rows:
    """How a value streams: along ``axis``, ``count`` rows a step, ``delay`` rows behind, of ``height`` in all."""

    axis: int
    count: int
    delay: int
    height: Height


@dataclass(frozen=True)
class Read:
    """Rows t * C - back .. + length of a value. ``fill`` is what rows that do not exist are read as; None where none
    such is read for a row that exists. ``gather`` chooses ``chosen`` rows (count, back, length, height) among these."""

    back: int
    length: int
    fill: float | None = None
    gather: Gather | None = None
    chosen: tuple[int, int, int, Height] | None = None


Arguments = Mapping[Value, Expr]


@dataclass(frozen=True)
class Planned:
    """``emit`` makes the call of a step from what was read; ``share`` is a feed by which the result is multiplied."""

    reads: Mapping[Value, Read]
    results: Sequence[Rows]
    emit: Callable[[Arguments], Expr]
    share: tuple[int, int, int, int] | None = None


@dataclass
class StreamRows:
    """What rules ask: how values stream, so far."""

    rows: dict[Value, Rows] = field(default_factory=dict)
    heights: dict[Value, tuple[int, Height]] = field(default_factory=dict)  # axis and height of all that stream
    unit: int = 1
    step: int = 1
    symbol: str = ""
    tables: dict[Value, Callable[[int], Any]] = field(default_factory=dict)
    shapes: dict[Value, tuple[SizeLike, ...]] = field(default_factory=dict)  # of values whose joined axes stay apart
    least: int = 1  # rows of an image
    multiple: int = 1

    def result(self, value: Value) -> tuple[int, int, Height, int]:
        """Axis, rows a step, height and least delay of a value that a node makes."""
        if value not in self.heights:
            raise Global("what it gives does not follow the rows of the image")
        axis, height = self.heights[value]
        count = height.steps * self.step // height.period
        return axis, count, height, max(-height.rest[0], 0)

    def shape(self, value: Value) -> tuple[SizeLike, ...]:
        """The shape that a value has in a step; its rows are another number."""
        return self.shapes.get(value, value.shape)

    def take_over(self, value: Value, result: Value) -> None:
        """Gives a result the shape and rows of a value that keeps axes apart."""
        if value in self.shapes:
            self.shapes[result] = self.shapes[value]
            self.heights[result] = self.heights[value]

    def streaming(self, node: Node) -> list[Value]:
        """The inputs that stream, each once."""
        return [v for v in dict.fromkeys(node.inputs) if v in self.rows]


Rule = Callable[[Node, StreamRows], Planned]


def written(node: Node, arguments: Arguments, attrs: Attribute = None) -> Expr:
    """The node's call on other operands."""
    return Call(node.call.op, [_argument(o, arguments) for o in node.operands], attrs or node.call.attrs)


def _argument(operand: Value | tuple[Value, Value], arguments: Arguments) -> Expr:
    if isinstance(operand, Value):
        return arguments[operand]
    if isinstance(operand, tuple):
        return relax.Tuple([_argument(o, arguments) for o in operand])
    return operand


def carried(node: Node, stream: StreamRows, axis_of: Callable[[Value], int] | None = None) -> Planned:
    """Row by row: a row of the results depends on that row of what is read, and nothing else."""
    read = stream.streaming(node)
    found = [stream.result(r) for r in node.results]
    axis, count, height, least = found[0]
    for value in read:
        rows = stream.rows[value]
        wanted = axis_of(value) if axis_of else axis - len(node.results[0].shape) + len(value.shape)
        if rows.axis != wanted or rows.count != count or rows.height != height:
            raise Global(f"it reads {list(value.shape)} at other rows than its own")
    delay = max([least, *(f[3] for f in found), *(stream.rows[v].delay for v in read)])
    reads = {v: Read(delay, count) for v in read}
    results = [Rows(a, c, delay, h) for a, c, h, _ in found]
    return Planned(reads, results, lambda arguments: written(node, arguments))


def pointwise(node: Node, stream: StreamRows) -> Planned:
    """Elementwise, with broadcasting."""
    if not is_elementwise(node):
        raise Global("streams have no rule for it")
    (value, *others) = stream.streaming(node)
    if value not in stream.shapes:
        return carried(node, stream)
    constants = [v for v in node.inputs if v is not value]
    if others or any(v.shape and v.shape[-1] != 1 for v in constants):
        raise Global(f"it works on groups of all rows as {list(value.shape)}")
    stream.take_over(value, node.results[0])
    rows, apart = stream.rows[value], [1] * (len(stream.shape(value)) - len(value.shape))

    def emit(arguments: Arguments) -> Expr:
        wide = {v: relax.op.reshape(arguments[v], [*v.shape, *apart]) if v.shape else arguments[v] for v in constants}
        return written(node, {**wide, value: arguments[value]})

    return Planned({value: Read(rows.delay, rows.count)}, [rows], emit)


def along(*axes_of: Callable[[Node], Sequence[int]]) -> Rule:
    """An operator that works over certain axes, all others row by row."""

    def rule(node: Node, stream: StreamRows) -> Planned:
        (value, *others) = stream.streaming(node)
        rank = len(value.shape)
        axes = {a % rank for a in axes_of[0](node)}
        axis = stream.rows[value].axis
        if others and node.operator != "relax.concat":
            raise Global("streams have no rule for it with several images")
        if axis in axes:
            raise Global(f"it needs all {value.shape[axis]} rows at once")
        return carried(node, stream, lambda v: axis)

    return rule


def _attribute(name: str) -> Callable[[Node], Sequence[int]]:
    def axes(node: Node) -> Sequence[int]:
        attrs: Attribute = attributes(node.call) if node.operator.startswith("halotile.") else node.call.attrs
        found = attrs[name] if isinstance(attrs, dict) else getattr(attrs, name)
        if found is None:
            return range(len(node.inputs[0].shape))
        return [integer(found)] if isinstance(found, int) or hasattr(found, "value") else ints(found)

    return axes


def axes_of(node: Node) -> Sequence[int]:
    """The axes that a reduction or a norm works over."""
    return _attribute("axes" if node.operator.startswith("halotile.") else "axis")(node)


def reduced(node: Node, stream: StreamRows) -> Planned:
    """Reductions over other axes, which are gone or have length 1."""
    (value,) = stream.streaming(node)
    axis, rank = stream.rows[value].axis, len(value.shape)
    axes = {a % rank for a in _attribute("axis")(node)}
    if axis in axes:
        raise Global(f"it needs all {value.shape[axis]} rows at once")
    return carried(node, stream, lambda v: axis)


def matmul(node: Node, stream: StreamRows) -> Planned:
    """Rows of the left side, or images of both."""
    left, right = node.operands
    axis = stream.result(node.results[0])[0] - len(node.results[0].shape)  # from the end
    for value in stream.streaming(node):
        own = stream.rows[value].axis - len(value.shape)
        summed = own == (-1 if value is left else -2) or (value is right and own == -1)
        if summed or own != axis:
            raise Global(f"it multiplies all {value.shape[own]} rows with each other")
    return carried(node, stream, lambda v: axis + len(v.shape))


def broadcast(node: Node, stream: StreamRows) -> Planned:
    """To a larger shape, along other axes."""
    planned = carried(node, stream)
    axis, count, _, _ = stream.result(node.results[0])
    shape = [count if a == axis else d for a, d in enumerate(node.results[0].shape)]
    (value,) = stream.streaming(node)
    return Planned(planned.reads, planned.results, lambda a: relax.op.broadcast_to(a[value], shape))


RULES: dict[str, Rule] = {
    "relax.concat": along(_attribute("axis")),
    "relax.split": along(_attribute("axis")),
    "relax.nn.softmax": along(_attribute("axis")),
    "relax.nn.log_softmax": along(_attribute("axis")),
    "relax.nn.layer_norm": along(_attribute("axes")),
    "relax.nn.rms_norm": along(_attribute("axes")),
    "relax.matmul": matmul,
    "relax.broadcast_to": broadcast,
    "halotile.channel_window_sum": along(lambda node: [1]),
    **{f"relax.{n}": reduced for n in ("mean", "sum", "max", "min", "prod", "std", "variance")},
    **{f"halotile.{n}": reduced for n in ("argmax", "argmin")},
    "halotile.global_max_pool": along(_attribute("axes")),
    **{f"halotile.{n}": along(_attribute("axes")) for n in ("standardise", "centre")},
    **{f"halotile.{n}": along(_attribute("axis")) for n in ("cumsum", "cumprod", "topk")},
}


def const(array: object, dtype: str) -> Expr:
    """A constant of Relax."""
    return relax.const(np.asarray(array, dtype), dtype)
