"""Operators over all rows, in passes: what a step gives of them, and how they are used (:mod:`.statistics`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from ...schedules.operators.registry import attributes
from ...schedules.words.group import Node, Value
from ...schedules.words.tvm_types import Expr
from .rules import Global, Planned, Read, Rows, StreamRows, axes_of, const

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

_KINDS = {
    "relax.mean": "mean",
    "relax.sum": "sum",
    "relax.max": "max",
    "relax.min": "min",
    "halotile.global_max_pool": "max",
    "halotile.standardise": "standardise",
    "halotile.centre": "centre",
}
_FILLS = {"max": -np.inf, "min": np.inf}


@dataclass(frozen=True)
class Whole:
    """A statistic of ``value`` over ``axes``; ``applied``: what it gives streams, else it is the statistic itself."""

    kind: str
    value: Value
    axes: tuple[int, ...]
    level: int
    epsilon: float
    rows: Rows
    shape: tuple[SizeLike, ...]
    result: tuple[int, ...]

    @property
    def applied(self) -> bool:
        return self.kind in ("standardise", "centre")

    @property
    def read(self) -> Read:
        """The new rows, those that do not exist as what changes nothing."""
        return Read(self.rows.delay, self.rows.count, _FILLS.get(self.kind, 0.0))

    @property
    def planned(self) -> Planned:
        """As other nodes are planned."""
        return Planned({self.value: self.read}, [self.rows] if self.applied else [], lambda arguments: None)

    def part_of_step(self, read: Expr, exists: Expr, share: Expr, emit: Callable[[Expr], Expr]) -> list[Expr]:
        """What a step gives: sums along its rows, or the mean and the squares around it. ``share`` is 1 / its rows."""
        op, axis = relax.op, [self.rows.axis]
        if not self.applied:
            along = {"max": op.max, "min": op.min}.get(self.kind, op.sum)
            return [emit(along(read, axis, keepdims=True))]
        mean = emit(op.multiply(emit(op.sum(read, axis, keepdims=True)), share))
        away = emit(op.where(exists, emit(op.subtract(read, mean)), const(0.0, self.value.dtype)))
        return [mean, emit(op.sum(emit(op.multiply(away, away)), axis, keepdims=True))]

    def apply(self, read: Expr, numbers: list[Expr], emit: Callable[[Expr], Expr]) -> Expr:
        """The rows less the mean, which is given in two parts, and by the deviation."""
        op = relax.op
        found = emit(op.subtract(emit(op.subtract(read, numbers[0])), numbers[1]))
        return emit(op.multiply(found, numbers[2])) if self.kind == "standardise" else found


def whole_of(node: Node, stream: StreamRows, level: int) -> Whole | None:
    """The statistic that a node needs; None of one that works row by row, or by a rule of its own."""
    kind = _KINDS.get(node.operator)
    if kind is None:
        return None
    (value,) = stream.streaming(node)
    rows, shape = stream.rows[value], stream.shape(value)
    axes = {a % len(value.shape) for a in axes_of(node)}
    if value in stream.shapes:  # the last axis is several
        last = len(value.shape) - 1
        axes = (axes - {last}) | (set(range(last, len(shape))) if last in axes else set())
    if rows.axis not in axes:
        return None
    if value.dtype != "float32":
        raise Global(f"streams gather float32 over all rows, and this is {value.dtype}")
    own = attributes(node.call) if node.operator.startswith("halotile.") else {}
    result = node.results[0]
    if kind in ("standardise", "centre"):
        shaped = tuple(1 if a in axes else n for a, n in enumerate(shape))
        stream.take_over(value, result)
    else:
        shaped = tuple(int(n) for n in result.shape)
    return Whole(kind, value, tuple(sorted(axes)), level, float(own.get("epsilon", 0.0)), rows, shape, shaped)
