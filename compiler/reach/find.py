"""The reach of every output, found by asking what rows in the middle of a very large image need, and those at its ends.

For an axis of an output, rows o and o + L (all of the other axes) are asked for. Every tensor on the way, too, then has
a box, and the ratio by which it has moved. From these ratios follows the period, after which every tensor has moved by
whole rows; from the boxes of one period, before and after. That it repeats is checked on the next period, that nothing
depends on the size on images of other sizes, and that nothing else happens at the ends on the rows there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ...passes.fuse.graph import ProgramGraph
from ...schedules.operators.regions.box import Box, Span, whole
from ...schedules.operators.regions.elementwise import is_elementwise
from ...schedules.operators.regions.shapes import RULES as VIEWS
from ...schedules.operators.regions.transposed import RULES as TRANSPOSED
from ...schedules.operators.regions.windows import RULES as PLAIN_WINDOWS
from ...schedules.words.dims import Dim
from ...schedules.words.group import Node, Value
from ..frontend.together import holds
from ..spec import Condition, Symbol
from .places import placed
from .sample import Demanded, SampledGraph
from .words import POINTWISE, ROWS, WHOLE, AxisReach, Cut, Reach

_LARGE, _STEP = 1 << 18, 5040  # rows of an image, and what they are multiples of
_STEPS = (20160, 5040, 2520, 840, 384, 192, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)  # between the rows asked
_WINDOW = 12  # rows that are asked for together, among them some of every kind
_LONGEST = 4096  # rows of a period that is looked for
_TABLED = 64  # rows of a period for each of which the manifest has a line
WINDOWS = {*PLAIN_WINDOWS, *TRANSPOSED, "halotile.resample", "halotile.upsample"}  # local, whatever the image
_BORDER = "rows see the border of an image of this size wherever they are; open sizes tell more"
_CARRYING = {*VIEWS, "relax.concat", "relax.split"}
_RESIDUES = 8  # remainders of sizes that are tried


class IrregularRows(Exception):
    """What rows need does not repeat, or is everything; the text says why."""


@dataclass(frozen=True)
class Moving:
    """How every tensor moves with one axis of an output: ``moves`` has its rows a period of ``period`` output rows."""

    period: int
    moves: Mapping[tuple[Value, int], int]


def find_reach(
    graph: ProgramGraph, names: Sequence[Sequence[str]], symbols: Sequence[Symbol], conditions: Sequence[Condition]
) -> tuple[Reach, ...]:
    """The reach of every output. ``names`` are those of the inputs and of the outputs."""
    try:  # regions are arithmetic, which holds beyond the sizes that a build takes
        return _found(graph, names, [replace(s, high=None) for s in symbols], conditions)
    except ValueError:  # but not where a table ends with them
        return _found(graph, names, symbols, conditions)


def _found(
    graph: ProgramGraph, names: Sequence[Sequence[str]], symbols: Sequence[Symbol], conditions: Sequence[Condition]
) -> tuple[Reach, ...]:
    images = SizedGraphs(graph, symbols, conditions)
    if images.first is None:
        return ()
    named = dict(zip(graph.inputs, names[0]))
    return tuple(_Output(graph, value, name, named, images).reach() for value, name in zip(graph.outputs, names[1]))


class SizedGraphs:
    """The graph at its own sizes, or where they are open, at large ones: two to measure at, and others that leave other
    remainders. Sizes that may not go together are left out."""

    def __init__(self, graph: ProgramGraph, symbols: Sequence[Symbol], conditions: Sequence[Condition]) -> None:
        self._graph, self._symbols, self._conditions = graph, symbols, conditions
        self._known: dict[tuple[int, int], SampledGraph | None] = {}
        self.open = bool(symbols)
        self.first, self.second = self._image(2, 0), self._image(3, 0) if symbols else None

    def others(self, multiple: int) -> Iterator[SampledGraph]:
        """Images whose sizes have other remainders of ``multiple``."""
        for extra in range(1, min(multiple, _RESIDUES)) if self.open else ():
            if any(extra * s.multiple % multiple for s in self._symbols):
                image = self._image(2, extra)
                if image is not None:
                    yield image

    def _image(self, factor: int, extra: int) -> SampledGraph | None:
        if (factor, extra) not in self._known:
            sizes = {s.name: _size(s, factor * _LARGE // 2, extra) for s in self._symbols}
            fits = all(holds(c, sizes) for c in self._conditions)
            self._known[factor, extra] = SampledGraph(self._graph, sizes) if fits else None
        return self._known[factor, extra]


def _size(symbol: Symbol, large: int, extra: int) -> int:
    step = math.lcm(symbol.multiple, _STEP)
    most = min(large, symbol.most)
    size = most // step * step or most // symbol.multiple * symbol.multiple
    size += extra * symbol.multiple
    return size if symbol.least <= size <= symbol.most else max(symbol.least, most)


class _Output:
    """What one output reaches."""

    def __init__(
        self, graph: ProgramGraph, value: Value, name: str, inputs: Mapping[Value, str], images: SizedGraphs
    ) -> None:
        assert images.first is not None
        self.graph, self.value, self.name, self.inputs = graph, value, name, inputs
        self.images, self.image = images, images.first
        self.all = self.depends = _dependent(graph, inputs)  # of the axis at hand: on inputs that move with it

    def reach(self) -> Reach:
        every = self.image.demand({self.value: whole(self.image.at(self.value))})
        read = {v: name for v, name in self.inputs.items() if v in every.boxes}
        found = [self._axis(axis, read) for axis in range(len(self.value.shape))]
        per_input = {name: tuple(axes[name] for axes, _ in found) for name in read.values()}
        return Reach(self.name, per_input, tuple(cut for _, cut in found))

    def _axis(self, axis: int, read: Mapping[Value, str]) -> tuple[dict[str, AxisReach], Cut]:
        if self.image.shape(self.value)[axis] == 1 and not isinstance(self.value.shape[axis], Dim):
            return self._single(axis, read)
        try:
            moving = self._moving(self.image, axis)
            reaches = self._measured(self.image, axis, moving, read)
            if isinstance(self.value.shape[axis], Dim) and self.images.second is not None:
                self._same_everywhere(self.images.second, axis, moving, reaches, read)
        except IrregularRows as reason:
            return {name: AxisReach(name, WHOLE, why=str(reason)) for name in read.values()}, Cut(problem=str(reason))
        try:
            return reaches, self._cut(axis, moving, reaches)
        except IrregularRows as reason:
            return reaches, Cut(problem=str(reason))

    def _single(self, axis: int, read: Mapping[Value, str]) -> tuple[dict[str, AxisReach], Cut]:
        """An axis with one row."""
        reaches = {}
        for value, name in read.items():
            alike = axis == 0 or len(value.shape) == len(self.value.shape)
            alike = alike and value.shape[axis : axis + 1] == (1,)
            reaches[name] = AxisReach(name, WHOLE, why=self._one_row(value))
            if alike:
                reaches[name] = AxisReach(name, POINTWISE, axis, Fraction(1), lows=(0,), highs=(1,))
        return reaches, Cut(problem="the axis has one row")

    def _one_row(self, source: Value) -> str:
        """Why the one row there is needs all of an input."""
        found = self._demand(self.image, 0, (0, self.image.shape(self.value)[0]))
        made = [node for node in self.graph.nodes if self.value in node.results]
        widest = self._widest(found, made[0], self.value) if made else None
        if widest is None or _gathered(found, widest, max(widest.inputs, key=lambda v: found.boxes.get(v, ()))) <= 1:
            return "the axis has one row"
        return f"{_place(widest)} needs all of what it reads"

    # ------------------------------------------------------------------ how tensors move

    def _demand(self, image: SampledGraph, axis: int, span: Span, matters: bool = False) -> Demanded:
        box = list(whole(image.at(self.value)))
        box[axis] = span
        return image.demand({self.value: tuple(box)}, matters)

    def _moving(self, image: SampledGraph, axis: int) -> Moving:
        length, reason = image.shape(self.value)[axis], ""
        for step in _STEPS:
            if 2 * step > length and step > 1:
                continue
            window = max(1, min(_WINDOW, length // 16))
            at = (length - step - window) // 2
            rows = [self._demand(image, axis, (o, o + window)) for o in (at, at + step)]
            try:
                shifts = self._shifts(*rows)
            except IrregularRows as found:
                if self.images.open or not (rows[0].near or rows[1].near):
                    raise
                reason = reason or str(found)  # which the border of a small image may be
                continue
            if any((v, a) in d.beyond for d in rows for v, a in shifts):
                continue  # too near to the border of a small image
            period = math.lcm(*(Fraction(shift, step).denominator for shift in shifts.values()))
            if period > min(_LONGEST, length // 2):
                continue
            moving = Moving(period, {at: shift * period // step for at, shift in shifts.items()})
            if self._repeats(image, axis, moving):
                return moving
        raise IrregularRows(reason or f"windows of all {length} rows meet the border, or what rows need never repeats")

    def _shifts(self, low: Demanded, high: Demanded) -> dict[tuple[Value, int], int]:
        """By how much the boxes of tensors that depend on an input have moved; Irregular where one has not."""
        shifts: dict[tuple[Value, int], int] = {}
        moves = {v: _moved(box, high.boxes.get(v)) for v, box in low.boxes.items() if v in self.all}
        followed = {v for v, moved in moves.items() if v in self.inputs and (moved is None or any(moved))}
        self.depends = _dependent(self.graph, followed)
        for value in self.depends & moves.keys():
            moved = moves[value]
            if moved is None or not any(moved):
                raise IrregularRows(self._culprit(low, high))
            shifts |= {(value, a): shift for a, shift in enumerate(moved) if shift}
        if not shifts:
            raise IrregularRows(self._culprit(low, high))
        return shifts

    def _culprit(self, low: Demanded, high: Demanded) -> str:
        """The node that makes an axis global: where what moves first needs what does not, and from there up, the node
        that needs most for what it gives."""
        image = self.image
        for node in reversed(self.graph.nodes):
            if node not in low.needs or node not in high.needs:
                continue
            output, needs = low.needs[node]
            moved = _moved(low.boxes[output], high.boxes.get(output))
            if moved is None or not any(moved):
                continue
            others = {image.back(n.value): n.box for n in high.needs[node][1]}
            for one in needs:
                value = image.back(one.value)
                shift = _moved(one.box, others.get(value))
                if value in self.all and (shift is None or not any(shift)):
                    if node.operator in WINDOWS and any(moved[2:]):
                        return _BORDER
                    carries = is_elementwise(node) or node.operator in _CARRYING
                    widest = self._widest(low, node, value) if carries else node
                    return f"{_place(widest)} needs all of what it reads"
        clipped = not self.images.open and bool(low.beyond)
        return _BORDER if clipped else "its rows do not follow those of the input in one direction"

    def _widest(self, found: Demanded, first: Node, value: Value) -> Node:
        """Of ``first`` and the nodes that make ``value``, the one that reads most elements for each that it gives."""
        makers = {result: node for node in self.graph.nodes for result in node.results}
        best, most, seen, ways = first, _gathered(found, first, value), {value}, [value]
        while ways:
            node = makers.get(ways.pop())
            for one in found.needs[node][1] if node in found.needs else ():
                source = self.image.back(one.value)
                if node is None or source not in self.all or source in seen:
                    continue
                seen.add(source)
                ways.append(source)
                gathered = _gathered(found, node, source)
                if gathered > 2 * most and node.operator not in WINDOWS:
                    best, most = node, gathered
        return best

    def _repeats(self, image: SampledGraph, axis: int, moving: Moving) -> bool:
        """Whether the boxes of one period, and of the next, have moved as it says."""
        q, length = moving.period, image.shape(self.value)[axis]
        k = max(0, length // 2 // q - 1)
        if (k + 2) * q > length:
            return False
        first, second = (self._demand(image, axis, (i * q, (i + 1) * q)) for i in (k, k + 1))
        for value, box in first.boxes.items():
            if value in self.depends:
                moved = _moved(box, second.boxes.get(value))
                if moved is None or any(moving.moves.get((value, a), 0) != shift for a, shift in enumerate(moved)):
                    return False
        return True

    # ------------------------------------------------------------------ numbers

    def _measured(
        self, image: SampledGraph, axis: int, moving: Moving, read: Mapping[Value, str]
    ) -> dict[str, AxisReach]:
        """The numbers for every input."""
        q = moving.period
        k = max(0, image.shape(self.value)[axis] // 2 // q - 1)
        block = self._demand(image, axis, (k * q, (k + 1) * q), True)
        rows = [self._demand(image, axis, (k * q + r, k * q + r + 1), True) for r in range(q if q <= _TABLED else 0)]
        found = {}
        for value, name in read.items():
            axes = [a for (v, a) in moving.moves if v is value]
            if len(axes) != 1:
                why = "it follows two axes of the input" if axes else "all of this input is needed everywhere"
                found[name] = AxisReach(name, WHOLE, why=why)
                continue
            a, p = axes[0], moving.moves[value, axes[0]]
            lo, hi = block.boxes[value][a] if value in block.boxes else (k * p, k * p)
            spans = [r.boxes[value][a] if value in r.boxes else (k * p, k * p) for r in rows]
            reach = AxisReach(
                name, ROWS, a, Fraction(p, q), k * p - lo, hi - (k + 1) * p, p, q,
                tuple(s[0] - k * p for s in spans), tuple(s[1] - k * p for s in spans),
            )  # fmt: skip
            plain = (p, q, reach.before, reach.after) == (1, 1, 0, 0)
            found[name] = AxisReach(name, POINTWISE, a, Fraction(1), lows=(0,), highs=(1,)) if plain else reach
        return found

    def _cut(self, axis: int, moving: Moving, reaches: Mapping[str, AxisReach]) -> Cut:
        """How crops compute this axis; Irregular where they can't."""
        for value, name in self.inputs.items():
            if name in reaches and reaches[name].kind == WHOLE and any(v is value for v, _ in moving.moves):
                raise IrregularRows(reaches[name].why)
        images = [self.image]
        if isinstance(self.value.shape[axis], Dim):
            images += self.images.others(max(moving.period, *moving.moves.values()))
        ends = [self._ends(image, axis, moving) for image in images]
        second = self.images.second
        if second is not None and isinstance(self.value.shape[axis], Dim):
            if self._ends(second, axis, moving) != ends[0]:
                raise IrregularRows("rows at one end of the image need rows at the other")
            images.append(second)
        q = moving.period
        k = max(0, self.image.shape(self.value)[axis] // 2 // q - 1)
        low, high = (self._demand(self.image, axis, (i * q, (i + 1) * q)) for i in (k, k + 1))
        found = placed(images, low, high, moving.moves, self.depends)
        if found is not None:
            raise IrregularRows(f"{_place(found[0])} {found[1]}")
        return Cut(max(e[0] for e in ends), max(e[1] for e in ends), q)

    def _ends(self, image: SampledGraph, axis: int, moving: Moving) -> tuple[int, int]:
        """``front`` and ``back`` of a cut, at one size."""
        q, length = moving.period, image.shape(self.value)[axis]
        blocks = -(-length // q)
        middle = max(0, length // 2 // q - 1)
        front, back = self._room(image, axis, moving, middle)
        near = min(blocks, front + back + 3, 12)
        for k in range(near):  # seen from the other end
            front = max(front, self._room(image, axis, moving, blocks - 1 - k)[0])
            back = max(back, self._room(image, axis, moving, k)[1])
        return front, back

    def _room(self, image: SampledGraph, axis: int, moving: Moving, k: int) -> tuple[int, int]:
        """Periods that a crop needs before and after block ``k``, so that every tensor has the rows that are read."""
        q, length = moving.period, image.shape(self.value)[axis]
        end = min(length, (k + 1) * q)
        found = self._demand(image, axis, (k * q, end))
        behind = (length - end) // q
        front = back = 0
        for value, box in found.boxes.items():
            shape = image.shape(value)
            for a, (lo, hi) in enumerate(box):
                p = moving.moves.get((value, a), 0)
                if p:
                    front = max(front, k - lo // p)
                    back = max(back, behind - (shape[a] - hi) // p)
        return front, back

    def _same_everywhere(
        self,
        second: SampledGraph,
        axis: int,
        moving: Moving,
        reaches: Mapping[str, AxisReach],
        read: Mapping[Value, str],
    ) -> None:
        """Raises Irregular where steps, or rows beside, depend on the size."""
        other = self._moving(second, axis)
        if (other.period, other.moves) != (moving.period, moving.moves):
            raise IrregularRows("how rows of the output follow those of the input depends on the size")
        periods = Fraction(second.shape(self.value)[axis] - self.image.shape(self.value)[axis], moving.period)
        for (value, a), rows in moving.moves.items():
            if second.shape(value)[a] - self.image.shape(value)[a] != periods * rows:
                raise IrregularRows(f"the rows of {self._maker(value)} do not grow with those of the output")
        if self._measured(second, axis, moving, read) != reaches:
            raise IrregularRows("how many rows of the input are needed depends on the size")

    def _maker(self, value: Value) -> str:
        """What makes a value, in words."""
        return next((_place(node) for node in self.graph.nodes if value in node.results), f"input {value.name!r}")


def _dependent(graph: ProgramGraph, inputs: Iterable[Value]) -> frozenset[Value]:
    """The values that follow from ``inputs``."""
    found = set(inputs)
    for node in graph.nodes:
        if any(v in found for v in node.inputs):
            found |= set(node.results)
    return frozenset(found)


def _moved(box: Box, other: Box | None) -> tuple[int, ...] | None:
    """By how much a box has moved; None where it has become another one, or moved backwards."""
    if other is None or any(b - a != d - c or c < a for (a, b), (c, d) in zip(box, other)):
        return None
    return tuple(c - a for (a, _), (c, _) in zip(box, other))


def _gathered(found: Demanded, node: Node, source: Value) -> Fraction:
    """Elements of ``source`` that a node reads for each of its own."""
    made = math.prod(hi - lo for lo, hi in found.boxes[found.needs[node][0]])
    read = math.prod(hi - lo for lo, hi in found.boxes.get(source, ((0, 0),)))
    return Fraction(read, max(1, made))


def _place(node: Node) -> str:
    return f"node {node.place!r} ({node.operator.rsplit('.', 1)[-1]})"
