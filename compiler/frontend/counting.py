"""Loops whose condition counts: while (i < n) { ...; i += k } has a number of rounds, and needs no condition.

    Loop(, Less(i, n), i, n, s) { i' = i + k; go = Less(i', n) }   becomes   Loop(ceil((n - i) / k), , i, n, s)

TensorFlow's loops over the steps of a sequence are written so, and Paddle's decoders, which carry numbers through
floats, shapes of one element and sums with zero. What is compared may be one of several conditions: then it bounds the
rounds, and the conditions stay. A carried value that counts is known in every round, as the number of the round is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

import onnx
from onnx import numpy_helper

from ...schedules.words.dims import Dim, maximum, minimum
from .implied import require_at_most
from .slot import Slot
from .value import OnnxValue

EXACT = 1 << 24  # whole numbers below this one are floats
_SHAPED = ("Identity", "Squeeze", "Unsqueeze", "Reshape", "Flatten")  # what keeps the number of a tensor of one element
_EXACT_KINDS = (onnx.TensorProto.INT32, onnx.TensorProto.INT64, onnx.TensorProto.DOUBLE)
Place = tuple[int, int]  # the place of a number among the body's inputs, and what is added to it


@dataclass(frozen=True)
class _Comparison:
    """That a body input, ``ahead`` of what it was before the round, is less than a number; ``rounded``: as a float."""

    place: int
    ahead: int
    limit: Dim | int
    rounded: bool


def counted(
    body: onnx.GraphProto, inputs: Sequence[Slot], scope: Mapping[str, Slot]
) -> tuple[Dim | int, bool] | None:
    """The rounds that the condition which the body leaves allows, if the one before it does; and whether there are as
    many, with no condition. None where none is seen. ``inputs`` are the loop's, ``scope`` what else its body sees."""
    read = _Body(body, inputs, scope)
    conditions = read.conditions(body.output[0].name)
    comparisons = [c for c in conditions if c is not None and read.first(c.place) is not None]
    if not comparisons:
        return None
    most: Dim | int = reduce(minimum, [read.count(c) for c in comparisons])  # type: ignore[arg-type]
    for comparison in comparisons:
        if comparison.rounded:
            require_at_most(comparison.limit, EXACT, "above which a float can't count its loop's rounds")
    going = inputs[1] if len(inputs) > 1 else None
    whole = len(comparisons) == len(conditions)
    if whole and isinstance(going, OnnxValue) and _asks_alike(going, comparisons, read):
        return maximum(most, 0), True
    sure = going is None or isinstance(going, OnnxValue) and going.array is not None and bool(going.array.all())
    return maximum(most, 1), whole and sure


def _asks_alike(going: OnnxValue, comparisons: Sequence[_Comparison], read: _Body) -> bool:
    """Whether the condition before the first round is that of all others."""
    asked = [(read.first(c.place), c.limit) for c in comparisons]
    open_ = {(a, b) for a, b in asked if not (isinstance(a, int) and isinstance(b, int) and a < b)}
    return all(c.ahead == read.steps[c.place] for c in comparisons) and open_ == going.below


def counters(
    body: onnx.GraphProto, inputs: Sequence[Slot], scope: Mapping[str, Slot], most: int
) -> dict[str, tuple[int, int]]:
    """Of carried values that count, by their names in the body: the number in the first round, and how much it grows in
    each; where all of them are exact in float32 for ``most`` rounds."""
    read, found = _Body(body, inputs, scope), {}
    for place, step in read.steps.items():
        first = read.first(place) if place > 1 else None
        if step and isinstance(first, int) and abs(first) + abs(step) * (most + 1) <= EXACT:
            found[body.input[place].name] = first, step
    return found


class _Body:
    """A loop's body, by the names of its values."""

    def __init__(self, body: onnx.GraphProto, inputs: Sequence[Slot], scope: Mapping[str, Slot]) -> None:
        self.inputs, self.scope = inputs, scope
        self.made = {o: node for node in body.node for o in node.output if o}
        self.constants = {t.name: numpy_helper.to_array(t) for t in body.initializer}
        self.places = {value.name: i for i, value in enumerate(body.input)}
        self.steps: dict[int, int] = {0: 1}  # by the place of an input, how much it grows in a round
        self.still: set[int] = set()
        for i, output in enumerate(body.output[1 : len(inputs) - 1], 2):
            place = self.place(output.name)[0]
            if place is not None and place[0] == i:
                self.steps[i] = place[1]
                self.still |= {i} if place[1] == 0 else set()

    def conditions(self, name: str) -> list[_Comparison | None]:
        """What the condition asks together; None for what is no comparison of a counter with a number."""
        name, node = self._truth(name)
        if node is not None and node.op_type == "And":
            return [c for operand in node.input for c in self.conditions(operand)]
        if self.places.get(name) == 1:
            return []
        if node is None or node.op_type not in ("Less", "Greater"):
            return [None]
        lesser, greater = node.input if node.op_type == "Less" else reversed(node.input)
        place, rounded = self.place(lesser)
        limit, rounded_too = self._number(greater)
        if place is None or limit is None or self.steps.get(place[0], 0) <= 0:
            return [None]
        return [_Comparison(place[0], place[1], limit, rounded or rounded_too)]

    def count(self, comparison: _Comparison) -> Dim | int:
        """The rounds, of which the first is run: 1 + ceil((limit - first - ahead) / step)."""
        first = self.first(comparison.place)
        assert first is not None
        return 1 - (first + comparison.ahead - comparison.limit) // self.steps[comparison.place]

    def first(self, place: int) -> Dim | int | None:
        """A body's input in the first round."""
        return 0 if place == 0 else _whole(self.inputs[place])

    def place(self, name: str) -> tuple[Place | None, bool]:
        """The input that a value is, but for a number that is added; and whether it has been a float on the way."""
        name, node, rounded = self._source(name)
        if name in self.places and self.places[name] != 1:
            return (self.places[name], 0), rounded
        if node is None or node.op_type not in ("Add", "Sub"):
            return None, rounded
        pairs = [tuple(node.input)] + ([tuple(reversed(node.input))] if node.op_type == "Add" else [])
        for one, other in pairs:
            more, _ = self._number(other)
            if isinstance(more, int):
                found, rounded_too = self.place(one)
                sign = 1 if node.op_type == "Add" else -1
                return found and (found[0], found[1] + sign * more), rounded or rounded_too
        return None, rounded

    def _truth(self, name: str) -> tuple[str, onnx.NodeProto | None]:
        """Where a condition comes from, through what keeps whether it is zero."""
        while True:
            name, node, _ = self._source(name)
            if node is None:
                return name, node
            if node.op_type == "Cast" and _kind(node) == onnx.TensorProto.BOOL:
                name = node.input[0]
                continue
            zeros = [i for i in (0, 1) if self._number(node.input[i])[0] == 0] if node.op_type == "Add" else []
            if not zeros:
                return name, node
            name = node.input[1 - zeros[0]]

    def _number(self, name: str) -> tuple[Dim | int | None, bool]:
        """A number that is the same in all rounds, and whether it has been a float on the way."""
        name, node, rounded = self._source(name)
        if node is not None and node.op_type in ("Add", "Sub"):
            (a, one), (b, other) = (self._number(operand) for operand in node.input)
            if a is None or b is None:
                return None, rounded
            return a + b if node.op_type == "Add" else a - b, rounded or one or other
        if name in self.constants:
            return _whole(OnnxValue.of_array(self.constants[name])), rounded
        if node is not None:
            values = [a.t for a in node.attribute if a.name == "value"] if node.op_type == "Constant" else []
            return _whole(OnnxValue.of_array(numpy_helper.to_array(values[0]))) if values else None, rounded
        if name in self.places:
            place = self.places[name]
            return (_whole(self.inputs[place]) if place in self.still else None), rounded
        return _whole(self.scope.get(name)), rounded

    def _source(self, name: str) -> tuple[str, onnx.NodeProto | None, bool]:
        """Where a value comes from, through what keeps its number, and whether it has been a float on the way."""
        rounded = False
        while (node := self.made.get(name)) is not None:
            kind = _kind(node) if node.op_type == "Cast" else None
            if node.op_type in _SHAPED or kind in (*_EXACT_KINDS, onnx.TensorProto.FLOAT):
                name, rounded = node.input[0], rounded or kind == onnx.TensorProto.FLOAT
            else:
                break
        return name, node, rounded


def _kind(node: onnx.NodeProto) -> int | None:
    """The type that a Cast gives."""
    return next((a.i for a in node.attribute if a.name == "to"), None)


def _whole(value: Slot) -> Dim | int | None:
    """The whole number, of open dimensions perhaps, that a tensor of one element is known to be."""
    if not isinstance(value, OnnxValue) or value.contents is None or prod(value.contents.shape) != 1:
        return None
    number = value.contents.reshape(-1)[0]
    if value.dtype in ("float32", "float64") and not isinstance(number, Dim):
        return int(number) if abs(number) < EXACT and number == int(number) else None
    if value.dtype not in ("int32", "int64"):
        return None
    return number if isinstance(number, Dim) else int(number)
