"""Axes that an operator carries from its inputs to its outputs unchanged, read off its TE expression.

    y[n, i, j] = sum over k of a[n, i, k] * b[n, k, j]        a: axes (0, 1, none)    b: axes (0, none, 2)

Whatever is read at anything but an axis of the output itself counts as needed whole. That is never too little, and it
holds for every operator there is: those that have no exact rule for regions, or refuse one, fall back on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import tvm
from tvm import te, tirx
from tvm.ir import Call
from tvm.ir.prim import expr as prim

from ...schedules.emit.inline import key
from ...schedules.operators.kind import facts_of
from ...schedules.operators.regions.attributes import once
from ...schedules.words.group import Node, Value
from ...schedules.words.tvm_types import Expr, Operation

if TYPE_CHECKING:
    from typing import Any

Tags = tuple["int | None", ...]  # for each axis of what is read: the axis of the result that it is, or None


@dataclass
class Flow:
    """``axes`` has the inputs that one result reads, ``positions`` the axes of the result whose coordinates count as
    numbers: a value there depends on where it is."""

    axes: dict[Any, Tags] = field(default_factory=dict)
    positions: set[int] = field(default_factory=set)

    def add(self, source: object, tags: Tags) -> None:
        before = self.axes.get(source, tags)
        self.axes[source] = tuple(a if a == b else None for a, b in zip(before, tags))


@once
def flows(node: Node) -> tuple[Flow, ...]:
    """The flow of each result, by the node's input values."""
    graph = facts_of(node).graph
    values: dict[tuple[Expr, int], Value] = {key(graph.tensors[v]): v for v in dict.fromkeys(node.inputs)}
    known: dict[tuple[Expr, int], Flow] = {}
    found = []
    for result in node.results:
        flow = _stage(graph.tensors[result], values, known)
        found.append(Flow({values[k]: tags for k, tags in flow.axes.items()}, flow.positions))
    return tuple(found)


def _stage(tensor: te.Tensor, values: Mapping[tuple[Expr, int], Value], known: dict[tuple[Expr, int], Flow]) -> Flow:
    """The flow of a stage, by the keys of the node's inputs."""
    name = key(tensor)
    if name in values:
        return Flow({name: tuple(range(len(tensor.shape)))})
    if name in known:
        return known[name]
    flow = Flow()
    if isinstance(tensor.op, te.ComputeOp):
        axes = {axis.var: i for i, axis in enumerate(tensor.op.axis)}
        _walk(tensor.op.body[tensor.value_index], axes, flow, values, known, False)
    else:  # statements of its own: whatever it reads, it may read anywhere
        for source in tensor.op.input_tensors:
            for deep in _stage(source, values, known).axes:
                flow.add(deep, (None,) * len(values[deep].shape))
    known[name] = flow
    return flow


def _walk(
    expr: Expr,
    axes: Mapping[Expr, int],
    flow: Flow,
    values: Mapping[tuple[Operation, int], Value],
    known: dict[tuple[Operation, int], Flow],
    index: bool,
) -> None:
    """Adds what ``expr`` reads; ``index`` within a position, where an axis is no number of the result."""
    kind = type(expr)
    if kind is tirx.Var:
        if expr in axes and not index:
            flow.positions.add(axes[expr])
        return
    if kind is tirx.Reduce:
        for part in (*expr.source, expr.condition, *(expr.init or ())):
            _walk(part, axes, flow, values, known, index)
        return
    if isinstance(expr, Call):
        if getattr(expr.op, "name", "") == "te.tensor_load":
            _load(expr, axes, flow, values, known)
            return
        for part in expr.args:
            _walk(part, axes, flow, values, known, index)
        return
    for name in ("a", "b", "value", "condition", "true_value", "false_value", "body"):
        part = getattr(expr, name, None)
        if isinstance(part, tvm.ir.Expr):
            _walk(part, axes, flow, values, known, index)


def _load(
    expr: Expr,
    axes: Mapping[Expr, int],
    flow: Flow,
    values: Mapping[tuple[Expr, int], Value],
    known: dict[tuple[Expr, int], Flow],
) -> None:
    """One read: axes that the source carries on, seen from the reader's."""
    source, places = expr.args[0], expr.args[1:]
    tags = [_axis(place, axes) for place in places]
    for place in places:
        _walk(place, axes, flow, values, known, True)
    inner = _stage(source, values, known)
    for name, own in inner.axes.items():
        flow.add(name, tuple(None if tag is None else tags[tag] for tag in own))
    for position in inner.positions:
        tag = tags[position]
        if tag is not None:
            flow.positions.add(tag)


def _axis(place: Expr, axes: Mapping[Expr, int]) -> int | None:
    while isinstance(place, prim.Cast):
        place = place.value
    return axes.get(place) if isinstance(place, tirx.Var) else None
