"""A graph at certain sizes of its open dimensions, and what boxes of its outputs need there.

The sizes are far larger than any window, so that the middle of an image is far from its borders. Nothing is computed
and nothing is allocated: regions are arithmetic on the ends of boxes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from ...passes.fuse.graph import ProgramGraph
from ...schedules.operators.regions.attributes import integer
from ...schedules.operators.regions.box import Box, BoxRefusal, Need, Needs, hull, merge, need
from ...schedules.operators.regions.elementwise import is_elementwise, values_read
from ...schedules.operators.regions.node import RULES, Rule
from ...schedules.operators.regions.transposed import conv_transpose, taps_that_count
from ...schedules.words.dims import Dim, Open
from ...schedules.words.group import Node, Value
from ...schedules.words.sizes import dim_of, value_of
from ...schedules.words.tvm_types import Attribute, Expr
from ..positions import POSITIONS
from .flows import flows

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

MOST_POSITIONS = 1 << 22  # of a table that is looked at: those of an axis, not those of all pixels of a large image

_MATTERS: dict[str, Rule] = {"halotile.conv_transpose": partial(conv_transpose, reads=taps_that_count)}


@dataclass
class Demanded:
    """``boxes`` of every value that is read or computed (inside of the tensor), ``needs`` of every node that is, and
    the axes of values of which something outside is asked for."""

    boxes: dict[Value, Box] = field(default_factory=dict)
    needs: dict[Node, tuple[Value, Needs]] = field(default_factory=dict)
    beyond: set[tuple[Value, int]] = field(default_factory=set)
    near: bool = False  # whether somewhere that is on one side alone


class SampledGraph:
    """``graph`` where its symbols have ``sizes``. Values and nodes are named by those of the graph itself."""

    def __init__(self, graph: ProgramGraph, sizes: Mapping[str, int]) -> None:
        self.graph, self.sizes = graph, dict(sizes)
        self._values: dict[Value, Value] = {}
        self._compute_positions()
        self._nodes = {node: self._node(node) for node in graph.nodes}
        self._back = {at: value for value, at in self._values.items()}

    def at(self, value: Value) -> Value:
        """A value of the graph with numbers for its shape, and its elements where no input makes them and they are a
        table of positions."""
        if value not in self._values:
            open_ = any(isinstance(d, Dim) for d in value.shape)
            at = replace(value, shape=tuple(map(self._number, value.shape))) if open_ else value
            self._values[value] = at
        return self._values[value]

    def shape(self, value: Value) -> tuple[int, ...]:
        return self.at(value).shape

    def needs(self, node: Node, output: Value, box: Box, matters: bool = False) -> Needs:
        """What ``node`` reads for a box of a result, exactly where its operator has a rule; else whole axes. With
        ``matters`` without what counts nothing, whatever it is: elements that a kernel multiplies by a constant 0."""
        at = self._nodes[node]
        index = node.results.index(output)
        rule = _MATTERS.get(node.operator) if matters else None
        if node.operator in RULES:
            try:
                found = (rule or RULES[node.operator])(at, index, box)
            except (Open, TypeError):  # an attribute that is open
                found = BoxRefusal("an attribute is open")
            if not isinstance(found, BoxRefusal):
                return merge(found)
        elif is_elementwise(node):
            return merge(self._aligned(node, box))
        return merge(self._carried(node, index, box))

    def demand(self, wanted: Mapping[Value, Box], matters: bool = False) -> Demanded:
        """What the boxes ``wanted`` of some values need, all the way up."""
        found = Demanded({value: tuple(box) for value, box in wanted.items()})
        for node in reversed(self.graph.nodes):
            for result in node.results:
                if result not in found.boxes:
                    continue
                needs = self.needs(node, result, found.boxes[result], matters)
                before = found.needs.get(node)
                found.needs[node] = (result, needs if before is None else merge((*before[1], *needs)))
                for one in needs:
                    self._ask(found, one)
        return found

    def back(self, value: Value) -> Value:
        """The graph's own value for one of a need's."""
        return self._back.get(value, value)

    def _ask(self, found: Demanded, one: Need) -> None:
        value = self.back(one.value)
        if one.fill != "none":
            sides = one.outside
            found.beyond |= {(value, axis) for axis, (before, after) in enumerate(sides) if before or after}
            found.near |= any((before > 0) != (after > 0) for before, after in sides)
        inside = one.inside
        if inside is not None:
            found.boxes[value] = hull(found.boxes[value], inside) if value in found.boxes else inside

    def _aligned(self, node: Node, box: Box) -> list[Need]:
        needs = []
        for value in values_read(node):
            at = self.at(value)
            own = box[len(box) - len(at.shape) :]
            needs.append(need(at, [(0, 1) if n == 1 else span for span, n in zip(own, at.shape)]))
        return needs

    def _carried(self, node: Node, index: int, box: Box) -> list[Need]:
        needs = []
        try:
            flow = flows(node)[index].axes
        except Exception:  # no expression of its own in this form: everything may be read
            flow = {value: (None,) * len(value.shape) for value in node.inputs}
        for value, tags in flow.items():
            at = self.at(value)
            spans = [
                (0, n) if tag is None or n == 1 or box[tag][1] > n else box[tag] for tag, n in zip(tags, at.shape)
            ]
            needs.append(need(at, spans))
        return needs

    def _node(self, node: Node) -> Node:
        operands = tuple(map(self._operand, node.operands))
        results = tuple(map(self.at, node.results))
        same = all(a is b for a, b in zip((*operands, *results), (*node.operands, *node.results)))
        return node if same else replace(node, operands=operands, results=results)

    def _compute_positions(self) -> None:
        """The elements of tables of positions that follow from sizes: pads of an open axis read at such."""
        for node in self.graph.nodes:
            rule = POSITIONS.get(node.operator)
            if rule is None or len(node.results) != 1:
                continue
            values, made = [self.at(v).constant for v in node.inputs], self.at(node.results[0]).shape
            if all(v is not None for v in values) and len(made) <= 1 and math.prod(made) <= MOST_POSITIONS:
                found = rule(*values) if values else rule(*(integer(n) for n in map(self._leaf, node.operands)))
                self._values[node.results[0]] = replace(self.at(node.results[0]), constant=np.asarray(found))

    def _leaf(self, operand: Expr) -> Expr:
        """A number of a node's attributes or operands, where it is one."""
        try:
            return self._number(dim_of(getattr(operand, "value", operand)))
        except (Open, TypeError, ValueError, AttributeError):
            return operand

    def _operand(self, operand: Expr | Value | tuple[Expr | Value, ...]) -> Attribute:
        if isinstance(operand, Value):
            return self.at(operand)
        if isinstance(operand, tuple):
            parts = tuple(map(self._operand, operand))
            return operand if all(a is b for a, b in zip(parts, operand)) else parts
        if isinstance(operand, (relax.ShapeExpr, relax.Tuple)):
            parts = operand.values if isinstance(operand, relax.ShapeExpr) else operand.fields
            return list(map(self._leaf, parts))
        return operand if isinstance(operand, (int, float, str)) or operand is None else self._leaf(operand)

    def _number(self, dim: SizeLike) -> int:
        return value_of(dim, self.sizes) if isinstance(dim, Dim) else integer(dim)
